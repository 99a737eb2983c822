"""Writes the reference of Wengert's ops: values of 50 digits (mpmath), and of JAX in double
precision.

    python generate.py            # needs jax, numpy and mpmath; writes beside itself

elementwise.npz   for each op of one or two operands: points that every float dtype represents, the
                  exact value at them as the sum of two doubles, and the exact first and second
                  derivatives.
edges.npz         the same ops at 0, ±1, ±∞, NaN, the least and the greatest numbers: values and
                  first derivatives of JAX.
programs.ir       one function for each case of the other ops, in Wengert's text.
programs.npz      for each of them operands, results, and by JAX: the tangent of the results along
                  given tangents, the cotangents of the operands from given cotangents, and the
                  derivative of the latter along the tangents (second order).
control.npz       the same for programs with control flow, which control.rs builds.
implicit.npz      the same for solutions of equations, fourier.npz for Fourier transforms;
                  `python generate.py implicit` writes one alone.

Points are multiples of a power of two with at most 8 significant bits, so that bfloat16 represents
them. Random numbers are seeded: the same versions write the same files.
"""

import os
import sys

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
mp.mp.dps = 60
HERE = os.path.dirname(os.path.abspath(__file__))


def eight_bits(x):
    """The nearest number with 8 significant bits."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    return np.unique(np.ldexp(np.round(mantissa * 256) / 256, exponent))


def span(low, high, count=48):
    return eight_bits(np.linspace(low, high, count) + 1e-3)


def sizes(low, high, count=24):
    """Magnitudes between 2^low and 2^high."""
    return eight_bits(1.37 * 2.0 ** np.linspace(low, high, count))


def both(x):
    return np.concatenate([-x[::-1], x])


# --- elementwise ----------------------------------------------------------------------------------

ANY = np.concatenate([both(sizes(-12, 3)), span(-6, 6)])
POSITIVE = np.concatenate([sizes(-14, 12, 40), span(0.05, 8)])
UNIT = np.concatenate([both(sizes(-10, -1)), span(-0.98, 0.98)])
GAMMA = np.concatenate([sizes(-8, 7, 30), span(0.05, 12), span(-3.9, -0.1, 24)])
GAMMA = GAMMA[np.abs(GAMMA - np.round(GAMMA)) > 0.02]


def inverse_erf(x):
    return mp.erfinv(x)


UNARY = {
    "neg": (lambda x: -x, ANY),
    "abs": (abs, ANY),
    "square": (lambda x: x * x, ANY),
    "reciprocal": (lambda x: 1 / x, ANY),
    "sqrt": (mp.sqrt, POSITIVE),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), POSITIVE),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), ANY),
    "exp": (mp.exp, ANY),
    "exp2": (lambda x: mp.mpf(2) ** x, ANY),
    "expm1": (mp.expm1, ANY),
    "log": (mp.log, POSITIVE),
    "log2": (lambda x: mp.log(x, 2), POSITIVE),
    "log1p": (lambda x: mp.log1p(x), np.concatenate([POSITIVE, -sizes(-12, -1)])),
    "logistic": (lambda x: 1 / (1 + mp.exp(-x)), ANY),
    "sin": (mp.sin, ANY),
    "cos": (mp.cos, ANY),
    "tan": (mp.tan, ANY),
    "asin": (mp.asin, UNIT),
    "acos": (mp.acos, UNIT),
    "atan": (mp.atan, ANY),
    "sinh": (mp.sinh, ANY),
    "cosh": (mp.cosh, ANY),
    "tanh": (mp.tanh, ANY),
    "asinh": (mp.asinh, ANY),
    "acosh": (mp.acosh, 1 + POSITIVE[POSITIVE > 2.0 ** -6]),
    "atanh": (mp.atanh, UNIT),
    "erf": (mp.erf, ANY),
    "erfc": (mp.erfc, ANY),
    "erf_inv": (inverse_erf, UNIT),
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), GAMMA),
    "digamma": (mp.digamma, GAMMA),
}
UNARY["acosh"] = (mp.acosh, eight_bits(UNARY["acosh"][1]))

PAIRS = [
    (eight_bits(a), eight_bits(b))
    for a, b in [
        (-3.2, 0.7),
        (2.1, -1.3),
        (0.4, 2.6),
        (5.0, 3.0),
        (-0.2, -4.1),
        (1e-2, 7.0),
        (30.0, -0.3),
        (-1.7, -1.1),
    ]
]


def truncated_rem(x, y):
    return x - y * (mp.floor(x / y) if x / y >= 0 else mp.ceil(x / y))


BINARY = {
    "add": (lambda x, y: x + y, False),
    "sub": (lambda x, y: x - y, False),
    "mul": (lambda x, y: x * y, False),
    "div": (lambda x, y: x / y, False),
    "rem": (truncated_rem, False),
    "max": (lambda x, y: max(x, y), False),
    "min": (lambda x, y: min(x, y), False),
    "pow": (lambda x, y: x**y, True),
    "atan2": (lambda x, y: mp.atan2(x, y), False),
}


def two_doubles(values):
    high = np.array([float(v) for v in values])
    low = np.array([float(v - mp.mpf(h)) if np.isfinite(h) else 0.0 for v, h in zip(values, high)])
    return high, low


def elementwise():
    arrays = {}
    for name, (f, points) in UNARY.items():
        points = np.unique(points)
        exact = [mp.mpf(float(p)) for p in points]
        arrays[f"{name}.x"] = points
        arrays[f"{name}.y"], arrays[f"{name}.y_low"] = two_doubles([f(x) for x in exact])
        arrays[f"{name}.d"] = np.array(
            [float(mp.re(mp.diff(f, x, 1, h=mp.mpf(10) ** -20))) for x in exact]
        )
        arrays[f"{name}.dd"] = np.array(
            [float(mp.re(mp.diff(f, x, 2, h=mp.mpf(10) ** -15))) for x in exact]
        )
    for name, (f, positive) in BINARY.items():
        xs = np.array([a[0] if not positive else abs(a[0]) for a, _ in PAIRS])
        ys = np.array([b[0] for _, b in PAIRS])
        exact = [(mp.mpf(float(a)), mp.mpf(float(b))) for a, b in zip(xs, ys)]
        arrays[f"{name}.x"], arrays[f"{name}.z"] = xs, ys
        arrays[f"{name}.y"], arrays[f"{name}.y_low"] = two_doubles([f(a, b) for a, b in exact])
        step = mp.mpf(10) ** -20
        arrays[f"{name}.d"] = np.array(
            [float(mp.diff(lambda a: f(a, b), a, 1, h=step)) for a, b in exact]
        )
        arrays[f"{name}.e"] = np.array(
            [float(mp.diff(lambda b: f(a, b), b, 1, h=step)) for a, b in exact]
        )
    np.savez_compressed(os.path.join(HERE, "elementwise.npz"), **arrays)
    return len(UNARY) + len(BINARY)


# --- edges ----------------------------------------------------------------------------------------

EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, np.inf,
     -np.inf, np.nan, 1e300, -1e300, 1e-300, -1e-300, 710.0, -746.0]
)
OF_JAX = {
    "square": lax.square,
    "reciprocal": lambda x: 1 / x,
    "erf_inv": lax.erf_inv,
    "rsqrt": lax.rsqrt,
    "cbrt": lax.cbrt,
    "log2": jnp.log2,
    "exp2": lax.exp2,
    "logistic": lax.logistic,
    "neg": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "max": lax.max,
    "min": lax.min,
    "atan2": lax.atan2,
    "pow": lax.pow,
    "rem": lax.rem,
}


def edges():
    arrays = {}
    for name in [*UNARY, "sign", "floor", "ceil", "round"]:
        f = OF_JAX.get(name) or getattr(lax, name)
        arrays[f"{name}.x"] = EDGES
        arrays[f"{name}.y"] = np.array([f(x) for x in EDGES])
        arrays[f"{name}.d"] = np.array([jax.grad(f)(x) for x in EDGES])
    few = np.array([0.0, -0.0, 1.0, -1.5, 2.0, np.inf, -np.inf, np.nan])
    x, z = (a.ravel() for a in np.meshgrid(few, few))
    for name in BINARY:
        f = OF_JAX.get(name) or getattr(lax, name)
        arrays[f"{name}.x"], arrays[f"{name}.z"] = x, z
        arrays[f"{name}.y"] = np.array([f(a, b) for a, b in zip(x, z)])
        arrays[f"{name}.d"] = np.array([jax.grad(f, 0)(a, b) for a, b in zip(x, z)])
        arrays[f"{name}.e"] = np.array([jax.grad(f, 1)(a, b) for a, b in zip(x, z)])
    np.savez_compressed(os.path.join(HERE, "edges.npz"), **arrays)


# --- the other ops --------------------------------------------------------------------------------

DTYPES = {"float64": "f64", "int32": "i32", "bool": "bool", "uint32": "u32", "int64": "i64"}


def type_of(a):
    return f"{DTYPES[str(a.dtype)]}[{','.join(str(n) for n in a.shape)}]"


class Cases:
    def __init__(self):
        self.random = np.random.default_rng(20)
        self.text, self.arrays, self.count = [], {}, {}

    def f(self, *shape, low=-2.0, high=2.0):
        return self.random.uniform(low, high, shape)

    def i(self, values):
        return np.array(values, np.int32)

    def add(self, op, attributes, jax_function, *operands, differentiable=True):
        """Adds a case: `op operands {attributes}` and an equivalent function of JAX."""
        number = self.count.get(op, 0)
        self.count[op] = number + 1
        name = f"{op}_{number}"
        operands = [np.asarray(o) for o in operands]
        run = lambda *x: tuple(jax.tree.leaves(jax_function(*x)))
        results = [np.asarray(r) for r in run(*operands)]
        inputs = ", ".join(f"%x{i}: {type_of(o)}" for i, o in enumerate(operands))
        given = ", ".join(f"%y{i}: {type_of(r)}" for i, r in enumerate(results))
        outputs = ", ".join(f"y{i}: {type_of(r)}" for i, r in enumerate(results))
        names = ", ".join(f"%x{i}" for i in range(len(operands)))
        braces = f" {{{attributes}}}" if attributes else ""
        returned = ", ".join(f"%y{i}" for i in range(len(results)))
        self.text.append(
            f"func @{name}({inputs}) -> ({outputs}) {{\n"
            f"  {given} = {op} {names}{braces}\n  return {returned}\n}}\n"
        )
        self.record(name, run, operands, results, differentiable)

    def program(self, name, jax_function, *operands):
        """Adds a case without a text."""
        run = lambda *x: tuple(jax.tree.leaves(jax_function(*map(jnp.asarray, x))))
        operands = [np.asarray(o) for o in operands]
        self.record(name, run, operands, [np.asarray(r) for r in run(*operands)], True)

    def record(self, name, run, operands, results, differentiable):
        put = lambda key, i, a: self.arrays.__setitem__(f"{name}.{key}{i}", np.asarray(a))
        for i, a in enumerate(operands):
            put("x", i, a)
        for i, a in enumerate(results):
            put("y", i, a)
        active = [i for i, a in enumerate(operands) if a.dtype == np.float64]
        floats = [i for i, a in enumerate(results) if a.dtype == np.float64]
        if not differentiable or not active or not floats:
            return

        def of_floats(*x):
            full = list(operands)
            for i, value in zip(active, x):
                full[i] = value
            out = run(*full)
            return tuple(out[i] for i in floats)

        x = tuple(operands[i] for i in active)
        t = tuple(self.random.uniform(-1, 1, operands[i].shape) for i in active)
        c = tuple(self.random.uniform(-1, 1, results[i].shape) for i in floats)
        pull = lambda *x: jax.vjp(of_floats, *x)[1](c)
        _, tangents = jax.jvp(of_floats, x, t)
        cotangents = pull(*x)
        _, second = jax.jvp(pull, x, t)
        for k, i in enumerate(active):
            put("t", i, t[k])
            put("xbar", i, cotangents[k])
            put("second", i, second[k])
        for k, i in enumerate(floats):
            put("c", i, c[k])
            put("ydot", i, tangents[k])


def structural(c):
    f = c.f
    c.add(
        "broadcast_in_dim",
        "dims=[1], shape=[2,3,4]",
        lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1,)),
        f(3),
    )
    c.add(
        "broadcast_in_dim",
        "dims=[0,2], shape=[2,3,4]",
        lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (0, 2)),
        f(1, 4),
    )
    c.add("reshape", "shape=[4,3]", lambda x: lax.reshape(x, (4, 3)), f(2, 6))
    c.add("permute", "permutation=[2,0,1]", lambda x: lax.transpose(x, (2, 0, 1)), f(2, 3, 4))
    c.add(
        "slice",
        "limit=[5,7], start=[1,0], stride=[2,3]",
        lambda x: lax.slice(x, (1, 0), (5, 7), (2, 3)),
        f(6, 7),
    )
    pad = [(1, 2, 0), (-1, 0, 2), (2, -3, 1)]
    c.add(
        "pad",
        "high=[2,0,-3], interior=[0,2,1], low=[1,-1,2]",
        lambda x, v: lax.pad(x, v, pad),
        f(2, 4, 3),
        f(),
    )
    c.add(
        "concatenate",
        "axis=1",
        lambda a, b, d: lax.concatenate([a, b, d], 1),
        f(2, 3),
        f(2, 1),
        f(2, 2),
    )
    c.add("reverse", "axes=[0,2]", lambda x: lax.rev(x, (0, 2)), f(2, 3, 2))
    c.add("select", "", lambda p, a, b: jnp.where(p, a, b), f(3, 2) > 0, f(3, 2), f(3, 2))
    c.add("select_n", "", lambda w, *a: lax.select_n(w, *a), c.i([2, 0, 1, 1]), f(4), f(4), f(4))
    c.add(
        "clamp",
        "",
        lambda a, x, b: jnp.minimum(jnp.maximum(x, a), b),
        np.float64(-0.5),
        f(9),
        np.float64(0.75),
    )
    c.add("clamp", "", lambda a, x, b: lax.clamp(a, x, b), f(6, high=-0.5), f(6), f(6, low=0.5))
    c.add("integer_pow", "exponent=5", lambda x: lax.integer_pow(x, 5), f(5))
    c.add("integer_pow", "exponent=-3", lambda x: lax.integer_pow(x, -3), f(5, low=0.5))
    c.add(
        "reduce_precision",
        "exponent_bits=5, mantissa_bits=10",
        lambda x: lax.reduce_precision(x, 5, 10),
        f(7),
    )
    c.add(
        "convert_element_type",
        "dtype=i32",
        lambda x: lax.convert_element_type(x, jnp.int32),
        f(5) * 10,
    )
    c.add("nextafter", "", lambda a, b: lax.nextafter(a, b), f(5), f(5), differentiable=False)
    c.add(
        "iota", "axis=1, dtype=i32, shape=[2,3]", lambda: lax.broadcasted_iota(jnp.int32, (2, 3), 1)
    )


def reductions(c):
    f = c.f
    for axes in [(0,), (1, 2), (0, 1, 2)]:
        text = f"axes=[{','.join(map(str, axes))}]"
        c.add("reduce_sum", text, lambda x: jnp.sum(x, axes), f(3, 4, 2))
        c.add("reduce_prod", text, lambda x: jnp.prod(x, axes), f(3, 4, 2))
        c.add("reduce_max", text, lambda x: jnp.max(x, axes), f(3, 4, 2))
        c.add("reduce_min", text, lambda x: jnp.min(x, axes), f(3, 4, 2))
    with_zeros = f(3, 4)
    with_zeros[0, 1] = with_zeros[1, 2] = with_zeros[1, 3] = 0.0
    c.add("argmax", "axis=1", lambda x: lax.argmax(x, 1, jnp.int32), f(3, 5))
    c.add("argmin", "axis=0", lambda x: lax.argmin(x, 0, jnp.int32), f(3, 5))
    for reverse in [False, True]:
        text = "axis=1, reverse=true" if reverse else "axis=1"
        for name in ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]:
            c.add(name, text, lambda x, g=getattr(lax, name): g(x, 1, reverse), f(2, 6))
    c.add("softmax", "axis=1", lambda x: jax.nn.softmax(x, 1), f(3, 4))
    c.add("log_softmax", "axis=0", lambda x: jax.nn.log_softmax(x, 0), f(3, 4))
    c.add("logsumexp", "axis=1", lambda x: jax.nn.logsumexp(x, 1), f(3, 4))
    loss = lambda x, y: -jnp.take_along_axis(jax.nn.log_softmax(x, 1), y[:, None], 1)[:, 0]
    c.add("softmax_cross_entropy", "", loss, f(3, 4), c.i([2, 0, 3]))


def sorting(c):
    f = c.f
    c.add("sort", "axis=0", lambda x: lax.sort(x, dimension=0), f(7))
    keys = c.i([[1, 0, 1, 0, 1], [2, 2, 2, 1, 1]])
    two = lambda k, a, b: lax.sort((k, a, b), dimension=1, num_keys=2)
    c.add("sort", "axis=1, num_keys=2", two, keys, f(2, 5), f(2, 5))
    c.add("top_k", "axis=1, k=3", lambda x: lax.top_k(x, 3), f(2, 6))
    c.add("argsort", "axis=1", lambda x: jnp.argsort(x, 1).astype(jnp.int32), f(2, 6))
    take = lambda x, i: jnp.take_along_axis(x, i, 1)
    c.add("take_along_axis", "axis=1", take, f(2, 5), c.i([[4, 0, 0], [1, 3, 3]]))


def products(c):
    f = c.f
    for contract, batch, a, b in [
        (((1,), (0,)), ((), ()), f(2, 3), f(3, 4)),
        (((2,), (1,)), ((0,), (2,)), f(2, 3, 4), f(3, 4, 2)),
        (((0, 2), (1, 0)), ((), ()), f(2, 3, 4), f(4, 2)),
        (((), ()), ((1,), (0,)), f(2, 3), f(3, 4)),
    ]:
        spell = lambda p: "[" + ",".join("[" + ",".join(map(str, s)) + "]" for s in p) + "]"
        text = (
            f"contract={spell(contract)}"
            if not batch[0]
            else f"batch={spell(batch)}, contract={spell(contract)}"
        )
        c.add("dot_general", text, lambda a, b: lax.dot_general(a, b, (contract, batch)), a, b)

    def conv(spatial, x, w, text, **options):
        letters = "WHD"[:spatial][::-1]
        numbers = lax.conv_dimension_numbers(
            x.shape, w.shape, (f"N{letters}C", f"{letters}IO", f"N{letters}C")
        )
        given = dict(window_strides=(1,) * spatial, padding=[(0, 0)] * spatial)
        given.update(options)
        c.add(
            "conv_general_dilated",
            text,
            lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=numbers, **given),
            x,
            w,
        )

    conv(1, f(2, 7, 3), f(3, 3, 4), "padding=[[0,0]], stride=[1]")
    conv(1, f(1, 9, 2), f(3, 2, 2), "padding=[[2,-1]], rhs_dilation=[2], stride=[2]",
         window_strides=(2,), padding=[(2, -1)], rhs_dilation=(2,))
    conv(2, f(2, 5, 6, 2), f(3, 2, 2, 3), "padding=[[1,1],[0,1]], stride=[2,1]",
         window_strides=(2, 1), padding=[(1, 1), (0, 1)])
    conv(2, f(1, 3, 4, 2), f(2, 3, 2, 2), "lhs_dilation=[2,3], padding=[[1,0],[2,2]], stride=[1,1]",
         padding=[(1, 0), (2, 2)], lhs_dilation=(2, 3))
    conv(
        2,
        f(2, 5, 4, 4),
        f(2, 2, 2, 6),
        "feature_group_count=2, padding=[[0,0],[0,0]], stride=[1,1]",
        feature_group_count=2,
    )
    conv(
        2,
        f(4, 4, 4, 2),
        f(2, 2, 2, 6),
        "batch_group_count=2, padding=[[0,0],[0,0]], stride=[1,1]",
        batch_group_count=2,
    )
    conv(3, f(1, 4, 3, 4, 2), f(2, 2, 2, 2, 3), "padding=[[0,0],[1,0],[0,1]], stride=[1,1,2]",
         window_strides=(1, 1, 2), padding=[(0, 0), (1, 0), (0, 1)])


def indexing(c):
    f = c.f
    rows = lax.GatherDimensionNumbers(
        offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    gather = lambda n, sizes, mode: lambda x, i: lax.gather(x, i, n, sizes, mode=mode)
    c.add(
        "gather",
        "collapsed_slice_dims=[0], offset_dims=[1], slice_sizes=[1,3], start_index_map=[0]",
        gather(rows, (1, 3), "clip"),
        f(5, 3),
        c.i([[4], [0], [4], [9]]),
    )
    windows = lax.GatherDimensionNumbers(
        offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(1, 0)
    )
    c.add(
        "gather",
        "collapsed_slice_dims=[], offset_dims=[1,2], slice_sizes=[2,3], start_index_map=[1,0]",
        gather(windows, (2, 3), "clip"),
        f(5, 6),
        c.i([[3, 1], [0, 4], [2, 2]]),
    )

    def scatter(op, g, low=-2.0, high=2.0, unique=False):
        text = "inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], "
        text += ("unique_indices=true, " if unique else "") + "update_window_dims=[1]"
        numbers = lax.ScatterDimensionNumbers(
            update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
        )
        indices = c.i([[4], [0], [2]]) if unique else c.i([[4], [0], [4], [9]])
        run = lambda x, i, u: g(
            x, i, u, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP, unique_indices=unique
        )
        c.add(
            op,
            text,
            run,
            f(5, 3, low=low, high=high),
            indices,
            f(len(indices), 3, low=low, high=high),
        )

    scatter("scatter_add", lax.scatter_add)
    scatter("scatter", lax.scatter, unique=True)
    scatter("scatter_mul", lax.scatter_mul, low=0.5, unique=True)
    start = lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 3), allow_negative_indices=False)
    c.add("dynamic_slice", "slice_sizes=[2,3]", start, f(4, 5), np.int32(1), np.int32(2))
    c.add("dynamic_slice", "slice_sizes=[2,3]", start, f(4, 5), np.int32(7), np.int32(-3))
    update = lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j))
    c.add("dynamic_update_slice", "", update, f(4, 5), f(2, 3), np.int32(3), np.int32(1))


def control(c):
    """Programs of a state h[3], a series x[5,3], a matrix w[3,3] and an i32."""
    operands = (c.f(3), c.f(5, 3), c.f(3, 3, low=-0.7, high=0.7), np.int32(2))

    def recurrent(h, x, w, n):
        def step(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h * x

        return lax.scan(step, h, x)

    def backwards(h, x, w, n):
        def step(c, x):
            a, b = c
            return (jnp.sin(a * w[0] + b), a * x), jnp.exp(-a * a)

        return lax.scan(step, (h, w[1]), x, reverse=True)

    def counted(h, x, w, n):
        return lax.fori_loop(0, 6, lambda i, h: jnp.sin(h * w[0] + i * x[1]), h)

    def bounded(h, x, w, n):
        return lax.fori_loop(0, 5, lambda i, h: jnp.where(i < n, jnp.tanh(h @ w + x[i]), h), h)

    def mapped(h, x, w, n):
        return lax.map(lambda x: (jnp.exp(w @ x), jnp.sum(x * h)), x)

    def folded(h, x, w, n):
        return lax.scan(lambda h, x: (jnp.sin(h) * x + w[2], None), h, x)[0]

    def chosen(h, x, w, n):
        then = lax.cond(h[0] > -10, lambda: jnp.sin(h @ w), lambda: h * h)
        other = lax.cond(h[0] > 10, lambda: jnp.sin(h @ w), lambda: h * h * x[0])
        return then, other

    def switched(h, x, w, n):
        ways = [lambda h: jnp.sin(h), lambda h: h @ w, lambda h: h * x[0], lambda h: h]
        return tuple(lax.switch(n + i, ways, h) for i in range(-3, 3))

    def nested(h, x, w, n):
        def step(h, x):
            inner = lax.fori_loop(0, 3, lambda i, d: jnp.sin(d @ w + x) + i * h, h)
            inner = lax.cond(inner.sum() > 0, lambda: inner * x, lambda: jnp.cos(inner))
            return inner, inner.sum()

        return lax.scan(step, h, x)

    def halving(h, x, w, n):
        # As many steps as `while_at_most(20, ...)` takes: JAX's reverse mode needs a fixed number.
        def step(_, h):
            return jnp.where((h * h).sum() > 0.05, jnp.sin(h) * 0.7 + 0.1 * jnp.tanh(x[0]) * h, h)

        return lax.fori_loop(0, 20, step, h)

    def prefixes(h, x, w, n):
        compose = lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1])
        return lax.associative_scan(compose, (jnp.sin(x), x * h)) + lax.associative_scan(
            compose, (jnp.cos(x), x * w[0]), reverse=True
        )

    for f in [
        recurrent,
        backwards,
        counted,
        bounded,
        mapped,
        folded,
        chosen,
        switched,
        nested,
        halving,
        prefixes,
    ]:
        c.program(f.__name__, f, *operands)


def implicit(c):
    """Implicit functions of a right-hand side b[3] and a matrix w[3,3], with solvers that share as
    little as possible with Wengert's."""
    operands = (c.f(3), c.f(3, 3, low=-0.5, high=0.5))

    def map_of(w):
        return lambda x: 4 * x + jnp.sin(w) @ x

    def symmetric_map_of(w):
        return lambda x: 2 * x + w.T @ (w @ x)

    def dense(map, b):
        return jnp.linalg.solve(jax.jacobian(map)(b), b)

    def solved(b, w):
        return lax.custom_linear_solve(map_of(w), b * w[0], solve=dense, transpose_solve=dense)

    def symmetric(b, w):
        return lax.custom_linear_solve(symmetric_map_of(w), jnp.cos(b), solve=dense, symmetric=True)

    def gradients(b, w):
        return jax.scipy.sparse.linalg.cg(symmetric_map_of(w), jnp.cos(b), tol=1e-14)[0]

    def prepared(b, w):
        return jax.scipy.sparse.linalg.cg(
            symmetric_map_of(w), jnp.cos(b), x0=b, tol=1e-14, M=lambda x: x / (2 + (w * w).sum(0))
        )[0]

    def trees(b, w):
        map = lambda x: (3 * x[0] + w * x[1].sum(), 5 * x[1] + (w * x[0]).sum())
        return jax.scipy.sparse.linalg.cg(map, (w * b, jnp.sin(b)), tol=1e-14)[0]

    def root(b, w):
        f = lambda x: x - jnp.tanh(w @ x + b)
        solve = lambda f, x: lax.fori_loop(
            0, 30, lambda _, x: x - jnp.linalg.solve(jax.jacobian(f)(x), f(x)), x
        )
        return lax.custom_root(f, jnp.zeros_like(b), solve, dense)

    for f in [solved, symmetric, gradients, prepared, trees, root]:
        c.program(f.__name__, f, *operands)


def fourier(c):
    """Transforms and their derivatives, along the last axis of two rows, and along both axes of a
    plane."""
    parts = lambda z: (z.real, z.imag)

    def complex_both(*x):
        z = x[0] + 1j * x[1]
        return parts(jnp.fft.fft(z)) + parts(jnp.fft.ifft(z))

    def plane(*x):
        z = x[0] + 1j * x[1]
        return parts(jnp.fft.fft2(z)) + parts(jnp.fft.ifft2(z))

    for n in [1, 2, 3, 4, 5, 8, 12, 17, 60, 64, 97, 128, 134, 139]:
        c.program(f"fft{n}", complex_both, c.f(2, n), c.f(2, n))
        c.program(f"rfft{n}", lambda x: parts(jnp.fft.rfft(x)), c.f(2, n))
        # JAX refuses to differentiate without a parameter: the spectrum of one number has no
        # imaginary part.
        back = lambda n: lambda re, im: jnp.fft.irfft(re + 1j * im, n)
        c.program(f"irfft{n}", back(n), c.f(2, n // 2 + 1), c.f(2, n // 2 + 1))
    c.program("plane", plane, c.f(6, 5), c.f(6, 5))


def main(only=None):
    files = dict(implicit=implicit, fourier=fourier)
    for name, part in files.items():
        if only in (None, name):
            cases = Cases()
            part(cases)
            np.savez_compressed(os.path.join(HERE, f"{name}.npz"), **cases.arrays)
            print(len({key.split(".")[0] for key in cases.arrays}), name, "programs")
    if only:
        return
    print(elementwise(), "elementwise ops")
    edges()
    cases = Cases()
    for part in [structural, reductions, sorting, products, indexing]:
        part(cases)
    with open(os.path.join(HERE, "programs.ir"), "w") as out:
        out.write(
            "// Written by generate.py: one op each, compared with JAX in double precision.\n\n"
            + "\n".join(cases.text)
        )
    np.savez_compressed(os.path.join(HERE, "programs.npz"), **cases.arrays)
    print(len(cases.text), "cases of", len(cases.count), "other ops")
    loops = Cases()
    control(loops)
    np.savez_compressed(os.path.join(HERE, "control.npz"), **loops.arrays)
    print(len({key.split(".")[0] for key in loops.arrays}), "programs with control flow")


if __name__ == "__main__":
    main(*sys.argv[1:2])
