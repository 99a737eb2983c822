// Exercises: wgmma with A from registers and from shared memory, in loops that the compiler unrolls; consecutive bulk copies.
// c[64,32] = a[64,k] b[32,k]^T, where a and b are images of core matrices, 16 columns after 16.

#include <cuda/ptx>
#include <cuda_bf16.h>

namespace ptx = cuda::ptx;

__device__ __forceinline__ unsigned long long descriptor(const void *p, unsigned leading, unsigned stride)
{
    unsigned address = (unsigned)__cvta_generic_to_shared(p);
    return (unsigned long long)(address >> 4) | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32;
}

extern "C" __global__ void __launch_bounds__(128) product(const char *a, const char *b, float *c, int k)
{
    __shared__ alignas(128) char ta[2][2048];
    __shared__ alignas(128) char tb[2][1024];
    __shared__ cuda::std::uint64_t full[2];
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&full[0], 1);
        ptx::mbarrier_init(&full[1], 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    int steps = k / 16;
    auto load = [&](int step) {
        int s = step % 2;
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], 3072);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, ta[s], a + step * 2048, 2048, &full[s]);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tb[s], b + step * 1024, 1024, &full[s]);
    };
    if (threadIdx.x == 0)
        load(0);
    float d[16] = {};
    for (int step = 0; step < steps; step++) {
        int s = step % 2;
        if (threadIdx.x == 0 && step + 1 < steps)
            load(step + 1);
        while (!ptx::mbarrier_try_wait_parity(&full[s], step / 2 % 2))
            ;
        unsigned long long da = descriptor(ta[s], 1024, 128), db = descriptor(tb[s], 512, 128);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, 0;\n}"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                       "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                     : "l"(da), "l"(db), "r"(1)
                     : "memory");
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                       "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                     :: "memory");
        // The stage is loaded again two steps later.
        __syncthreads();
    }
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 16; i++)
        c[(row + i / 2 % 2 * 8) * 32 + column + i / 4 * 8 + i % 2] = d[i];
}
