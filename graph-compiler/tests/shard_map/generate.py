"""Writes the reference of collectives: values and derivatives of JAX's `shard_map` on four devices
in double precision.

    python generate.py            # needs jax and numpy; writes jax.txt beside itself

Points, tangents and cotangents are drawn by SplitMix64, here and in main.rs alike, so the file
holds results only. For each case: y*, the results; ydot*, their tangents along the drawn tangents;
xbar*, the cotangents of the inputs from the drawn cotangents; second*, the derivative of xbar*
along the tangents, for cases that are not linear. All derivatives are taken inside of `shard_map`
with `check_vma=True`. Where a function is not linear, this script also takes the vjp of the whole
`shard_map`, and asserts that it is the same.

A line has the case, the result, its type with the axes over which it varies, and the values of all
ranks that differ along these axes, in their order. Floats of functions that are linear, and of
extrema, are multiples of 1/128. Their lines hold the numerators.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.lax.parallel import all_gather_invariant
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
HERE = os.path.dirname(os.path.abspath(__file__))
MASK = (1 << 64) - 1

MESHES = {"4": [("data", 4)], "2x2": [("data", 2), ("tensor", 2)]}
GROUPS = {
    "4": [("data",)],
    "2x2": [("data",), ("tensor",), ("data", "tensor"), ("tensor", "data")],
}


def draw(name, shape):
    """Multiples of 1/32 in [-2, 2), so that sums of collectives are exact in any order."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 & MASK
    out = []
    for _ in range(int(np.prod(shape))):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        out.append(((z >> 57) - 64) / 32)
    return np.array(out, np.float64).reshape(shape)


def around(axis, extent, other):
    """A matrix with these extents along `axis` and along the other one."""
    return (extent, other) if axis == 0 else (other, extent)


def all_to_all(x, over, split, concat):
    """`all_to_all` that is not tiled. JAX 0.10.2 fails to transpose it where the axes differ. The
    derivative is that of the same exchange between two moves of axes."""
    given = lax.all_to_all(x, over, split, concat)
    if split == concat:
        return given
    moved = jnp.moveaxis(lax.all_to_all(jnp.moveaxis(x, split, 0), over, 0, 0), 0, concat)
    return moved + lax.stop_gradient(given - moved)


def ppermute(x, over, pairs):
    """`ppermute` between ranks that are numbered along `over`, as `axis_index` numbers them. JAX
    0.10.2 numbers them in the order of the mesh's axes instead, here `data` and then `tensor`."""
    if over == ("tensor", "data"):
        number = lambda position: position % 2 * 2 + position // 2
        pairs = [(number(source), number(destination)) for source, destination in pairs]
    return lax.ppermute(x, over, pairs)


def collectives(over, size):
    """(name, function, shape of the operand) of each collective, of groups of `size` ranks."""
    shape = (2, 2) if size == 2 else (1, 2)
    yield "psum", lambda x: lax.psum(x, over), shape
    yield "pmean", lambda x: lax.pmean(x, over), shape
    yield "pmax", lambda x: lax.pmax(x, over), shape
    yield "pmin", lambda x: lax.pmin(x, over), shape
    for axis in range(3):
        yield f"all_gather_{axis}", lambda x, a=axis: lax.all_gather(x, over, axis=a), shape
        yield (
            f"all_gather_invariant_{axis}",
            lambda x, a=axis: all_gather_invariant(x, over, axis=a),
            shape,
        )
    for axis in range(2):
        yield (
            f"all_gather_tiled_{axis}",
            lambda x, a=axis: lax.all_gather(x, over, axis=a, tiled=True),
            shape,
        )
        yield (
            f"all_gather_invariant_tiled_{axis}",
            lambda x, a=axis: all_gather_invariant(x, over, axis=a, tiled=True),
            shape,
        )
        yield (
            f"psum_scatter_{axis}",
            lambda x, a=axis: lax.psum_scatter(x, over, scatter_dimension=a),
            around(axis, size, 2),
        )
        yield (
            f"psum_scatter_tiled_{axis}",
            lambda x, a=axis: lax.psum_scatter(x, over, scatter_dimension=a, tiled=True),
            around(axis, 2 * size, 1),
        )
        for concat in range(2):
            yield (
                f"all_to_all_{axis}_{concat}",
                lambda x, a=axis, c=concat: all_to_all(x, over, a, c),
                around(axis, size, 2),
            )
            yield (
                f"all_to_all_tiled_{axis}_{concat}",
                lambda x, a=axis, c=concat: lax.all_to_all(x, over, a, c, tiled=True),
                around(axis, 4, 2),
            )
    rotation = [(rank, (rank + 1) % size) for rank in range(size)]
    yield "ppermute_rotation", lambda x: ppermute(x, over, rotation), shape
    yield "ppermute_partial", lambda x: ppermute(x, over, [(1, 0)]), shape
    yield "axis_index", lambda x: x * lax.axis_index(over).astype(x.dtype), shape


def mlp(x, y, w, b, v):
    error = jnp.tanh(x @ w + b) @ v - y
    return (lax.pmean((error * error).mean(), "data"),)


def tensor_parallel(x, w, v):
    y = lax.psum(jnp.tanh(x @ w) @ v, "tensor")
    return y, lax.pmean((y * y).mean(), "data")


def gathered(over):
    def f(x):
        all = lax.all_gather(x, over, tiled=True)
        return (jnp.sin(all).sum() * x * x + x,)

    return f


def gathered_invariant(over):
    def f(x):
        all = all_gather_invariant(x, over, tiled=True)
        return all * all, jnp.sin(all).sum() * x

    return f


def varied(w, x):
    return lax.psum(lax.pcast(w * w, "data", to="varying") * x, "data"), w * w * x


def parameters_by_part(x, w):
    whole = lax.all_gather(w, "data", axis=1, tiled=True)
    y = jnp.tanh(x @ whole)
    return (lax.pmean((y * y).mean(), "data"),)


def update_by_part(x, w):
    gradient = jax.grad(lambda w: (jnp.sin(x @ w)).sum())(lax.pcast(w, "data", to="varying"))
    part = lax.psum_scatter(gradient, "data", tiled=True)
    return (w - all_gather_invariant(part * part, "data", tiled=True),)


def exchanged(x):
    there = lax.all_to_all(x, "data", 0, 1, tiled=True)
    return (lax.all_to_all(there * there, "data", 1, 0, tiled=True) * x,)


def ring(x):
    sum, passed = x * x, x
    for _ in range(3):
        passed = lax.ppermute(passed, "data", [(i, (i + 1) % 4) for i in range(4)])
        sum = sum + passed * x
    return (sum,)


def softmax(x):
    greatest = lax.pmax(lax.stop_gradient(x).max(), "tensor")
    e = jnp.exp(x - greatest)
    return (e / lax.psum(e.sum(), "tensor"),)


D, T, DT = ("data",), ("tensor",), ("data", "tensor")


def cases():
    """(name, mesh, function, inputs: (shape, axes over which it varies), kind)

    The kind is `value` if JAX has no derivative, `linear`, or `curved`."""
    for mesh, axes in MESHES.items():
        all = tuple(axis for axis, _ in axes)
        for over in GROUPS[mesh]:
            size = int(np.prod([dict(axes)[axis] for axis in over]))
            label = "+".join(over)
            others = tuple(axis for axis in all if axis not in over)
            for name, f, shape in collectives(over, size):
                kind = "value" if name in ("pmax", "pmin") else "linear"
                one = lambda x, f=f: (f(x),)
                yield f"{mesh}.{label}.{name}", mesh, one, [(shape, all)], kind
                if mesh == "2x2" and over == T:
                    each = lambda x, f=f: (jax.vmap(f)(x),)
                    yield f"{mesh}.{label}.vmap.{name}", mesh, each, [((3, *shape), all)], kind
            vary = lambda x, over=over: (lax.pcast(x, over, to="varying"),)
            yield f"{mesh}.{label}.pvary", mesh, vary, [((2,), others)], "linear"
            index = lambda x, over=over: (lax.axis_index(over),)
            yield f"{mesh}.{label}.index", mesh, index, [((), ())], "value"
    curved = [
        ("mlp", "4", mlp, [((3, 2), D), ((3, 2), D), ((2, 3), ()), ((3,), ()), ((3, 2), ())]),
        ("tensor_parallel", "2x2", tensor_parallel, [((2, 3), D), ((3, 2), T), ((2, 2), T)]),
        ("gathered", "4", gathered(D), [((2,), D)]),
        ("gathered_over_both", "2x2", gathered(("tensor", "data")), [((2,), DT)]),
        ("gathered_over_one", "2x2", gathered(T), [((2,), DT)]),
        ("gathered_invariant", "4", gathered_invariant(D), [((2,), D)]),
        ("gathered_invariant_over_one", "2x2", gathered_invariant(T), [((2,), DT)]),
        ("varied", "2x2", varied, [((2,), ()), ((2,), DT)]),
        ("parameters_by_part", "4", parameters_by_part, [((2, 2), D), ((2, 1), D)]),
        ("update_by_part", "4", update_by_part, [((2, 4), D), ((4,), ())]),
        ("exchanged", "4", exchanged, [((4, 1), D)]),
        ("ring", "4", ring, [((2,), D)]),
        ("softmax", "2x2", softmax, [((3,), DT)]),
    ]
    for name, mesh, f, inputs in curved:
        yield name, mesh, f, inputs, "curved"


def type_name(dtype, shape, varying):
    short = {"float64": "f64", "int32": "i32"}[str(dtype)]
    extents = ",".join(str(extent) for extent in shape)
    return f"{short}[{extents}]" + ("{" + ",".join(sorted(varying)) + "}" if varying else "")


def results_of(name, mesh_name, f, inputs, kind):
    """(key, type, values) of each result."""
    axes = MESHES[mesh_name]
    mesh = jax.make_mesh(
        [n for _, n in axes],
        [axis for axis, _ in axes],
        axis_types=(jax.sharding.AxisType.Auto,) * len(axes),
    )
    count = lambda varying: int(np.prod([n for axis, n in axes if axis in varying]))
    ordered = lambda varying: tuple(axis for axis, _ in axes if axis in varying)
    # A leading axis numbers the ranks that differ.
    spec = lambda varying: P(ordered(varying)) if varying else P(None)
    every = lambda key, types: [
        draw(f"{name}.{key}{i}", (count(varying), *shape))
        for i, (shape, varying) in enumerate(types)
    ]
    here = lambda arrays: tuple(x[0] for x in arrays)
    given = tuple(spec(varying) for _, varying in inputs)

    def shards(body, in_specs, out_specs):
        return jax.shard_map(
            body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=True
        )

    def types_of(body, in_specs, *arrays):
        """(shape, axes over which it varies, dtype) of each result of a function of ranks."""
        types = []

        def typed(*arrays):
            types.extend((r.shape, jax.typeof(r).mat.varying, r.dtype) for r in body(*here(arrays)))
            return jnp.zeros(())

        jax.eval_shape(shards(typed, in_specs, P()), *arrays)
        return types

    x = every("x", inputs)
    types = types_of(f, given, *x)
    keys = [f"y{i}" for i in range(len(types))]
    all, arrays, specs = f, x, given
    if kind != "value":
        y_types = [(shape, varying) for shape, varying, _ in types]
        t, c, n = every("t", inputs), every("c", y_types), len(x)
        arrays = x + t + c
        specs = given * 2 + tuple(spec(varying) for _, varying in y_types)

        def all(*v):
            x, t, c = v[:n], v[n : 2 * n], v[2 * n :]
            pull = lambda *x: jax.vjp(f, *x)[1](c)
            y, ydot = jax.jvp(f, x, t)
            xbar, second = jax.jvp(pull, x, t) if kind == "curved" else (pull(*x), ())
            return *y, *ydot, *xbar, *second

        keys += [f"ydot{i}" for i in range(len(y_types))] + [f"xbar{i}" for i in range(n)]
        keys += [f"second{i}" for i in range(n)] if kind == "curved" else []
        types = types_of(all, specs, *arrays)
    out = lambda types: tuple(spec(varying) for _, varying, _ in types)
    stacked = lambda body: lambda *arrays: tuple(r[None] for r in body(*here(arrays)))
    results = jax.jit(shards(stacked(all), specs, out(types)))(*arrays)
    found = dict(zip(keys, results, strict=True))
    if kind == "curved":
        whole = jax.jit(shards(stacked(f), given, out(types[: len(y_types)])))
        for i, outside in enumerate(jax.vjp(whole, *x)[1](tuple(c))):
            np.testing.assert_allclose(found[f"xbar{i}"], outside, rtol=1e-13, atol=1e-14)
    for key, (shape, varying, dtype) in zip(keys, types, strict=True):
        array = np.asarray(found[key])
        assert array.shape == (count(varying), *shape) and np.all(np.isfinite(array)), name
        yield key, type_name(dtype, shape, varying), array.reshape(-1)


def main():
    lines = []
    with open(os.path.join(HERE, "jax.txt"), "w") as file:
        for case in cases():
            for key, kind, values in results_of(*case):
                if case[4] != "curved" and values.dtype.kind == "f":
                    values = values * 128
                    assert np.all(values == np.round(values)), case[0]
                text = " ".join(repr(v.item()).removesuffix(".0") for v in values)
                lines.append(f"{case[0]} {key} {kind} {text}\n")
                file.write(lines[-1])
            file.flush()
    print(len({line.split()[0] for line in lines}), "cases,", sum(map(len, lines)), "bytes")


if __name__ == "__main__":
    main()
