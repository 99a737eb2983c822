#!/usr/bin/env python3
"""ONNX graphs of the networks of `inference.py`, with the weights of `wengert-bench`.

    python3 bench/peers/onnx_graphs.py FOLDER [--small]

Writes one file for each case of inference, named after the case. The opset is 17; newer ops are
expanded into ops of this opset, as exporters do. Needs onnx and NumPy.
"""

import argparse
import json
import math
from pathlib import Path

import drawing
import inference

OPSET = 17


class Graph:
    """A list of nodes in order. Values are referred to by name."""

    def __init__(self, onnx):
        import numpy as np

        self.onnx, self.np = onnx, np
        self.nodes, self.constants = [], []

    def op(self, name, *inputs, **attributes):
        result = f"v{len(self.nodes)}"
        outputs = [f"{result}.{n}" for n in range(attributes.pop("results", 1))]
        self.nodes.append(self.onnx.helper.make_node(name, list(inputs), outputs, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def constant(self, value, dtype="float32"):
        name = f"c{len(self.constants)}"
        self.constants.append(
            self.onnx.numpy_helper.from_array(self.np.asarray(value, dtype), name)
        )
        return name

    def shape(self, *extents):
        return self.constant(extents, "int64")

    def affine(self, x, weight, bias):
        return self.op("Add", self.op("MatMul", x, weight), bias)

    def norm(self, x, gamma, beta, epsilon):
        return self.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon)

    def attention(self, q, k, v, hidden, batch, steps, heads, width):
        """Attention on `[B, T, C]` each; `hidden` is added to the scores; it is about −∞ at masked
        ones."""
        extent = width // heads
        split = self.shape(batch, steps, heads, extent)
        q, v = (
            self.op("Transpose", self.op("Reshape", x, split), perm=[0, 2, 1, 3]) for x in (q, v)
        )
        k = self.op("Transpose", self.op("Reshape", k, split), perm=[0, 2, 3, 1])
        scores = self.op("Div", self.op("MatMul", q, k), self.constant(math.sqrt(extent)))
        shares = self.op("Softmax", self.op("Add", scores, hidden), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        return self.op("Reshape", mixed, self.shape(batch, steps, width))

    def gelu(self, x):
        bent = self.op("Erf", self.op("Div", x, self.constant(math.sqrt(2))))
        return self.op(
            "Mul", self.op("Mul", x, self.op("Add", bent, self.constant(1))), self.constant(0.5)
        )

    def gelu_tanh(self, x):
        cubed = self.op("Mul", self.op("Pow", x, self.constant(3)), self.constant(0.044715))
        inner = self.op("Mul", self.op("Add", x, cubed), self.constant(math.sqrt(2 / math.pi)))
        return self.op(
            "Mul",
            self.op("Mul", x, self.constant(0.5)),
            self.op("Add", self.op("Tanh", inner), self.constant(1)),
        )

    def model(self, y, shape, inputs):
        """The model with the output `y`. `inputs` maps the names of its inputs to arrays of their
        types and shapes."""
        onnx, helper = self.onnx, self.onnx.helper
        of = lambda a: helper.np_dtype_to_tensor_dtype(a.dtype)
        given = [helper.make_tensor_value_info(name, of(a), a.shape) for name, a in inputs.items()]
        result = helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "case", given, [result], self.constants)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )


def of(case):
    """A case of inference as an ONNX model, and its inputs by name."""
    import onnx

    network = inference.of(case)
    inputs, graph = network.inputs(), Graph(onnx)
    parameters = [graph.constant(p) for p in drawing.parameters(network.shapes)]
    build = {inference.Mlp: mlp, inference.Gpt: gpt, inference.Bert: bert}[type(network)]
    y, shape = build(graph, network.network, parameters)
    return graph.model(y, shape, inputs), inputs


def mlp(graph, network, parameters):
    x = "x"
    for n in range(0, len(parameters), 2):
        x = graph.op("Gemm", graph.op("Relu", x) if n else x, parameters[n], parameters[n + 1])
    return x, (network["batch"], network["widths"][-1])


def gpt(graph, network, parameters):
    b, t, c, heads = (network[name] for name in ("batch", "steps", "width", "heads"))
    wte, wpe, *rest = parameters
    *rest, gamma_f, beta_f = rest
    causal = graph.constant(graph.np.triu(graph.np.full((t, t), -1e30), 1))
    h = graph.op("Add", graph.op("Gather", wte, "x"), wpe)
    for n in range(0, len(rest), 12):
        gamma, beta, qkv, qkv_b, proj, proj_b, gamma_2, beta_2, fc, fc_b, back, back_b = rest[
            n : n + 12
        ]
        parts = graph.op(
            "Split",
            graph.affine(graph.norm(h, gamma, beta, 1e-5), qkv, qkv_b),
            graph.shape(c, c, c),
            axis=-1,
            results=3,
        )
        mixed = graph.attention(*parts, causal, b, t, heads, c)
        h = graph.op("Add", h, graph.affine(mixed, proj, proj_b))
        wide = graph.gelu_tanh(graph.affine(graph.norm(h, gamma_2, beta_2, 1e-5), fc, fc_b))
        h = graph.op("Add", h, graph.affine(wide, back, back_b))
    h = graph.norm(h, gamma_f, beta_f, 1e-5)
    return graph.op("MatMul", h, graph.op("Transpose", wte, perm=[1, 0])), (
        b,
        t,
        network["vocabulary"],
    )


def bert(graph, network, parameters):
    b, t, c, heads = (network[name] for name in ("batch", "steps", "width", "heads"))
    words, positions, types, gamma, beta, *rest = parameters
    place = graph.op("Gather", positions, graph.constant(range(t), "int64"))
    h = graph.op("Add", graph.op("Gather", words, "x"), place)
    h = graph.norm(
        graph.op("Add", h, graph.op("Gather", types, graph.constant(0, "int64"))),
        gamma,
        beta,
        1e-12,
    )
    there = graph.op("Cast", "mask", to=graph.onnx.TensorProto.FLOAT)
    missing = graph.op("Mul", graph.op("Sub", there, graph.constant(1)), graph.constant(1e30))
    hidden = graph.op("Reshape", missing, graph.shape(b, 1, 1, t))
    for n in range(0, len(rest), 16):
        (
            q, q_b, k, k_b, v, v_b, proj, proj_b,
            gamma, beta, fc, fc_b, back, back_b, gamma_2, beta_2,
        ) = rest[n : n + 16]
        parts = (graph.affine(h, w, o) for w, o in ((q, q_b), (k, k_b), (v, v_b)))
        mixed = graph.affine(graph.attention(*parts, hidden, b, t, heads, c), proj, proj_b)
        h = graph.norm(graph.op("Add", h, mixed), gamma, beta, 1e-12)
        wide = graph.gelu(graph.affine(h, fc, fc_b))
        h = graph.norm(graph.op("Add", h, graph.affine(wide, back, back_b)), gamma_2, beta_2, 1e-12)
    kept = graph.op("Mul", h, graph.op("Reshape", there, graph.shape(b, t, 1)))
    total = graph.op("ReduceSum", kept, graph.constant([1], "int64"), keepdims=0)
    length = graph.op(
        "Sqrt",
        graph.op(
            "ReduceSum", graph.op("Mul", total, total), graph.constant([1], "int64"), keepdims=1
        ),
    )
    return graph.op("Div", total, length), (b, c)


def main():
    parser = argparse.ArgumentParser(description="Writes ONNX graphs of the cases of inference.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true", help="cases of small extents")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    listed = json.loads((Path(__file__).parent / "cases.json").read_text())
    for case in listed["cpu_small" if arguments.small else "cpu"]:
        if case["kind"]["is"] == "inference":
            model, _ = of(case)
            (arguments.folder / f"{case['id']}.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
