// Exercises: the f64 functions of CUDA's library: exp, log, sine with its local array, pow, division, square root.

extern "C" __global__ void functions(const double *x, const double *y, double *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double v = x[i], w = y[i];
    out[0 * n + i] = exp(v);
    out[1 * n + i] = log(w);
    out[2 * n + i] = sin(v * 100.0);
    out[3 * n + i] = pow(w, v);
    out[4 * n + i] = tanh(v);
    out[5 * n + i] = v / w;
    out[6 * n + i] = sqrt(w);
    out[7 * n + i] = fma(v, w, -v);
    out[8 * n + i] = cos(w);
    out[9 * n + i] = floor(v) + rint(w) * 8.0;
    out[10 * n + i] = (double)(float)v;
    out[11 * n + i] = 1.0 / w;
}
