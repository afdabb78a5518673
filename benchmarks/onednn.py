"""Networks handed to oneDNN beside oneDNN's primitives alone, our own kernels, and a runtime that is built on oneDNN:
turn by turn in one process.

`primitives` are the same primitives on the same memory without the program around them: what the hand-over costs is the
ratio to them.

    python benchmarks/onednn.py                     # resnet50 and others
    python benchmarks/onednn.py resnet18 --threads 1 --peers ov
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

import compare
import peers
import workloads

MODELS = ("resnet50", "mobilenet_v2", "bert_base")


def off_loaded(path: Path, inputs: peers.Inputs, threads: int, precision: str = "f32") -> peers.Run:
    """This project, with all that oneDNN computes handed to it."""
    executable = _build(path, inputs, threads)
    return lambda feed: _listed(executable(*feed.values()))


def primitives(path: Path, inputs: peers.Inputs, threads: int, precision: str = "f32") -> peers.Run:
    """The primitives of a network that is one sub-graph, on memory of their own."""
    lib = _library(path, inputs)
    if len(lib.imported_modules) != 1 or len(lib.artifact.manifest.steps) != 1:
        raise ValueError("the network is not one sub-graph for oneDNN, so that there is nothing to compare with")
    (module,) = lib.imported_modules
    executable = lib.executable
    executable.threads = threads
    answer = _listed(executable(*inputs.values()))
    plan, _ = module._plans[threads]
    frame = plan.frame()
    given = [np.ascontiguousarray(a) for a in inputs.values()]
    places = [a.__array_interface__["data"][0] for a in given], [a.__array_interface__["data"][0] for a in answer]

    def run(feed: peers.Inputs) -> list[NDArray[Any]]:
        frame.run(*places)
        return answer

    return run


def _library(path: Path, inputs: peers.Inputs) -> Any:
    from tilewright import relay
    from tilewright.backends.accelerators import dnnl

    mod, params = relay.frontend.from_onnx(path, {name: array.shape for name, array in inputs.items()})
    return relay.build(dnnl.partition_for_dnnl(mod, params), "llvm")


def _build(path: Path, inputs: peers.Inputs, threads: int) -> Any:
    executable = _library(path, inputs).executable
    executable.threads = threads
    return executable


def _listed(answer: Any) -> list[NDArray[Any]]:
    return list(answer) if isinstance(answer, (tuple, list)) else [answer]


def main() -> int:
    """Measure and show; 1 when an answer of ours is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--peers", default="ov", help="runtimes beside ours, comma separated: ort, ov")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15)
    options, console = parser.parse_args(), Console()
    peers.LOADERS |= {"onednn by tilewright": off_loaded, "onednn primitives": primitives}
    runtimes = ["onednn by tilewright", "onednn primitives", compare.OURS, *peers.installed(options.peers.split(","))]
    rows: list[compare.Row] = []
    for name in options.models:
        work = workloads.find(name)
        for threads in map(int, options.threads.split(",")):
            rows += compare.measure(work, runtimes, threads, options.rounds, compare.TOLERANCE["f32"])
    compare.show(rows, console)
    return 1 if any(row.failure for row in rows if row.runtime == "onednn by tilewright") else 0


if __name__ == "__main__":
    sys.exit(main())
