// Products of bf16 by warps, a row-major and b column-major, after the versions 1, 3 and 4 of
// gau-nernst's learn-cuda, 02b_matmul_sm80: tiles of 128 x 128 x 64, four warps of 64 x 64 each.

#include "warps.cuh"

const int SIDE = 128, DEPTH = 64, THREADS = 128, HALF = 64;

enum Layout { PLAIN, PADDED, SWIZZLED };

template <Layout LAYOUT, bool ASYNCHRONOUS>
__device__ void load(const bf16 *from, int pitch, bf16 *to)
{
    const int STRIDE = LAYOUT == PADDED ? DEPTH + 8 : DEPTH;
    for (int i = 0; i < SIDE * DEPTH / 8 / THREADS; i++) {
        int at = (i * THREADS + threadIdx.x) * 8, row = at / DEPTH, column = at % DEPTH;
        const bf16 *source = from + row * pitch + column;
        bf16 *target = to + row * STRIDE + column;
        if (ASYNCHRONOUS) {
            uint32_t address = shared_address(target);
            copy_16(LAYOUT == SWIZZLED ? swizzled<DEPTH * 2>(address) : address, source);
        } else {
            *reinterpret_cast<uint4 *>(target) = *reinterpret_cast<const uint4 *>(source);
        }
    }
}

template <Layout LAYOUT, bool ASYNCHRONOUS>
__device__ void product(const bf16 *a, const bf16 *b, bf16 *c, int m, int n, int k)
{
    extern __shared__ __align__(1024) bf16 tiles[];
    const int STRIDE = LAYOUT == PADDED ? DEPTH + 8 : DEPTH;
    bf16 *ta = tiles, *tb = tiles + SIDE * STRIDE;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int wide = n / SIDE, tile_m = blockIdx.x / wide * SIDE, tile_n = blockIdx.x % wide * SIDE;
    int warp_m = warp / 2 * HALF, warp_n = warp % 2 * HALF;
    a += tile_m * k;
    b += tile_n * k;
    c += (tile_m + warp_m) * n + tile_n + warp_n;
    auto place = [](const bf16 *p) {
        uint32_t address = shared_address(p);
        return LAYOUT == SWIZZLED ? swizzled<DEPTH * 2>(address) : address;
    };
    float sums[HALF / 16][HALF / 8][4] = {};
    for (int from = 0; from < k; from += DEPTH) {
        load<LAYOUT, ASYNCHRONOUS>(a, k, ta);
        load<LAYOUT, ASYNCHRONOUS>(b, k, tb);
        if (ASYNCHRONOUS)
            wait_for_copies();
        __syncthreads();
        for (int at = 0; at < DEPTH; at += 16) {
            uint32_t y[HALF / 8][2];
            for (int j = 0; j < HALF / 8; j++)
                load_2(y[j], place(tb + (warp_n + j * 8 + lane % 8) * STRIDE + at + lane / 8 * 8));
            for (int i = 0; i < HALF / 16; i++) {
                uint32_t x[4];
                load_4(x, place(ta + (warp_m + i * 16 + lane % 16) * STRIDE + at + lane / 16 * 8));
                for (int j = 0; j < HALF / 8; j++)
                    multiply(sums[i][j], x, y[j]);
            }
        }
        __syncthreads();
        a += DEPTH;
        b += DEPTH;
    }
    for (int i = 0; i < HALF / 16; i++)
        for (int j = 0; j < HALF / 8; j++) {
            float *s = sums[i][j];
            bf16 *to = c + (i * 16 + lane / 4) * n + j * 8 + lane % 4 * 2;
            *reinterpret_cast<__nv_bfloat162 *>(to) = __float22bfloat162_rn({s[0], s[1]});
            *reinterpret_cast<__nv_bfloat162 *>(to + 8 * n) = __float22bfloat162_rn({s[2], s[3]});
        }
}

#define KERNEL(NAME, LAYOUT, ASYNCHRONOUS)                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                   \
        NAME(const bf16 *a, const bf16 *b, bf16 *c, int m, int n, int k)                    \
    {                                                                                       \
        product<LAYOUT, ASYNCHRONOUS>(a, b, c, m, n, k);                                    \
    }

KERNEL(product_plain, PLAIN, false)
KERNEL(product_padded, PADDED, true)
KERNEL(product_swizzled, SWIZZLED, true)
