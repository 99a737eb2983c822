"""Kernels whose PTX lies beside this file.

They were compiled by Triton 3.9.0 for sm_90, on a machine without a GPU, with

    triton.compile(ASTSource(fn, signature, constexprs, attrs), target=GPUTarget("cuda", 90, 32),
                   options=dict(num_warps=4, num_stages=STAGES))

where BM = BN = BK = BQ = D = 64, STAGES is 3 (attention: 2), pointers and integers have the
attribute tt.divisibility 16, and descriptors have the type tensordesc<bf16[64,64]>. Afterwards
comments, line directives and debug sections were removed, long lines were divided, and `.version`
was lowered to 8.0 (matmul_tma: 8.6), which has all instructions used.
"""

import triton
import triton.language as tl


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a = a_ptr + rm[:, None] * K + rk[None, :]
    b = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a, mask=rm[:, None] < M, other=0.0)
        y = tl.load(b, mask=rn[None, :] < N, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK
        b += BK * N
    c = c_ptr + rm[:, None] * N + rn[None, :]
    tl.store(c, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def matmul_tma(a, b, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = a.load([pid_m * BM, k])
        y = b.load([k, pid_n * BN])
        acc = tl.dot(x, y, acc)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=mask)


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, T, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr
):
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    rd = tl.arange(0, D)
    q = tl.load(q_ptr + rq[:, None] * D + rd[None, :])
    m = tl.full((BQ,), -1e30, dtype=tl.float32)
    l = tl.zeros((BQ,), dtype=tl.float32)
    acc = tl.zeros((BQ, D), dtype=tl.float32)
    for start in range(0, T, BK):
        rk = start + tl.arange(0, BK)
        k = tl.load(k_ptr + rk[None, :] * D + rd[:, None])
        v = tl.load(v_ptr + rk[:, None] * D + rd[None, :])
        s = tl.dot(q, k) * scale
        s = tl.where(rq[:, None] >= rk[None, :], s, -1e30)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        fix = tl.exp2(m - new)
        l = l * fix + tl.sum(p, 1)
        acc = acc * fix[:, None]
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        m = new
    tl.store(o_ptr + rq[:, None] * D + rd[None, :], acc / l[:, None])
