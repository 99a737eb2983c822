// Exercises: tensor copies in both directions, cuda::barrier with expected bytes, and bulk groups, through CUDA's own wrappers.
// Doubles a box of 32 x 16 numbers; the box may reach beyond the tensor.

#include <cuda/barrier>

namespace cde = cuda::device::experimental;
using barrier = cuda::barrier<cuda::thread_scope_block>;

struct alignas(64) Map {
    char bytes[128];
};

extern "C" __global__ void twice(const __grid_constant__ Map map, int x, int y)
{
    __shared__ alignas(128) int box[16][32];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier bar;
    const CUtensorMap *tensor = reinterpret_cast<const CUtensorMap *>(&map);
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(&box, tensor, x, y, bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(box));
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    for (int i = threadIdx.x; i < 16 * 32; i += blockDim.x)
        box[i / 32][i % 32] *= 2;
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_shared_to_global(tensor, x, y, &box);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
    if (threadIdx.x == 0)
        (&bar)->~barrier();
}
