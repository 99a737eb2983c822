"""Whether a contender's results are right, and which of its ways is the fastest."""

import math

import drawing
import inference
import steps
from cases import LARGE, bound_of
from telling import progress


def verdict(case, worst, compared):
    """Parity as records have it; a wrong result is an error."""
    bound = bound_of(case)
    if not worst <= bound:
        raise ArithmeticError(f"the result is wrong: it deviates by {worst:.3e} from a computation in f64, {bound:.3e} is allowed")
    return {"compared": compared, "worst": worst, "bound": bound}


def best(contender, case, ways, plain):
    """Makes a step ready in each way it can be written and keeps the fastest. Losses are compared with those of the plain step."""
    run = plain()
    expected = [float(run()[0]) for _ in range(1 if case["work"]["elements"] >= LARGE else steps.STEPS)]
    del run

    def judge(run):
        losses = [float(run()[0]) for _ in range(steps.STEPS)]
        worst = max((abs(l - e) / e for l, e in zip(losses, expected)), key=lambda v: math.inf if math.isnan(v) else v)
        return verdict(case, worst, len(expected)) | {"losses": losses}

    return fastest(contender, case, ways, judge)


def answers(contender, case, ways, to_numpy):
    """Makes inference ready in each way it can be asked and keeps the fastest. Results are compared with those of NumPy in f64."""
    import numpy as np

    network = inference.of(case)
    parameters = [p.astype(np.float64) for p in drawing.parameters(network.shapes)]
    expected = network.plain(parameters, *network.inputs().values())
    del parameters

    def judge(run):
        found = np.asarray(to_numpy(run()[0]), np.float64).reshape(expected.shape)
        deviation = np.abs(found - expected).max() / np.abs(expected).max()
        return verdict(case, float(deviation), expected.size) | {"losses": inference.digest(found)}

    return fastest(contender, case, ways, judge)


def fastest(contender, case, ways, judge):
    """Makes a case ready in each way and keeps the fastest of those that are right."""
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


def agree(found, expected):
    """Losses of two contenders who began with the same numbers."""
    for l, e in zip(found.get("losses", ()), expected.get("losses", ())):
        if not abs(l - e) <= 1e-4 * abs(e):
            raise ArithmeticError(f"the result is wrong: a loss is {l}, another contender's {e}")
