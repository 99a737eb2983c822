// Exercises: atomics without a result (red) on shared and global memory, bytes packed in words, a grid-stride loop.

extern "C" __global__ void by_block(const unsigned *words, unsigned *counts, int n)
{
    __shared__ unsigned mine[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        mine[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned w = words[i];
        atomicAdd(&mine[w & 255], 1u);
        atomicAdd(&mine[(w >> 8) & 255], 1u);
        atomicAdd(&mine[(w >> 16) & 255], 1u);
        atomicAdd(&mine[w >> 24], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        if (mine[b])
            atomicAdd(&counts[b], mine[b]);
}

extern "C" __global__ void straight(const unsigned char *x, unsigned long long *counts, int *ranks, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned long long before = atomicAdd(&counts[x[i] % 16], 1ull);
        ranks[i] = (int)before;
    }
}
