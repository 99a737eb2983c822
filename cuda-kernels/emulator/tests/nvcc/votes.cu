// Exercises: vote all, any, ballot; activemask in a branch; match any and all; redux; lane masks; a warp-aggregated counter.

extern "C" __global__ void votes(const int *x, unsigned *out)
{
    int lane = threadIdx.x & 31, at = threadIdx.x, n = blockDim.x, v = x[threadIdx.x];
    const unsigned all = 0xffffffffu;
    out[0 * n + at] = __all_sync(all, v > -100);
    out[1 * n + at] = __any_sync(all, v == 7);
    out[2 * n + at] = __ballot_sync(all, v & 1);
    out[3 * n + at] = __match_any_sync(all, v);
    int same;
    out[4 * n + at] = __match_all_sync(all, v / 64, &same);
    out[5 * n + at] = same;
    out[6 * n + at] = __reduce_add_sync(all, v);
    out[7 * n + at] = __reduce_max_sync(all, v);
    out[8 * n + at] = __reduce_xor_sync(all, (unsigned)v);
    unsigned below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    out[9 * n + at] = __popc(__ballot_sync(all, v > 0) & below);
    if (v & 2)
        out[10 * n + at] = __reduce_min_sync(__activemask(), (unsigned)lane);
    else
        out[10 * n + at] = ~0u;
}

extern "C" __global__ void compact(const int *x, int *out, int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    bool keep = i < n && x[i] % 3 == 0;
    unsigned kept = __ballot_sync(0xffffffffu, keep);
    int base = 0;
    if (lane == 0)
        base = atomicAdd(count, __popc(kept));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (keep)
        out[base + __popc(kept & ((1u << lane) - 1))] = x[i];
}
