// Exercises: tree reductions in static shared memory with a barrier a step; sum, minimum, maximum and product of a block; partial last block.

extern "C" __global__ void sum(const float *x, float *out, int n)
{
    __shared__ float part[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

struct Extremes {
    int least, greatest;
    unsigned product;
};

extern "C" __global__ void extremes(const int *x, Extremes *out, int n)
{
    __shared__ Extremes part[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = x[i < n ? i : 0];
    part[threadIdx.x] = {v, v, i < n ? (unsigned)v : 1u};
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) {
            Extremes a = part[threadIdx.x], b = part[threadIdx.x + half];
            part[threadIdx.x] = {min(a.least, b.least), max(a.greatest, b.greatest), a.product * b.product};
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}
