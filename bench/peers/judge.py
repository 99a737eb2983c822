"""Checks a contender's results, and selects its fastest variant."""

import math

import drawing
import inference
import steps
from cases import LARGE, bound_of, bound_of_losses
from telling import progress


def verdict(case, worst, compared, bound=None):
    """Parity in the form of records; a wrong result is an error."""
    bound = bound or bound_of(case)
    if not worst <= bound:
        raise ArithmeticError(
            f"the result is wrong: it deviates by {worst:.3e} from a computation in f64, "
            f"{bound:.3e} is allowed"
        )
    return {"compared": compared, "worst": worst, "bound": bound}


def best(contender, case, ways, plain):
    """Prepares each variant of a training step and keeps the fastest. Losses are compared with
    those of the plain step."""
    run = plain()
    expected = [
        float(run()[0]) for _ in range(1 if case["work"]["elements"] >= LARGE else steps.STEPS)
    ]
    del run

    def judge(run):
        losses = [float(run()[0]) for _ in range(steps.STEPS)]
        worst = max(
            (abs(l - e) / e for l, e in zip(losses, expected)),
            key=lambda v: math.inf if math.isnan(v) else v,
        )
        return verdict(case, worst, len(expected), bound_of_losses(case)) | {"losses": losses}

    return fastest(contender, case, ways, judge)


def answers(contender, case, ways, to_numpy):
    """Prepares each variant of an inference and keeps the fastest. Results are compared with those
    of NumPy in f64."""
    import numpy as np

    network = inference.of(case)
    parameters = [p.astype(np.float64) for p in drawing.parameters(network.shapes)]
    expected = network.plain(parameters, *network.inputs().values())
    del parameters
    return judged(contender, case, ways, to_numpy, expected)


def judged(contender, case, ways, to_numpy, expected):
    """Prepares each variant of a case and keeps the fastest. Results are compared with the expected
    one. Only results in f32 have a digest: contenders round bf16 at other places."""
    import numpy as np

    def judge(run):
        found = np.asarray(to_numpy(run()[0]), np.float64).reshape(expected.shape)
        deviation = np.abs(found - expected).max() / np.abs(expected).max()
        parity = verdict(case, float(deviation), expected.size)
        return parity | {"losses": inference.digest(found)} if case["dtype"] == "f32" else parity

    return fastest(contender, case, ways, judge)


def fastest(contender, case, ways, judge):
    """Prepares each variant of a case, checks it and keeps the fastest."""
    least, parity = math.inf, None
    for name, make in ways.items():
        before = contender.cases.pop(case["id"], None)
        contender.cases[case["id"]] = run = make()
        found = judge(run)
        if len(ways) == 1:
            return found
        seconds = min(contender.time(case, 1) for _ in range(3))
        progress(f"{contender.name}: {name} takes {1e3 * seconds:.1f} ms")
        if seconds < least:
            least, parity = seconds, found
        else:
            contender.cases[case["id"]] = before
    return parity


def agree(case, found, expected):
    """Checks that two contenders' losses from the same initial numbers agree."""
    for l, e in zip(found.get("losses", ()), expected.get("losses", ())):
        if not abs(l - e) <= bound_of_losses(case) * abs(e):
            raise ArithmeticError(f"the result is wrong: a loss is {l}, another contender's {e}")
