"""Measures of JAX, under the names that our benchmark uses.

Prints lines `measure NAME SECONDS BYTES FLOPS`, separated by tabs; BYTES are those that must be moved once, FLOPS those of matrix products;
0 where it is not the point. Seconds are the median of ten rounds after warming up; a round queues several runs and waits for the last, so that
the cost of calling is not counted.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp

N = 64 << 20
ROWS, COLUMNS = 16384, 4096
M = 4096
QUEUED = 10


def seconds(run):
    jax.block_until_ready(run())
    times = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(QUEUED):
            last = run()
        jax.block_until_ready(last)
        times.append((time.perf_counter() - start) / QUEUED)
    return statistics.median(times)


def tell(name, run, moved=0, flops=0):
    print(f"measure\t{name}\t{seconds(run):.9f}\t{moved}\t{flops}", flush=True)


def main():
    if jax.default_backend() != "gpu":
        sys.exit("JAX sees no GPU")
    keys = jax.random.split(jax.random.key(0), 8)

    x, y, z = (jax.random.normal(k, (N,)) for k in keys[:3])
    copy = jax.jit(lambda v: v.copy())
    tell("copy", lambda: copy(x), 8 * N)
    chain = jax.jit(lambda x, y, z: jax.nn.gelu(x + y, approximate=True) * z)
    tell("chain", lambda: chain(x, y, z), 16 * N)
    del x, y, z

    rows = jax.random.normal(keys[3], (ROWS, COLUMNS))
    softmax = jax.jit(lambda v: jax.nn.softmax(v, axis=1))
    tell("softmax", lambda: softmax(rows), 8 * ROWS * COLUMNS)
    scale, shift = jnp.ones(COLUMNS), jnp.zeros(COLUMNS)

    @jax.jit
    def norm(v):
        mean, variance = v.mean(1, keepdims=True), v.var(1, keepdims=True)
        return (v - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift

    tell("layer_norm", lambda: norm(rows), 8 * ROWS * COLUMNS)
    del rows

    for name, dtype in [("f16", jnp.float16), ("bf16", jnp.bfloat16)]:
        a, b = (jax.random.normal(k, (M, M), dtype) for k in keys[4:6])
        bias = jax.random.normal(keys[6], (M,), dtype)
        dense = jax.jit(lambda a, b, bias: jax.nn.gelu(a @ b + bias, approximate=True))
        tell(f"gemm_bias_gelu_{name}", lambda: dense(a, b, bias), 0, 2 * M**3)
    a, b = (jax.random.normal(k, (M, M)) for k in keys[4:6])
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST))
    tell("gemm_f32", lambda: product(a, b), 0, 2 * M**3)

    def initial(key, inputs, outputs):
        return jax.random.normal(key, (inputs, outputs)) * (2 / inputs) ** 0.5, jnp.zeros(outputs)

    weights = (initial(keys[0], 64, 128), initial(keys[1], 128, 10))
    zeros = jax.tree.map(jnp.zeros_like, weights)
    state = (weights, zeros, zeros, jnp.float32(0))
    images, labels = jax.random.uniform(keys[2], (32, 64)), jax.random.randint(keys[3], (32,), 0, 10)

    def loss_of(weights):
        (w1, b1), (w2, b2) = weights
        logits = jax.nn.relu(images @ w1 + b1) @ w2 + b2
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()

    @jax.jit
    def step(state):
        weights, first, second, count = state
        gradient = jax.grad(loss_of)(weights)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        adam = lambda w, m, v: w * (1 - 5e-5) - 5e-3 * (m / (1 - 0.9**count)) / (
            jnp.sqrt(v / (1 - 0.999**count)) + 1e-8
        )
        return jax.tree.map(adam, weights, first, second), first, second, count

    def advance():
        nonlocal state
        state = step(state)
        return state

    tell("digits_step", advance)


main()
