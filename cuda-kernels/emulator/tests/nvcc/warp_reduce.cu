// Exercises: reductions by shuffles, down and butterfly, within warps and within segments of a warp; then over warps through shared memory.

__device__ __forceinline__ float over_warp(float v)
{
    for (int step = 16; step > 0; step /= 2)
        v += __shfl_down_sync(0xffffffffu, v, step);
    return v;
}

extern "C" __global__ void block_sums(const float *x, float *out)
{
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v = over_warp(x[blockIdx.x * blockDim.x + threadIdx.x]);
    if (lane == 0)
        part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = over_warp(lane < blockDim.x / 32 ? part[lane] : 0.0f);
        if (lane == 0)
            out[blockIdx.x] = v;
    }
}

extern "C" __global__ void segment_maxima(const double *x, double *out)
{
    double v = x[threadIdx.x];
    for (int step = 4; step > 0; step /= 2)
        v = fmax(v, __shfl_xor_sync(0xffffffffu, v, step, 8));
    out[threadIdx.x] = v;
}
