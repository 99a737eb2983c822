// Kernels of one block for each row or segment: RMS norms after "effective_rms_norm" and inclusive
// scans after "Making prefix sum really fast" (both S. Veitner).

const int WIDTH = 4096, THREADS = 512;

// The row is read twice; the sum of squares is a tree in shared memory.
extern "C" __global__ void rms_tree(const float *x, const float *w, float eps, float *y)
{
    __shared__ float part[THREADS];
    __shared__ float scale;
    int t = threadIdx.x;
    long long row = (long long)blockIdx.x * WIDTH;
    float total = 0;
    for (int i = t; i < WIDTH; i += THREADS)
        total += x[row + i] * x[row + i];
    part[t] = total;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0)
        scale = rsqrtf(part[0] / WIDTH + eps);
    __syncthreads();
    for (int i = t; i < WIDTH; i += THREADS)
        y[row + i] = x[row + i] * scale * w[i];
}

static __device__ float warp_sum(float v)
{
    for (int half = 16; half > 0; half /= 2)
        v += __shfl_down_sync(~0u, v, half);
    return v;
}

// The row is kept in shared memory, accesses have 16 bytes, the sum is one of shuffles.
extern "C" __global__ void rms_shuffles(const float4 *x, const float4 *w, float eps, float4 *y)
{
    __shared__ float4 kept[WIDTH / 4];
    __shared__ float part[32];
    __shared__ float scale;
    int t = threadIdx.x;
    long long row = (long long)blockIdx.x * (WIDTH / 4);
    float total = 0;
    for (int i = t; i < WIDTH / 4; i += THREADS) {
        float4 v = x[row + i];
        kept[i] = v;
        total += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    total = warp_sum(total);
    if (t % 32 == 0)
        part[t / 32] = total;
    __syncthreads();
    if (t < 32) {
        total = warp_sum(t < THREADS / 32 ? part[t] : 0);
        if (t == 0)
            scale = rsqrtf(total / WIDTH + eps);
    }
    __syncthreads();
    for (int i = t; i < WIDTH / 4; i += THREADS) {
        float4 v = kept[i], f = w[i];
        y[row + i] = make_float4(v.x * scale * f.x, v.y * scale * f.y, v.z * scale * f.z,
                                 v.w * scale * f.w);
    }
}

// Each step adds the value `offset` places before: in global memory.
extern "C" __global__ void scan_global(const int *in, int *out)
{
    int t = threadIdx.x, at = blockIdx.x * THREADS + t;
    out[at] = in[at];
    __syncthreads();
#pragma unroll
    for (int offset = 1; offset <= THREADS / 2; offset *= 2) {
        int before = 0;
        if (t >= offset)
            before = out[at - offset];
        __syncthreads();
        if (t >= offset)
            out[at] += before;
        __syncthreads();
    }
}

// The same in shared memory.
extern "C" __global__ void scan_shared(const int *in, int *out)
{
    __shared__ int kept[THREADS];
    int t = threadIdx.x, at = blockIdx.x * THREADS + t;
    kept[t] = in[at];
    __syncthreads();
#pragma unroll
    for (int offset = 1; offset <= THREADS / 2; offset *= 2) {
        int before = 0;
        if (t >= offset)
            before = kept[t - offset];
        __syncthreads();
        if (t >= offset)
            kept[t] += before;
        __syncthreads();
    }
    out[at] = kept[t];
}
