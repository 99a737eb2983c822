"""Measures of torch.compile, under the names that our benchmark uses.

Prints lines `measure NAME SECONDS BYTES FLOPS`, separated by tabs; BYTES are those that must be moved once, FLOPS those of matrix products;
0 where it is not the point. Seconds are the median of ten runs after warming up, each timed by events on the device.
"""

import statistics
import sys

import torch

N = 64 << 20
ROWS, COLUMNS = 16384, 4096
M = 4096


def seconds(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(10):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def tell(name, run, moved=0, flops=0):
    print(f"measure\t{name}\t{seconds(run):.9f}\t{moved}\t{flops}", flush=True)


def main():
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    torch.manual_seed(0)
    device = "cuda"
    gelu = lambda v: torch.nn.functional.gelu(v, approximate="tanh")

    x, y, z = (torch.randn(N, device=device) for _ in range(3))
    out = torch.empty_like(x)
    tell("copy", lambda: out.copy_(x), 8 * N)
    chain = torch.compile(lambda x, y, z: gelu(x + y) * z)
    tell("chain", lambda: chain(x, y, z), 16 * N)
    del x, y, z, out

    rows = torch.randn(ROWS, COLUMNS, device=device)
    softmax = torch.compile(lambda v: torch.softmax(v, 1))
    tell("softmax", lambda: softmax(rows), 8 * ROWS * COLUMNS)
    scale, shift = torch.ones(COLUMNS, device=device), torch.zeros(COLUMNS, device=device)
    norm = torch.compile(lambda v: torch.nn.functional.layer_norm(v, (COLUMNS,), scale, shift))
    tell("layer_norm", lambda: norm(rows), 8 * ROWS * COLUMNS)
    del rows

    for name, dtype in [("f16", torch.float16), ("bf16", torch.bfloat16)]:
        a, b = (torch.randn(M, M, device=device, dtype=dtype) for _ in range(2))
        bias = torch.randn(M, device=device, dtype=dtype)
        dense = torch.compile(lambda a, b, bias: gelu(torch.addmm(bias, a, b)))
        tell(f"gemm_bias_gelu_{name}", lambda: dense(a, b, bias), 0, 2 * M**3)
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.randn(M, M, device=device) for _ in range(2))
    tell("gemm_f32", lambda: a @ b, 0, 2 * M**3)

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, capturable=True, fused=True)
    images, labels = torch.rand(32, 64, device=device), torch.randint(0, 10, (32,), device=device)

    @torch.compile(mode="reduce-overhead")
    def loss_of(images, labels):
        return torch.nn.functional.cross_entropy(model(images), labels)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of(images, labels).backward()
        optimizer.step()

    tell("digits_step", step)


main()
