// Products of f32 matrices, after the steps of "How to Optimize a CUDA Matmul Kernel for
// cuBLAS-like Performance" (S. Boehm). All are row-major: c = alpha a b + beta c.

#define PARAMETERS                                                                             \
    int m, int n, int k, float alpha, const float *__restrict__ a,                             \
        const float *__restrict__ b, float beta, float *c

// Step 1: a thread for each element; neighbours of a warp are in one column.
extern "C" __global__ void sgemm_naive(PARAMETERS)
{
    unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n)
        return;
    float sum = 0;
    for (int i = 0; i < k; i++)
        sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

// Step 2: neighbours of a warp are in one row.
extern "C" __global__ void sgemm_coalesced(PARAMETERS)
{
    int row = blockIdx.x * 32 + threadIdx.x / 32, column = blockIdx.y * 32 + threadIdx.x % 32;
    if (row >= m || column >= n)
        return;
    float sum = 0;
    for (int i = 0; i < k; i++)
        sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

// Step 3: tiles of 32 x 32 in shared memory.
extern "C" __global__ void sgemm_shared(PARAMETERS)
{
    const int SIDE = 32;
    __shared__ float ta[SIDE * SIDE], tb[SIDE * SIDE];
    unsigned row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
    a += blockIdx.x * SIDE * k;
    b += blockIdx.y * SIDE;
    c += blockIdx.x * SIDE * n + blockIdx.y * SIDE;
    float sum = 0;
    for (int from = 0; from < k; from += SIDE) {
        ta[row * SIDE + column] = a[row * k + column];
        tb[row * SIDE + column] = b[row * n + column];
        __syncthreads();
        a += SIDE;
        b += SIDE * n;
        for (int i = 0; i < SIDE; i++)
            sum += ta[row * SIDE + i] * tb[i * SIDE + column];
        __syncthreads();
    }
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

// Step 4: tiles of 64 x 64; a thread has 8 elements of a column.
extern "C" __global__ void sgemm_columns(PARAMETERS)
{
    const int BM = 64, BN = 64, BK = 8, TM = 8;
    __shared__ float ta[BM * BK], tb[BK * BN];
    unsigned column = threadIdx.x % BN, row = threadIdx.x / BN;
    unsigned row_a = threadIdx.x / BK, column_a = threadIdx.x % BK;
    unsigned row_b = threadIdx.x / BN, column_b = threadIdx.x % BN;
    a += blockIdx.y * BM * k;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * n + blockIdx.x * BN;
    float sums[TM] = {};
    for (int from = 0; from < k; from += BK) {
        ta[row_a * BK + column_a] = a[row_a * k + column_a];
        tb[row_b * BN + column_b] = b[row_b * n + column_b];
        __syncthreads();
        a += BK;
        b += BK * n;
        for (int i = 0; i < BK; i++) {
            float y = tb[i * BN + column];
            for (int j = 0; j < TM; j++)
                sums[j] += ta[(row * TM + j) * BK + i] * y;
        }
        __syncthreads();
    }
    for (int j = 0; j < TM; j++) {
        unsigned at = (row * TM + j) * n + column;
        c[at] = alpha * sums[j] + beta * c[at];
    }
}

// Step 5: tiles of 128 x 128; a thread has 8 x 8 elements.
extern "C" __global__ void __launch_bounds__(256, 1) sgemm_squares(PARAMETERS)
{
    const int BM = 128, BN = 128, BK = 8, T = 8, THREADS = 256;
    __shared__ float ta[BM * BK], tb[BK * BN];
    int column = threadIdx.x % (BN / T), row = threadIdx.x / (BN / T);
    unsigned row_a = threadIdx.x / BK, column_a = threadIdx.x % BK;
    unsigned row_b = threadIdx.x / BN, column_b = threadIdx.x % BN;
    a += blockIdx.y * BM * k;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * n + blockIdx.x * BN;
    float sums[T * T] = {}, x[T], y[T];
    for (int from = 0; from < k; from += BK) {
        for (int at = 0; at < BM; at += THREADS / BK)
            ta[(row_a + at) * BK + column_a] = a[(row_a + at) * k + column_a];
        for (int at = 0; at < BK; at += THREADS / BN)
            tb[(row_b + at) * BN + column_b] = b[(row_b + at) * n + column_b];
        __syncthreads();
        a += BK;
        b += BK * n;
        for (int i = 0; i < BK; i++) {
            for (int j = 0; j < T; j++)
                x[j] = ta[(row * T + j) * BK + i];
            for (int j = 0; j < T; j++)
                y[j] = tb[i * BN + column * T + j];
            for (int r = 0; r < T; r++)
                for (int j = 0; j < T; j++)
                    sums[r * T + j] += x[r] * y[j];
        }
        __syncthreads();
    }
    for (int r = 0; r < T; r++)
        for (int j = 0; j < T; j++) {
            unsigned at = (row * T + r) * n + column * T + j;
            c[at] = alpha * sums[r * T + j] + beta * c[at];
        }
}

// Step 6: the same with accesses of 16 bytes; a's tile is stored by columns.
extern "C" __global__ void sgemm_vectors(PARAMETERS)
{
    const int BM = 128, BN = 128, BK = 8, T = 8;
    __shared__ float ta[BK * BM], tb[BK * BN];
    int column = threadIdx.x % (BN / T), row = threadIdx.x / (BN / T);
    unsigned row_a = threadIdx.x / (BK / 4), column_a = threadIdx.x % (BK / 4);
    unsigned row_b = threadIdx.x / (BN / 4), column_b = threadIdx.x % (BN / 4);
    a += blockIdx.y * BM * k;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * n + blockIdx.x * BN;
    float sums[T * T] = {}, x[T], y[T];
    for (int from = 0; from < k; from += BK) {
        float4 v = *reinterpret_cast<const float4 *>(&a[row_a * k + column_a * 4]);
        ta[(column_a * 4 + 0) * BM + row_a] = v.x;
        ta[(column_a * 4 + 1) * BM + row_a] = v.y;
        ta[(column_a * 4 + 2) * BM + row_a] = v.z;
        ta[(column_a * 4 + 3) * BM + row_a] = v.w;
        *reinterpret_cast<float4 *>(&tb[row_b * BN + column_b * 4]) =
            *reinterpret_cast<const float4 *>(&b[row_b * n + column_b * 4]);
        __syncthreads();
        a += BK;
        b += BK * n;
        for (int i = 0; i < BK; i++) {
            for (int j = 0; j < T; j++)
                x[j] = ta[i * BM + row * T + j];
            for (int j = 0; j < T; j++)
                y[j] = tb[i * BN + column * T + j];
            for (int r = 0; r < T; r++)
                for (int j = 0; j < T; j++)
                    sums[r * T + j] += x[r] * y[j];
        }
        __syncthreads();
    }
    for (int r = 0; r < T; r++)
        for (int j = 0; j < T; j += 4) {
            float4 *at = reinterpret_cast<float4 *>(&c[(row * T + r) * n + column * T + j]);
            float4 v = *at;
            v.x = alpha * sums[r * T + j] + beta * v.x;
            v.y = alpha * sums[r * T + j + 1] + beta * v.y;
            v.z = alpha * sums[r * T + j + 2] + beta * v.z;
            v.w = alpha * sums[r * T + j + 3] + beta * v.w;
            *at = v;
        }
}
