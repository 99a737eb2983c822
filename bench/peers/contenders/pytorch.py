"""PyTorch."""

import math
import os
import time
import types

import decoding
import drawing
import inference
import starts
import steps
from cases import BEGUN, LARGE, is_compared, operands, scale_of
from judge import answers, best, judged, verdict

from .absent import Absent

WARM_UP_STEPS = 3  # of a captured training step


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
        # f32 products in f32, as in the other contenders.
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
            return case["group"] == "steps" or case["kind"]["is"] == "decoding"
        if case["kind"]["is"] == "window":
            # Eager code writes in place.
            return self.name == "torch"
        if case["kind"]["is"] == "recurrent" and case["dtype"] == "mixed":
            # On CPUs the LSTM layer does not run under autocast.
            return False
        # On CPUs the LSTM layer is one op that the compiler does not compile. The eager case is the
        # same.
        return (
            case["kind"]["is"] != "recurrent"
            or self.name == "torch"
            and is_compared(case, self.device)
        )

    def synchronize(self):
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize(self.device)

    def compiled(self, function):
        """The function, compiled as the contender's name says. Each has its own code object,
        because the compiler limits the recompilations of a code object."""
        if self.name == "torch":
            return function
        function = types.FunctionType(
            function.__code__.replace(),
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
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
                "eight": lambda x, w, b, r: (
                    (torch.maximum(x * w + b, r) * x - w).abs() + 1
                ).sqrt(),
            }[kind["chain"]]
        if name == "rows":
            return {
                "softmax": lambda x: torch.softmax(x, 1),
                "layer_norm": lambda x, gamma, beta: functional.layer_norm(
                    x, x.shape[1:], gamma, beta, 1e-5
                ),
                "layer_norm_backward": lambda x, gamma, beta: functional.layer_norm(
                    x, x.shape[1:], gamma, beta, 1e-5
                ),
                "cross_entropy_backward": lambda x, labels: functional.cross_entropy(x, labels),
            }[kind["kernel"]]
        if name in ("sum", "column_sum"):
            # Halves are summed in f32, wider dtypes in their own.
            return lambda x: x.sum(0, dtype=torch.promote_types(x.dtype, torch.float32))
        if name == "transpose":
            return lambda x: x.t().contiguous()
        if name == "product":
            return (
                (lambda x, w: x @ w.t()) if kind["product"]["transposed"] else (lambda x, w: x @ w)
            )
        return {
            "none": lambda x, w: x @ w,
            "bias": lambda x, w, b: torch.addmm(b, x, w),
            "bias_relu": lambda x, w, b: torch.relu(torch.addmm(b, x, w)),
            "bias_gelu": lambda x, w, b: functional.gelu(torch.addmm(b, x, w), approximate="tanh"),
            "residual": lambda x, w, r: torch.addmm(r, x, w),
        }[kind["epilogue"]]

    def runner(self, case, arrays, function):
        """A function without arguments that runs the case and returns its results as a tuple."""
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
        """The step as one CUDA graph, captured after some warm-up runs."""
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

        def replay(run=run):  # keeps the operands, which the graph does not
            graph.replay()
            return results

        return replay

    def mixed(self, case, function):
        """The function under autocast, if the case is in mixed precision."""
        if case["dtype"] != "mixed":
            return function
        torch, kind = self.torch, self.device.partition(":")[0]

        def cast(*arguments):
            with torch.autocast(kind, torch.bfloat16):
                return function(*arguments)

        return cast

    def steps(self, case):
        """Variants of a network's training step by name, and its plain step in f64."""
        torch, network = self.torch, steps.of(case)
        x, y = (torch.from_numpy(a).to(self.device) for a in network.data())
        x, y = (a if a.is_floating_point() else a.long() for a in (x, y))

        def step(loss, turn, dtype, **settings):
            parameters = [
                torch.from_numpy(p).to(self.device, dtype, copy=True)
                for p in turn(list(drawing.parameters(network.shapes)))
            ]
            wide = x.to(dtype) if x.is_floating_point() else x
            return steps.torch_step(torch, loss, parameters, wide, y, network.decay, **settings)

        ways = {}
        for form, (loss, turn) in network.torch_losses(torch).items():
            compiled = self.compiled(self.mixed(case, loss))
            # On a GPU, and for small numbers of parameters, the fused optimiser is the fastest.
            large = case["work"]["elements"] >= LARGE and self.name != "torch.graph"
            for optimiser in ("foreach", "fused") if large else ("fused",):
                settings = {optimiser: True}
                if self.name == "torch.graph":
                    settings["capturable"] = True
                ways[f"{form} {optimiser}".strip()] = lambda l=compiled, t=turn, s=settings: step(
                    l, t, torch.float32, **s
                )
        loss, turn = next(iter(network.torch_losses(torch).values()))
        return ways, lambda: step(loss, turn, torch.float64)

    def begun(self, case):
        return starts.torch(self, case)

    def infer(self, case):
        """Variants of a network's inference by name."""
        torch, network = self.torch, inference.of(case)
        inputs = [torch.from_numpy(a).to(self.device) for a in network.inputs().values()]
        inputs = [a.long() if a.dtype == torch.int32 else a for a in inputs]
        parameters = [
            torch.from_numpy(p).to(self.device) for p in drawing.parameters(network.shapes)
        ]
        function = self.compiled(self.mixed(case, network.torch_function(torch)))

        def run():
            with torch.no_grad():
                return (function(parameters, *inputs),)

        return {"": lambda: run}, lambda result: result.float().cpu().numpy()

    def decode(self, case):
        """Variants of a step of decoding by name. A step writes into its caches."""
        torch, decoder = self.torch, decoding.Decoder(case)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[case["dtype"]]
        place = lambda a: torch.from_numpy(a).to(self.device, dtype)
        embedding, *others = map(place, decoder.parameters())
        parameters = [embedding] + [p.T.contiguous() if p.dim() == 2 else p for p in others]
        del others
        token = torch.from_numpy(decoder.token()).long().to(self.device)
        position = torch.tensor([decoder.positions - 1], device=self.device)

        def way(function):
            function = self.compiled(function)
            caches = [
                [place(c).transpose(1, 2).contiguous() for c in pair] for pair in decoder.caches()
            ]

            def run():
                with torch.no_grad():
                    return (function(parameters, caches, token, position),)

            return self.captured(run) if self.name == "torch.graph" else run

        forms = decoder.torch_ways(torch, self.device)
        return {name: lambda form=form: way(form) for name, form in forms.items()}

    def prepare(self, case):
        if case["kind"]["is"] == "inference":
            return answers(self, case, *self.infer(case))
        if case["kind"]["is"] == "decoding":
            expected = decoding.Decoder(case).plain()
            wide = lambda result: result.float().cpu().numpy()
            return judged(self, case, self.decode(case), wide, expected)
        if case["kind"]["is"] in BEGUN:
            return (
                self.captured_case(case)
                if self.name == "torch.graph"
                else best(self, case, *self.steps(case))
            )
        if case["kind"]["is"] == "window":
            self.cases[case["id"]], found = self.updates(case)
            return found
        arrays = self.draw(case)
        function = self.function(case)
        run = self.runner(case, arrays, self.compiled(function))
        found = run()
        wide = {n: a.detach().double() if a.is_floating_point() else a for n, a in arrays.items()}
        expected = self.runner(case, wide, function)()
        worst, compared = 0.0, 0
        for f, e in zip(found, expected):
            deviation = (f.detach().double() - e.detach()).abs().max().item()
            worst = max(
                worst,
                deviation / scale_of(case, e.detach().abs().max().item()),
                key=lambda v: math.inf if math.isnan(v) else v,
            )
            compared += f.numel()
        self.cases[case["id"]] = run
        return verdict(case, worst, compared)

    def updates(self, case):
        """A run that writes rows into a cache, and its verdict."""
        arrays, window = self.draw(case), case["kind"]["window"]
        cache, rows, at = arrays["cache"], arrays["rows"], window["rows"] // 3
        expected = self.torch.cat([cache[:at], rows, cache[at + window["written"] :]])

        def run():
            for i in range(window["written"]):
                cache[at + i] = rows[i]
            return (cache,)

        worst = (run()[0] - expected).abs().max().item()
        return run, verdict(case, worst, expected.numel())

    def captured_case(self, case):
        """A step as a CUDA graph. The loss of the first step after the capture is compared."""
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
