"""JAX."""

import math
import os
import sys
import time

import decoding
import drawing
import inference
import memory
import starts
import steps
from cases import BEGUN, is_compared, operands, scale_of
from judge import answers, best, judged, verdict

from .absent import Absent


class Jax:
    """JAX, jitted; training steps donate their state. In `jax.least-memory`, XLA on a CPU schedules
    for memory, not for concurrency."""

    def __init__(self, name, device):
        if name == "jax.least-memory":
            if "jax" in sys.modules:
                raise Absent("flags of XLA hold for a process, so it needs one of its own: --serve")
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = (
                f"{flags} --xla_cpu_enable_concurrency_optimized_scheduler=false".strip()
            )
        # Leaves memory for the other contenders.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        try:
            import jax
        except ImportError:
            raise Absent("not installed") from None
        self.name, self.device, self.jax = name, device, jax
        platform, _, number = device.partition(":")
        try:
            self.place = jax.devices(platform)[int(number or 0)]
        except (RuntimeError, IndexError):
            raise Absent(f"JAX {jax.__version__} finds no {device}") from None
        # f32 products in f32, as in the other contenders.
        jax.config.update("jax_default_matmul_precision", "highest")
        self.cases = {}

    def libraries(self):
        return {"jax": self.jax.__version__}

    def wants(self, case):
        return case["kind"]["is"] != "recurrent" or is_compared(case, self.device)

    def wide(self):
        """A context with f64 enabled."""
        if hasattr(self.jax, "enable_x64"):
            return self.jax.enable_x64(True)
        from jax.experimental import enable_x64

        return enable_x64()

    def draw(self, case):
        jax, jnp = self.jax, self.jax.numpy
        dtype = {"f32": jnp.float32, "bf16": jnp.bfloat16}[case["dtype"]]
        arrays = {}
        with jax.default_device(self.place):
            for i, (name, (shape, (low, high))) in enumerate(operands(case).items()):
                key = jax.random.fold_in(jax.random.key(0x5EED), i)
                if low is None:
                    arrays[name] = jax.random.randint(key, shape, 0, high)
                else:
                    arrays[name] = (jax.random.uniform(key, shape) * (high - low) + low).astype(
                        dtype
                    )
        return arrays

    def function(self, case):
        """A case as a function of its arrays, in the order of `operands`, that returns a tuple."""
        jax, jnp, kind = self.jax, self.jax.numpy, case["kind"]
        name = kind["is"]

        def normal(x, gamma, beta):
            wide = jnp.promote_types(x.dtype, jnp.float32)
            centred = x.astype(wide) - x.astype(wide).mean(1, keepdims=True)
            deviation = jax.lax.rsqrt((centred * centred).mean(1, keepdims=True) + 1e-5)
            return (centred * deviation).astype(x.dtype) * gamma + beta

        def normal_backward(x, gamma, beta, dy):
            y, pullback = jax.vjp(normal, x, gamma, beta)
            return (y, *pullback(dy))

        def cross_entropy(x, labels):
            wide = jax.nn.log_softmax(x.astype(jnp.promote_types(x.dtype, jnp.float32)), 1)
            return -jnp.take_along_axis(wide, labels[:, None], 1).mean()

        if name == "empty":
            return lambda x, s: (x * s,)
        if name == "chain":
            return {
                "copy": lambda x, s: (x * s,),
                "copy_plain": lambda x: (jnp.copy(x),),
                "mul_add": lambda x, w, b, r: ((x * w + b) * x + r,),
                "gelu": lambda x, b, r: (jax.nn.gelu(x + b, approximate=False) + r,),
                "eight": lambda x, w, b, r: (
                    jnp.sqrt(jnp.abs(jnp.maximum(x * w + b, r) * x - w) + 1),
                ),
            }[kind["chain"]]
        if name == "rows":
            return {
                "softmax": lambda x: (jax.nn.softmax(x, 1),),
                "layer_norm": lambda x, gamma, beta: (normal(x, gamma, beta),),
                "layer_norm_backward": normal_backward,
                "cross_entropy_backward": jax.value_and_grad(cross_entropy),
            }[kind["kernel"]]
        if name in ("sum", "column_sum"):
            return lambda x: (x.astype(jnp.promote_types(x.dtype, jnp.float32)).sum(0),)
        if name == "transpose":
            return lambda x: (x.T,)
        if name == "product":
            return (
                (lambda x, w: (x @ w.T,))
                if kind["product"]["transposed"]
                else (lambda x, w: (x @ w,))
            )
        gelu = lambda y: jax.nn.gelu(y, approximate=True)
        return {
            "none": lambda x, w: (x @ w,),
            "bias": lambda x, w, b: (x @ w + b,),
            "bias_relu": lambda x, w, b: (jax.nn.relu(x @ w + b),),
            "bias_gelu": lambda x, w, b: (gelu(x @ w + b),),
            "residual": lambda x, w, r: (x @ w + r,),
        }[kind["epilogue"]]

    def mixed(self, case, function):
        """The function with all floats in bf16, if the case is in mixed precision. Derivatives with
        respect to f32 parameters are f32."""
        jax, jnp = self.jax, self.jax.numpy
        if case["dtype"] != "mixed":
            return function
        half = lambda a: a.astype(jnp.bfloat16) if jnp.issubdtype(a.dtype, jnp.floating) else a
        return lambda *arguments: function(*jax.tree.map(half, arguments))

    def steps(self, case):
        """Variants of a network's training step by name."""
        jax, jnp, network = self.jax, self.jax.numpy, steps.of(case)
        losses = network.jax_losses(jax)

        def step(loss, dtype, compiled):
            with jax.default_device(self.place):
                x, y = map(jnp.asarray, network.data())
                x = x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
                parts = [jnp.asarray(p, dtype) for p in drawing.parameters(network.shapes)]
                zeros = lambda: [jnp.zeros_like(p) for p in parts]
                held = [(parts, zeros(), zeros(), jnp.zeros((), jnp.int32))]
            function = steps.jax_step(jax, loss, network.decay)
            if compiled:
                function = jax.jit(function, donate_argnums=0)

            def run():
                held[0], loss = function(held[0], x, y)
                return (loss,)

            return run

        def plain():
            with self.wide():
                run = step(next(iter(losses.values())), jnp.float64, False)

            def wide():
                with self.wide(), jax.default_device(self.place):
                    return run()

            return wide

        return {
            name: lambda loss=loss: step(self.mixed(case, loss), jnp.float32, True)
            for name, loss in losses.items()
        }, plain

    def updates(self, case):
        """A run that writes rows into a cache, which it donates, and its verdict."""
        jax, jnp, arrays = self.jax, self.jax.numpy, self.draw(case)
        window, at = case["kind"]["window"], jnp.int32(case["kind"]["window"]["rows"] // 3)
        update = jax.lax.dynamic_update_slice_in_dim

        def function(cache, rows, at):
            if window["written"] == 1:
                return update(cache, rows, at, 0)
            row = lambda i: jax.lax.dynamic_slice_in_dim(rows, i, 1, 0)
            step = lambda i, cache: update(cache, row(i), at + i, 0)
            return jax.lax.fori_loop(0, window["written"], step, cache)

        jitted = jax.jit(function, donate_argnums=0)
        cache, rows = arrays["cache"], arrays["rows"]
        expected = cache.at[int(at) : int(at) + window["written"]].set(rows)
        held = [jitted(jnp.copy(cache), rows, at)]
        worst = float(jnp.abs(held[0] - expected).max())

        def run():
            held[0] = jitted(held[0], rows, at)
            return held

        return run, verdict(case, worst, expected.size)

    def decode(self, case):
        """Variants of a step of decoding by name. A step donates its caches."""
        jax, jnp, decoder = self.jax, self.jax.numpy, decoding.Decoder(case)
        dtype = {"f32": jnp.float32, "bf16": jnp.bfloat16}[case["dtype"]]
        with jax.default_device(self.place):
            parameters = [jnp.array(p, dtype) for p in decoder.parameters()]
            token, position = jnp.array(decoder.token()), jnp.int32(decoder.positions - 1)

        def way(function):
            function = jax.jit(function, donate_argnums=0)
            with jax.default_device(self.place):
                caches = [[jnp.array(c, dtype) for c in pair] for pair in decoder.caches()]
            held = [caches]

            def run():
                held[0], logits = function(held[0], parameters, token, position)
                return (logits,)

            return run

        forms = decoder.jax_ways(jax)
        return {name: lambda form=form: way(form) for name, form in forms.items()}

    def begun(self, case):
        return starts.jax(self, case)

    def memory(self, case):
        return memory.jax(self, case)

    def infer(self, case):
        """Variants of a network's inference by name; they differ in the form of attention."""
        jax, jnp, network = self.jax, self.jax.numpy, inference.of(case)
        with jax.default_device(self.place):
            inputs = [jnp.asarray(a) for a in network.inputs().values()]
            parameters = [jnp.asarray(p) for p in drawing.parameters(network.shapes)]

        def way(fused):
            function = jax.jit(self.mixed(case, network.jax_function(jax, fused)))
            return lambda: (function(parameters, *inputs),)

        return {"einsum": lambda: way(False), "fused": lambda: way(True)}, (
            lambda result: result.astype(jnp.float32)
        )

    def prepare(self, case):
        jax, jnp = self.jax, self.jax.numpy
        if case["kind"]["is"] == "inference":
            return answers(self, case, *self.infer(case))
        if case["kind"]["is"] == "decoding":
            expected = decoding.Decoder(case).plain()
            wide = lambda result: result.astype(jnp.float32)
            return judged(self, case, self.decode(case), wide, expected)
        if case["kind"]["is"] in BEGUN:
            return best(self, case, *self.steps(case))
        if case["kind"]["is"] == "window":
            self.cases[case["id"]], found = self.updates(case)
            return found
        arrays = self.draw(case)
        widened = lambda a: (
            jnp.asarray(a, jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a
        )
        function = self.function(case)
        jitted, inputs = jax.jit(function), list(arrays.values())
        run = lambda: jitted(*inputs)
        found = run()
        with self.wide(), jax.default_device(self.place):
            expected = function(*map(widened, inputs))
        worst, compared = 0.0, 0
        with self.wide():
            for f, e in zip(found, expected):
                deviation = float(jnp.abs(jnp.asarray(f, jnp.float64) - e).max())
                worst = max(
                    worst,
                    deviation / scale_of(case, float(jnp.abs(e).max())),
                    key=lambda v: math.inf if math.isnan(v) else v,
                )
                compared += f.size
        self.cases[case["id"]] = run
        return verdict(case, worst, compared)

    def time(self, case, runs):
        run = self.cases[case["id"]]
        start = time.perf_counter()
        for _ in range(runs):
            results = run()
        # The device runs in order, so all runs have finished when the last one has.
        self.jax.block_until_ready(results)
        return time.perf_counter() - start

    def release(self, case):
        self.cases.pop(case["id"], None)
