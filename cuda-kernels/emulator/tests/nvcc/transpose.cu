// Exercises: two-dimensional blocks and grids, padded shared tiles, guarded edges, accesses of one, two, four and eight bytes.

template <typename T>
__device__ __forceinline__ void transpose(const T *in, T *out, int rows, int columns)
{
    __shared__ T tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < columns && y + j < rows)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * columns + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < rows && y + j < columns)
            out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void transpose8(const unsigned char *in, unsigned char *out, int r, int c) { transpose(in, out, r, c); }
extern "C" __global__ void transpose16(const short *in, short *out, int r, int c) { transpose(in, out, r, c); }
extern "C" __global__ void transpose32(const float *in, float *out, int r, int c) { transpose(in, out, r, c); }
extern "C" __global__ void transpose64(const double *in, double *out, int r, int c) { transpose(in, out, r, c); }
