// Exercises: conversions among floats and integers in every rounding, saturating ones, NaN and infinities, narrow integers.

extern "C" __global__ void from_floats(const float *x, int *out, long long *wide, int n)
{
    int i = threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    out[0 * n + i] = __float2int_rn(v);
    out[1 * n + i] = __float2int_rz(v);
    out[2 * n + i] = __float2int_ru(v);
    out[3 * n + i] = __float2int_rd(v);
    out[4 * n + i] = (int)__float2uint_rz(v);
    out[5 * n + i] = __float_as_int(__saturatef(v));
    short s;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=h"(s) : "f"(v));
    out[6 * n + i] = s;
    asm("cvt.rzi.sat.u8.f32 %0, %1;" : "=h"(s) : "f"(v));
    out[7 * n + i] = s;
    asm("cvt.rni.sat.s16.f32 %0, %1;" : "=h"(s) : "f"(v));
    out[8 * n + i] = s;
    wide[0 * n + i] = __float2ll_rn(v);
    wide[1 * n + i] = (long long)__float2ull_rz(v);
    wide[2 * n + i] = __double2ll_rd((double)v * 1.5);
    wide[3 * n + i] = __double_as_longlong((double)v);
}

extern "C" __global__ void from_integers(const long long *x, float *f, double *d, int *narrow, int n)
{
    int i = threadIdx.x;
    if (i >= n)
        return;
    long long v = x[i];
    f[0 * n + i] = __ll2float_rn(v);
    f[1 * n + i] = __ll2float_rz(v);
    f[2 * n + i] = __ull2float_rn((unsigned long long)v);
    f[3 * n + i] = __int2float_rd((int)v);
    f[4 * n + i] = (float)(unsigned short)v;
    d[0 * n + i] = __ll2double_rn(v);
    d[1 * n + i] = __ull2double_rz((unsigned long long)v);
    d[2 * n + i] = (double)(int)v;
    narrow[0 * n + i] = (signed char)v;
    narrow[1 * n + i] = (unsigned char)v;
    narrow[2 * n + i] = (short)v;
    int packed;
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(packed) : "r"((int)v));
    narrow[3 * n + i] = packed;
    asm("cvt.sat.u16.s32 %0, %1;" : "=r"(packed) : "r"((int)v));
    narrow[4 * n + i] = packed;
}
