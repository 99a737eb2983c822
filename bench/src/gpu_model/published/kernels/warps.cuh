// Instructions that products of warps are made of.

#include <cstdint>
#include <cuda_bf16.h>

using bf16 = __nv_bfloat16;

__device__ inline uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Two matrices of 8 x 8, or four.
__device__ inline void load_2(uint32_t r[2], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}

__device__ inline void load_2_transposed(uint32_t r[2], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}

__device__ inline void load_4(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}

// d += a b of 16 x 8 x 16.
__device__ inline void multiply(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void copy_16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

__device__ inline void wait_for_copies()
{
    asm volatile("cp.async.wait_all;");
}

// The address of a chunk of 16 bytes in rows of `BYTES` bytes, with the chunks of each 8 rows
// permuted by the row.
template <int BYTES>
__device__ inline uint32_t swizzled(uint32_t at)
{
    return at ^ (at / BYTES % 8) << 4;
}
