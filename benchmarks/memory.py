"""How much memory it takes to load a network and run it, beside ONNX Runtime.

    python benchmarks/memory.py                             # the standard models
    python benchmarks/memory.py mobilenet_v2 --batch 32     # many images at once

Each figure is of a fresh process that has imported its libraries already: by how many megabytes its largest resident
size exceeds the size before it loads the model. Ours loads what `save` wrote before.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import agreement
import workloads

_MEASURE = """
import sys
import numpy as np
{imports}

def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024

inputs = dict(np.load(sys.argv[2]))
before = resident("VmRSS")
{load}
for _ in range(3):
    {run}
print(resident("VmHWM") - before, resident("VmRSS") - before)
"""
_OURS = _MEASURE.format(
    imports="import tilewright, tilewright.runtime.artifact, tilewright.runtime.executable",
    load="model = tilewright.load(sys.argv[1], threads=1)", run="model(inputs)",
)
_THEIRS = _MEASURE.format(
    imports="import onnxruntime",
    load="options = onnxruntime.SessionOptions(); options.intra_op_num_threads = 1; options.log_severity_level = 3\n"
    "model = onnxruntime.InferenceSession(sys.argv[1], options, providers=['CPUExecutionProvider'])",
    run="model.run(None, inputs)",
)
_COMPILE = "import sys, tilewright\ntilewright.compile(sys.argv[1], shapes={shapes!r}, threads=1).save(sys.argv[2])"


def child(program: str, *arguments: object) -> str:
    """What a fresh Python prints."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


def measure(name: str, batch: int = 1) -> tuple[list[float], list[float]]:
    """Megabytes at the peak and afterwards, of ours and of ONNX Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        work = agreement.case(name, batch, Path(folder))
        shapes = {n: v.shape for n, v in work.inputs.items()}
        program, inputs = Path(folder) / "model.so", Path(folder) / "inputs.npz"
        np.savez(inputs, **work.inputs)  # type: ignore[arg-type]
        child(_COMPILE.format(shapes=shapes), work.path, program)
        ours, theirs = child(_OURS, program, inputs), child(_THEIRS, work.path, inputs)
    return [*map(float, ours.split())], [*map(float, theirs.split())]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", help=f"names or .onnx files; default: {', '.join(workloads.STANDARD)}")
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args()
    print(f"{'MB':24}{'ours, peak':>12}{'after':>10}{'ONNX Runtime':>14}{'after':>10}{'peak, ratio':>13}")
    for name in options.workloads or workloads.STANDARD:
        ours, theirs = measure(name, options.batch)
        print(
            f"{name:24}{ours[0]:12.1f}{ours[1]:10.1f}{theirs[0]:14.1f}{theirs[1]:10.1f}{ours[0] / theirs[0]:13.2f}",
            flush=True
        )


if __name__ == "__main__":
    main()
