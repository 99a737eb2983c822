"""A start for `wengert-bench starts`: one training step of a transformer in a fresh process, in the
protocol of `bench/src/starts`."""

import math
import os
import time
from pathlib import Path

import drawing
import steps
import transformer

STEPS = 3  # the first step is the measured start, the others show the memory of training


def prepare(cache):
    """Sets the folder of the compilation caches. Libraries read it at import."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def peak():
    """Peak resident memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def measure(contender, case, answer):
    """Answers twice: first the first step's loss, then the figures of this process.
    `contender.begun(case)` returns the step and the seconds of compiling. If the seconds are None,
    compiling is part of the first step, and its time is the first step's time minus the
    second's."""
    step, compile_seconds = contender.begun(case)
    times = []
    for n in range(STEPS):
        begin = time.perf_counter()
        loss = float(step()[0])
        times.append(time.perf_counter() - begin)
        if n == 0:
            answer({"stepped": loss})
    if compile_seconds is None and contender.name != "torch":
        compile_seconds = max(times[0] - times[1], 0.0)
    count = sum(
        math.prod(shape) for shape, _ in transformer.shapes(case["kind"]["network"]).values()
    )
    answer(
        {
            "contender": contender.name,
            "device": contender.device,
            "libraries": contender.libraries(),
            "caches": contender.name != "torch",
            "compile_seconds": compile_seconds,
            "peak_bytes": peak(),
            "state_bytes": 12 * count,
        }
    )


def torch(contender, case):
    """The step in PyTorch, with the fused optimiser."""
    network = steps.of(case)
    loss, _ = network.torch_losses(contender.torch)[""]
    x, y = (contender.torch.from_numpy(a).long().to(contender.device) for a in network.data())
    parameters = [
        contender.torch.from_numpy(p).to(contender.device) for p in drawing.fresh(network.shapes)
    ]
    return (
        steps.torch_step(
            contender.torch, contender.compiled(loss), parameters, x, y, network.decay, fused=True
        ),
        None,
    )


def jax(contender, case):
    """The step in JAX, with attention by einsum and a donated state."""
    jax, jnp = contender.jax, contender.jax.numpy
    network = steps.of(case)
    with jax.default_device(contender.place):
        x, y = map(jnp.asarray, network.data())
        parameters = [jnp.asarray(p) for p in drawing.fresh(network.shapes)]
        zeros = lambda: [jnp.zeros_like(p) for p in parameters]
        held = [(parameters, zeros(), zeros(), jnp.zeros((), jnp.int32))]
        del parameters
        begin = time.perf_counter()
        function = jax.jit(
            steps.jax_step(jax, network.jax_losses(jax)["einsum"], network.decay), donate_argnums=0
        )
        function = function.lower(held[0], x, y).compile()
        compile_seconds = time.perf_counter() - begin

    def run():
        held[0], loss = function(held[0], x, y)
        return (loss,)

    return run, compile_seconds
