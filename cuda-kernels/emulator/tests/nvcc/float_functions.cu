// Exercises: the f32 functions of CUDA's library: polynomials, ex2, lg2, the slow path of sine with its table, special values.

extern "C" __global__ void functions(const float *x, const float *y, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i], w = y[i];
    out[0 * n + i] = expf(v);
    out[1 * n + i] = logf(w);
    out[2 * n + i] = sinf(v);
    out[3 * n + i] = cosf(v * 1000.0f);
    out[4 * n + i] = tanhf(v);
    out[5 * n + i] = powf(w, v);
    out[6 * n + i] = erff(v);
    out[7 * n + i] = cbrtf(v);
    out[8 * n + i] = log1pf(w);
    out[9 * n + i] = expm1f(v);
    out[10 * n + i] = rsqrtf(w);
    out[11 * n + i] = atan2f(v, w);
    out[12 * n + i] = sqrtf(w);
    out[13 * n + i] = v / w;
    out[14 * n + i] = fmodf(v, w);
    out[15 * n + i] = rintf(v) + floorf(v) * 4.0f + ceilf(v) * 16.0f + truncf(v) * 64.0f;
}

extern "C" __global__ void rounded(const float *x, const float *y, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i], w = y[i];
    out[0 * n + i] = __fadd_rz(v, w);
    out[1 * n + i] = __fadd_ru(v, w);
    out[2 * n + i] = __fmul_rd(v, w);
    out[3 * n + i] = __fmul_rz(v, w);
    out[4 * n + i] = __fdiv_rn(v, w);
    out[5 * n + i] = __fsqrt_rn(w);
    out[6 * n + i] = __frcp_rn(w);
    out[7 * n + i] = __fmaf_rn(v, w, v);
    out[8 * n + i] = fminf(v, w);
    out[9 * n + i] = fmaxf(v, w);
    out[10 * n + i] = copysignf(w, v);
    out[11 * n + i] = __int_as_float(__float_as_int(v) ^ 0x80000000);
}
