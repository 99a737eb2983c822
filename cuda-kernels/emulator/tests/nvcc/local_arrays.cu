// Exercises: arrays in local memory with indices known only at run time; sorting and a histogram of one thread.

extern "C" __global__ void sort_rows(const int *x, int *out, int length)
{
    int row[24];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < length; k++) {
        int v = x[i * length + k], j = k;
        while (j > 0 && row[j - 1] > v) {
            row[j] = row[j - 1];
            j--;
        }
        row[j] = v;
    }
    for (int k = 0; k < length; k++)
        out[i * length + k] = row[k];
}

extern "C" __global__ void digits(const unsigned *x, unsigned char *out)
{
    unsigned char counts[10] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    double weights[3] = {0.5, 0.25, 2.0};
    unsigned v = x[threadIdx.x];
    do {
        counts[v % 10]++;
        v /= 10;
    } while (v);
    for (int d = 0; d < 10; d++)
        out[threadIdx.x * 11 + d] = counts[d];
    out[threadIdx.x * 11 + 10] = (unsigned char)(weights[x[threadIdx.x] % 3] * counts[x[threadIdx.x] % 10] * 4);
}
