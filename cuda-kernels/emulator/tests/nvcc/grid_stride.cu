// Exercises: grid-stride loops over vectors of four with a scalar tail, restricted pointers, unrolling, loads through the read-only path.

extern "C" __global__ void axpy(float a, const float *__restrict__ x, float *__restrict__ y, int n)
{
    int stride = gridDim.x * blockDim.x, start = blockIdx.x * blockDim.x + threadIdx.x, quads = n / 4;
#pragma unroll 4
    for (int i = start; i < quads; i += stride) {
        float4 v = ((const float4 *)x)[i], w = ((float4 *)y)[i];
        w.x = fmaf(a, v.x, w.x);
        w.y = fmaf(a, v.y, w.y);
        w.z = fmaf(a, v.z, w.z);
        w.w = fmaf(a, v.w, w.w);
        ((float4 *)y)[i] = w;
    }
    for (int i = quads * 4 + start; i < n; i += stride)
        y[i] = fmaf(a, x[i], y[i]);
}

extern "C" __global__ void widths(const uchar4 *b, const short2 *s, const double2 *d, int4 *out, double *sums, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uchar4 q = b[i];
        short2 p = s[i];
        out[i] = make_int4(q.x + p.x, q.y - p.y, q.z * p.x, q.w);
        double2 v = __ldcs(&d[i]);
        sums[i] = __dadd_rn(v.x, v.y);
    }
}
