// Exercises: parameters that are structures with members of mixed alignment, arrays in them read at run-time indices, a pointer among them.

struct Layout {
    unsigned char rank;
    short bias;
    int extents[4];
    long long strides[4];
    double scale;
    const float *from;
    char tag[3];
};

extern "C" __global__ void gather(Layout layout, float *out, int n, unsigned char offset)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    long long at = 0;
    int rest = i;
    for (int d = layout.rank - 1; d >= 0; d--) {
        at += rest % layout.extents[d] * layout.strides[d];
        rest /= layout.extents[d];
    }
    out[i] = (float)__dadd_rn(__dmul_rn((double)layout.from[at], layout.scale), (double)(layout.bias + layout.tag[i % 3] + offset));
}
