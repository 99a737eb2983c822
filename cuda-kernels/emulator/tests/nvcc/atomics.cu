// Exercises: every atomic operation, on global and shared memory, with and without result; compare-and-swap loops; a lock of one thread a block.

extern "C" __global__ void all_kinds(const int *x, int *cells, unsigned *wrap, unsigned long long *wide, float *f, double *d)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
    atomicAdd(&cells[0], v);
    atomicSub(&cells[1], v);
    atomicMin(&cells[2], v);
    atomicMax(&cells[3], v);
    atomicAnd(&cells[4], v | 0xff);
    atomicOr(&cells[5], v & 0xf0f0);
    atomicXor(&cells[6], v);
    atomicInc(&wrap[0], 9u);
    atomicDec(&wrap[1], 6u);
    atomicAdd(&wide[0], (unsigned long long)(long long)v);
    atomicMax(&wide[1], (unsigned long long)(v & 0xffff) << 20);
    atomicAdd(f, (float)(v & 7));
    atomicAdd(d, (double)v);
}

__device__ float atomic_max(float *p, float v)
{
    int old = *(volatile int *)p, seen;
    do {
        seen = old;
        if (__int_as_float(seen) >= v)
            break;
        old = atomicCAS((int *)p, seen, __float_as_int(v));
    } while (old != seen);
    return __int_as_float(old);
}

extern "C" __global__ void greatest(const float *x, float *out, int n)
{
    __shared__ float best;
    if (threadIdx.x == 0)
        best = -1e30f;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomic_max(&best, x[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        atomic_max(out, best);
}

extern "C" __global__ void tickets(int *ticket, int *taken)
{
    __shared__ int first;
    if (threadIdx.x == 0)
        first = atomicAdd(ticket, (int)blockDim.x);
    __syncthreads();
    taken[first + threadIdx.x] = atomicExch(&taken[first + threadIdx.x], 1) + 5;
}

extern "C" __global__ void locked(int *lock, int *account)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0)
            ;
        __threadfence();
        volatile int *a = account;
        *a = *a * 3 % 1000003 + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}
