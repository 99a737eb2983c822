// Sums of integers, after the steps of "Making vector sum really fast" (S. Veitner) and Mark
// Harris' "Optimizing Parallel Reduction in CUDA".

const int THREADS = 512;

// Halves the number of values until one is left; a barrier after each half.
extern "C" __global__ void sum_two_passes(const int *in, int *out, long long n)
{
    __shared__ int part[THREADS];
    int t = threadIdx.x;
    int total = 0;
    for (int i = blockIdx.x * THREADS + t; i < n; i += THREADS * gridDim.x)
        total += in[i];
    part[t] = total;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

// The last 64 values need one warp only; then one addition to global memory.
static __device__ void finish(int total, int *out)
{
    __shared__ int part[THREADS];
    int t = threadIdx.x;
    part[t] = total;
    __syncthreads();
#pragma unroll
    for (int half = THREADS / 2; half > 32; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    volatile int *seen = part;
#pragma unroll
    for (int half = 32; half > 0; half /= 2) {
        if (t < half)
            seen[t] += seen[t + half];
        __syncwarp();
    }
    if (t == 0)
        atomicAdd(out, seen[0]);
}

extern "C" __global__ void sum_one_element(const int *in, int *out, long long n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    finish(i < n ? in[i] : 0, out);
}

// Twelve neighbours for each thread.
extern "C" __global__ void sum_batches(const int *in, int *out, long long n)
{
    const int BATCH = 12;
    int i = blockIdx.x * THREADS + threadIdx.x;
    int total = 0;
#pragma unroll
    for (int j = 0; j < BATCH; j++)
        if (i * BATCH + j < n)
            total += in[i * BATCH + j];
    finish(total, out);
}
