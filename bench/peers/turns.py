"""Measures contenders in turns within one process, by the method of `bench/src/harness.rs`."""

import math

from judge import agree
from telling import progress, why

MOST_RUNS = 5000


def spread(samples):
    """Order statistics, interpolated linearly between samples."""
    ordered = sorted(samples)

    def at(share):
        position = share * (len(ordered) - 1)
        below, above = math.floor(position), math.ceil(position)
        return ordered[below] + (ordered[above] - ordered[below]) * (position - below)

    return {
        "samples": len(ordered),
        "min": ordered[0],
        "p10": at(0.1),
        "median": at(0.5),
        "p90": at(0.9),
    }


def runs_for(seconds, settings):
    return min(max(math.ceil(settings["sample_seconds"] / max(seconds, 1e-9)), 1), MOST_RUNS)


def warm(contender, case, settings):
    """Warms up a case. Returns the number of runs per sample."""
    times = []
    while len(times) < 3 or sum(times) < settings["warm_up_seconds"]:
        times.append(contender.time(case, 1))
    runs = runs_for(min(times[len(times) // 2 :]), settings)
    return 1 if runs == 1 else runs_for(contender.time(case, runs) / runs, settings)


def measure(contenders, cases, settings):
    """Measures cases in turns. Returns measurements and failures in the form of records."""
    entrants, failed = [], []
    for case in cases:
        for contender in contenders:
            if not contender.wants(case):
                continue
            progress(f"{contender.name}: preparing {case['id']}")
            try:
                parity = contender.prepare(case)
                first = next((e["parity"] for e in entrants if e["case"] is case), {})
                agree(case, parity, first)
                entrant = {
                    "contender": contender,
                    "case": case,
                    "parity": parity,
                    "runs": warm(contender, case, settings),
                }
                entrants.append(entrant | {"times": [], "latencies": [], "why": None})
            except Exception as error:  # any exception of a library; the others continue
                contender.release(case)
                failed.append({"case": case["id"], "contender": contender.name, "why": why(error)})
    for number in range(settings["rounds"]):
        progress(f"round {number + 1} of {settings['rounds']}, {len(entrants)} entrants")
        first = number // 2 % max(len(entrants), 1)
        order = entrants[first:] + entrants[:first]
        for entrant in order if number % 2 == 0 else reversed(order):
            if entrant["why"]:
                continue
            contender, case, runs = entrant["contender"], entrant["case"], entrant["runs"]
            try:
                entrant["times"].append(contender.time(case, runs) / runs)
                entrant["latencies"].append(contender.time(case, 1))
            except Exception as error:
                entrant["why"] = why(error)
    measurements = []
    for entrant in entrants:
        contender, case = entrant["contender"], entrant["case"]
        contender.release(case)
        if entrant["why"]:
            failed.append({"case": case["id"], "contender": contender.name, "why": entrant["why"]})
            continue
        measurements.append(
            {
                "case": case["id"],
                "group": case["group"],
                "contender": contender.name,
                "device": contender.device,
                "work": case["work"],
                "reference": case["reference"],
                "runs": entrant["runs"],
                "time": spread(entrant["times"]),
                "latency": spread(entrant["latencies"]),
                "parity": entrant["parity"],
            }
        )
    return measurements, failed
