"""Runs models with data in ONNX Runtime: `runtime.py FOLDER`, which has a folder for each model,
as ONNX's tests have them. Each model is checked first, with strict shape inference. A float may
differ from the expected one by 1e-5 of the largest of its tensor, and by 1e-6 in any case: the sum
of numbers that cancel has rounding errors only. A half may differ by a few of its last bits.

Where ONNX Runtime has no kernel for a dtype, ONNX's reference implementation runs the model.
"""

import glob
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

TOLERANCES = {TensorProto.FLOAT16: 4e-3, TensorProto.BFLOAT16: 3e-2}


def tensors(folder, kind):
    number = lambda path: int(path.rsplit("_", 1)[1].removesuffix(".pb"))
    paths = glob.glob(os.path.join(folder, "test_data_set_0", kind + "_*.pb"))
    return [onnx.load_tensor(path) for path in sorted(paths, key=number)]


def without_bfloat16(model):
    """NumPy has no bfloat16: such inputs and outputs are f32 outside the graph."""
    graph = model.graph
    for values, into in [(graph.input, True), (graph.output, False)]:
        for value in values:
            ty = value.type.tensor_type
            if ty.elem_type != TensorProto.BFLOAT16:
                continue
            name, inner = value.name, value.name + "/bf16"
            for node in graph.node:
                names = node.input if into else node.output
                for i, found in enumerate(names):
                    if found == name:
                        names[i] = inner
                if not into:
                    for i, found in enumerate(node.input):
                        if found == name:
                            node.input[i] = inner
            ty.elem_type = TensorProto.FLOAT
            if into:
                cast = helper.make_node("Cast", [name], [inner], to=TensorProto.BFLOAT16)
                graph.node.insert(0, cast)
            else:
                graph.node.append(helper.make_node("Cast", [inner], [name], to=TensorProto.FLOAT))
    return model


def run(model, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return ReferenceEvaluator(model).run(None, feed)
    return session.run(None, feed)


def array(tensor):
    found = numpy_helper.to_array(tensor)
    return found.astype(np.float32) if tensor.data_type == TensorProto.BFLOAT16 else found


def difference(found, tensor):
    wanted = array(tensor)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{found.shape} in place of {wanted.dtype}{wanted.shape}"
    if wanted.size == 0:
        return None
    if wanted.dtype.kind != "f":
        return None if (found == wanted).all() else f"{found.ravel()[:9]}, not {wanted.ravel()[:9]}"
    with np.errstate(all="ignore"):
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        error = np.where(same, 0.0, np.abs(found - wanted))
        finite = np.abs(wanted[np.isfinite(wanted)])
        scale = max(finite.max() if finite.size else 0.0, 0.1)
        error = np.nan_to_num(error, nan=np.inf).max() / scale
    return None if error <= TOLERANCES.get(tensor.data_type, 1e-5) else f"an error of {error:.3g}"


def check(folder):
    path = os.path.join(folder, "model.onnx")
    onnx.checker.check_model(path, full_check=True)
    model = without_bfloat16(onnx.load(path))
    feed = {tensor.name: array(tensor) for tensor in tensors(folder, "input")}
    taken = {value.name for value in model.graph.input}
    results = run(model, {name: value for name, value in feed.items() if name in taken})
    expected = tensors(folder, "output")
    assert len(results) == len(expected), f"{len(results)} outputs, not {len(expected)}"
    for found, tensor in zip(results, expected):
        wrong = difference(np.asarray(found), tensor)
        assert wrong is None, f"output {tensor.name}: {wrong}"


root = sys.argv[1]
passed, failed = 0, []
for name in sorted(os.listdir(root)):
    try:
        check(os.path.join(root, name))
        passed += 1
    except Exception as error:  # Whatever the runtime raises is a failure of this model.
        failed.append(f"{name}: {str(error)[:400]}")
print(f"{passed} passed, {len(failed)} failed")
print("\n".join(failed), file=sys.stderr)
sys.exit(1 if failed else 0)
