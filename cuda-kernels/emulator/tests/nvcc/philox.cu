// Exercises: the Philox 4x32-10 generator: wide products and their halves; uniform floats from bits; stores of four words.

extern "C" __global__ void philox(unsigned key0, unsigned key1, uint4 *bits, float4 *uniform, int n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned c0 = i, c1 = 0x1234, c2 = i * 3, c3 = 99;
    for (int round = 0; round < 10; round++) {
        unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        unsigned n0 = (unsigned)(p1 >> 32) ^ c1 ^ key0, n2 = (unsigned)(p0 >> 32) ^ c3 ^ key1;
        c1 = (unsigned)p1;
        c3 = (unsigned)p0;
        c0 = n0;
        c2 = n2;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    bits[i] = make_uint4(c0, c1, c2, c3);
    uniform[i] = make_float4((c0 >> 8) * 0x1p-24f, (c1 >> 8) * 0x1p-24f, (c2 >> 8) * 0x1p-24f, (c3 >> 8) * 0x1p-24f);
}
