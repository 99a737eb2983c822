// Exercises: bf16 arithmetic scalar and packed (fma.rn.bf16, bf16x2), conversions f32 to bf16 singly and in pairs.

#include <cuda_bf16.h>

extern "C" __global__ void scalar(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const __nv_bfloat16 *c, __nv_bfloat16 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __nv_bfloat16 x = a[i], y = b[i], z = c[i];
    out[0 * n + i] = __hadd_rn(x, y);
    out[1 * n + i] = __hsub_rn(x, y);
    out[2 * n + i] = __hmul_rn(x, y);
    out[3 * n + i] = __hfma(x, y, z);
    out[4 * n + i] = __hmin(x, y);
    out[5 * n + i] = __hmax(x, y);
}

extern "C" __global__ void packed(const float2 *x, const __nv_bfloat162 *y, __nv_bfloat162 *out, float2 *wide, int n)
{
    int i = threadIdx.x;
    if (i >= n)
        return;
    __nv_bfloat162 pair = __float22bfloat162_rn(x[i]);
    wide[i] = __bfloat1622float2(pair);
    out[i] = __hfma2(pair, y[i], __float2bfloat162_rn(0.5f));
}
