"""Prints the versions of Python and of the CUDA packages on a machine with a GPU, one per line."""

import importlib.metadata
import sys

print("python", sys.version.split()[0])
for package in sorted(
    importlib.metadata.distributions(), key=lambda p: (p.metadata["Name"] or "").lower()
):
    name = (package.metadata["Name"] or "").lower()
    if name.startswith(("nvidia-", "cuda")) or name in (
        "torch",
        "jax",
        "jaxlib",
        "triton",
        "numpy",
    ):
        print(name, package.version)
