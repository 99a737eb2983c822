#!/usr/bin/env python3
"""Measures the cases of `wengert-bench` in those of PyTorch, JAX and ONNX Runtime that are
installed.

    python3 bench/peers/measure.py --device cuda:0 --json peers.json
        measures every installed contender, in turns
    python3 bench/peers/measure.py --serve jax --device cuda:0
        answers requests of `wengert-bench gpu --peer`
    python3 bench/peers/measure.py --serve jax --start CASE --cache FOLDER
        starts a case, for `wengert-bench starts --peer`
    python3 bench/peers/measure.py --serve jax --device cpu --memory CASE
        compiles a case, for `wengert-bench memory --peer`

The cases are those of `cases.json` in this folder. The method and the record are those of
`bench/src/harness.rs`. The README in this folder describes each contender.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

from contenders import CONTENDERS, USUAL, Absent
from protocol import look, serve, speaker, start
from turns import measure

FORMAT = 1


def machine():
    """Facts of the machine; unknown facts are omitted."""
    cpu = None
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((l.split(":", 1)[1].strip() for l in lines if l.startswith("model name")), None)
    except OSError:
        pass
    gpus, driver = [], None
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        listed = subprocess.run(
            query, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        gpus = [line.rpartition(",")[0].strip() for line in listed]
        driver = listed[0].rpartition(",")[2].strip() if listed else None
    except (OSError, subprocess.CalledProcessError):
        pass
    return {
        "cpu": cpu,
        "threads": len(os.sched_getaffinity(0)),
        "gpus": gpus,
        "driver": driver,
        "libraries": {},
    }


def main():
    parser = argparse.ArgumentParser(
        description="Measures the cases of wengert-bench in PyTorch, JAX and ONNX Runtime."
    )
    parser.add_argument("--device", default="cuda:0", help="cuda:0 or cpu")
    parser.add_argument("--small", action="store_true", help="small extents and few rounds")
    parser.add_argument(
        "--cpu", action="store_true", help="the cases of `wengert-bench cpu`, on the CPU"
    )
    parser.add_argument(
        "--only", action="append", default=[],
        help="only cases whose name contains one of these texts",
    )
    parser.add_argument(
        "--contender", action="append", choices=list(CONTENDERS),
        help=f"contenders; the default is {', '.join(USUAL)}",
    )
    parser.add_argument("--rounds", type=int, help="samples of each case")
    parser.add_argument("--date", help="date of the record")
    parser.add_argument("--json", help="write the record to this file instead of standard output")
    parser.add_argument(
        "--serve", choices=list(CONTENDERS),
        help="answer requests on standard input as this contender",
    )
    parser.add_argument(
        "--start", metavar="CASE",
        help="with --serve: answer no requests, start this case and report the cost",
    )
    parser.add_argument(
        "--memory", metavar="CASE",
        help="with --serve: answer no requests, compile this case and report its memory",
    )
    parser.add_argument(
        "--cache", metavar="FOLDER", help="with --start: folder of the compilation cache"
    )
    arguments = parser.parse_args()
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds must be at least 1")

    # Libraries print to standard output. Their text must not mix with the answers and the record.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    listed = json.loads((Path(__file__).parent / "cases.json").read_text())
    if arguments.serve:
        # On a GPU some groups have other names. Requests use the names of the catalogue.
        every = sum((listed[name] for name in ("cpu", "cpu_small", "full", "small")), [])
        if arguments.memory:
            every = listed["memory"] + listed["memory_small"]
            case = next((case for case in every if case["id"] == arguments.memory), None)
            if case is None:
                parser.error("--memory needs the name of a case")
            return look(arguments.serve, arguments.device, case, speaker(output))
        if not arguments.start:
            return serve(arguments.serve, arguments.device, every, speaker(output))
        case = next((case for case in every if case["id"] == arguments.start), None)
        if case is None or arguments.cache is None:
            parser.error("--start needs the name of a case and --cache")
        return start(arguments.serve, arguments.device, case, arguments.cache, speaker(output))
    if arguments.cpu:
        arguments.device = "cpu"
        cases = listed["cpu_small" if arguments.small else "cpu"]
    else:
        cases = listed["small" if arguments.small else "full"]

    cases = [
        c for c in cases if not arguments.only or any(text in c["id"] for text in arguments.only)
    ]
    settings = {"rounds": 21, "sample_seconds": 0.02, "warm_up_seconds": 0.1, "rest_seconds": 0.0}
    if arguments.small:
        settings = {"rounds": 3, "sample_seconds": 0.0, "warm_up_seconds": 0.0, "rest_seconds": 0.0}
    settings["rounds"] = arguments.rounds or settings["rounds"]
    record = {
        "format": FORMAT,
        "tool": "bench/peers/measure.py",
        "date": arguments.date,
        "commit": None,
        "machine": machine(),
        "settings": settings,
        "measurements": [],
        "failed": [],
        "absent": [],
    }
    contenders = []
    for name in arguments.contender or USUAL:
        try:
            contender = CONTENDERS[name](name, arguments.device)
        except Absent as absent:
            record["absent"].append({"contender": name, "why": str(absent)})
            continue
        contenders.append(contender)
        record["machine"]["libraries"].update(contender.libraries())
    for group in dict.fromkeys(case["group"] for case in cases):
        measurements, failed = measure(
            contenders, [c for c in cases if c["group"] == group], settings
        )
        record["measurements"] += measurements
        record["failed"] += failed
    text = json.dumps(record, indent=2) + "\n"
    if arguments.json:
        Path(arguments.json).write_text(text)
    else:
        output.write(text)
        output.flush()


if __name__ == "__main__":
    main()
