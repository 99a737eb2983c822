// Exercises: mma.sync m16n8k16 of bf16; a pipeline of two stages of cp.async with wait_group 1, and zero-fill of what lies outside by src-size.
// c[m,n] = a[m,k] b[n,k]ᵀ; one warp a block makes 16 x 8; m, n any; k a multiple of 16.

#include <cuda_bf16.h>

__device__ __forceinline__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void copy(void *to, const __nv_bfloat16 *from, bool inside)
{
    int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}

extern "C" __global__ void product(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int m, int n, int k)
{
    __shared__ __align__(16) __nv_bfloat16 ta[2][16][16], tb[2][8][16];
    int lane = threadIdx.x, row0 = blockIdx.y * 16, column0 = blockIdx.x * 8;
    int r = lane / 2, q = lane % 2 * 8;
    auto load = [&](int stage, int k0) {
        bool inside = row0 + r < m;
        copy(&ta[stage][r][q], a + (inside ? (row0 + r) * k + k0 + q : 0), inside);
        if (lane < 16) {
            inside = column0 + r < n;
            copy(&tb[stage][r][q], b + (inside ? (column0 + r) * k + k0 + q : 0), inside);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float d[4] = {};
    load(0, 0);
    for (int k0 = 0, stage = 0; k0 < k; k0 += 16, stage ^= 1) {
        if (k0 + 16 < k) {
            load(stage ^ 1, k0 + 16);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_all;" ::: "memory");
        }
        __syncwarp();
        unsigned fa[4], fb[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                     : "r"(shared_address(&ta[stage][lane % 16][lane / 16 * 8])) : "memory");
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(fb[0]), "=r"(fb[1]) : "r"(shared_address(&tb[stage][lane % 8][lane / 8 % 2 * 8])) : "memory");
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {
        int row = row0 + lane / 4 + i / 2 * 8, column = column0 + lane % 4 * 2 + i % 2;
        if (row < m && column < n)
            c[row * n + column] = d[i];
    }
}
