// Exercises: a five-point stencil with a halo in shared memory in two dimensions, and a seven-point one straight from global in three.

extern "C" __global__ void five(const float *x, float *out, int width, int height)
{
    __shared__ float tile[10][18];
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    int cx = blockIdx.x * 16 + threadIdx.x, cy = blockIdx.y * 8 + threadIdx.y;
    auto at = [&](int column, int row) {
        return column >= 0 && column < width && row >= 0 && row < height ? x[row * width + column] : 0.0f;
    };
    tile[ty][tx] = at(cx, cy);
    if (threadIdx.x == 0)
        tile[ty][0] = at(cx - 1, cy);
    if (threadIdx.x == 15)
        tile[ty][17] = at(cx + 1, cy);
    if (threadIdx.y == 0)
        tile[0][tx] = at(cx, cy - 1);
    if (threadIdx.y == 7)
        tile[9][tx] = at(cx, cy + 1);
    __syncthreads();
    if (cx < width && cy < height) {
        float ends = __fadd_rn(__fadd_rn(tile[ty][tx - 1], tile[ty][tx + 1]), __fadd_rn(tile[ty - 1][tx], tile[ty + 1][tx]));
        out[cy * width + cx] = __fmaf_rn(tile[ty][tx], -4.0f, ends);
    }
}

extern "C" __global__ void seven(const double *x, double *out, int nx, int ny, int nz)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.z * blockDim.z + threadIdx.z;
    if (i >= nx || j >= ny || k >= nz)
        return;
    int at = (k * ny + j) * nx + i;
    if (i == 0 || j == 0 || k == 0 || i == nx - 1 || j == ny - 1 || k == nz - 1) {
        out[at] = x[at];
        return;
    }
    double s = __dadd_rn(x[at - 1], x[at + 1]);
    s = __dadd_rn(s, __dadd_rn(x[at - nx], x[at + nx]));
    s = __dadd_rn(s, __dadd_rn(x[at - nx * ny], x[at + nx * ny]));
    out[at] = __fma_rn(-6.0, x[at], s);
}
