// Attention without a mask, heads of 128, after the versions 1 and 2 of gau-nernst's learn-cuda,
// 07_attention: FlashAttention-2, 128 queries for four warps, 64 keys at a time.

#include "warps.cuh"
#include <cfloat>

const int D = 128, QUERIES = 128, KEYS = 64, THREADS = 128, MINE = QUERIES / 4;

template <bool SWIZZLED>
__device__ uint32_t place(uint32_t base, int row, int column)
{
    uint32_t at = base + (row * D + column) * 2;
    return SWIZZLED ? swizzled<D * 2>(at) : at;
}

template <bool SWIZZLED, int ROWS>
__device__ void load(const bf16 *from, uint32_t to)
{
    for (int i = 0; i < ROWS * D / 8 / THREADS; i++) {
        int at = (i * THREADS + threadIdx.x) * 8;
        copy_16(place<SWIZZLED>(to, at / D, at % D), from + at);
    }
    wait_for_copies();
    __syncthreads();
}

template <bool SWIZZLED>
__device__ void attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, int queries,
                          int keys)
{
    extern __shared__ __align__(1024) bf16 tiles[];
    uint32_t tk = shared_address(tiles), tv = tk + KEYS * D * 2;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int blocks = queries / QUERIES, head = blockIdx.x / blocks;
    q += (head * blocks + blockIdx.x % blocks) * QUERIES * D;
    o += (head * blocks + blockIdx.x % blocks) * QUERIES * D;
    k += head * keys * D;
    v += head * keys * D;
    uint32_t x[MINE / 16][D / 16][4], y[KEYS / 8][D / 16][2];
    uint32_t p[MINE / 16][KEYS / 16][4], z[KEYS / 16][D / 8][2];
    float out[MINE / 16][D / 8][4] = {}, most[MINE / 16][2], total[MINE / 16][2] = {};
    const float scale = rsqrtf(float(D));
    for (int i = 0; i < MINE / 16; i++)
        most[i][0] = most[i][1] = -FLT_MAX;
    load<SWIZZLED, QUERIES>(q, tk);
    for (int i = 0; i < MINE / 16; i++)
        for (int d = 0; d < D / 16; d++)
            load_4(x[i][d], place<SWIZZLED>(tk, warp * MINE + i * 16 + lane % 16,
                                            d * 16 + lane / 16 * 8));
    __syncthreads();
    for (int from = 0; from < keys; from += KEYS) {
        float s[MINE / 16][KEYS / 8][4] = {};
        load<SWIZZLED, KEYS>(k, tk);
        for (int j = 0; j < KEYS / 8; j++)
            for (int d = 0; d < D / 16; d++)
                load_2(y[j][d], place<SWIZZLED>(tk, j * 8 + lane % 8, d * 16 + lane / 8 % 2 * 8));
        for (int i = 0; i < MINE / 16; i++)
            for (int j = 0; j < KEYS / 8; j++)
                for (int d = 0; d < D / 16; d++)
                    multiply(s[i][j], x[i][d], y[j][d]);
        for (int i = 0; i < MINE / 16; i++) {
            float top[2] = {-FLT_MAX, -FLT_MAX}, fix[2], sum[2] = {};
            for (int j = 0; j < KEYS / 8; j++)
                for (int h = 0; h < 2; h++) {
                    s[i][j][2 * h] *= scale;
                    s[i][j][2 * h + 1] *= scale;
                    top[h] = fmaxf(top[h], fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
                }
            for (int h = 0; h < 2; h++) {
                top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 1));
                top[h] = fmaxf(top[h], __shfl_xor_sync(~0u, top[h], 2));
                top[h] = fmaxf(top[h], most[i][h]);
                fix[h] = __expf(most[i][h] - top[h]);
                most[i][h] = top[h];
            }
            for (int d = 0; d < D / 8; d++)
                for (int r = 0; r < 4; r++)
                    out[i][d][r] *= fix[r / 2];
            for (int j = 0; j < KEYS / 8; j++) {
                for (int r = 0; r < 4; r++) {
                    s[i][j][r] = __expf(s[i][j][r] - most[i][r / 2]);
                    sum[r / 2] += s[i][j][r];
                }
                auto *pair = reinterpret_cast<__nv_bfloat162 *>(p[i][j / 2]) + j % 2 * 2;
                pair[0] = __float22bfloat162_rn({s[i][j][0], s[i][j][1]});
                pair[1] = __float22bfloat162_rn({s[i][j][2], s[i][j][3]});
            }
            for (int h = 0; h < 2; h++) {
                sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
                sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
                total[i][h] = total[i][h] * fix[h] + sum[h];
            }
        }
        load<SWIZZLED, KEYS>(v, tv);
        for (int j = 0; j < KEYS / 16; j++)
            for (int d = 0; d < D / 8; d++)
                load_2_transposed(z[j][d], place<SWIZZLED>(tv, j * 16 + lane % 16, d * 8));
        for (int i = 0; i < MINE / 16; i++)
            for (int d = 0; d < D / 8; d++)
                for (int j = 0; j < KEYS / 16; j++)
                    multiply(out[i][d], p[i][j], z[j][d]);
        k += KEYS * D;
        v += KEYS * D;
    }
    for (int i = 0; i < MINE / 16; i++)
        for (int d = 0; d < D / 8; d++)
            for (int h = 0; h < 2; h++) {
                float *s = &out[i][d][2 * h], f = total[i][h];
                int row = warp * MINE + i * 16 + h * 8 + lane / 4;
                auto *to = reinterpret_cast<__nv_bfloat162 *>(o + row * D + d * 8 + lane % 4 * 2);
                *to = __float22bfloat162_rn({s[0] / f, s[1] / f});
            }
}

#define KERNEL(NAME, SWIZZLED)                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS)                                      \
        NAME(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, int queries, int keys)      \
    {                                                                                          \
        attention<SWIZZLED>(q, k, v, o, queries, keys);                                        \
    }

KERNEL(attention_plain, false)
KERNEL(attention_swizzled, true)
