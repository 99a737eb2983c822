// Exercises: mma.sync m16n8k16 of f16 with f32 sums; ldmatrix x4 plain and transposed; cp.async of 16 bytes, waited for as one group.
// c[m,n] = a[m,k] b[k,n]; a block of four warps makes 64 x 32; m, n, k are multiples of 64, 32, 16.

#include <cuda_fp16.h>

__device__ __forceinline__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

extern "C" __global__ void product(const __half *a, const __half *b, float *c, int n, int k)
{
    __shared__ __align__(16) __half ta[64][24], tb[16][40];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row0 = blockIdx.y * 64, column0 = blockIdx.x * 32;
    float sums[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        {
            int r = threadIdx.x / 2, q = threadIdx.x % 2 * 8;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&ta[r][q])), "l"(a + (row0 + r) * k + k0 + q) : "memory");
        }
        if (threadIdx.x < 64) {
            int r = threadIdx.x / 4, q = threadIdx.x % 4 * 8;
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(&tb[r][q])), "l"(b + (k0 + r) * n + column0 + q) : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        unsigned fa[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                     : "r"(shared_address(&ta[warp * 16 + lane % 16][lane / 16 * 8])) : "memory");
        for (int pair = 0; pair < 2; pair++) {
            unsigned fb[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3])
                         : "r"(shared_address(&tb[lane % 16][pair * 16 + lane / 16 * 8])) : "memory");
            for (int half = 0; half < 2; half++) {
                float *d = sums[pair * 2 + half];
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                             : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[2 * half]), "r"(fb[2 * half + 1]));
            }
        }
        __syncthreads();
    }
    int r = row0 + warp * 16 + lane / 4, q = column0 + lane % 4 * 2;
    for (int tile = 0; tile < 4; tile++) {
        *(float2 *)&c[r * n + q + tile * 8] = make_float2(sums[tile][0], sums[tile][1]);
        *(float2 *)&c[(r + 8) * n + q + tile * 8] = make_float2(sums[tile][2], sums[tile][3]);
    }
}

// f16 sums: c[16,8] += a[16,8] b[8,8], the fragments loaded by hand.
extern "C" __global__ void accumulate(const __half *a, const __half *b, __half *c)
{
    int group = threadIdx.x / 4, in_group = threadIdx.x % 4;
    const unsigned *aw = (const unsigned *)a;
    unsigned *cw = (unsigned *)c;
    unsigned a0 = aw[group * 4 + in_group], a1 = aw[(group + 8) * 4 + in_group];
    __half2 pair = __halves2half2(b[(in_group * 2) * 8 + group], b[(in_group * 2 + 1) * 8 + group]);
    unsigned b0 = *(unsigned *)&pair;
    unsigned c0 = cw[group * 4 + in_group], c1 = cw[(group + 8) * 4 + in_group];
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
                 : "+r"(c0), "+r"(c1) : "r"(a0), "r"(a1), "r"(b0));
    cw[group * 4 + in_group] = c0;
    cw[(group + 8) * 4 + in_group] = c1;
}
