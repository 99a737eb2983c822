"""Runs one contender in its own process, which answers requests of `wengert-bench`."""

import ctypes
import gc
import json
import sys

import starts
from contenders import CONTENDERS, Absent
from telling import why


def speaker(output):
    """A function that writes one JSON object per line."""

    def answer(what):
        output.write(json.dumps(what) + "\n")
        output.flush()

    return answer


def start(name, device, case, cache, answer):
    """Starts a case for `bench/src/starts`."""
    starts.prepare(cache)
    try:
        starts.measure(CONTENDERS[name](name, device), case, answer)
    except Absent as absent:
        answer({"absent": str(absent)})
    except Exception as error:
        answer({"error": why(error)})


def look(name, device, case, answer):
    """Reports the memory of a case's compiled step, for `bench/src/memory`."""
    try:
        contender = CONTENDERS[name](name, device)
        if not hasattr(contender, "memory"):
            raise Absent("it does not say before it runs what memory it needs")
        answer(contender.memory(case))
    except Absent as absent:
        answer({"absent": str(absent)})
    except Exception as error:
        answer({"error": why(error)})


def give_back():
    """Returns free memory to the system for the other processes, because allocators keep it."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def serve(name, device, cases, answer):
    """Answers requests, one JSON object per line, until the end of standard input."""
    try:
        contender = CONTENDERS[name](name, device)
    except Absent as absent:
        return answer({"absent": str(absent)})
    known = {case["id"]: case for case in cases}
    wanted = [id for id, case in known.items() if contender.wants(case)]
    answer(
        {"contender": name, "device": device, "libraries": contender.libraries(), "cases": wanted}
    )
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if "prepare" in request:
                parity = contender.prepare(known[request["prepare"]])
                give_back()
                answer({"parity": parity})
            elif "time" in request:
                answer({"seconds": contender.time(known[request["time"]], request["runs"])})
            else:
                contender.release(known[request["release"]])
                give_back()
                answer({"released": True})
        except Exception as error:
            answer({"error": why(error)})
