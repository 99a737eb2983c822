// Exercises: a dense switch in a loop (a small machine, each thread another program), and a branch through a table: brx.idx.

extern "C" __global__ void machine(const unsigned char *code, const int *starts, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int acc = i, b = 1, pc = starts[i], fuel = 100;
    while (fuel-- > 0) {
        switch (code[pc++]) {
        case 0: out[i] = acc; return;
        case 1: acc += b; break;
        case 2: acc -= b; break;
        case 3: acc *= 3; break;
        case 4: b = acc & 15; break;
        case 5: acc ^= b << 3; break;
        case 6: { int t = acc; acc = b; b = t; } break;
        case 7: acc = b ? acc / b : -1; break;
        case 8: if (acc & 1) pc++; break;
        case 9: pc += code[pc]; break;
        case 10: acc = ~acc; break;
        case 11: b = code[pc++]; break;
        case 12: acc = __popc(acc); break;
        default: acc = -77; out[i] = acc; return;
        }
    }
    out[i] = -1000 - acc;
}

// The compiler makes trees of compares out of switches for this target, so the table is spelled in PTX.
extern "C" __global__ void table(const int *x, int *out)
{
    int i = threadIdx.x, v = x[i], r;
    asm volatile("{\n\t"
                 "targets: .branchtargets add, twice, negate, add;\n\t"
                 "brx.idx %2, targets;\n"
                 "add:\n\tadd.s32 %0, %1, 1000;\n\tbra done;\n"
                 "twice:\n\tshl.b32 %0, %1, 1;\n\tbra done;\n"
                 "negate:\n\tneg.s32 %0, %1;\n"
                 "done:\n\t}"
                 : "=r"(r) : "r"(v), "r"(v & 3));
    out[i] = r + 1;
}
