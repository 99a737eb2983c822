#!/usr/bin/env python3
"""Writes the models of C13, with inputs and the results of ONNX Runtime.

    target/peers/bin/python bench/peers/imported_models.py target/models [NAME …]

- Nine image classifiers from the tests of the `onnx` package. These files have shapes and no
  weights; weights are drawn here, and the classifier's last layer is scaled so that its softmax is
  not saturated.
- BERT with the extents of MiniLM, GPT-2 with 124 million parameters, and ViT-B/16: models of
  `transformers` with its initial weights, exported by PyTorch.
- The voice detector of the `silero-vad` package, with its trained weights.

All random numbers have the seed below. `NAME.npz` has `input_N` for each input, in order, or
`bound_NAME` for one that is fixed at import, `extent_NAME` for each symbolic extent of an input by
the name that it has after import, and `output_N` for each result.
"""

import argparse
from pathlib import Path

import numpy as np

SEED = 20261128

LIGHT = {
    "alexnet": "bvlc_alexnet",
    "densenet121": "densenet121",
    "inception_v1": "inception_v1",
    "inception_v2": "inception_v2",
    "resnet50": "resnet50",
    "shufflenet": "shufflenet",
    "squeezenet": "squeezenet",
    "vgg19": "vgg19",
    "zfnet512": "zfnet512",
}
TRANSFORMERS = ("minilm", "gpt2", "vit")
TOKENS = 128


def session(model):
    """A session of a file, or of a model in memory."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def drawn(random, op, position, shape):
    """The value of an operand of a node."""
    if op == "BatchNormalization":
        scale, shift, mean, variance = range(1, 5)
        return {
            scale: lambda: 1 + 0.1 * random.standard_normal(shape),
            shift: lambda: 0.1 * random.standard_normal(shape),
            mean: lambda: 0.1 * random.standard_normal(shape),
            variance: lambda: random.uniform(0.5, 1.5, shape),
        }[position]()
    if len(shape) < 2:
        return 0.05 * random.standard_normal(shape)
    return random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))


def light(name):
    """A classifier with drawn weights, and its input."""
    import onnx
    from onnx import numpy_helper

    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    model = onnx.load(folder / f"light_{LIGHT[name]}.onnx")
    graph = model.graph
    random = np.random.default_rng(SEED)
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    readers = {}
    for node in graph.node:
        for position, operand in enumerate(node.input):
            readers.setdefault(operand, (node.op_type, position))
    nodes, weights = [], {}
    for node in graph.node:
        # The files have these nodes in place of weights.
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(int(extent) for extent in shapes[node.input[0]])
            value = drawn(random, *readers[node.output[0]], shape)
            weights[node.output[0]] = value.astype(np.float32)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    known = {i.name for i in graph.initializer} | set(weights)
    (given,) = [i for i in graph.input if i.name not in known]
    shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
    x = random.standard_normal(shape).astype(np.float32)

    def finished():
        full = onnx.ModelProto()
        full.CopyFrom(model)
        full.graph.initializer.extend(
            numpy_helper.from_array(value, name) for name, value in weights.items()
        )
        return full

    # The last layer with weights, and its values before the softmax, if there is one.
    softmax = [n.input[0] for n in nodes if n.op_type == "Softmax"]
    values = softmax[-1] if softmax else graph.output[0].name
    last = next(n for n in reversed(nodes) if any(operand in weights for operand in n.input))
    probe = finished()
    del probe.graph.output[:]
    probe.graph.output.append(
        onnx.helper.make_tensor_value_info(values, onnx.TensorProto.FLOAT, None)
    )
    (logits,) = session(probe).run(None, {given.name: x})
    for operand in last.input:
        if operand in weights:
            weights[operand] /= np.float32(logits.std())
    return finished(), [x], {}


def transformer(name, file):
    """Exports a network; returns its inputs."""
    import torch
    import transformers

    torch.manual_seed(SEED)
    random = np.random.default_rng(SEED)
    tokens = lambda below: random.integers(0, below, (1, TOKENS))
    if name == "minilm":
        config = transformers.BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
        )
        network = transformers.BertModel(config)
        mask = np.ones((1, TOKENS), np.int64)
        mask[:, TOKENS - TOKENS // 16 :] = 0
        inputs = {
            "input_ids": tokens(config.vocab_size),
            "attention_mask": mask,
            "token_type_ids": np.zeros((1, TOKENS), np.int64),
        }
    elif name == "gpt2":
        config = transformers.GPT2Config(use_cache=False)
        network = transformers.GPT2LMHeadModel(config)
        inputs = {"input_ids": tokens(config.vocab_size)}
    else:
        config = transformers.ViTConfig(num_labels=1000)
        network = transformers.ViTForImageClassification(config)
        shape = (1, config.num_channels, config.image_size, config.image_size)
        inputs = {"pixel_values": random.standard_normal(shape).astype(np.float32)}
    network.eval()

    class First(torch.nn.Module):
        """The network's first result."""

        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, *values):
            return self.network(**dict(zip(inputs, values)))[0]

    torch.onnx.export(
        First(),
        tuple(torch.from_numpy(value) for value in inputs.values()),
        file,
        input_names=list(inputs),
        output_names=["y"],
        dynamo=True,
        external_data=False,
    )
    return list(inputs.values()), {}


def detector(file):
    """Copies the voice detector; returns its inputs. The rate of the samples is bound."""
    import shutil
    from importlib.util import find_spec

    folder = Path(find_spec("silero_vad").origin).parent / "data"
    shutil.copy(folder / "silero_vad.onnx", file)
    random = np.random.default_rng(SEED)
    samples = (0.1 * random.standard_normal((1, 576))).astype(np.float32)
    state = np.zeros((2, 1, 128), np.float32)
    return [samples, state], {"sr": np.array(16000, np.int64)}


def main():
    parser = argparse.ArgumentParser(description="Writes the models of C13.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these models")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    every = [*LIGHT, *TRANSFORMERS, "silero_vad"]
    for unknown in set(arguments.names) - set(every):
        parser.error(f"there is no model {unknown}; there are {', '.join(every)}")
    print(f"seed {SEED}")
    for name in arguments.names or every:
        file = arguments.folder / f"{name}.onnx"
        if name in LIGHT:
            import onnx

            model, inputs, bound = light(name)
            onnx.save(model, file)
        elif name in TRANSFORMERS:
            inputs, bound = transformer(name, file)
        else:
            inputs, bound = detector(file)
        run = session(file)
        names = [i.name for i in run.get_inputs()]
        free = [n for n in names if n not in bound]
        results = run.run(None, dict(zip(free, inputs)) | bound)
        arrays = {f"input_{n}": value for n, value in enumerate(inputs)}
        arrays |= {f"bound_{n}": value for n, value in bound.items()}
        arrays |= {f"output_{n}": value for n, value in enumerate(results)}
        for i in run.get_inputs():
            for axis, extent in enumerate(i.shape if i.name in free else []):
                if not isinstance(extent, int):
                    known = inputs[free.index(i.name)].shape[axis]
                    arrays[f"extent_{extent or f'{i.name}_{axis}'}"] = np.array(known)
        np.savez(file.with_suffix(".npz"), **arrays)
        print(name, f"{file.stat().st_size / 1e6:.0f} MB", names, [r.shape for r in results])


if __name__ == "__main__":
    main()
