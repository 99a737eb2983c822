// Products of f16 by warps with f32 sums, after the kernels 1.0, 1.1 and 2.0 of "Implementing a
// fast Tensor Core matmul on the Ada Architecture" (spatters.ca). Blocks of 16 x 16 threads.

#include "warps.cuh"
#include <cuda_fp16.h>

__device__ inline void multiply_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The result of a warp's 16 x 8 tile.
__device__ inline void store(float *c, int n, int lane, const float d[4])
{
    float *to = c + lane / 4 * n + lane % 4 * 2;
    to[0] = d[0];
    to[1] = d[1];
    to[8 * n] = d[2];
    to[8 * n + 1] = d[3];
}

// Elements of 2 bytes move one by one, and fragments are gathered from shared memory. T x T tiles
// of 16 x 8 for each of the 2 x 4 warps. a and b are row-major.
template <int T>
__device__ void gathered(const half *a, const half *b, float *c, int m, int n, int k)
{
    __shared__ half ta[T * 32][16], tb[16][T * 32];
    int x = threadIdx.x, y = threadIdx.y, thread = y * 16 + x;
    int warp = thread / 32, lane = thread % 32, group = lane / 4, pair = lane % 4 * 2;
    int row = T * 32 * blockIdx.y, column = T * 32 * blockIdx.x;
    int warp_m = warp / 4 * 16, warp_n = warp % 4 * 8;
    float sums[T][T][4] = {};
    for (int from = 0; from < k; from += 16) {
        for (int i = 0; i < 2 * T; i++)
            ta[i * 16 + y][x] = a[(row + i * 16 + y) * k + from + x];
        for (int i = 0; i < 2 * T; i++)
            tb[y][i * 16 + x] = b[(from + y) * n + column + i * 16 + x];
        __syncthreads();
        for (int i = 0; i < T; i++) {
            half p[8], q[4];
            for (int e = 0; e < 8; e++)
                p[e] = ta[i * 32 + warp_m + group + e / 2 % 2 * 8][pair + e % 2 + e / 4 * 8];
            for (int j = 0; j < T; j++) {
                for (int e = 0; e < 4; e++)
                    q[e] = tb[pair + e % 2 + e / 2 * 8][j * 32 + warp_n + group];
                multiply_f16(sums[i][j], reinterpret_cast<uint32_t *>(p),
                             reinterpret_cast<uint32_t *>(q));
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < T; i++)
        for (int j = 0; j < T; j++)
            store(c + (row + i * 32 + warp_m) * n + column + j * 32 + warp_n, n, lane, sums[i][j]);
}

extern "C" __global__ void __launch_bounds__(256)
    first_gathered(const half *a, const half *b, float *c, int m, int n, int k)
{
    gathered<1>(a, b, c, m, n, k);
}

extern "C" __global__ void __launch_bounds__(256)
    first_tiled(const half *a, const half *b, float *c, int m, int n, int k)
{
    gathered<2>(a, b, c, m, n, k);
}

// Chunks of 16 bytes, four to a row of 32 elements; the chunks of each two rows are permuted.
__device__ inline int place(int row, int chunk)
{
    return row * 4 + (chunk ^ row / 2 % 4);
}

// Tiles of 64 x 64 x 32; a is row-major, b column-major; a warp has 32 x 16.
extern "C" __global__ void __launch_bounds__(256)
    first_permuted(const half *a, const half *b, float *c, int m, int n, int k)
{
    __shared__ uint4 ta[64 * 4], tb[64 * 4];
    int thread = threadIdx.y * 16 + threadIdx.x, warp = thread / 32, lane = thread % 32;
    int row = blockIdx.y * 64, column = blockIdx.x * 64;
    int warp_m = warp / 4 * 32, warp_n = warp % 4 * 16;
    float sums[2][2][4] = {};
    int from_row = thread / 4, from_chunk = thread % 4;
    for (int from = 0; from < k; from += 32) {
        int at = from + from_chunk * 8, to = place(from_row, from_chunk);
        ta[to] = *reinterpret_cast<const uint4 *>(a + (row + from_row) * k + at);
        tb[to] = *reinterpret_cast<const uint4 *>(b + (column + from_row) * k + at);
        __syncthreads();
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                for (int h = 0; h < 4; h += 2) {
                    uint32_t p[4], q[2];
                    int r = warp_m + i * 16 + lane % 16, s = warp_n + j * 8 + lane % 8;
                    load_4(p, shared_address(ta + place(r, h + lane / 16)));
                    load_2(q, shared_address(tb + place(s, h + lane / 8 % 2)));
                    multiply_f16(sums[i][j], p, q);
                }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            store(c + (row + warp_m + i * 16) * n + column + warp_n + j * 8, n, lane, sums[i][j]);
}
