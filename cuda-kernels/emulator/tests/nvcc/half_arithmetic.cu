// Exercises: f16 arithmetic scalar and packed, comparisons, minima and maxima, conversions in every rounding; halves in vectors.

#include <cuda_fp16.h>

extern "C" __global__ void scalar(const __half *a, const __half *b, const __half *c, __half *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __half x = a[i], y = b[i], z = c[i];
    out[0 * n + i] = __hadd_rn(x, y);
    out[1 * n + i] = __hsub_rn(x, y);
    out[2 * n + i] = __hmul_rn(x, y);
    out[3 * n + i] = __hfma(x, y, z);
    out[4 * n + i] = __hneg(x);
    out[5 * n + i] = __habs(x);
    out[6 * n + i] = __hmin(x, y);
    out[7 * n + i] = __hmax(x, y);
    out[8 * n + i] = __hlt(x, y) ? __float2half(1.0f) : __float2half(0.0f);
    out[9 * n + i] = __hfma_relu(x, y, z);
    out[10 * n + i] = __hadd_sat(x, y);
}

extern "C" __global__ void packed(const __half2 *a, const __half2 *b, __half2 *out, unsigned *compared, int n)
{
    int i = threadIdx.x;
    if (i >= n)
        return;
    __half2 x = a[i], y = b[i];
    out[i] = __hadd2_rn(__hmul2_rn(x, y), __lowhigh2highlow(y));
    compared[i] = __hgt2_mask(x, y);
}

extern "C" __global__ void conversions(const float *x, unsigned short *out, float *back, int *whole, int n)
{
    int i = threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    out[0 * n + i] = __half_as_ushort(__float2half_rn(v));
    out[1 * n + i] = __half_as_ushort(__float2half_rz(v));
    out[2 * n + i] = __half_as_ushort(__float2half_ru(v));
    out[3 * n + i] = __half_as_ushort(__float2half_rd(v));
    back[i] = __half2float(__float2half_rn(v));
    whole[i] = __half2int_rn(__float2half_rn(v));
}
