"""The initial numbers of all contenders, equal to those of `bench/src/data.rs`."""

import math

SEED = 0x5EED
STEP = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def words(name, count):
    """The first words of a name's SplitMix64 stream, computed at once."""
    import numpy as np

    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = ((number ^ byte) * 0x00000100000001B3) & MASK
    begin = mix((SEED + STEP) & MASK) ^ mix(number)
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64)
        z *= np.uint64(STEP)
        z += np.uint64(begin)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z ^= z >> np.uint64(shift)
            z *= np.uint64(factor)
        return z ^ (z >> np.uint64(31))


def uniform(name, shape, low, high):
    """Uniform f32 numbers from low to high."""
    import numpy as np

    even = (words(name, math.prod(shape)) >> np.uint64(40)) / float(1 << 24)
    return (low + (high - low) * even).astype(np.float32).reshape(shape)


def labels(name, shape, bound):
    """Uniform integers from 0, below a bound."""
    import numpy as np

    count = math.prod(shape)
    # Rejects words that would bias the integers. The 64 spare words are enough to replace them.
    some = words(name, count + 64)
    some = some[some >= np.uint64((1 << 64) % bound)][:count]
    return (some % np.uint64(bound)).astype(np.int32).reshape(shape)


def to_bf16(numbers):
    """f32 numbers, rounded to those of bf16: to the nearest, ties to even."""
    import numpy as np

    bits = numbers.view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def parameters(shapes):
    """Yields parameters of the given names, shapes and bounds, with the values of
    `wengert-bench`."""
    for name, (shape, (low, high)) in shapes.items():
        yield uniform(f"model.{name}", shape, low, high)


def fresh(shapes):
    """Yields parameters of the same shapes and bounds from NumPy's faster generator."""
    import numpy as np

    generator = np.random.default_rng(1)
    for shape, (low, high) in shapes.values():
        even = generator.random(shape, dtype=np.float32)
        even *= high - low
        even += low
        yield even
