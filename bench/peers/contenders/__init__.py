"""Other systems, by the names they are asked for. Each is made of its name and a device, or is [absent](absent.py); it says which cases it wants, makes them ready, times and
releases them. What an import of theirs costs is paid by who asks for them."""

from .absent import Absent
from .jax import Jax
from .onnxruntime import OnnxRuntime
from .pytorch import Torch

__all__ = ["CONTENDERS", "USUAL", "Absent"]

CONTENDERS = {
    "torch": Torch,
    "torch.compile": Torch,
    "torch.max-autotune": Torch,
    "torch.graph": Torch,
    "jax": Jax,
    "jax.least-memory": Jax,
    "onnxruntime": OnnxRuntime,
}
USUAL = ["torch", "torch.compile", "torch.graph", "jax", "onnxruntime"]
