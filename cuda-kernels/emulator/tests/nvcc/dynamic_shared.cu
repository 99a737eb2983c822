// Exercises: dynamic shared memory carved into arrays of several types beside a static one; more than the sum of the static.

extern "C" __global__ void reverse(const double *x, const short *y, double *out, int *sums, int n)
{
    extern __shared__ __align__(16) unsigned char pool[];
    __shared__ int fixed[32];
    double *wide = (double *)pool;
    short *narrow = (short *)(pool + n * sizeof(double));
    int t = threadIdx.x;
    for (int i = t; i < n; i += blockDim.x) {
        wide[i] = x[i];
        narrow[i] = y[i];
    }
    if (t < 32)
        fixed[t] = t * t;
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x) {
        out[i] = wide[n - 1 - i];
        sums[i] = narrow[n - 1 - i] + fixed[i % 32];
    }
}
