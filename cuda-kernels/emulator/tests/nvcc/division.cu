// Exercises: quotients and remainders by variables and by constants, 32, 16 and 8 bits, signed and not.

extern "C" __global__ void divide(const int *a, const int *b, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int x = a[i], y = b[i];
    out[0 * n + i] = x / y;
    out[1 * n + i] = x % y;
    out[2 * n + i] = (unsigned)x / (unsigned)y;
    out[3 * n + i] = (unsigned)x % (unsigned)y;
    out[4 * n + i] = x / 7;
    out[5 * n + i] = x % 1000003;
    out[6 * n + i] = (unsigned)x / 10u;
    out[7 * n + i] = x / 8;
    short sx = x, sy = y | 1;
    out[8 * n + i] = sx / sy;
    out[9 * n + i] = sx % sy;
    signed char cx = x, cy = y | 1;
    out[10 * n + i] = cx / cy;
    unsigned char ux = x, uy = y | 1;
    out[11 * n + i] = ux % uy;
}
