// Exercises: matrix product through two shared tiles, ragged edges, an unrolled inner loop of fused multiply-adds in the order of k.

#define TILE 16

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k)
{
    __shared__ float ta[TILE][TILE], tb[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        ta[threadIdx.y][threadIdx.x] = row < m && k0 + threadIdx.x < k ? a[row * k + k0 + threadIdx.x] : 0.0f;
        tb[threadIdx.y][threadIdx.x] = column < n && k0 + threadIdx.y < k ? b[(k0 + threadIdx.y) * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < TILE; j++)
            sum = fmaf(ta[threadIdx.y][j], tb[j][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < m && column < n)
        c[row * n + column] = sum;
}
