"""Progress lines and one-line errors."""

import sys


def progress(line):
    print(line, file=sys.stderr, flush=True)


def why(error):
    """An exception in one line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
