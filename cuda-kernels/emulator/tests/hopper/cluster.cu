// Exercises: cooperative groups of a cluster, atomics on other blocks' shared memory.
// A histogram whose bins are divided among the blocks of a cluster.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) histogram(const int *values, int count, int *bins)
{
    __shared__ int mine[16];
    cg::cluster_group cluster = cg::this_cluster();
    for (int i = threadIdx.x; i < 16; i += blockDim.x)
        mine[i] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        int bin = values[i];
        int *other = cluster.map_shared_rank(mine, bin / 16);
        atomicAdd(other + bin % 16, 1);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < 16; i += blockDim.x)
        atomicAdd(bins + cluster.block_rank() * 16 + i, mine[i]);
}
