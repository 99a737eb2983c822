// Exercises: cvt.rna.tf32 and mma.sync m16n8k8 and m16n8k4 of tf32, fragments loaded by hand; c[16,8] = a[16,k] b[k,8] in one warp.

__device__ __forceinline__ unsigned tf32(float v)
{
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

extern "C" __global__ void product(const float *a, const float *b, float *c, float *rounded, int k)
{
    int group = threadIdx.x / 4, in_group = threadIdx.x % 4;
    float d[4] = {};
    for (int k0 = 0; k0 + 8 <= k; k0 += 8) {
        unsigned a0 = tf32(a[group * k + k0 + in_group]), a1 = tf32(a[(group + 8) * k + k0 + in_group]);
        unsigned a2 = tf32(a[group * k + k0 + in_group + 4]), a3 = tf32(a[(group + 8) * k + k0 + in_group + 4]);
        unsigned b0 = tf32(b[(k0 + in_group) * 8 + group]), b1 = tf32(b[(k0 + in_group + 4) * 8 + group]);
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
    if (k % 8 == 4) {
        int k0 = k - 4;
        unsigned a0 = tf32(a[group * k + k0 + in_group]), a1 = tf32(a[(group + 8) * k + k0 + in_group]);
        unsigned b0 = tf32(b[(k0 + in_group) * 8 + group]);
        asm volatile("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b0));
    }
    for (int i = 0; i < 4; i++)
        c[(group + i / 2 * 8) * 8 + in_group * 2 + i % 2] = d[i];
    rounded[threadIdx.x] = __uint_as_float(tf32(a[threadIdx.x]));
}
