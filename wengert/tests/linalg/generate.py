"""Writes the reference of Wengert's linear algebra: values and derivatives of JAX in double
precision.

    python generate.py            # needs jax and numpy; writes jax.npz beside itself

Points, tangents and cotangents are drawn by SplitMix64, here and in jax.rs alike, so the file holds
results only. For each case: y*, the results; ydot*, their tangents along the drawn tangents; xbar*,
the cotangents of the inputs from the drawn cotangents; second*, the derivative of xbar* along the
tangents. Of an array of more than 200 elements, every 13th is kept.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
HERE = os.path.dirname(os.path.abspath(__file__))
MASK = (1 << 64) - 1


def draw(seed, shape):
    """Uniform numbers in [-1, 1)."""
    state, out = seed, []
    for _ in range(int(np.prod(shape))):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        out.append((z >> 11) * 2.0**-53 * 2.0 - 1.0)
    return jnp.array(np.array(out, np.float64).reshape(shape))


def ramp(x, low=1.0):
    """A rectangular matrix with the diagonal low, low + 1, …"""
    m, n = x.shape
    i, j = jnp.arange(m)[:, None], jnp.arange(n)[None, :]
    return jnp.where(i == j, i + low, 0.0)


def turned(x):
    """Threes on the anti-diagonal, so that pivoting exchanges rows."""
    m, n = x.shape
    i, j = jnp.arange(m)[:, None], jnp.arange(n)[None, :]
    return jnp.where(i + j == min(m, n) - 1, 3.0, 0.0)


def spd(x):
    return x @ x.T / x.shape[0] + jnp.eye(x.shape[0])


def signed(v):
    """Columns, each negated if its first entry is negative."""
    return v * jnp.where(v[:1] < 0, -1.0, 1.0)


def wide_qr(a):
    m, n = a.shape
    q, r = jnp.linalg.qr(a[:, :m])
    return q, jnp.concatenate([r, q.T @ a[:, m:]], 1)


def eigh(x):
    w, v = jnp.linalg.eigh(0.3 * x + ramp(x))
    return w, signed(v)


def svd(x):
    u, s, vt = jnp.linalg.svd(0.3 * x + ramp(x), full_matrices=False)
    signs = jnp.where(u[:1] < 0, -1.0, 1.0)
    return u * signs, s, vt * signs.T


def triangular(bits):
    left, lower, transpose, unit = (bool(bits & b) for b in (1, 2, 4, 8))

    def f(a, b):
        a = 0.3 * a + ramp(a, 2.0) / a.shape[0]
        return (
            lax.linalg.triangular_solve(
                a, b, left_side=left, lower=lower, transpose_a=transpose, unit_diagonal=unit
            ),
        )

    return f


def one(f):
    return lambda *x: (f(*x),)


SIZES = [1, 2, 5, 8, 33]


def cases():
    """(name, function, shapes of inputs)"""
    for bits in range(16):
        b = lambda n: (n, 3) if bits & 1 else (3, n)
        yield f"triangular_solve_{bits}_5", triangular(bits), [(5, 5), b(5)]
        if bits in (0, 3, 6, 13):
            yield f"triangular_solve_{bits}_70", triangular(bits), [(70, 70), b(70)]
    for n in SIZES + [70]:
        yield f"cholesky_{n}", lambda x: (jnp.linalg.cholesky(spd(x)),), [(n, n)]
    for n in SIZES:
        square = [(n, n)]
        yield f"eigh_{n}", eigh, square
        yield f"inv_{n}", lambda x: (jnp.linalg.inv(x + turned(x)),), square
        yield f"det_{n}", lambda x: (jnp.linalg.det(0.4 * x + turned(x) / 3),), square
        yield f"slogdet_{n}", lambda x: tuple(jnp.linalg.slogdet(x + turned(x))), square
        yield f"solve_{n}", lambda a, b: (jnp.linalg.solve(a + turned(a), b),), square + [(n, 3)]
        yield f"solve_vector_{n}", lambda a, b: (jnp.linalg.solve(a + turned(a), b),), square + [
            (n,)
        ]
        yield f"matrix_exp_{n}", one(jax.scipy.linalg.expm), square
    for scale in (0, 1e-3, 3.0, 20.0):
        yield f"matrix_exp_scaled_{scale:g}", lambda x, s=scale: (jax.scipy.linalg.expm(s * x),), [
            (4, 4)
        ]
    for m, n in [(n, n) for n in SIZES] + [(5, 3), (3, 5), (40, 35), (35, 40), (70, 70)]:
        yield f"lu_{m}_{n}", lambda x: tuple(lax.linalg.lu(x + turned(x))), [(m, n)]
        yield f"qr_{m}_{n}", wide_qr if m < n else lambda x: tuple(jnp.linalg.qr(x)), [(m, n)]
    for m, n in [(n, n) for n in SIZES] + [(5, 3), (3, 5), (40, 35), (35, 40)]:
        yield f"svd_{m}_{n}", svd, [(m, n)]


def kept(x):
    x = np.asarray(x)
    return x.reshape(-1)[::13] if x.size > 200 else x


def main():
    arrays = {}
    for number, (name, f, shapes) in enumerate(cases()):
        part = iter(range(100))
        seed = lambda: 1000 * (number + 1) + next(part)
        x = [draw(seed(), s) for s in shapes]
        t = [draw(seed(), s) for s in shapes]
        y = f(*x)
        floats = [i for i, r in enumerate(y) if jnp.issubdtype(r.dtype, jnp.floating)]
        c = [draw(seed(), y[i].shape) for i in floats]
        of_floats = lambda *x: tuple(f(*x)[i] for i in floats)
        pull = lambda *x: jax.vjp(of_floats, *x)[1](tuple(c))
        ydot = jax.jvp(of_floats, tuple(x), tuple(t))[1]
        xbar, second = jax.jvp(pull, tuple(x), tuple(t))
        results = {"y": y, "ydot": ydot, "xbar": xbar, "second": second}
        for key, values in results.items():
            for i, value in enumerate(values):
                assert np.all(np.isfinite(value)), (name, key)
                value = np.asarray(value)
                arrays[f"{name}.{key}{i}"] = kept(
                    value.astype(np.int32) if value.dtype.kind == "i" else value
                )
    np.savez_compressed(os.path.join(HERE, "jax.npz"), **arrays)
    print(
        len({key.split(".")[0] for key in arrays}),
        "cases,",
        sum(a.size for a in arrays.values()),
        "numbers",
    )


if __name__ == "__main__":
    main()
