// Transpositions of tiles of 32 x 32 floats by tensor copies, after the steps of "Making matrix
// transpose really fast on Hopper GPUs" (S. Veitner).

#include <cuda/barrier>

namespace cde = cuda::device::experimental;
using barrier = cuda::barrier<cuda::thread_scope_block>;

struct alignas(64) Map {
    char bytes[128];
};

const int SIDE = 32;

// The place of an element of a tile; swizzled, chunks of 16 bytes are permuted by the row.
template <bool SWIZZLED>
__device__ int place(int row, int column)
{
    int chunk = SWIZZLED ? column / 4 ^ row % 8 : column / 4;
    return row * SIDE + chunk * 4 + column % 4;
}

// A thread moves BATCH neighbours of a row.
template <bool SWIZZLED, int BATCH>
__device__ void transpose(const Map &from, const Map &to)
{
    __shared__ alignas(1024) float tile[SIDE * SIDE];
    __shared__ alignas(1024) float turned[SIDE * SIDE];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier bar;
    const CUtensorMap *source = reinterpret_cast<const CUtensorMap *>(&from);
    const CUtensorMap *target = reinterpret_cast<const CUtensorMap *>(&to);
    int x = blockIdx.x * SIDE, y = blockIdx.y * SIDE;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(&tile, source, x, y, bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    int row = threadIdx.x / (SIDE / BATCH), first = threadIdx.x % (SIDE / BATCH) * BATCH;
#pragma unroll
    for (int j = 0; j < BATCH; j++)
        turned[place<SWIZZLED>(first + j, row)] = tile[place<SWIZZLED>(row, first + j)];
    cde::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_shared_to_global(target, y, x, &turned);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
    }
}

#define PARAMETERS const __grid_constant__ Map from, const __grid_constant__ Map to

extern "C" __global__ void transpose_plain(PARAMETERS)
{
    transpose<false, 1>(from, to);
}

extern "C" __global__ void transpose_swizzled(PARAMETERS)
{
    transpose<true, 1>(from, to);
}

extern "C" __global__ void transpose_batched(PARAMETERS)
{
    transpose<true, 8>(from, to);
}
