"""Tests of the ops of com.microsoft, in the form of ONNX's node tests, and of some ops of ONNX
itself that have few of these.

Each has a model of one node, operands drawn from a fixed seed, and ONNX Runtime's results.
"""

import pathlib
import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

# Ops that are not of com.microsoft.
PLAIN = ["SimplifiedLayerNormalization", "Det", "RoiAlign", "DeformConv", "TfIdfVectorizer"]

DRAWN = numpy.random.default_rng(31)
B, S, T, D, H = 2, 3, 5, 16, 4


def floats(*shape):
    return DRAWN.normal(size=shape).astype(numpy.float32)


def integers(below, *shape, dtype=numpy.int32):
    return DRAWN.integers(0, below, size=shape).astype(dtype)


def angles(positions, half):
    angle = DRAWN.uniform(-3, 3, size=(positions, half))
    return numpy.cos(angle).astype(numpy.float32), numpy.sin(angle).astype(numpy.float32)


def tests():
    """Name, op, operands (None where one is absent), number of results, attributes."""
    x = floats(B, S, D)
    yield "gelu", "Gelu", [x], 1, {}
    yield "bias_gelu", "BiasGelu", [x, floats(D)], 1, {}
    yield "fast_gelu", "FastGelu", [x], 1, {}
    yield "fast_gelu_bias", "FastGelu", [x, floats(D)], 1, {}
    yield "quick_gelu", "QuickGelu", [x], 1, {}
    yield "quick_gelu_alpha", "QuickGelu", [x], 1, {"alpha": 1.0}
    yield "fused_matmul", "FusedMatMul", [x, floats(D, H)], 1, {"alpha": 0.5}
    both = {"transA": 1, "transB": 1}
    yield "fused_matmul_turned", "FusedMatMul", [floats(B, D, S), floats(B, T, D)], 1, both
    for bits in [4, 8]:
        for zeros in ["none", "packed"]:
            yield from few_bits(bits, zeros)
    yield from few_bits(4, "float")
    yield "simplified_layer_norm", "SimplifiedLayerNormalization", [x, floats(D)], 1, {"axis": -1}
    skip = [x, floats(B, S, D), floats(D)]
    sums = {"epsilon": 1e-5}
    yield "skip_norm", "SkipLayerNormalization", [*skip, floats(D)], 4, sums
    yield "skip_norm_bias", "SkipLayerNormalization", [*skip, floats(D), floats(D)], 4, sums
    wide = [x, floats(1, S, D), floats(D), floats(D)]
    yield "skip_norm_wide", "SkipLayerNormalization", wide, 1, {}
    yield "skip_simplified", "SkipSimplifiedLayerNormalization", skip, 4, sums
    yield "skip_simplified_bias", "SkipSimplifiedLayerNormalization", [*skip, floats(D)], 4, sums
    words, segments = integers(20, B, S), integers(2, B, S)
    tables = [floats(20, D), floats(8, D), floats(2, D), floats(D), floats(D)]
    mask = numpy.array([[1, 1, 1], [1, 1, 0]], dtype=numpy.int32)
    yield "embedding", "EmbedLayerNormalization", [words, segments, *tables, mask], 3, {}
    alone = [words, None, tables[0], tables[1], None, tables[3], tables[4]]
    yield "embedding_alone", "EmbedLayerNormalization", alone, 2, {}
    at = integers(8, B, S, dtype=numpy.int64)
    tables = angles(8, D // H // 2)
    yield "rotary", "RotaryEmbedding", [x, at, *tables], 1, {}
    yield "rotary_interleaved", "RotaryEmbedding", [x, at, *tables], 1, {"interleaved": 1}
    first = numpy.array([2], dtype=numpy.int64)
    yield "rotary_heads", "RotaryEmbedding", [floats(B, H, S, D // H), first, *tables], 1, {}
    part = {"num_heads": 2, "rotary_embedding_dim": 4}
    yield "rotary_part", "RotaryEmbedding", [x, at, *angles(8, 2)], 1, part
    yield from multi_head(x)
    yield from attention(x)
    yield from grouped()
    yield from plain()


def few_bits(bits, zeros):
    rows, inner, size = 6, 40, 16
    blocks = -(-inner // size)
    packed = integers(256, rows, blocks, size * bits // 8, dtype=numpy.uint8)
    operands = [floats(B, S, inner), packed, floats(rows * blocks)]
    if zeros == "packed":
        operands.append(integers(256, rows * -(-blocks * bits // 8), dtype=numpy.uint8))
    elif zeros == "float":
        operands.append(floats(rows * blocks))
    attributes = {"K": inner, "N": rows, "bits": bits, "block_size": size}
    yield f"few_bits_{bits}_{zeros}", "MatMulNBits", operands, 1, attributes


def multi_head(x):
    heads = {"num_heads": H}
    keys = [floats(B, T, D), floats(B, T, D)]
    yield "multi_head", "MultiHeadAttention", [x, *keys], 1, heads
    yield "multi_head_bias", "MultiHeadAttention", [x, *keys, floats(3 * D)], 1, heads
    lengths = numpy.array([T, 2], dtype=numpy.int32)
    masked = [x, *keys, None, lengths]
    yield "multi_head_lengths", "MultiHeadAttention", masked, 1, heads
    mask = numpy.array([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]], dtype=numpy.int32)
    yield "multi_head_mask", "MultiHeadAttention", [x, *keys, None, mask], 1, heads
    added = [x, *keys, None, None, floats(1, H, S, T)]
    yield "multi_head_added", "MultiHeadAttention", added, 1, {**heads, "scale": 0.3}
    past = [floats(B, H, T, D // H), floats(B, H, T, D // H)]
    own = [x, floats(B, S, D), floats(B, S, D), None, None, None, *past]
    yield "multi_head_past", "MultiHeadAttention", own, 3, heads
    causal = {**heads, "unidirectional": 1}
    yield "multi_head_causal", "MultiHeadAttention", [x, x, floats(B, S, D)], 1, causal


def attention(x):
    heads = {"num_heads": H}
    projection = [x, floats(D, 3 * D), floats(3 * D)]
    yield "attention", "Attention", projection, 1, heads
    causal = {**heads, "unidirectional": 1}
    yield "attention_causal", "Attention", projection, 1, causal
    lengths = numpy.array([S, 1], dtype=numpy.int32)
    yield "attention_lengths", "Attention", [*projection, lengths], 1, heads
    mask = numpy.array([[1, 0, 1], [1, 1, 0]], dtype=numpy.int32)
    yield "attention_mask", "Attention", [*projection, mask], 1, heads
    yield "attention_added", "Attention", [*projection, None, None, floats(B, H, S, S)], 1, heads
    past = [*projection, None, floats(2, B, H, T, D // H)]
    yield "attention_past", "Attention", past, 2, causal
    sizes = {**heads, "qkv_hidden_sizes": [D, D, 2 * D]}
    yield "attention_sizes", "Attention", [x, floats(D, 4 * D), floats(4 * D)], 1, sizes


def grouped():
    own, width = 2, 16
    heads = {"num_heads": H, "kv_num_heads": own}
    q, k, v = floats(B, S, H * width), floats(B, S, own * width), floats(B, S, own * width)

    def lengths(*totals):
        totals = numpy.array(totals, dtype=numpy.int32)
        return [totals - 1, totals.max(keepdims=True)]

    first = [q, k, v, None, None, *lengths(S, S)]
    yield "grouped", "GroupQueryAttention", first, 3, heads
    short = [q, k, v, None, None, *lengths(S, S - 1)]
    yield "grouped_short", "GroupQueryAttention", short, 3, {**heads, "scale": 0.4}
    turned = [*first, *angles(16, width // 2)]
    rotary = {**heads, "do_rotary": 1}
    yield "grouped_rotary", "GroupQueryAttention", turned, 3, rotary
    both = {**rotary, "rotary_interleaved": 1}
    yield "grouped_interleaved", "GroupQueryAttention", turned, 3, both
    packed = floats(B, S, (H + 2 * own) * width)
    yield "grouped_packed", "GroupQueryAttention", [packed, None, None, *first[3:]], 3, heads
    past = [floats(B, own, T, width), floats(B, own, T, width)]
    one = [floats(B, 1, H * width), floats(B, 1, own * width), floats(B, 1, own * width)]
    step = [*one, *past, *lengths(T + 1, T - 1)]
    yield "grouped_past", "GroupQueryAttention", step, 3, heads
    room = [*one, *past, *lengths(T, 3), *angles(16, width // 2)]
    yield "grouped_room", "GroupQueryAttention", room, 3, rotary
    more = [q[:1], k[:1], v[:1], past[0][:1], past[1][:1], *lengths(T + S)]
    yield "grouped_more", "GroupQueryAttention", more, 3, {**heads, "softcap": 2.0}
    window = {**heads, "local_window_size": 3}
    yield "grouped_window", "GroupQueryAttention", more, 3, window


def plain():
    matrices = floats(2, 3, 5, 5)
    # The first pivot is 0, and a matrix is singular.
    matrices[0, 0, 0, 0] = 0
    matrices[1, 1, 4] = matrices[1, 1, 2]
    yield "det", "Det", [matrices], 1, {}
    image = floats(2, 3, 9, 7)
    corners = [[0, 0, 6, 8], [-3, 2, 4, 5.5], [2.2, 1.7, 2.4, 1.8], [4, 5, 12, 20]]
    regions = [image, numpy.array(corners, dtype=numpy.float32)]
    regions.append(numpy.array([0, 1, 1, 0], dtype=numpy.int64))
    of_regions = {"output_height": 3, "output_width": 2, "sampling_ratio": 2}
    for mode in ["half_pixel", "output_half_pixel"]:
        shifted = {**of_regions, "coordinate_transformation_mode": mode, "spatial_scale": 0.7}
        yield f"roi_{mode}", "RoiAlign", regions, 1, shifted
    kernel, offset = floats(6, 2, 3, 2), 2 * floats(2, 2 * 12, 4, 6)
    mask = floats(2, 2 * 6, 4, 6)
    groups = {"group": 2, "offset_group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}
    groups["dilations"] = [1, 2]
    deformed = [floats(2, 4, 9, 7), kernel, offset[:, :, :, :6], floats(6), mask]
    yield "deformed", "DeformConv", deformed, 1, groups
    tokens = integers(4, 3, 12, dtype=numpy.int64)
    grams = {"pool_int64s": [0, 1, 2, 0, 1, 1, 2, 3, 3, 0, 1, 2], "ngram_counts": [0, 3, 9]}
    grams |= {"ngram_indexes": [0, 1, 2, 3, 4, 5, 6], "min_gram_length": 1, "max_gram_length": 3}
    grams |= {"weights": [0.5, 1.0, 2.0, 3.0, 0.25, 1.5, 4.0], "max_skip_count": 2}
    for mode in ["TF", "IDF", "TFIDF"]:
        yield f"grams_{mode}", "TfIdfVectorizer", [tokens], 1, {**grams, "mode": mode}


def write(folder, name, op, operands, results, attributes):
    names = ["" if value is None else f"x{n}" for n, value in enumerate(operands)]
    given = {name: value for name, value in zip(names, operands) if value is not None}
    outputs = [f"y{n}" for n in range(results)]
    domain = "" if op in PLAIN else "com.microsoft"
    if op.startswith("Skip"):
        # Mean and inverse are results of CUDA alone.
        outputs[1:3] = ["", ""][: max(0, results - 1)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in given.items()
    ]
    # Models compute the number of tokens from shapes.
    constants = ["x6"] if op == "GroupQueryAttention" else []
    kept = [numpy_helper.from_array(given.pop(name), name) for name in constants]
    inputs = [value for value in inputs if value.name not in constants]
    outputs = [output for output in outputs if output]
    infos = [onnx.ValueInfoProto(name=output) for output in outputs]
    for n, info in enumerate(infos):
        counts = op == "EmbedLayerNormalization" and n == 1
        info.type.tensor_type.elem_type = TensorProto.INT32 if counts else TensorProto.FLOAT
    graph = helper.make_graph([node], name, inputs, infos, kept)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results = session.run(None, given)
    test = folder / f"test_{name}"
    data = test / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    (test / "model.onnx").write_bytes(model.SerializeToString())
    for kind, values in [("input", given.values()), ("output", results)]:
        for n, value in enumerate(values):
            tensor = numpy_helper.from_array(value)
            (data / f"{kind}_{n}.pb").write_bytes(tensor.SerializeToString())


for test in tests():
    write(pathlib.Path(sys.argv[1]), *test)
