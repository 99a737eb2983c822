// Exercises: 64-bit products, high halves, quotients and remainders, signed and not; shifts by variables; carries; comparisons.

extern "C" __global__ void arithmetic(const long long *a, const long long *b, long long *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    long long x = a[i], y = b[i];
    unsigned long long ux = x, uy = y;
    out[0 * n + i] = x * y;
    out[1 * n + i] = __mul64hi(x, y);
    out[2 * n + i] = __umul64hi(ux, uy);
    out[3 * n + i] = x / y;
    out[4 * n + i] = x % y;
    out[5 * n + i] = ux / uy;
    out[6 * n + i] = ux % uy;
    out[7 * n + i] = x >> (y & 63);
    out[8 * n + i] = ux >> (y & 63);
    out[9 * n + i] = x << (y & 63);
    out[10 * n + i] = (x < y) | (ux < uy) << 1 | (x == y) << 2;
    out[11 * n + i] = __popcll(x) * 1000 + __clzll(x) * 10;
    out[12 * n + i] = (long long)__brevll(x);
    out[13 * n + i] = (long long)(int)x * (int)y + x;
    out[14 * n + i] = (unsigned long long)(unsigned)x * (unsigned)y;
    out[15 * n + i] = min(x, y) ^ max(ux, uy);
}
