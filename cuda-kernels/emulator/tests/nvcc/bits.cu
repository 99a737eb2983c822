// Exercises: population count, leading zeros, first set, reversal, byte permutation, funnel shifts, bit fields, three-input logic.

extern "C" __global__ void tricks(const unsigned *a, const unsigned *b, unsigned *out, int n)
{
    int i = threadIdx.x;
    unsigned x = a[i], y = b[i];
    out[0 * n + i] = __popc(x);
    out[1 * n + i] = __clz(x);
    out[2 * n + i] = __ffs(x);
    out[3 * n + i] = __brev(x);
    out[4 * n + i] = __byte_perm(x, y, 0x5173);
    out[5 * n + i] = __byte_perm(x, y, y);
    out[6 * n + i] = __funnelshift_l(x, y, x & 63);
    out[7 * n + i] = __funnelshift_rc(x, y, y & 63);
    out[8 * n + i] = x >> (y & 31);
    out[9 * n + i] = (unsigned)((int)x >> (y & 31));
    out[10 * n + i] = (x & y) | (~x & (y >> 7));
    unsigned field;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(field) : "r"(x), "r"(y & 255), "r"(y >> 8 & 255));
    out[11 * n + i] = field;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(field) : "r"(x), "r"(y & 31), "r"(y >> 8 & 31));
    out[12 * n + i] = field;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(field) : "r"(x), "r"(y), "r"(x & 31), "r"(y & 15));
    out[13 * n + i] = field;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(field) : "r"(x), "r"(y), "r"(x << 3));
    out[14 * n + i] = field;
    asm("bfind.u32 %0, %1;" : "=r"(field) : "r"(x));
    out[15 * n + i] = field;
    out[16 * n + i] = __usad(x, y, 5);
    out[17 * n + i] = __umulhi(x, y) + __umul24(x, y);
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(field) : "r"(x), "r"(y), "r"(x ^ y));
    out[19 * n + i] = field;
    out[18 * n + i] = (unsigned)__mulhi((int)x, (int)y) + (unsigned)__hadd((int)x, (int)y);
}
