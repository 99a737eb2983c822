// Exercises: a sorting network in shared memory: exchanges with partners found by exclusive or, a barrier a stage, keys with values.

extern "C" __global__ void sort(unsigned *keys, unsigned short *values)
{
    __shared__ unsigned k[512];
    __shared__ unsigned short v[512];
    int t = threadIdx.x;
    k[t] = keys[t];
    v[t] = values[t];
    for (int size = 2; size <= 512; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int partner = t ^ stride;
            if (partner > t) {
                bool up = (t & size) == 0;
                if ((k[t] > k[partner]) == up) {
                    unsigned a = k[t];
                    k[t] = k[partner];
                    k[partner] = a;
                    unsigned short b = v[t];
                    v[t] = v[partner];
                    v[partner] = b;
                }
            }
        }
    __syncthreads();
    keys[t] = k[t];
    values[t] = v[t];
}
