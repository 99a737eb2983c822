// Products of bf16 by warp groups, a row-major, b and c column-major, after the kernels 2 and 3 of
// "Outperforming cuBLAS on H100: a Worklog" (P. Shankhdhar): one warp group, tiles by tensor
// copies, nothing overlaps within a block. Its barrier stands before the product, where the
// emulator finds a race of the next copy with it; here it stands after it.

#include <cuda/barrier>
#include <cuda_bf16.h>

namespace cde = cuda::device::experimental;
using barrier = cuda::barrier<cuda::thread_scope_block>;
using bf16 = __nv_bfloat16;

struct alignas(64) Map {
    char bytes[128];
};

// Rows of 128 bytes, swizzled by the copy.
__device__ inline unsigned long long descriptor(const bf16 *p)
{
    unsigned long long at = __cvta_generic_to_shared(p);
    return (at & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define REGISTERS_16(d, i)                                                                     \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]),                \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]),        \
        "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]),   \
        "+f"(d[i + 15])

__device__ inline void multiply(float (&d)[32], const bf16 *a, const bf16 *b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                 "%31}, %32, %33, 1, 1, 1, 0, 0;"
                 : REGISTERS_16(d, 0), REGISTERS_16(d, 16)
                 : "l"(descriptor(a)), "l"(descriptor(b)));
}

__device__ inline void multiply(float (&d)[64], const bf16 *a, const bf16 *b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                 "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
                 "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                 "%61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
                 : REGISTERS_16(d, 0), REGISTERS_16(d, 16), REGISTERS_16(d, 32), REGISTERS_16(d, 48)
                 : "l"(descriptor(a)), "l"(descriptor(b)));
}

template <int BM, int BN>
__device__ void product(const Map &from_a, const Map &from_b, bf16 *c, int m, int n, int k)
{
    const int DEPTH = 64, PARTS = BM / 64;
    extern __shared__ __align__(1024) bf16 tiles[];
    bf16 *ta = tiles, *tb = tiles + BM * DEPTH;
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier full_a, full_b;
    const CUtensorMap *map_a = reinterpret_cast<const CUtensorMap *>(&from_a);
    const CUtensorMap *map_b = reinterpret_cast<const CUtensorMap *>(&from_b);
    int tile_n = blockIdx.x % (n / BN) * BN, tile_m = blockIdx.x / (n / BN) * BM;
    if (threadIdx.x == 0) {
        init(&full_a, blockDim.x);
        init(&full_b, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    float sums[PARTS][BN / 2] = {};
    for (int from = 0; from < k; from += DEPTH) {
        barrier::arrival_token a, b;
        if (threadIdx.x == 0) {
            cde::cp_async_bulk_tensor_2d_global_to_shared(ta, map_a, from, tile_m, full_a);
            a = cuda::device::barrier_arrive_tx(full_a, 1, BM * DEPTH * 2);
            cde::cp_async_bulk_tensor_2d_global_to_shared(tb, map_b, from, tile_n, full_b);
            b = cuda::device::barrier_arrive_tx(full_b, 1, BN * DEPTH * 2);
        } else {
            a = full_a.arrive();
            b = full_b.arrive();
        }
        full_a.wait(std::move(a));
        full_b.wait(std::move(b));
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int part = 0; part < PARTS; part++)
#pragma unroll
            for (int at = 0; at < DEPTH; at += 16)
                multiply(sums[part], ta + part * 64 * DEPTH + at, tb + at);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        // The tiles are loaded again when all warps have used them.
        __syncthreads();
    }
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    c += tile_n * m + tile_m;
#pragma unroll
    for (int part = 0; part < PARTS; part++)
#pragma unroll
        for (int i = 0; i < BN / 2; i++)
            c[(column + i / 4 * 8 + i % 2) * m + part * 64 + row + i / 2 % 2 * 8] = sums[part][i];
}

extern "C" __global__ void __launch_bounds__(128)
    product_64(const __grid_constant__ Map a, const __grid_constant__ Map b, bf16 *c, int m, int n,
               int k)
{
    product<64, 64>(a, b, c, m, n, k);
}

extern "C" __global__ void __launch_bounds__(128)
    product_128(const __grid_constant__ Map a, const __grid_constant__ Map b, bf16 *c, int m, int n,
                int k)
{
    product<128, 128>(a, b, c, m, n, k);
}
