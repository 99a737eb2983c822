#!/usr/bin/env python3
"""The twin of `wengert-bench gpt2` in PyTorch and JAX: some training steps of GPT-2 with 124
million parameters on one batch.

    python3 bench/peers/gpt2.py torch.compile --batch 32
    python3 bench/peers/gpt2.py jax --batch 32

Parameters, moments and statistics are f32; layers are computed in bf16. Each system is written in
the ways that its users would write it, and each way prints a line:

- `autocast`: PyTorch chooses the dtype of each op. `convert`: all parameters are converted first.
- `fused`: JAX's `dot_product_attention`, by cuDNN where there is one; `einsum`: plain attention.
"""

import argparse
import os
import time

import drawing
import steps

WARM = 3  # untimed steps, as in `bench/src/gpt2.rs`
SMALL = {"layers": 2, "width": 12, "heads": 3, "vocabulary": 11, "steps": 5}
GPT2 = {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50304, "steps": 1024}


def report(name, network, count, seconds, first, last, memory, begun):
    """Prints a line with the same count of operations as `bench/src/gpt2.rs`."""
    b, t, c = network["batch"], network["steps"], network["width"]
    layers, v = network["layers"], network["vocabulary"]
    flops = b * t * (6 * (12 * layers * c * c + v * c) + 12 * layers * c * t)
    each = seconds / count
    print(
        f"{name}, {b}x{t}: begun in {begun:.1f} s; {each * 1e3:.3f} ms a step, "
        f"{b * t / each:.0f} tokens/s, {flops / each / 1e12:.2f} TFLOP/s, "
        f"{memory / 1e9:.2f} GB; loss {first:.4f} -> {last:.4f}",
        flush=True,
    )


def torch_ways(network, device):
    """Steps by name, each a function that returns the loss, and the peak of memory in bytes."""
    import torch

    described = steps.Transformer(network)
    x, y = (torch.from_numpy(a).to(device).long() for a in described.data())
    kind = device.partition(":")[0]
    plain, _ = described.torch_losses(torch)[""]

    def autocast(parameters, x, y):
        with torch.autocast(kind, torch.bfloat16):
            return plain(parameters, x, y)

    def convert(parameters, x, y):
        return plain([p.bfloat16() for p in parameters], x, y)

    def way(loss):
        parameters = [torch.from_numpy(p).to(device) for p in drawing.fresh(described.shapes)]
        compiled = torch.compile(loss, dynamic=False, fullgraph=True)
        settings = {"fused": True} if kind == "cuda" else {"foreach": True}
        run = steps.torch_step(torch, compiled, parameters, x, y, described.decay, **settings)
        return lambda: run()[0]

    def memory():
        return torch.cuda.max_memory_allocated() if kind == "cuda" else 0

    return {"autocast": lambda: way(autocast), "convert": lambda: way(convert)}, memory


def jax_ways(network, device):
    """As `torch_ways`."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    jnp, described = jax.numpy, steps.Transformer(network)
    platform, _, number = device.partition(":")
    place = jax.devices(platform)[int(number or 0)]
    x, y = (jax.device_put(a, place) for a in described.data())

    def way(loss):
        half = lambda parameters, x, y: loss([p.astype(jnp.bfloat16) for p in parameters], x, y)
        parts = [jax.device_put(p, place) for p in drawing.fresh(described.shapes)]
        zeros = lambda: [jnp.zeros_like(p) for p in parts]
        held = [(parts, zeros(), zeros(), jax.device_put(jnp.zeros((), jnp.int32), place))]
        step = jax.jit(steps.jax_step(jax, half, described.decay), donate_argnums=0)

        def run():
            held[0], value = step(held[0], x, y)
            return value

        return run

    def memory():
        return (place.memory_stats() or {}).get("peak_bytes_in_use", 0)

    losses = {
        "fused": "fused" if platform == "cuda" else None,
        "einsum": "einsum",
    }
    found = described.jax_losses(jax)
    return {n: lambda l=found[k]: way(l) for n, k in losses.items() if k}, memory


def main():
    parser = argparse.ArgumentParser(description="Times training steps of GPT-2 124M in bf16.")
    parser.add_argument("system", choices=["torch.compile", "jax"])
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    parser.add_argument("--batch", type=int, default=4, help="sequences of 1024 tokens a step")
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--way", action="append", help="only these ways")
    parser.add_argument("--small", action="store_true", help="a small network: checks that it runs")
    arguments = parser.parse_args()
    network = dict(SMALL if arguments.small else GPT2, batch=arguments.batch)
    of = {"torch.compile": torch_ways, "jax": jax_ways}[arguments.system]
    ways, memory = of(network, arguments.device)
    for name, make in ways.items():
        if arguments.way and name not in arguments.way:
            continue
        start = time.perf_counter()
        run = make()
        first = float(run())
        for _ in range(WARM - 1):
            last = run()
        float(last)
        begun = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(arguments.steps):
            last = run()
        # The device runs in order: the last loss is there after all steps.
        last = float(last)
        seconds = time.perf_counter() - start
        name = f"{arguments.system} {name}"
        report(name, network, arguments.steps, seconds, first, last, memory(), begun)
        del run


if __name__ == "__main__":
    main()
