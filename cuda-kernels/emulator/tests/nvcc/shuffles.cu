// Exercises: every kind of shuffle, widths 32, 16, 8 and 4, sources out of range, 64-bit and half values, sub-warp masks.

#include <cuda_fp16.h>

extern "C" __global__ void kinds(const int *x, int *out)
{
    int lane = threadIdx.x, v = x[lane];
    const unsigned all = 0xffffffffu;
    out[0 * 32 + lane] = __shfl_sync(all, v, (lane * 7 + 3) & 31);
    out[1 * 32 + lane] = __shfl_sync(all, v, lane + 5, 8);
    out[2 * 32 + lane] = __shfl_up_sync(all, v, 3);
    out[3 * 32 + lane] = __shfl_up_sync(all, v, 3, 16);
    out[4 * 32 + lane] = __shfl_down_sync(all, v, 5);
    out[5 * 32 + lane] = __shfl_down_sync(all, v, 2, 4);
    out[6 * 32 + lane] = __shfl_xor_sync(all, v, 21);
    out[7 * 32 + lane] = __shfl_xor_sync(all, v, 5, 8);
    if (lane < 16)
        out[8 * 32 + lane] = __shfl_xor_sync(0x0000ffffu, v, 9);
    else
        out[8 * 32 + lane] = __shfl_sync(0xffff0000u, v, 31 - lane + 16);
}

extern "C" __global__ void wide(const long long *x, const __half2 *h, long long *out, __half2 *halves)
{
    int lane = threadIdx.x;
    out[lane] = __shfl_down_sync(0xffffffffu, x[lane], 9);
    halves[lane] = __shfl_up_sync(0xffffffffu, h[lane], 1);
}
