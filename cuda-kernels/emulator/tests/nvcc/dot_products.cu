// Exercises: dp4a and dp2a of every signedness; packed bytes; multiply-adds of 16-bit halves.

extern "C" __global__ void dots(const int *a, const int *b, int *out, int n)
{
    int i = threadIdx.x;
    int x = a[i], y = b[i];
    out[0 * n + i] = __dp4a(x, y, 17);
    out[1 * n + i] = (int)__dp4a((unsigned)x, (unsigned)y, 17u);
    out[2 * n + i] = __dp2a_lo(x, y, -3);
    out[3 * n + i] = __dp2a_hi(x, y, -3);
    int mixed;
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(mixed) : "r"(x), "r"(y), "r"(i));
    out[4 * n + i] = mixed;
    asm("mad.wide.s16 %0, %1, %2, %3;" : "=r"(mixed) : "h"((short)x), "h"((short)y), "r"(i));
    out[5 * n + i] = mixed;
    asm("mad.hi.s32 %0, %1, %2, %3;" : "=r"(mixed) : "r"(x), "r"(y), "r"(i));
    out[6 * n + i] = mixed;
}
