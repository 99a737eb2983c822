"""PyTorch's DistributedDataParallel on two ranks of one thread each, joined by Gloo.

The contender is rank 0. It starts rank 1 as a process of its own, and tells it through a pipe what
to do. Each rank has half of the batch, as in `bench/src/ranks.rs`. The loss of a step is the mean
of both ranks' losses.
"""

import itertools
import math
import socket
import time

import drawing
import steps
from cases import LARGE, bound_of_losses
from judge import verdict
from telling import progress

from .absent import Absent

RANKS = 2
BUCKETS = (25, 1)  # MiB; 25 is PyTorch's default


def mean_of_ranks(torch, loss):
    """The mean over the ranks of their losses."""
    total = loss.detach().clone()
    torch.distributed.all_reduce(total)
    return total / RANKS


class Rank:
    """A rank with its cases."""

    def __init__(self, rank, port):
        import torch

        self.rank, self.torch, self.cases = rank, torch, {}
        torch.set_num_threads(1)
        torch.set_float32_matmul_precision("highest")
        torch.distributed.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS
        )

    def step(self, case, compiled, bucket, optimiser):
        """A step of this rank as a function without arguments that returns its loss."""
        torch, network = self.torch, steps.of(case)
        loss, turn = next(iter(network.torch_losses(torch).values()))
        loss = torch.compile(loss, dynamic=False, fullgraph=True) if compiled else loss
        values = [torch.from_numpy(p) for p in turn(list(drawing.parameters(network.shapes)))]

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.values = torch.nn.ParameterList(torch.nn.Parameter(p) for p in values)

            def forward(self, x, y):
                return loss(list(self.values), x, y)

        model = Model()
        parallel = torch.nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=bucket, gradient_as_bucket_view=True
        )
        x, y = (torch.from_numpy(a).chunk(RANKS)[self.rank].clone() for a in network.data())
        x, y = (a if a.is_floating_point() else a.long() for a in (x, y))
        return steps.torch_step(
            torch, lambda _, x, y: parallel(x, y), list(model.parameters()), x, y, network.decay,
            **{optimiser: True},
        )

    def obey(self, what, key, *rest):
        """Does what rank 0 says with the step of this key."""
        if what == "make":
            self.cases[key] = self.step(*rest)
        elif what == "losses":
            run = self.cases[key]
            return [float(mean_of_ranks(self.torch, run()[0])) for _ in range(steps.STEPS)]
        elif what == "time":
            run = self.cases[key]
            for _ in range(rest[0]):
                run()
        else:
            self.cases.pop(key, None)


def other(port, orders):
    """Rank 1: obeys until the pipe ends."""
    rank = Rank(1, port)
    while True:
        try:
            rank.obey(*orders.recv())
        except EOFError:
            return


class Ddp:
    """Rank 0, and the other one in a process that ends with this one."""

    def __init__(self, name, device):
        try:
            import torch
        except ImportError:
            raise Absent("not installed") from None
        if device != "cpu":
            raise Absent("Gloo joins ranks on CPUs")
        if not torch.distributed.is_gloo_available():
            raise Absent(f"PyTorch {torch.__version__} has no Gloo")
        self.name, self.device, self.torch, self.cases = name, device, torch, {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = torch.multiprocessing.get_context("spawn")
        theirs, self.orders = context.Pipe(duplex=False)
        self.process = context.Process(target=other, args=(port, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.rank = Rank(0, port)

    def libraries(self):
        return {"torch": self.torch.__version__}

    def wants(self, case):
        return case["kind"]["is"] == "transformer" and case["dtype"] == "f32"

    def together(self, *order):
        """Both ranks do the same."""
        self.orders.send(order)
        return self.rank.obey(*order)

    def plain(self, case):
        """The step of the whole batch in f64, by this rank."""
        torch, network = self.torch, steps.of(case)
        loss, turn = next(iter(network.torch_losses(torch).values()))
        x, y = (torch.from_numpy(a) for a in network.data())
        x, y = (a.double() if a.is_floating_point() else a.long() for a in (x, y))
        values = turn(list(drawing.parameters(network.shapes)))
        values = [torch.from_numpy(p).double() for p in values]
        return steps.torch_step(torch, loss, values, x, y, network.decay)

    def prepare(self, case):
        """Keeps the fastest of several variants. Their losses are compared with those in f64."""
        run = self.plain(case)
        count = 1 if case["work"]["elements"] >= LARGE else steps.STEPS
        expected = [float(run()[0]) for _ in range(count)]
        del run
        least, parity = math.inf, None
        for variant in itertools.product((False, True), BUCKETS, ("foreach", "fused")):
            key = (case["id"], *variant)
            self.together("make", key, case, *variant)
            losses = self.together("losses", key)
            worst = max(abs(l - e) / e for l, e in zip(losses, expected))
            found = verdict(case, worst, len(expected), bound_of_losses(case))
            self.cases[case["id"]], before = key, self.cases.get(case["id"])
            seconds = min(self.time(case, 1) for _ in range(3))
            compiled, bucket, optimiser = variant
            shown = "compiled" if compiled else "eager"
            progress(f"{self.name}: {shown} {bucket} MiB {optimiser} takes {1e3 * seconds:.1f} ms")
            slower = key
            if seconds < least:
                least, parity, slower = seconds, found | {"losses": losses}, before
            else:
                self.cases[case["id"]] = before
            if slower is not None:
                self.together("release", slower)
        return parity

    def time(self, case, runs):
        begun = time.perf_counter()
        self.together("time", self.cases[case["id"]], runs)
        return time.perf_counter() - begun

    def release(self, case):
        if key := self.cases.pop(case["id"], None):
            self.together("release", key)
