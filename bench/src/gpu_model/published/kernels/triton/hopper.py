"""Triton's attention on Hopper: its PTX, and instructions for a block of 128 by 128 scores.

`python3 hopper.py` compiles the kernel of kernels.py for sm_90a, without a GPU, and writes the PTX
of each tile into `hopper/`. It lists the machine code with the nvdisasm and the registers with the
cuobjdump of Triton's package, and counts the instructions of the loop over keys.
`docs/gpu-model.md` has the table of Triton 3.9.0.
"""

import pathlib
import re
import subprocess
import tempfile

import triton
from kernels import KERNELS, attention, compiled, tidy

# Width, rows, columns, warps, stages.
TILES = [
    (64, 128, 64, 4, 3),
    (64, 128, 64, 8, 3),
    (64, 128, 128, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 128, 128, 8, 2),
]


def tool(name, *arguments):
    path = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin" / name
    return subprocess.run([path, *arguments], check=True, capture_output=True, text=True).stdout


def loop(listing):
    """Instructions of the innermost loop that has products, with its branches."""
    labels, code = {}, []
    for line in map(str.strip, listing.split("\n")):
        if line.startswith(".L") and line.endswith(":"):
            labels[line[:-1]] = len(code)
        elif line.startswith("/*") and line.endswith(";"):
            code.append(line)
    lengths = []
    for end, line in enumerate(code):
        target = re.search(r"BRA.*`\((\.L\w+)\)", line)
        begin = labels.get(target.group(1), len(code)) if target else len(code)
        if begin <= end and any("HGMMA" in one for one in code[begin:end]):
            lengths.append(end + 1 - begin)
    return min(lengths)


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent / "hopper"
    folder.mkdir(exist_ok=True)
    types = next(types for name, _, types, *_ in KERNELS if name == "attention")
    for width, rows, columns, warps, stages in TILES:
        made = compiled(attention, types, dict(D=width, BQ=rows, BK=columns), 90, warps, stages)
        name = f"attention_{width}_{rows}x{columns}_{warps}.ptx"
        (folder / name).write_text(tidy(made.asm["ptx"]))
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(made.asm["cubin"])
            file.flush()
            found = loop(tool("nvdisasm", "-c", file.name))
            usage = tool("cuobjdump", "--dump-resource-usage", file.name)
        print(
            f"width {width}, tile {rows} x {columns}, {warps} warps, {stages} stages: "
            f"{found} instructions a warp, {found * warps * 128 * 128 // (rows * columns)} a block "
            f"of 128 by 128, {re.search(r'REG:([0-9]+)', usage).group(1)} registers, "
            f"{made.metadata.shared} bytes of shared memory"
        )
