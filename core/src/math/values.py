"""Values of the rarer elementary functions, with 48 digits and more, for `values.rs`.

    pip install mpmath && python3 values.py > values.txt

A line is: function, argument, value as the nearest double and the remainder. Numbers are the bits
of doubles. The arguments are random. More of them lie where the functions of `f64` switch formulas
and where results are hard to compute.
"""

import random
import struct

import mpmath as m
from mpmath import mpf

m.mp.prec = 220
R = random.Random(20)


def bits(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def lgamma(x):
    if x > 0:
        return m.loggamma(x)
    return m.log(abs(m.pi / m.sinpi(x))) - m.loggamma(1 - x)


def cbrt(x):
    return m.sign(x) * m.cbrt(abs(x))


def size(low, high):
    return float(mpf(10) ** R.uniform(low, high))


def near(*seams):
    return R.choice(seams) * (1 + R.uniform(-1, 1) * size(-16, -1))


def sign():
    return R.choice([-1, 1])


def gammas():
    pole = -R.randint(0, 12) + R.choice([0, 0.5]) + R.uniform(-1, 1) * size(-12, -0.5)
    return [
        R.uniform(0.4, 3),
        size(-300, 300),
        R.uniform(-20, 0.5),
        R.uniform(0.5, 20),
        pole,
        near(0.5, 0.75, 1, 1.25, 1.4616321449683622, 1.75, 2, 2.25, 8),
    ]


KINDS = {
    "log2": (
        lambda x: m.log(x, 2),
        lambda: [
            R.uniform(0.5, 2),
            size(-320, 300),
            near(1),
            2.0 ** R.randint(-1074, 1023),
            near(0.7071067811865476, 1.4142135623730951),
        ],
    ),
    "asin": (
        m.asin,
        lambda: [R.uniform(-1, 1), sign() * size(-300, 0), 1 - size(-16, 0), near(0.5)],
    ),
    "acos": (
        m.acos,
        lambda: [
            R.uniform(-1, 1),
            sign() * size(-30, 0),
            sign() * (1 - size(-16, 0)),
            sign() * near(0.5),
        ],
    ),
    "sinh": (
        m.sinh,
        lambda: [
            R.uniform(-3, 3),
            sign() * size(-300, 2.8),
            near(20, 3.7e-9),
            R.uniform(-710.4, 710.4),
        ],
    ),
    "cosh": (
        m.cosh,
        lambda: [
            R.uniform(-3, 3),
            sign() * size(-300, 2.8),
            near(20, 0.3466),
            R.uniform(-710.4, 710.4),
        ],
    ),
    "asinh": (
        m.asinh,
        lambda: [R.uniform(-3, 3), sign() * size(-300, 300), near(0.25), near(268435456)],
    ),
    "acosh": (
        m.acosh,
        lambda: [R.uniform(1, 3), 1 + size(-15, 0), size(0, 300), near(1.25, 268435456)],
    ),
    "atanh": (
        m.atanh,
        lambda: [R.uniform(-1, 1), sign() * size(-300, 0), sign() * (1 - size(-16, 0)), near(0.25)],
    ),
    "cbrt": (
        cbrt,
        lambda: [R.uniform(-3, 3), sign() * size(-300, 300), size(-322, -300), near(1, 8, 27)],
    ),
    "erfc": (
        m.erfc,
        lambda: [R.uniform(-6, 6), sign() * size(-20, 1.4), near(0.46, 0.5, 1), R.uniform(5, 26.5)],
    ),
    "erf_inv": (
        m.erfinv,
        lambda: [
            R.uniform(-1, 1),
            sign() * size(-300, 0),
            1 - size(-16, 0),
            near(0.485, 0.49370, 0.5, 0.9966),
        ],
    ),
    "lgamma": (lgamma, gammas),
    "digamma": (m.digamma, gammas),
}
for order in (1, 2, 3, 6, 15, 40):
    KINDS[f"polygamma{order}"] = (
        lambda x, order=order: m.polygamma(order, x),
        lambda: [R.uniform(0.4, 3), size(-2, 3), R.uniform(-12, 0.5), R.uniform(0.5, 20)],
    )

for name, (function, arguments) in KINDS.items():
    wanted = 48 if name.startswith("polygamma") else 240
    written = 0
    while written < wanted:
        for x in arguments():
            try:
                y = function(mpf(x))
            except (ValueError, ZeroDivisionError):
                continue
            if not isinstance(y, mpf) or not mpf(2) ** -1000 < abs(y) < mpf(2) ** 1020:
                continue
            high = float(y)
            print(name, f"{bits(x):x} {bits(high):x} {bits(float(y - mpf(high))):x}")
            written += 1
