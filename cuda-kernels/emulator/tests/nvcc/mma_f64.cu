// Exercises: mma.sync m8n8k4 of f64: c[8,8] = a[8,k] b[k,8] + c in one warp.

extern "C" __global__ void product(const double *a, const double *b, double *c, int k)
{
    int group = threadIdx.x / 4, in_group = threadIdx.x % 4;
    double c0 = c[group * 8 + in_group * 2], c1 = c[group * 8 + in_group * 2 + 1];
    for (int k0 = 0; k0 < k; k0 += 4) {
        double a0 = a[group * k + k0 + in_group], b0 = b[(k0 + in_group) * 8 + group];
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c0), "+d"(c1) : "d"(a0), "d"(b0));
    }
    c[group * 8 + in_group * 2] = c0;
    c[group * 8 + in_group * 2 + 1] = c1;
}
