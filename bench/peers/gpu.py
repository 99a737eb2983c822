#!/usr/bin/env python3
"""Measures the cases of `wengert-bench` in PyTorch, JAX and ONNX Runtime, whichever is installed.

    python3 bench/peers/gpu.py --device cuda:0 --json peers.json     every contender that is there, in turns
    python3 bench/peers/gpu.py --serve jax --device cuda:0           answers requests of `wengert-bench gpu --peer`
    python3 bench/peers/gpu.py --serve jax --start CASE --cache FOLDER     starts a case, for `wengert-bench starts --peer`
    python3 bench/peers/gpu.py --serve jax --device cpu --memory CASE     compiles a case, for `wengert-bench memory --peer`

The cases are those of `cases.json` beside this file, the method is that of `bench/src/harness.rs`, and so is the record. The README here says what
each contender does.
"""

import argparse
import ctypes
import gc
import json
import math
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import drawing
import inference
import memory
import onnx_graphs
import starts
import steps

FORMAT = 1
MOST_RUNS = 5000
WARM_UP_STEPS = 3  # of a captured training step

# Unit roundoffs, and how many of them a result may deviate relative to its greatest element.
BOUNDS = {"f32": 1e-5, "bf16": 16 * 2.0**-8}


# Kinds of cases that begin with the same numbers for everybody.
BEGUN = ("training", "convolutional", "recurrent", "transformer", "inference")

# From so many parameters on, only the first loss is computed in f64; the others are compared between contenders.
LARGE = 1 << 20


class Absent(Exception):
    """A contender that cannot take part."""


# ---------------------------------------------------------------------------------------------------------------- data


def operands(case):
    """Names of a case's arrays: their shapes, and the bounds between which they are drawn (None: class numbers below the second)."""
    kind = case["kind"]
    name = kind["is"]
    if name == "empty":
        return {"x": ([1], (-2, 2)), "s": ([1], (1, 1))}
    if name == "chain":
        n = [kind["elements"]]
        reads = {"copy": "xs", "copy_plain": "x", "gelu": "xbr", "mul_add": "xwbr", "eight": "xwbr"}[kind["chain"]]
        return {a: ([1], (1, 1)) if a == "s" else (n, (-2, 2)) for a in reads}
    if name == "rows":
        rows, columns = kind["rows"], kind["columns"]
        arrays = {"x": ([rows, columns], (-2, 2))}
        if kind["kernel"].startswith("layer_norm"):
            arrays.update(gamma=([columns], (0.5, 1.5)), beta=([columns], (-0.5, 0.5)))
        if kind["kernel"] == "layer_norm_backward":
            arrays["dy"] = ([rows, columns], (-1, 1))
        if kind["kernel"] == "cross_entropy_backward":
            arrays["labels"] = ([rows], (None, columns))
        return arrays
    if name == "column_sum":
        return {"x": ([kind["rows"], kind["columns"]], (-1, 1))}
    if name == "sum":
        return {"x": ([kind["elements"]], (-1, 1))}
    n = kind.get("extent")
    if name == "transpose":
        return {"x": ([n, n], (-1, 1))}
    if name == "gemm":
        arrays = {"x": ([n, n], (-1, 1)), "w": ([n, n], (-1, 1))}
        if kind["epilogue"] == "residual":
            arrays["r"] = ([n, n], (-1, 1))
        elif kind["epilogue"] != "none":
            arrays["b"] = ([n], (-1, 1))
        return arrays
    if name == "product":
        product = kind["product"]
        of_w = [product["inner"], product["columns"]]
        of_w = of_w[::-1] if product["transposed"] else of_w
        return {"x": ([product["rows"], product["inner"]], (-1, 1)), "w": (of_w, (-1, 1))}
    if name == "training":
        network = kind["network"]
        return {"x": ([network["batch"], network["widths"][0]], (0, 1)), "y": ([network["batch"]], (None, network["widths"][-1]))}
    raise ValueError(f"cases of kind `{name}` are not known here")


def bound_of(case):
    """The deviation that a result may have, relative to its scale."""
    if case["kind"]["is"] in BEGUN:
        return 1e-4
    return BOUNDS[case["dtype"]]


def is_compared(case, device):
    """Recurrent networks are compared on CPUs, and where they are a loop; unrolled, they are compared with themselves only."""
    return device == "cpu" and case["kind"]["network"]["form"] == "scan"


def scale_of(case, expected_greatest):
    """What deviations are relative to: the greatest element; of sums of random signs, half the number of their terms."""
    kind = case["kind"]
    terms = {"sum": kind.get("elements"), "column_sum": kind.get("rows")}.get(kind["is"])
    return terms / 2 if terms else max(expected_greatest, 1e-30)


# --------------------------------------------------------------------------------------------------------------- torch


class Torch:
    """PyTorch: eager, compiled, or captured as a CUDA graph."""

    def __init__(self, name, device):
        try:
            import torch
        except ImportError:
            raise Absent("not installed") from None
        self.name, self.device, self.torch = name, device, torch
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise Absent(f"PyTorch {torch.__version__} finds no GPU for {device}")
        if name == "torch.graph" and not device.startswith("cuda"):
            raise Absent("CUDA graphs need a GPU")
        # f32 products in f32, as the others compute them.
        torch.set_float32_matmul_precision("highest")
        if device == "cpu":
            torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.cases = {}

    def libraries(self):
        found = {"torch": self.torch.__version__}
        if self.torch.version.cuda:
            found["torch.cuda"] = self.torch.version.cuda
        return found

    def wants(self, case):
        if self.name == "torch.graph":
            return case["group"] == "steps"
        # On CPUs the layer of LSTMs is one op that the compiler does not take; eager, it is the same.
        return case["kind"]["is"] != "recurrent" or self.name == "torch" and is_compared(case, self.device)

    def synchronize(self):
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize(self.device)

    def compiled(self, function):
        """The function, compiled as the contender's name says. Each gets a code object of its own: the compiler counts recompilations
        of a code object and gives up after some."""
        if self.name == "torch":
            return function
        function = types.FunctionType(
            function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        mode = "max-autotune-no-cudagraphs" if self.name == "torch.max-autotune" else None
        return self.torch.compile(function, dynamic=False, fullgraph=True, mode=mode)

    def draw(self, case):
        torch = self.torch
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[case["dtype"]]
        generator = torch.Generator(device=self.device).manual_seed(0x5EED)
        arrays = {}
        for name, (shape, (low, high)) in operands(case).items():
            if low is None:
                arrays[name] = torch.randint(high, shape, generator=generator, device=self.device)
            else:
                even = torch.rand(shape, generator=generator, device=self.device)
                arrays[name] = (even * (high - low) + low).to(dtype)
        return arrays

    def function(self, case):
        """A case without derivatives, as a function of its arrays in the order of `operands`."""
        torch, kind = self.torch, case["kind"]
        functional, name = torch.nn.functional, kind["is"]
        if name == "empty":
            return lambda x, s: x * s
        if name == "chain":
            return {
                "copy": lambda x, s: x * s,
                "copy_plain": lambda x: x.clone(),
                "mul_add": lambda x, w, b, r: (x * w + b) * x + r,
                "gelu": lambda x, b, r: functional.gelu(x + b) + r,
                "eight": lambda x, w, b, r: ((torch.maximum(x * w + b, r) * x - w).abs() + 1).sqrt(),
            }[kind["chain"]]
        if name == "rows":
            return {
                "softmax": lambda x: torch.softmax(x, 1),
                "layer_norm": lambda x, gamma, beta: functional.layer_norm(x, x.shape[1:], gamma, beta, 1e-5),
                "layer_norm_backward": lambda x, gamma, beta: functional.layer_norm(x, x.shape[1:], gamma, beta, 1e-5),
                "cross_entropy_backward": lambda x, labels: functional.cross_entropy(x, labels),
            }[kind["kernel"]]
        if name in ("sum", "column_sum"):
            # Halves are added in f32; what is wider stays as it is.
            return lambda x: x.sum(0, dtype=torch.promote_types(x.dtype, torch.float32))
        if name == "transpose":
            return lambda x: x.t().contiguous()
        if name == "product":
            return (lambda x, w: x @ w.t()) if kind["product"]["transposed"] else (lambda x, w: x @ w)
        return {
            "none": lambda x, w: x @ w,
            "bias": lambda x, w, b: torch.addmm(b, x, w),
            "bias_relu": lambda x, w, b: torch.relu(torch.addmm(b, x, w)),
            "bias_gelu": lambda x, w, b: functional.gelu(torch.addmm(b, x, w), approximate="tanh"),
            "residual": lambda x, w, r: torch.addmm(r, x, w),
        }[kind["epilogue"]]

    def runner(self, case, arrays, function):
        """A function of nothing that runs the case and gives its results as a tuple."""
        grad = self.torch.autograd.grad
        kernel = case["kind"].get("kernel")
        if kernel == "layer_norm_backward":
            inputs = [arrays[n].requires_grad_() for n in ("x", "gamma", "beta")]

            def run():
                y = function(*inputs)
                return (y, *grad(y, inputs, arrays["dy"]))

            return run
        if kernel == "cross_entropy_backward":
            x = arrays["x"].requires_grad_()

            def run():
                loss = function(x, arrays["labels"])
                return (loss, *grad(loss, x))

            return run
        inputs = list(arrays.values())
        return lambda: (function(*inputs),)

    def captured(self, run):
        """The step as one CUDA graph, after some runs of it."""
        torch = self.torch
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                run()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = run()

        def replay():
            graph.replay()
            return results

        return replay

    def steps(self, case):
        """A network's training steps by name: one for each way in which it can be written."""
        torch, network = self.torch, steps.of(case)
        x, y = (torch.from_numpy(a).to(self.device) for a in network.data())
        x, y = (a if a.is_floating_point() else a.long() for a in (x, y))

        def step(loss, turn, dtype, **settings):
            parameters = [torch.from_numpy(p).to(self.device, dtype, copy=True) for p in turn(list(drawing.parameters(network.shapes)))]
            wide = x.to(dtype) if x.is_floating_point() else x
            return steps.torch_step(torch, loss, parameters, wide, y, network.decay, **settings)

        ways = {}
        for form, (loss, turn) in network.torch_losses(torch).items():
            compiled = self.compiled(loss)
            # On a GPU, and where there is little to learn, the fused optimiser is the fastest.
            large = case["work"]["elements"] >= LARGE and self.name != "torch.graph"
            for optimiser in ("foreach", "fused") if large else ("fused",):
                settings = {optimiser: True}
                if self.name == "torch.graph":
                    settings["capturable"] = True
                ways[f"{form} {optimiser}".strip()] = lambda l=compiled, t=turn, s=settings: step(l, t, torch.float32, **s)
        loss, turn = next(iter(network.torch_losses(torch).values()))
        return ways, lambda: step(loss, turn, torch.float64)

    def begun(self, case):
        return starts.torch(self, case)

    def infer(self, case):
        """A network's results by name: one for each way in which it can be asked."""
        torch, network = self.torch, inference.of(case)
        inputs = [torch.from_numpy(a).to(self.device) for a in network.inputs().values()]
        inputs = [a.long() if a.dtype == torch.int32 else a for a in inputs]
        parameters = [torch.from_numpy(p).to(self.device) for p in drawing.parameters(network.shapes)]
        function = self.compiled(network.torch_function(torch))

        def run():
            with torch.no_grad():
                return (function(parameters, *inputs),)

        return {"": lambda: run}, lambda result: result.cpu().numpy()

    def prepare(self, case):
        if case["kind"]["is"] == "inference":
            return answers(self, case, *self.infer(case))
        if case["kind"]["is"] in BEGUN:
            return self.captured_case(case) if self.name == "torch.graph" else best(self, case, *self.steps(case))
        arrays = self.draw(case)
        function = self.function(case)
        run = self.runner(case, arrays, self.compiled(function))
        found = run()
        wide = {n: a.detach().double() if a.is_floating_point() else a for n, a in arrays.items()}
        expected = self.runner(case, wide, function)()
        worst, compared = 0.0, 0
        for f, e in zip(found, expected):
            deviation = (f.detach().double() - e.detach()).abs().max().item()
            worst = max(worst, deviation / scale_of(case, e.detach().abs().max().item()), key=lambda v: math.inf if math.isnan(v) else v)
            compared += f.numel()
        self.cases[case["id"]] = run
        return verdict(case, worst, compared)

    def captured_case(self, case):
        """A step as a CUDA graph: the loss behind those that capturing took is compared."""
        ways, plain = self.steps(case)
        run, plain = self.captured(next(iter(ways.values()))()), plain()
        found = float(run()[0])
        expected = [float(plain()[0]) for _ in range(WARM_UP_STEPS + 1)][-1]
        self.cases[case["id"]] = run
        return verdict(case, abs(found - expected) / expected, 1)

    def time(self, case, runs):
        run = self.cases[case["id"]]
        self.synchronize()
        start = time.perf_counter()
        for _ in range(runs):
            run()
        self.synchronize()
        return time.perf_counter() - start

    def release(self, case):
        self.cases.pop(case["id"], None)
        if self.device.startswith("cuda"):
            self.torch.cuda.empty_cache()


# ----------------------------------------------------------------------------------------------------------------- jax


class Jax:
    """JAX, jitted; training steps donate their state. `jax.least-memory`: XLA orders what a CPU does for memory, not so that much can run at once."""

    def __init__(self, name, device):
        if name == "jax.least-memory":
            if "jax" in sys.modules:
                raise Absent("flags of XLA hold for a process, so it needs one of its own: --serve")
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_enable_concurrency_optimized_scheduler=false".strip()
        # Others want memory too.
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
        # f32 products in f32, as the others compute them.
        jax.config.update("jax_default_matmul_precision", "highest")
        self.cases = {}

    def libraries(self):
        return {"jax": self.jax.__version__}

    def wants(self, case):
        return case["kind"]["is"] != "recurrent" or is_compared(case, self.device)

    def wide(self):
        """A context in which there is f64."""
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
                    arrays[name] = (jax.random.uniform(key, shape) * (high - low) + low).astype(dtype)
        return arrays

    def function(self, case):
        """A case as a function of its arrays in the order of `operands`, which gives a tuple."""
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
                "eight": lambda x, w, b, r: (jnp.sqrt(jnp.abs(jnp.maximum(x * w + b, r) * x - w) + 1),),
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
            return (lambda x, w: (x @ w.T,)) if kind["product"]["transposed"] else (lambda x, w: (x @ w,))
        gelu = lambda y: jax.nn.gelu(y, approximate=True)
        return {
            "none": lambda x, w: (x @ w,),
            "bias": lambda x, w, b: (x @ w + b,),
            "bias_relu": lambda x, w, b: (jax.nn.relu(x @ w + b),),
            "bias_gelu": lambda x, w, b: (gelu(x @ w + b),),
            "residual": lambda x, w, r: (x @ w + r,),
        }[kind["epilogue"]]

    def steps(self, case):
        """A network's training steps by name: one for each way in which it can be written."""
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

        return {name: lambda loss=loss: step(loss, jnp.float32, True) for name, loss in losses.items()}, plain

    def begun(self, case):
        return starts.jax(self, case)

    def memory(self, case):
        return memory.jax(self, case)

    def infer(self, case):
        """A network's results by name: one for each way that attention can be written."""
        jax, jnp, network = self.jax, self.jax.numpy, inference.of(case)
        with jax.default_device(self.place):
            inputs = [jnp.asarray(a) for a in network.inputs().values()]
            parameters = [jnp.asarray(p) for p in drawing.parameters(network.shapes)]

        def way(fused):
            function = jax.jit(network.jax_function(jax, fused))
            return lambda: (function(parameters, *inputs),)

        return {"einsum": lambda: way(False), "fused": lambda: way(True)}, lambda result: result

    def prepare(self, case):
        jax, jnp = self.jax, self.jax.numpy
        if case["kind"]["is"] == "inference":
            return answers(self, case, *self.infer(case))
        if case["kind"]["is"] in BEGUN:
            return best(self, case, *self.steps(case))
        arrays = self.draw(case)
        widened = lambda a: jnp.asarray(a, jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a
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
                worst = max(worst, deviation / scale_of(case, float(jnp.abs(e).max())), key=lambda v: math.inf if math.isnan(v) else v)
                compared += f.size
        self.cases[case["id"]] = run
        return verdict(case, worst, compared)

    def time(self, case, runs):
        run = self.cases[case["id"]]
        start = time.perf_counter()
        for _ in range(runs):
            results = run()
        # What was started before it is done when the last one is.
        self.jax.block_until_ready(results)
        return time.perf_counter() - start

    def release(self, case):
        self.cases.pop(case["id"], None)


# -------------------------------------------------------------------------------------------------------- onnxruntime


class OnnxRuntime:
    """ONNX Runtime with its usual settings, on graphs of `onnx_graphs.py`: products and inference."""

    def __init__(self, name, device):
        try:
            import onnx
            import onnxruntime
        except ImportError:
            raise Absent("not installed") from None
        if device != "cpu":
            raise Absent("measured on CPUs only")
        self.name, self.device, self.onnx, self.runtime = name, device, onnx, onnxruntime
        self.cases = {}

    def libraries(self):
        return {"onnxruntime": self.runtime.__version__}

    def wants(self, case):
        kind = case["kind"]
        is_product = kind["is"] == "product" or kind["is"] == "gemm" and kind["epilogue"] == "none"
        return case["dtype"] == "f32" and (is_product or kind["is"] == "inference")

    def begun(self, case):
        raise Absent("it does not train")

    def session(self, model):
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        return self.runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def product(self, case):
        """The session of a product, its inputs, and the product in f64."""
        graph = onnx_graphs.Graph(self.onnx)
        inputs = {name: drawing.uniform(name, shape, low, high) for name, (shape, (low, high)) in operands(case).items()}
        transposed = case["kind"].get("product", {}).get("transposed", False)
        # A matrix that is an input each time, like x: a constant would be packed before.
        y = graph.op("Gemm", "x", "w", transB=int(transposed))
        x, w = (a.astype("float64") for a in inputs.values())
        expected = x @ (w.T if transposed else w)
        return self.session(graph.model(y, expected.shape, inputs)), inputs, expected

    def prepare(self, case):
        import numpy as np

        if case["kind"]["is"] == "inference":
            model, inputs = onnx_graphs.of(case)
            session = self.session(model)
            return answers(self, case, {"": lambda: lambda: session.run(None, inputs)}, lambda result: result)
        session, inputs, expected = self.product(case)
        self.cases[case["id"]] = run = lambda: session.run(None, inputs)
        deviation = np.abs(run()[0] - expected).max() / np.abs(expected).max()
        return verdict(case, float(deviation), expected.size)

    def time(self, case, runs):
        run = self.cases[case["id"]]
        start = time.perf_counter()
        for _ in range(runs):
            run()
        return time.perf_counter() - start

    def release(self, case):
        self.cases.pop(case["id"], None)


CONTENDERS = {"torch": Torch, "torch.compile": Torch, "torch.max-autotune": Torch, "torch.graph": Torch, "jax": Jax, "jax.least-memory": Jax, "onnxruntime": OnnxRuntime}
USUAL = ["torch", "torch.compile", "torch.graph", "jax", "onnxruntime"]


# ------------------------------------------------------------------------------------------------------------- harness


def verdict(case, worst, compared):
    """Parity as records have it; a wrong result is an error."""
    bound = bound_of(case)
    if not worst <= bound:
        raise ArithmeticError(f"the result is wrong: it deviates by {worst:.3e} from a computation in f64, {bound:.3e} is allowed")
    return {"compared": compared, "worst": worst, "bound": bound}


def best(contender, case, ways, plain):
    """Makes a step ready in each way it can be written and keeps the fastest. Losses are compared with those of the plain step."""
    run = plain()
    expected = [float(run()[0]) for _ in range(1 if case["work"]["elements"] >= LARGE else steps.STEPS)]
    del run

    def judge(run):
        losses = [float(run()[0]) for _ in range(steps.STEPS)]
        worst = max((abs(l - e) / e for l, e in zip(losses, expected)), key=lambda v: math.inf if math.isnan(v) else v)
        return verdict(case, worst, len(expected)) | {"losses": losses}

    return fastest(contender, case, ways, judge)


def answers(contender, case, ways, to_numpy):
    """Makes inference ready in each way it can be asked and keeps the fastest. Results are compared with those of NumPy in f64."""
    import numpy as np

    network = inference.of(case)
    parameters = [p.astype(np.float64) for p in drawing.parameters(network.shapes)]
    expected = network.plain(parameters, *network.inputs().values())
    del parameters

    def judge(run):
        found = np.asarray(to_numpy(run()[0]), np.float64).reshape(expected.shape)
        deviation = np.abs(found - expected).max() / np.abs(expected).max()
        return verdict(case, float(deviation), expected.size) | {"losses": inference.digest(found)}

    return fastest(contender, case, ways, judge)


def fastest(contender, case, ways, judge):
    """Makes a case ready in each way and keeps the fastest of those that are right."""
    least, parity = math.inf, None
    for name, make in ways.items():
        before = contender.cases.pop(case["id"], None)
        contender.cases[case["id"]] = run = make()
        found = judge(run)
        if len(ways) == 1:
            return found
        seconds = min(contender.time(case, 1) for _ in range(3))
        progress(f"{contender.name}: {name} takes {1e3 * seconds:.1f} ms")
        if seconds < least:
            least, parity = seconds, found
        else:
            contender.cases[case["id"]] = before
    return parity


def agree(found, expected):
    """Losses of two contenders who began with the same numbers."""
    for l, e in zip(found.get("losses", ()), expected.get("losses", ())):
        if not abs(l - e) <= 1e-4 * abs(e):
            raise ArithmeticError(f"the result is wrong: a loss is {l}, another contender's {e}")


def spread(samples):
    """Order statistics, linear between samples."""
    ordered = sorted(samples)

    def at(share):
        position = share * (len(ordered) - 1)
        below, above = math.floor(position), math.ceil(position)
        return ordered[below] + (ordered[above] - ordered[below]) * (position - below)

    return {"samples": len(ordered), "min": ordered[0], "p10": at(0.1), "median": at(0.5), "p90": at(0.9)}


def runs_for(seconds, settings):
    return min(max(math.ceil(settings["sample_seconds"] / max(seconds, 1e-9)), 1), MOST_RUNS)


def warm(contender, case, settings):
    """Runs a case until it is warm, and gives the number of runs of a sample."""
    times = []
    while len(times) < 3 or sum(times) < settings["warm_up_seconds"]:
        times.append(contender.time(case, 1))
    runs = runs_for(min(times[len(times) // 2 :]), settings)
    return 1 if runs == 1 else runs_for(contender.time(case, runs) / runs, settings)


def why(error):
    """An exception in one line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def measure(contenders, cases, settings):
    """Measures cases in turns: measurements and failures as records have them."""
    entrants, failed = [], []
    for case in cases:
        for contender in contenders:
            if not contender.wants(case):
                continue
            progress(f"{contender.name}: preparing {case['id']}")
            try:
                parity = contender.prepare(case)
                agree(parity, next((e["parity"] for e in entrants if e["case"] is case), {}))
                entrant = {"contender": contender, "case": case, "parity": parity, "runs": warm(contender, case, settings)}
                entrants.append(entrant | {"times": [], "latencies": [], "why": None})
            except Exception as error:  # Whatever a library throws, the others go on.
                contender.release(case)
                failed.append({"case": case["id"], "contender": contender.name, "why": why(error)})
    for number in range(settings["rounds"]):
        progress(f"round {number + 1} of {settings['rounds']}, {len(entrants)} entrants")
        for entrant in entrants if number % 2 == 0 else reversed(entrants):
            if entrant["why"]:
                continue
            contender, case, runs = entrant["contender"], entrant["case"], entrant["runs"]
            try:
                entrant["times"].append(contender.time(case, runs) / runs)
                entrant["latencies"].append(contender.time(case, 1))
            except Exception as error:
                entrant["why"] = why(error)
    measurements = []
    for entrant in entrants:
        contender, case = entrant["contender"], entrant["case"]
        contender.release(case)
        if entrant["why"]:
            failed.append({"case": case["id"], "contender": contender.name, "why": entrant["why"]})
            continue
        measurements.append(
            {
                "case": case["id"],
                "group": case["group"],
                "contender": contender.name,
                "device": contender.device,
                "work": case["work"],
                "reference": case["reference"],
                "runs": entrant["runs"],
                "time": spread(entrant["times"]),
                "latency": spread(entrant["latencies"]),
                "parity": entrant["parity"],
            }
        )
    return measurements, failed


def progress(line):
    print(line, file=sys.stderr, flush=True)


def machine():
    """Facts of the machine; what cannot be found out is left out."""
    cpu = None
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((l.split(":", 1)[1].strip() for l in lines if l.startswith("model name")), None)
    except OSError:
        pass
    gpus, driver = [], None
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
        gpus = [line.rpartition(",")[0].strip() for line in listed]
        driver = listed[0].rpartition(",")[2].strip() if listed else None
    except (OSError, subprocess.CalledProcessError):
        pass
    return {"cpu": cpu, "threads": len(os.sched_getaffinity(0)), "gpus": gpus, "driver": driver, "libraries": {}}


def speaker(output):
    """A function that writes one JSON object a line."""

    def answer(what):
        output.write(json.dumps(what) + "\n")
        output.flush()

    return answer


def start(name, device, case, cache, answer):
    """Starts a case, as `bench/src/starts` asks for it."""
    starts.prepare(cache)
    try:
        starts.measure(CONTENDERS[name](name, device), case, answer)
    except Absent as absent:
        answer({"absent": str(absent)})
    except Exception as error:
        answer({"error": why(error)})


def look(name, device, case, answer):
    """Says what a case's compiled step needs of memory, as `bench/src/memory` asks for it."""
    try:
        contender = CONTENDERS[name](name, device)
        if not hasattr(contender, "memory"):
            raise Absent("it does not say before it runs what memory it needs")
        answer(contender.memory(case))
    except Absent as absent:
        answer({"absent": str(absent)})
    except Exception as error:
        answer({"error": why(error)})


def give_back():
    """Memory that nobody holds goes back to the system, which others need: allocators keep it otherwise."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def serve(name, device, cases, answer):
    """Answers requests, one JSON object a line, until they end."""
    try:
        contender = CONTENDERS[name](name, device)
    except Absent as absent:
        return answer({"absent": str(absent)})
    known = {case["id"]: case for case in cases}
    wanted = [id for id, case in known.items() if contender.wants(case)]
    answer({"contender": name, "device": device, "libraries": contender.libraries(), "cases": wanted})
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if "prepare" in request:
                parity = contender.prepare(known[request["prepare"]])
                give_back()
                answer({"parity": parity})
            elif "time" in request:
                answer({"seconds": contender.time(known[request["time"]], request["runs"])})
            else:
                contender.release(known[request["release"]])
                give_back()
                answer({"released": True})
        except Exception as error:
            answer({"error": why(error)})


def main():
    parser = argparse.ArgumentParser(description="Measures the cases of wengert-bench in PyTorch and JAX.")
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    parser.add_argument("--small", action="store_true", help="small extents and few rounds: to see that everything runs")
    parser.add_argument("--cpu", action="store_true", help="the cases of `wengert-bench cpu`, on the CPU")
    parser.add_argument("--only", action="append", default=[], help="only cases whose name contains one of these")
    parser.add_argument("--contender", action="append", choices=list(CONTENDERS), help=f"who; {', '.join(USUAL)} if not given")
    parser.add_argument("--rounds", type=int, help="samples of each case")
    parser.add_argument("--date", help="the day, for the record")
    parser.add_argument("--json", help="writes the record to this file instead of the standard output")
    parser.add_argument("--serve", choices=list(CONTENDERS), help="answer requests on standard input as this contender")
    parser.add_argument("--start", metavar="CASE", help="with --serve: answer nothing, start this case and say what that took")
    parser.add_argument("--memory", metavar="CASE", help="with --serve: answer nothing, compile this case and say what memory it needs")
    parser.add_argument("--cache", metavar="FOLDER", help="with --start: where to keep what is compiled")
    arguments = parser.parse_args()
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")

    # Libraries print; the answers and the record are not to be mixed with that.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    listed = json.loads((Path(__file__).parent / "cases.json").read_text())
    if arguments.serve:
        # On a GPU some groups have other names: what is asked for there is the catalogue's.
        every = sum((listed[name] for name in ("cpu", "cpu_small", "full", "small")), [])
        if arguments.memory:
            every = listed["memory"] + listed["memory_small"]
            case = next((case for case in every if case["id"] == arguments.memory), None)
            if case is None:
                parser.error("--memory needs the name of a case")
            return look(arguments.serve, arguments.device, case, speaker(output))
        if not arguments.start:
            return serve(arguments.serve, arguments.device, every, speaker(output))
        case = next((case for case in every if case["id"] == arguments.start), None)
        if case is None or arguments.cache is None:
            parser.error("--start needs the name of a case and --cache")
        return start(arguments.serve, arguments.device, case, arguments.cache, speaker(output))
    if arguments.cpu:
        arguments.device = "cpu"
        cases = listed["cpu_small" if arguments.small else "cpu"]
    else:
        cases = listed["small" if arguments.small else "full"]

    cases = [c for c in cases if not arguments.only or any(text in c["id"] for text in arguments.only)]
    settings = {"rounds": 21, "sample_seconds": 0.02, "warm_up_seconds": 0.1}
    if arguments.small:
        settings = {"rounds": 3, "sample_seconds": 0.0, "warm_up_seconds": 0.0}
    settings["rounds"] = arguments.rounds or settings["rounds"]
    record = {
        "format": FORMAT,
        "tool": "bench/peers/gpu.py",
        "date": arguments.date,
        "commit": None,
        "machine": machine(),
        "settings": settings,
        "measurements": [],
        "failed": [],
        "absent": [],
    }
    contenders = []
    for name in arguments.contender or USUAL:
        try:
            contender = CONTENDERS[name](name, arguments.device)
        except Absent as absent:
            record["absent"].append({"contender": name, "why": str(absent)})
            continue
        contenders.append(contender)
        record["machine"]["libraries"].update(contender.libraries())
    for group in dict.fromkeys(case["group"] for case in cases):
        measurements, failed = measure(contenders, [c for c in cases if c["group"] == group], settings)
        record["measurements"] += measurements
        record["failed"] += failed
    text = json.dumps(record, indent=2) + "\n"
    if arguments.json:
        Path(arguments.json).write_text(text)
    else:
        output.write(text)
        output.flush()


if __name__ == "__main__":
    main()
