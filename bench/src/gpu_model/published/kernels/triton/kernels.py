"""Kernels whose PTX lies beside this file, in the manner of Triton's tutorials.

`python3 kernels.py` compiles them again, without a GPU. Triton 3.9.0 made the files that lie here,
for sm_80. Pointers and integers have the attribute tt.divisibility 16. Afterwards comments, line
directives and debug sections are removed, long lines are divided, and `.version` is lowered to
8.0, which has all instructions used.
"""

import pathlib
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(y, x, row_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    # Each program takes every so-many-th row.
    at = tl.arange(0, BLOCK)
    mask = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        v = tl.load(x + row * row_stride + at, mask=mask, other=-float("inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(y + row * row_stride + at, e / tl.sum(e, 0), mask=mask)


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):
    # Programs are ordered in groups of GROUP rows of tiles, so that neighbours share operands.
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    group = pid // (GROUP * tiles_n)
    height = min(tiles_m - group * GROUP, GROUP)
    within = pid % (GROUP * tiles_n)
    pid_m = group * GROUP + within % height
    pid_n = within // height
    rm = (pid_m * BM + tl.arange(0, BM)) % M
    rn = (pid_n * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    a = a_ptr + rm[:, None] * K + rk[None, :]
    b = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=rk[None, :] < K - k * BK, other=0.0)
        y = tl.load(b, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK
        b += BK * N
    cm = pid_m * BM + tl.arange(0, BM)
    cn = pid_n * BN + tl.arange(0, BN)
    mask = (cm[:, None] < M) & (cn[None, :] < N)
    tl.store(c_ptr + cm[:, None] * N + cn[None, :], acc.to(tl.float16), mask=mask)


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, queries, keys, scale,
    D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
):
    # Without a mask. The second dimension of the grid is over heads and batches.
    head = tl.program_id(1)
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    rk = tl.arange(0, BK)
    rd = tl.arange(0, D)
    q_at = head * queries * D + rq[:, None] * D + rd[None, :]
    k_at = k_ptr + head * keys * D + rk[None, :] * D + rd[:, None]
    v_at = v_ptr + head * keys * D + rk[:, None] * D + rd[None, :]
    q = tl.load(q_ptr + q_at)
    m = tl.full((BQ,), -float("inf"), dtype=tl.float32)
    l = tl.full((BQ,), 1.0, dtype=tl.float32)
    acc = tl.zeros((BQ, D), dtype=tl.float32)
    for start in range(0, keys, BK):
        k = tl.load(k_at)
        s = tl.dot(q, k)
        new = tl.maximum(m, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - new[:, None])
        fix = tl.exp2(m - new)
        l = l * fix + tl.sum(p, 1)
        acc = acc * fix[:, None]
        v = tl.load(v_at)
        acc = tl.dot(p.to(tl.float16), v, acc)
        m = new
        k_at += BK * D
        v_at += BK * D
    tl.store(o_ptr + q_at, (acc / l[:, None]).to(tl.float16))


KERNELS = [
    # name, kernel, types of the parameters, constants, warps, stages
    ("softmax", softmax, "*fp32 *fp32 i32 i32 i32", dict(BLOCK=4096, STAGES=4), 8, 4),
    (
        "matmul", matmul, "*fp16 *fp16 *fp16 i32 i32 i32",
        dict(BM=128, BN=256, BK=64, GROUP=8), 8, 3,
    ),
    (
        "attention", attention, "*fp16 *fp16 *fp16 *fp16 i32 i32 fp32",
        dict(D=64, BQ=128, BK=64), 4, 3,
    ),
]


def tidy(ptx):
    lines = []
    for line in ptx.split("\n"):
        line = re.sub(r"\s*//.*", "", line).rstrip()
        if line.startswith("\t.section\t.debug") or line.startswith("\t.section .debug"):
            break
        if line.strip() == "" or re.match(r"\s*\.(loc|file)\b", line):
            continue
        if line.startswith(".version"):
            line = ".version 8.0"
        while len(line) > 98:
            cut = line.rfind(" ", 0, 98)
            if cut < 0:
                # The registers of a product of a warpgroup.
                cut = line.rfind(",", 0, 98)
            lines.append(line[: cut + 1].rstrip())
            line = "\t\t" + line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines) + "\n"


def compiled(kernel, types, constants, architecture, warps, stages):
    """A kernel compiled for an architecture, which needs no GPU."""
    kinds = types.split()
    names = [n for n in kernel.arg_names if n not in constants]
    signature = dict(zip(names, kinds)) | {n: "constexpr" for n in constants}
    divisible = {
        (kernel.arg_names.index(n),): [["tt.divisibility", 16]]
        for n, kind in zip(names, kinds)
        if kind != "fp32"
    }
    return triton.compile(
        ASTSource(kernel, signature, constexprs=constants, attrs=divisible),
        target=GPUTarget("cuda", architecture, 32),
        options=dict(num_warps=warps, num_stages=stages),
    )


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    for name, kernel, types, constants, warps, stages in KERNELS:
        made = compiled(kernel, types, constants, 80, warps, stages)
        (folder / f"{name}.ptx").write_text(tidy(made.asm["ptx"]))
        print(name, made.metadata.shared, "bytes of shared memory")
