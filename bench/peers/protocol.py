"""One contender in a process of its own, which answers what `wengert-bench` asks."""

import ctypes
import gc
import json
import sys

import starts
from contenders import CONTENDERS, Absent
from telling import why


def speaker(output):
    """A function that writes one JSON object a line."""

    def answer(what):
        output.write(json.dumps(what) + "\n")
        output.flush()

    return answer


def start(name, device, case, cache, answer):
    """Starts a case, as `bench/src/starts` asks for it."""
    starts.prepare(cache)
    try:
        starts.measure(CONTENDERS[name](name, device), case, answer)
    except Absent as absent:
        answer({"absent": str(absent)})
    except Exception as error:
        answer({"error": why(error)})


def look(name, device, case, answer):
    """Says what a case's compiled step needs of memory, as `bench/src/memory` asks for it."""
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
    """Memory that nobody holds goes back to the system, which others need: allocators keep it otherwise."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def serve(name, device, cases, answer):
    """Answers requests, one JSON object a line, until they end."""
    try:
        contender = CONTENDERS[name](name, device)
    except Absent as absent:
        return answer({"absent": str(absent)})
    known = {case["id"]: case for case in cases}
    wanted = [id for id, case in known.items() if contender.wants(case)]
    answer({"contender": name, "device": device, "libraries": contender.libraries(), "cases": wanted})
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
