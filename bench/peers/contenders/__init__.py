"""Other systems by name. A contender is constructed from its name and a device, or raises
[Absent](absent.py). It selects its cases, prepares, times and releases them. Its libraries are
imported when it is constructed."""

from .absent import Absent
from .ddp import Ddp
from .jax import Jax
from .onnxruntime import OnnxRuntime
from .pytorch import Torch

__all__ = ["CONTENDERS", "USUAL", "Absent"]

CONTENDERS = {
    "torch": Torch,
    "torch.compile": Torch,
    "torch.max-autotune": Torch,
    "torch.graph": Torch,
    "torch.ddp": Ddp,
    "jax": Jax,
    "jax.least-memory": Jax,
    "onnxruntime": OnnxRuntime,
}
USUAL = ["torch", "torch.compile", "torch.graph", "jax", "onnxruntime"]
