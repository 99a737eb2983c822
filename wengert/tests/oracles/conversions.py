"""Writes conversions.npz: conversions of f16, bf16, f8e4m3fn and f8e5m2 by NumPy and ml_dtypes.

    pip install numpy ml_dtypes
    python conversions.py

For each format, `NAME.values` has the f32 of every bit pattern (its bits, u32).

`NAME.f32` and `NAME.f64` have roundings from a wider format. For each number that is not negative
and has a finite successor: the number, the middle of both, and the values of the wider format on
both sides of the middle. Each entry is the rounded pattern less the pattern of the number, 0 or 1.
From f64, ml_dtypes rounds twice, by way of f32, so f16 alone has `f64`.

`NAME.edges` has the patterns of the values in EDGES, from f32.
"""

import pathlib

import ml_dtypes
import numpy as np

FORMATS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}
BITS = {1: np.uint8, 2: np.uint16}
# The limits of the formats, and the values beside the middle between them and overflow.
EDGES = [
    0.0, 448.0, 463.99997, 464.0, 464.00003, 480.0, 57344.0, 61439.996, 61440.0, 61440.004, 65504.0,
    65519.996, 65520.0, 3.3895314e38, 3.3961775e38, 3.4028235e38, np.inf, 1e-45, 1.1754944e-38,
]


def bits(array):
    return array.view(BITS[array.dtype.itemsize])


def roundings(numbers, wide, dtype):
    low, high = numbers[:-1].astype(np.float64), numbers[1:].astype(np.float64)
    middle = ((low + high) / 2).astype(wide)
    below = np.nextafter(middle, wide(-np.inf))
    above = np.nextafter(middle, wide(np.inf))
    values = np.stack([low.astype(wide), below, middle, above], axis=1)
    rounded = bits(values.astype(dtype)).astype(np.int64)
    return (rounded - bits(numbers[:-1]).astype(np.int64)[:, None]).astype(np.uint8)


def main():
    np.seterr(all="ignore")
    arrays = {}
    for name, dtype in FORMATS.items():
        size = np.dtype(dtype).itemsize
        patterns = np.arange(1 << (8 * size), dtype=BITS[size]).view(dtype)
        values = patterns.astype(np.float32)
        arrays[f"{name}.values"] = values.view(np.uint32)
        positive = patterns[: len(patterns) // 2]
        numbers = positive[np.isfinite(positive.astype(np.float32))]
        arrays[f"{name}.f32"] = roundings(numbers, np.float32, dtype)
        if name == "f16":
            arrays[f"{name}.f64"] = roundings(numbers, np.float64, dtype)
        edges = np.array(EDGES, np.float32)
        edges = np.concatenate([edges, -edges, [np.float32(np.nan)]]).astype(np.float32)
        arrays[f"{name}.edges"] = bits(edges.astype(dtype)).astype(np.uint32)
    np.savez_compressed(pathlib.Path(__file__).with_name("conversions.npz"), **arrays)


main()
