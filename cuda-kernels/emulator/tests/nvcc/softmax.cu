// Exercises: a softmax of one block a row: maximum and sum over the block by shuffles and shared memory, the exponential, a division.

extern "C" __global__ void softmax(const float *x, float *out, int columns)
{
    __shared__ float part[8];
    __shared__ float whole;
    const float *row = x + blockIdx.x * columns;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float greatest = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        greatest = fmaxf(greatest, row[i]);
    for (int step = 16; step > 0; step /= 2)
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, step));
    if (lane == 0)
        part[warp] = greatest;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; w++)
            greatest = fmaxf(greatest, part[w]);
        whole = greatest;
    }
    __syncthreads();
    greatest = whole;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float e = expf(row[i] - greatest);
        out[blockIdx.x * columns + i] = e;
        sum += e;
    }
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0)
        part[warp] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < blockDim.x / 32; w++)
        sum += part[w];
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        out[blockIdx.x * columns + i] /= sum;
}
