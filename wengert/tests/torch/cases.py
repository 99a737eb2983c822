"""Functions by PyTorch in double precision: their values, and the derivatives of a weighted sum of
their results. `losses.py`, `layers.py` and `papers.py` list the functions.

In a file of cases:

    <case>.x.<name>   the inputs, in the layout of this library
    <case>.y.<n>      the results
    <case>.c.<n>      the weights of the elements of result n in the sum
    <case>.d.<name>   the derivative of the sum by an input
"""

import os

import numpy as np
import torch


def draw(*shape, scale=1.0):
    """Normally distributed numbers of few significant bits, so that files compress well."""
    return torch.round(torch.randn(*shape) * scale * 1024) / 1024


class Cases:
    def __init__(self):
        self.arrays = {}

    def add(self, case, function, constants=(), **inputs):
        """Records a function of named inputs, which returns a tensor or several. Floats are
        differentiated unless they are among the constants."""
        active = [n for n, t in inputs.items() if t.is_floating_point() and n not in constants]
        inputs = {n: t.detach().clone() for n, t in inputs.items()}
        for name in active:
            inputs[name].requires_grad_()
        results = function(**inputs)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        weights = [draw(*y.shape) if y.dim() else draw(1)[0] for y in results]
        total = sum((y * c).sum() for y, c in zip(results, weights))
        derivatives = torch.autograd.grad(total, [inputs[n] for n in active])
        for name, derivative in zip(active, derivatives):
            # A derivative of rounding cannot be compared.
            assert derivative.abs().max() > 1e-10, (case, name)
        self._put(case, "x", inputs)
        self._put(case, "y", dict(enumerate(results)))
        self._put(case, "c", dict(enumerate(weights)))
        self._put(case, "d", dict(zip(active, derivatives)))

    def _put(self, case, kind, tensors):
        for name, tensor in tensors.items():
            array = tensor.detach().numpy().copy(order="C")
            array = array.astype(np.int32) if array.dtype == np.int64 else array
            assert not np.isnan(array).any(), (case, kind, name)
            self.arrays[f"{case}.{kind}.{name}"] = array

    def write(self, file):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
        np.savez_compressed(path, **self.arrays)
        print(file, len(self.arrays), "arrays,", os.path.getsize(path), "bytes")
