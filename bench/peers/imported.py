"""The imported models of C13, which `imported_models.py` writes."""

import os
from pathlib import Path

# The environment variable that names the folder of the models.
FOLDER = "WENGERT_BENCH_MODELS"


def has_models():
    """Whether the models are there."""
    return FOLDER in os.environ


def of(case):
    """A model's file, its inputs (by number, or by name if they are bound), and its first
    result."""
    import numpy as np

    file = Path(os.environ[FOLDER]) / case["kind"]["model"]
    arrays = np.load(file.with_suffix(".npz"))
    inputs = {
        name.partition("_")[2]: arrays[name]
        for name in arrays
        if name.startswith(("input_", "bound_"))
    }
    return file.with_suffix(".onnx"), inputs, arrays["output_0"].astype("float64")


def named(session, inputs):
    """The inputs by the names of a session of ONNX Runtime."""
    names = [i.name for i in session.get_inputs()]
    free = (name for name in names if name not in inputs)
    return {name if name in names else next(free): value for name, value in inputs.items()}
