// Exercises: loops whose trips differ by thread, break, continue, early return, nested loops and branches that meet again.

extern "C" __global__ void collatz(const unsigned *x, int *steps, unsigned *peaks, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = x[i], peak = v;
    int count = 0;
    while (v != 1) {
        if (v & 1)
            v = 3 * v + 1;
        else
            v /= 2;
        peak = max(peak, v);
        if (++count == 200)
            break;
    }
    steps[i] = count;
    peaks[i] = peak;
}

extern "C" __global__ void primes(int *out, int n)
{
    int i = threadIdx.x, found = 0, sum = 0;
    if (i % 5 == 4) {
        out[i] = -1;
        return;
    }
    for (int p = 2; found < n; p++) {
        if (p % 5 == i % 5)
            continue;
        bool prime = true;
        for (int d = 2; d * d <= p; d++)
            if (p % d == 0) {
                prime = false;
                break;
            }
        if (!prime)
            continue;
        found++;
        sum += p;
        if (sum > 40 * i + 100)
            break;
    }
    out[i] = sum;
}

extern "C" __global__ void mandelbrot(int *out, int width, int height, int limit)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float cx = __fsub_rn(__fmul_rn((float)x, 3.0f / 32), 2.0f), cy = __fsub_rn(__fmul_rn((float)y, 2.0f / 16), 1.0f);
    float zx = 0, zy = 0;
    int it = 0;
    for (; it < limit; it++) {
        float xx = __fmul_rn(zx, zx), yy = __fmul_rn(zy, zy);
        if (__fadd_rn(xx, yy) > 4.0f)
            break;
        zy = __fmaf_rn(__fmul_rn(2.0f, zx), zy, cy);
        zx = __fadd_rn(__fsub_rn(xx, yy), cx);
    }
    out[y * width + x] = it;
}
