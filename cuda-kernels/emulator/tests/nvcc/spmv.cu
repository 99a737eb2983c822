// Exercises: a sparse matrix by rows times a vector, one warp a row: indirect loads, rows of any length and empty ones.

extern "C" __global__ void spmv(const int *starts, const int *columns, const float *values, const float *x, float *y, int rows)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int at = starts[row] + lane; at < starts[row + 1]; at += 32)
        sum = fmaf(values[at], __ldg(&x[columns[at]]), sum);
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0)
        y[row] = sum;
}
