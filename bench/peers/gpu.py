#!/usr/bin/env python3
"""Measures the cases of `wengert-bench` in PyTorch and JAX, whichever is installed.

    python3 bench/peers/gpu.py --device cuda:0 --json peers.json     every contender that is there, in turns
    python3 bench/peers/gpu.py --serve jax --device cuda:0           answers requests of `wengert-bench gpu --peer`

The cases are those of `cases.json` beside this file, the method is that of `bench/src/harness.rs`, and so is the record. The README here says what
each contender does.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import transformer

FORMAT = 1
MOST_RUNS = 5000
WARM_UP_STEPS = 3  # of a captured training step

# Unit roundoffs, and how many of them a result may deviate relative to its greatest element.
BOUNDS = {"f32": 1e-5, "bf16": 16 * 2.0**-8}


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
    if name == "training":
        network = kind["network"]
        return {"x": ([network["batch"], network["widths"][0]], (0, 1)), "y": ([network["batch"]], (None, network["widths"][-1]))}
    raise ValueError(f"cases of kind `{name}` are not known here")


def bound_of(case):
    """The deviation that a result may have, relative to its scale."""
    if case["kind"]["is"] == "transformer":
        return 1e-4
    return 1e-3 if case["kind"]["is"] == "training" else BOUNDS[case["dtype"]]


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
        return self.name != "torch.graph" or case["group"] == "steps"

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

    def step(self, case, arrays, dtype, compiled):
        """A training step as a function that gives the loss."""
        torch, network = self.torch, case["kind"]["network"]
        functional = torch.nn.functional
        torch.manual_seed(1)
        layers = []
        for wide, out in zip(network["widths"], network["widths"][1:]):
            layers += [torch.nn.Linear(wide, out), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers[:-1]).to(self.device, dtype)
        settings = {"lr": 1e-3}
        if self.device.startswith("cuda"):
            settings.update(fused=True, capturable=True)
        if network["algorithm"] == "adam_w":
            optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01, **settings)
        else:
            optimizer = torch.optim.Adam(model.parameters(), **settings)
        x, y = arrays["x"].to(dtype), arrays["y"]
        forward = lambda x, y: functional.cross_entropy(model(x), y)
        if compiled:
            forward = self.compiled(forward)

        def run():
            optimizer.zero_grad(set_to_none=True)
            loss = forward(x, y)
            loss.backward()
            optimizer.step()
            return (loss.detach(),)

        return run

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

    def transformer(self, case, parameters):
        """A transformer's steps by name: one for each way that the optimiser can work."""
        torch, network = self.torch, case["kind"]["network"]
        x, y = (torch.from_numpy(a).long().to(self.device) for a in transformer.tokens(network))
        loss = transformer.torch_loss(torch, network)
        step = lambda loss, dtype, **settings: transformer.torch_step(
            torch, loss, [torch.from_numpy(p).to(self.device, dtype, copy=True) for p in parameters()], x, y, **settings
        )
        compiled, f32 = self.compiled(loss), torch.float32
        ways = {way: lambda way=way: step(compiled, f32, **{way: True}) for way in ("foreach", "fused")}
        return ways, lambda: step(loss, torch.float64)

    def prepare(self, case):
        torch = self.torch
        if case["kind"]["is"] == "transformer":
            return best(self, case, *self.transformer(case, lambda: transformer.drawn(case["kind"]["network"])))
        arrays = self.draw(case)
        if case["kind"]["is"] == "training":
            run = self.step(case, arrays, torch.float32, True)
            plain, steps = self.step(case, arrays, torch.float64, False), 1
            if self.name == "torch.graph":
                run, steps = self.captured(run), WARM_UP_STEPS + 1
            found = run()
            for _ in range(steps):
                expected = plain()
        else:
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
    """JAX, jitted; training steps donate their state."""

    def __init__(self, name, device):
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
        return True

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
        gelu = lambda y: jax.nn.gelu(y, approximate=True)
        return {
            "none": lambda x, w: (x @ w,),
            "bias": lambda x, w, b: (x @ w + b,),
            "bias_relu": lambda x, w, b: (jax.nn.relu(x @ w + b),),
            "bias_gelu": lambda x, w, b: (gelu(x @ w + b),),
            "residual": lambda x, w, r: (x @ w + r,),
        }[kind["epilogue"]]

    def step(self, case):
        """The first state of a training step, and the step: (state, x, y) to (state, loss)."""
        jax, jnp, network = self.jax, self.jax.numpy, case["kind"]["network"]
        decay = 0.01 if network["algorithm"] == "adam_w" else 0.0
        key, parameters = jax.random.key(1), []
        with jax.default_device(self.place):
            for i, (wide, out) in enumerate(zip(network["widths"], network["widths"][1:])):
                weight = jax.random.uniform(jax.random.fold_in(key, i), (wide, out), minval=-1, maxval=1)
                parameters.append((weight * math.sqrt(6 / wide), jnp.zeros(out)))
            zeros = jax.tree.map(jnp.zeros_like, parameters)
            state = (parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.zeros((), jnp.int32))

        def loss(parameters, x, y):
            for i, (weight, bias) in enumerate(parameters):
                x = (jax.nn.relu(x) if i else x) @ weight + bias
            return -jnp.take_along_axis(jax.nn.log_softmax(x, 1), y[:, None], 1).mean()

        def step(state, x, y):
            parameters, m, v, count = state
            value, gradient = jax.value_and_grad(loss)(parameters, x, y)
            count = count + 1
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradient)
            v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, gradient)
            first, second = 1 - 0.9**count, 1 - 0.999**count
            moved = lambda p, m, v: p * (1 - 1e-3 * decay) - 1e-3 * (m / first) / (jnp.sqrt(v / second) + 1e-8)
            return (jax.tree.map(moved, parameters, m, v), m, v, count), value

        return state, step

    def transformer(self, case, parameters):
        """A transformer's steps by name: one for each way that attention can be written."""
        jax, jnp, network = self.jax, self.jax.numpy, case["kind"]["network"]

        def step(fused, dtype, compiled):
            with jax.default_device(self.place):
                x, y = map(jnp.asarray, transformer.tokens(network))
                parts = [jnp.asarray(p, dtype) for p in parameters()]
                zeros = lambda: [jnp.zeros_like(p) for p in parts]
                held = [(parts, zeros(), zeros(), jnp.zeros((), jnp.int32))]
            function = transformer.jax_step(jax, network, fused)
            if compiled:
                function = jax.jit(function, donate_argnums=0)

            def run():
                held[0], loss = function(held[0], x, y)
                return (loss,)

            return run

        def plain():
            with self.wide():
                run = step(False, jnp.float64, False)

            def wide():
                with self.wide(), jax.default_device(self.place):
                    return run()

            return wide

        ways = {name: lambda fused=fused: step(fused, jnp.float32, True) for name, fused in (("einsum", False), ("fused", True))}
        return ways, plain

    def prepare(self, case):
        jax, jnp = self.jax, self.jax.numpy
        if case["kind"]["is"] == "transformer":
            return best(self, case, *self.transformer(case, lambda: transformer.drawn(case["kind"]["network"])))
        arrays = self.draw(case)
        widened = lambda a: jnp.asarray(a, jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a
        if case["kind"]["is"] == "training":
            state, step = self.step(case)
            with self.wide(), jax.default_device(self.place):
                _, expected = step(jax.tree.map(widened, state), *map(widened, arrays.values()))
            jitted, held = jax.jit(step, donate_argnums=0), [state]

            def run():
                held[0], loss = jitted(held[0], *arrays.values())
                return (loss,)

            found, expected = run(), (expected,)
        else:
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


CONTENDERS = {"torch": Torch, "torch.compile": Torch, "torch.max-autotune": Torch, "torch.graph": Torch, "jax": Jax}
USUAL = ["torch", "torch.compile", "torch.graph", "jax"]


# ------------------------------------------------------------------------------------------------------------- harness


def verdict(case, worst, compared):
    """Parity as records have it; a wrong result is an error."""
    bound = bound_of(case)
    if not worst <= bound:
        raise ArithmeticError(f"the result is wrong: it deviates by {worst:.3e} from a computation in f64, {bound:.3e} is allowed")
    return {"compared": compared, "worst": worst, "bound": bound}


def best(contender, case, ways, plain):
    """Makes a step ready in each way it can be written and keeps the fastest. Losses are compared with those of the plain step."""
    steps = range(transformer.STEPS)
    run = plain()
    expected = [float(run()[0]) for _ in steps]
    fastest, parity = math.inf, None
    for name, make in ways.items():
        before = contender.cases.pop(case["id"], None)
        contender.cases[case["id"]] = run = make()
        losses = [float(run()[0]) for _ in steps]
        worst = max((abs(l - e) / e for l, e in zip(losses, expected)), key=lambda v: math.inf if math.isnan(v) else v)
        seconds = min(contender.time(case, 1) for _ in range(3))
        progress(f"{contender.name}: {name} takes {1e3 * seconds:.1f} ms")
        found = verdict(case, worst, len(losses)) | {"losses": losses}
        if seconds < fastest:
            fastest, parity = seconds, found
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


def serve(name, device, cases, answers):
    """Answers requests, one JSON object a line, until they end."""

    def answer(what):
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    try:
        contender = CONTENDERS[name](name, device)
    except Absent as absent:
        return answer({"absent": str(absent)})
    answer({"contender": name, "device": device, "libraries": contender.libraries()})
    known = {case["id"]: case for case in cases}
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if "prepare" in request:
                answer({"parity": contender.prepare(known[request["prepare"]])})
            elif "time" in request:
                answer({"seconds": contender.time(known[request["time"]], request["runs"])})
            else:
                contender.release(known[request["release"]])
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
    arguments = parser.parse_args()
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")

    # Libraries print; the answers and the record are not to be mixed with that.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    listed = json.loads((Path(__file__).parent / "cases.json").read_text())
    # Recurrent networks are compared with themselves, unrolled, and by what they learn: `lstm.py`.
    listed = {name: [c for c in cases if c["kind"]["is"] != "recurrent"] for name, cases in listed.items()}
    if arguments.serve:
        return serve(arguments.serve, arguments.device, sum(listed.values(), []), answers)
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
        answers.write(text)
        answers.flush()


if __name__ == "__main__":
    main()
