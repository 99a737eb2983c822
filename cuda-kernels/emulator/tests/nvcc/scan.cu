// Exercises: prefix sums; inclusive by shuffles with predicates, exclusive by the work-efficient tree in dynamic shared memory.

extern "C" __global__ void inclusive(const int *x, int *out, int *totals)
{
    __shared__ int warps[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int v = x[i];
    for (int step = 1; step < 32; step *= 2) {
        int below = __shfl_up_sync(0xffffffffu, v, step);
        if (lane >= step)
            v += below;
    }
    if (lane == 31)
        warps[warp] = v;
    __syncthreads();
    if (warp == 0 && lane < 8) {
        int w = warps[lane];
        for (int step = 1; step < 8; step *= 2) {
            int below = __shfl_up_sync(0xffu, w, step, 8);
            if (lane >= step)
                w += below;
        }
        warps[lane] = w;
    }
    __syncthreads();
    if (warp > 0)
        v += warps[warp - 1];
    out[i] = v;
    if (threadIdx.x == blockDim.x - 1)
        totals[blockIdx.x] = v;
}

extern "C" __global__ void exclusive(const unsigned *x, unsigned *out, int n)
{
    extern __shared__ unsigned tree[];
    int t = threadIdx.x, offset = 1;
    tree[2 * t] = x[2 * t];
    tree[2 * t + 1] = x[2 * t + 1];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d)
            tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0)
        tree[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1;
            unsigned left = tree[a];
            tree[a] = tree[b];
            tree[b] += left;
        }
    }
    __syncthreads();
    out[2 * t] = tree[2 * t];
    out[2 * t + 1] = tree[2 * t + 1];
}
