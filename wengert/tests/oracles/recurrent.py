"""Writes recurrent.npz: an LSTM with its derivatives, by PyTorch in double precision.

Run it as `python3 recurrent.py`; it needs torch and numpy.
"""

import os

import numpy as np
import torch

STEPS, BATCH, INPUTS, WIDTH = 7, 3, 4, 5


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    layer = torch.nn.LSTM(INPUTS, WIDTH)
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter, -1.5, 1.5)
    # One bias is enough. The other stays 0.
    torch.nn.init.zeros_(layer.bias_hh_l0)
    draw = lambda *shape: (2 * torch.rand(*shape) - 1).requires_grad_()
    x, hidden, cell = draw(STEPS, BATCH, INPUTS), draw(1, BATCH, WIDTH), draw(1, BATCH, WIDTH)
    all, (last, remembered) = layer(x, (hidden, cell))
    # The derivative of a weighted sum of all results.
    weights = [torch.rand_like(t) for t in (all, last, remembered)]
    sum((t * w).sum() for t, w in zip((all, last, remembered), weights)).backward()
    given = {
        "x": x,
        "hidden": hidden,
        "cell": cell,
        "all": all,
        "last_hidden": last,
        "last_cell": remembered,
    }
    given |= {f"ct_{name}": w for name, w in zip(("all", "last_hidden", "last_cell"), weights)}
    # This library's layer multiplies from the left.
    named = {"input": layer.weight_ih_l0, "recurrent": layer.weight_hh_l0, "bias": layer.bias_ih_l0}
    given |= {name: p.t() for name, p in named.items()} | {
        f"d_{name}": p.grad.t() for name, p in named.items()
    }
    given |= {f"d_{name}": t.grad for name, t in (("x", x), ("hidden", hidden), ("cell", cell))}
    arrays = {name: t.detach().numpy() for name, t in given.items()}
    for name in (
        "hidden",
        "cell",
        "last_hidden",
        "last_cell",
        "ct_last_hidden",
        "ct_last_cell",
        "d_hidden",
        "d_cell",
    ):
        arrays[name] = arrays[name][0]
    here = os.path.dirname(os.path.abspath(__file__))
    np.savez_compressed(
        os.path.join(here, "recurrent.npz"),
        **{n: np.ascontiguousarray(a) for n, a in arrays.items()},
    )


if __name__ == "__main__":
    main()
