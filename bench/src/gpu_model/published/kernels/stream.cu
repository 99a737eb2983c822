// Streams of f64, one element a thread, after the formulas of gpu-benches, gpu-stream: how fast
// they are depends on how many threads are resident, which the launch decides by shared memory.

#define PARAMETERS \
    double *a, const double *__restrict__ b, const double *__restrict__ c, int n

extern "C" __global__ void stream_read(PARAMETERS)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double v = b[i];
    // Never with the data that are there.
    if (v == 123.0)
        a[i] = v;
}

extern "C" __global__ void stream_scale(PARAMETERS)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] = b[i] * 1.2;
}

extern "C" __global__ void stream_triad(PARAMETERS)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] = b[i] * 1.2 + c[i];
}

extern "C" __global__ void stream_five_points(PARAMETERS)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 2 && i < n - 2)
        a[i] = 0.25 * b[i - 2] + 0.25 * b[i - 1] - b[i] + 0.5 * b[i + 1] + 0.5 * b[i + 2];
}
