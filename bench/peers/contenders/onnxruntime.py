"""ONNX Runtime."""

import os
import time

import drawing
import imported
import onnx_graphs
from cases import operands
from judge import answers, judged, verdict

from .absent import Absent


class OnnxRuntime:
    """ONNX Runtime with its default settings, on graphs of `onnx_graphs.py`: products and
    inference, and on imported models."""

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
        if kind["is"] == "imported":
            return imported.has_models()
        is_product = kind["is"] == "product" or kind["is"] == "gemm" and kind["epilogue"] == "none"
        return case["dtype"] == "f32" and (is_product or kind["is"] == "inference")

    def begun(self, case):
        raise Absent("it does not train")

    def session(self, model):
        """The session of a graph, or of a file."""
        options = self.runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        source = model if isinstance(model, str) else model.SerializeToString()
        return self.runtime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"]
        )

    def product(self, case):
        """The session of a product, its inputs, and the product in f64."""
        graph = onnx_graphs.Graph(self.onnx)
        inputs = {
            name: drawing.uniform(name, shape, low, high)
            for name, (shape, (low, high)) in operands(case).items()
        }
        transposed = case["kind"].get("product", {}).get("transposed", False)
        # The matrix is an input, like x. A constant would be packed before the runs.
        y = graph.op("Gemm", "x", "w", transB=int(transposed))
        x, w = (a.astype("float64") for a in inputs.values())
        expected = x @ (w.T if transposed else w)
        return self.session(graph.model(y, expected.shape, inputs)), inputs, expected

    def prepare(self, case):
        import numpy as np

        if case["kind"]["is"] == "imported":
            file, inputs, expected = imported.of(case)
            session = self.session(str(file))
            given = imported.named(session, inputs)
            run = lambda: session.run(None, given)
            return judged(self, case, {"": lambda: run}, lambda result: result, expected)
        if case["kind"]["is"] == "inference":
            model, inputs = onnx_graphs.of(case)
            session = self.session(model)
            return answers(
                self, case, {"": lambda: lambda: session.run(None, inputs)}, lambda result: result
            )
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
