"""Writes optim.npz: a small network after 100 steps of optimisers, and the rates of schedules.

Run it as `python3 optim.py`; it needs torch and numpy. Optimisers and schedules are PyTorch's, in
double precision. Lion, SOAP and steps of Adafactor that are not relative are written here from
their papers. In the file:

    x, y.<columns>             batches, which are taken in turns; labels of networks with that many
                               results
    begin.<path>               each variable before the first step; `b` has more columns than the
                               networks of few results take
    end.<case>.<path>          each variable after the last step
    average.<case>.<path>      its average
    rate.<case>                the rate of each step
"""

import math
import os

import numpy as np
import torch
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS, BATCHES, EXAMPLES, WIDTH = 100, 4, 8, 6
RATE = 0.02


class Network(torch.nn.Module):
    def __init__(self, begin, columns):
        super().__init__()
        for path, t in begin.items():
            t = t[:, :columns] if path == "b" else t
            self.register_parameter(path, torch.nn.Parameter(t.clone()))

    def loss(self, x, y):
        h = torch.tanh(x @ self.a + self.bias)
        h = torch.tanh(h @ self.cube).mean(0)
        return ((h @ self.b - y) ** 2).mean()


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = torch.sign(first * m + (1 - first) * p.grad)
                self.state[p]["m"] = second * m + (1 - second) * p.grad
                p -= group["lr"] * (update + group["weight_decay"] * p)


class Adafactor(torch.optim.Optimizer):
    """Shazeer and Stern 2018, algorithms 4 and 5 with a given rate, and PyTorch's place of ε₁."""

    def __init__(self, params, lr, epsilon, exponent, clipping):
        super().__init__(params, dict(lr=lr))
        self.epsilon, self.exponent, self.clipping, self.t = epsilon, exponent, clipping, 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        beta = 1 - self.t**-self.exponent
        for group in self.param_groups:
            for p in group["params"]:
                square, state = p.grad**2, self.state[p]
                if p.dim() > 1:
                    state["r"] = beta * state.get("r", 0) + (1 - beta) * square.mean(-1)
                    state["c"] = beta * state.get("c", 0) + (1 - beta) * square.mean(-2)
                    outer = state["r"][..., :, None] * state["c"][..., None, :]
                    v = outer / state["r"].mean(-1)[..., None, None].clamp(min=self.epsilon)
                else:
                    v = state["v"] = beta * state.get("v", 0) + (1 - beta) * square
                u = p.grad / v.clamp(min=self.epsilon**2).sqrt()
                if self.clipping:
                    u = u / max(1.0, u.square().mean().sqrt().item() / self.clipping)
                p -= group["lr"] * u


class Soap(torch.optim.Optimizer):
    """Vyas et al. 2024, algorithms 3 and 4. As in the authors' program, the first step makes the
    bases only, and vectors have Adam's update."""

    def __init__(self, params, lr, betas=(0.95, 0.95), decay=0.01, every=10, largest=10000):
        super().__init__(params, dict(lr=lr))
        self.betas, self.eps, self.decay, self.every = betas, 1e-8, decay, every
        self.largest, self.k = largest, 0

    @torch.no_grad()
    def step(self):
        first, second = self.betas
        for group in self.param_groups:
            for p in group["params"]:
                g, state = p.grad, self.state[p]
                sides = [i for i in (0, 1) if p.dim() == 2 and p.shape[i] <= self.largest]
                bases = {i: state[f"Q{i}"] for i in sides if self.k > 0}

                def turn(x, back=False):
                    if 0 in bases:
                        x = (bases[0] if back else bases[0].T) @ x
                    if 1 in bases:
                        x = x @ (bases[1].T if back else bases[1])
                    return x

                if self.k > 0:
                    m = state["m"] = first * state.get("m", 0) + (1 - first) * g
                    v = state["v"] = second * state.get("v", 0) + (1 - second) * turn(g) ** 2
                    m, v = turn(m) / (1 - first**self.k), v / (1 - second**self.k)
                    p -= group["lr"] * (self.decay * p + turn(m / (v.sqrt() + self.eps), True))
                else:
                    p -= group["lr"] * self.decay * p
                for i in sides:
                    product = g @ g.T if i == 0 else g.T @ g
                    state[f"P{i}"] = second * state.get(f"P{i}", 0) + (1 - second) * product
                    if self.k == 0:
                        state[f"Q{i}"] = torch.linalg.eigh(state[f"P{i}"])[1].flip(1)
                    elif self.k % self.every == 0:
                        state[f"Q{i}"] = torch.linalg.qr(state[f"P{i}"] @ state[f"Q{i}"])[0]
        self.k += 1


def train(arrays, name, begin, columns, optimiser, schedule=None, average=False, clip=None):
    network = Network(begin, columns)
    optimiser = optimiser(network)
    schedule = schedule and schedule(optimiser)
    averaged = average and AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    rates = []
    for step in range(STEPS):
        x, y = arrays["x"][step % BATCHES], arrays[f"y.{columns}"][step % BATCHES]
        optimiser.zero_grad()
        network.loss(x, y).backward()
        if clip:
            torch.nn.utils.clip_grad_value_(network.parameters(), clip)
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if schedule:
            schedule.step()
        if average:
            averaged.update_parameters(network)
    for path, p in network.named_parameters():
        assert torch.isfinite(p).all()
        arrays[f"end.{name}.{path}"] = p.detach()
    if schedule:
        arrays[f"rate.{name}"] = torch.tensor(rates)
    if average:
        for path, p in averaged.module.named_parameters():
            arrays[f"average.{name}.{path}"] = p.detach()


def grouped(network):
    p = dict(network.named_parameters())
    groups = [
        dict(params=[p["a"]]),
        dict(params=[p["bias"]], weight_decay=0.0),
        dict(params=[p["cube"]], lr=10 * RATE),
    ]
    return torch.optim.AdamW(groups, lr=RATE, weight_decay=0.1)


def warm(optimiser):
    rising = schedules.LinearLR(optimiser, start_factor=1 / 20, total_iters=19)
    falling = schedules.ExponentialLR(optimiser, 0.97)
    return schedules.SequentialLR(optimiser, [rising, falling], [19])


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    # Few significant bits, so that the file compresses well.
    draw = lambda *shape: torch.round(torch.randn(*shape) * 1024) / 1024
    arrays = {"x": draw(BATCHES, EXAMPLES, WIDTH)}
    arrays |= {f"y.{n}": draw(BATCHES, EXAMPLES, n) for n in (4, WIDTH)}
    begin = {
        "a": draw(WIDTH, WIDTH) / 2,
        "bias": draw(WIDTH),
        "cube": draw(2, WIDTH, WIDTH) / 2,
        "b": draw(WIDTH, WIDTH) / 2,
    }
    arrays |= {f"begin.{path}": t for path, t in begin.items()}
    t = torch.optim
    of = lambda kind, **options: lambda n: kind(n.parameters(), **({"lr": RATE} | options))
    optimisers = {
        "sgd": of(t.SGD),
        "sgd_nesterov": of(t.SGD, momentum=0.9, nesterov=True, weight_decay=0.1),
        "adam": of(t.Adam),
        "adamw": of(t.AdamW, weight_decay=0.1, betas=(0.8, 0.95)),
        "lion": of(Lion, lr=0.003),
        "lion_decay": of(Lion, lr=0.003, betas=(0.95, 0.98), weight_decay=0.3),
        "rmsprop": of(t.RMSprop, lr=0.003),
        "rmsprop_centered": of(
            t.RMSprop, lr=0.003, alpha=0.9, momentum=0.8, centered=True, weight_decay=0.1, eps=1e-3
        ),
        "adagrad": of(t.Adagrad),
        "adagrad_decay": of(
            t.Adagrad, lr_decay=0.05, weight_decay=0.1, initial_accumulator_value=0.01, eps=1e-4
        ),
        "adafactor": of(t.Adafactor),
        "adafactor_decay": of(
            t.Adafactor, lr=0.2, beta2_decay=-0.6, eps=(1e-3, 0.5), d=1.2, weight_decay=0.1
        ),
        "adafactor_absolute": of(Adafactor, lr=0.003, epsilon=1e-10, exponent=0.8, clipping=None),
        "adafactor_clipped": of(Adafactor, lr=0.01, epsilon=1e-10, exponent=0.7, clipping=0.5),
    }
    for name, optimiser in optimisers.items():
        train(arrays, name, begin, 4, optimiser)
    # A matrix with more rows than columns has a gradient of lower rank than its rows, and bases
    # that are not unique.
    train(arrays, "soap", begin, WIDTH, of(Soap))
    train(arrays, "soap_often", begin, WIDTH, of(Soap, betas=(0.9, 0.98), decay=0.2, every=3))
    train(arrays, "soap_columns", begin, 4, of(Soap, largest=5))
    train(arrays, "groups", begin, 4, grouped)
    train(arrays, "ema", begin, 4, of(t.AdamW), average=True)
    train(arrays, "clip", begin, 4, of(t.SGD, lr=0.1), clip=0.05)
    rates = {
        "linear": lambda o: schedules.LinearLR(o, 0.1, 0.8, 60),
        "exponential": lambda o: schedules.ExponentialLR(o, 0.95),
        "step_decay": lambda o: schedules.StepLR(o, 30, 0.3),
        "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 15, 1, 1e-3),
        "restarts_doubled": lambda o: schedules.CosineAnnealingWarmRestarts(o, 10, 2, 1e-3),
        "restarts_tripled": lambda o: schedules.CosineAnnealingWarmRestarts(o, 7, 3),
        "one_cycle": lambda o: schedules.OneCycleLR(
            o, RATE, STEPS, pct_start=0.3, cycle_momentum=False
        ),
        "inverse_square_root": lambda o: schedules.LambdaLR(
            o, lambda k: math.sqrt(16) * min((k + 1) ** -0.5, (k + 1) * 16**-1.5)
        ),
        "warmup": warm,
    }
    for name, schedule in rates.items():
        train(arrays, name, begin, 4, of(t.SGD), schedule)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optim.npz")
    np.savez_compressed(path, **{n: np.ascontiguousarray(t.numpy()) for n, t in arrays.items()})
    print(os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
