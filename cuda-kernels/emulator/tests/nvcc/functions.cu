// Exercises: device functions that are calls: scalars, 64-bit values, structures returned and passed, pointers to locals and shared, calls in divergent code.

struct Complex {
    double re, im;
};

__device__ __noinline__ Complex times(Complex a, Complex b)
{
    return {__dsub_rn(__dmul_rn(a.re, b.re), __dmul_rn(a.im, b.im)), __dadd_rn(__dmul_rn(a.re, b.im), __dmul_rn(a.im, b.re))};
}

__device__ __noinline__ unsigned gcd(unsigned a, unsigned b)
{
    while (b) {
        unsigned t = a % b;
        a = b;
        b = t;
    }
    return a;
}

__device__ __noinline__ void exchange(int *a, int *b)
{
    int t = *a;
    *a = *b;
    *b = t;
}

__device__ __noinline__ short narrow(signed char a, unsigned short b, bool negate) { return negate ? -(a + b) : a + b; }

extern "C" __global__ void calls(const Complex *z, Complex *powers, unsigned *gcds, int *order, short *narrowed)
{
    __shared__ int shared[64];
    int i = threadIdx.x;
    Complex p = {1, 0};
    for (int k = 0; k < i % 5; k++)
        p = times(p, z[i]);
    powers[i] = p;
    gcds[i] = i & 1 ? gcd(i * 36, 120) : gcd(i * 77 + 11, 1001);
    int a = i, b = 100 - i;
    if (a > b)
        exchange(&a, &b);
    order[i] = a * 1000 + b;
    shared[i] = i;
    __syncthreads();
    if (i % 2 == 0)
        exchange(&shared[i], &shared[i + 1]);
    __syncthreads();
    order[64 + i] = shared[i];
    narrowed[i] = narrow((signed char)(i - 40), (unsigned short)(i * 3), i % 3 == 0);
}
