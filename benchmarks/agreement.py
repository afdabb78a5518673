"""Whether compiled models answer what ONNX Runtime answers: each model, batch size and number of threads.

    python benchmarks/agreement.py                                  # every model, batches of 1 and 4, 1 and 2 threads
    python benchmarks/agreement.py bert_base my_model.onnx --batches 1 --threads 1

A batch other than that of the file is taken from the model's variant with open dimensions where there is one; else the
inputs of the file are declared anew, which works where the graph does not fix the batch in a reshape.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import models
import peers
import workloads
from compare import difference

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Case:
    """A model file, inputs of one batch size, and what ONNX Runtime answers."""

    name: str
    batch: int
    path: Path
    inputs: dict[str, NDArray[Any]]
    expected: list[NDArray[Any]]


def case(name: str, batch: int, scratch: Path) -> Case:
    """The model `name` for `batch` inputs at once; files that have to be made go to `scratch`.

    Raises `LookupError` where the model, or the model with this batch, cannot be had.
    """
    if batch > 1 and f"{name}_dyn" in models.names():
        name = f"{name}_dyn"
    work = workloads.find(name, {"batch": batch})
    file, inputs = work.path, work.inputs
    if batch > 1 and {len(x) for x in inputs.values()} == {1}:
        file = rebatched(file, batch, scratch)
        inputs = {key: several(x, batch) for key, x in inputs.items()}
    return Case(work.name, batch, file, inputs, _answers(file, inputs, batch))


def rebatched(path: Path, batch: int, scratch: Path) -> Path:
    """The model with another leading dimension of its inputs; `path` itself when that dimension is open."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    leading = [v.type.tensor_type.shape.dim[0] for v in graph.input if v.name not in constants]
    if any(d.dim_param for d in leading):
        return path
    for dimension in leading:
        dimension.dim_value = batch
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    made = scratch / f"{path.stem}_{batch}.onnx"
    onnx.save(model, made)
    return made


def several(x: NDArray[Any], batch: int) -> NDArray[Any]:
    """`batch` different inputs out of one: each is the one before, moved along its last axis."""
    return np.concatenate([np.roll(x, 3 * k, axis=-1) for k in range(batch)])


def _answers(file: Path, inputs: dict[str, NDArray[Any]], batch: int) -> list[NDArray[Any]]:
    try:
        return peers.onnxruntime(file, inputs, 2)(inputs)
    except Exception as refusal:  # ONNX Runtime has its own exceptions for each reason
        if batch == 1:
            raise
        raise LookupError(f"the graph does not take a batch of {batch}: {str(refusal).splitlines()[0][:120]}") from refusal


def differences(of: Case, threads: Sequence[int]) -> dict[int, float]:
    """The largest relative L2 difference of an output from the expected one, for each number of threads; compiled afresh."""
    import tilewright
    from tilewright.build.cache import Cache

    model = tilewright.compile(of.path, {name: x.shape for name, x in of.inputs.items()}, threads=threads[0], cache=Cache(None))
    found = {}
    for count in threads:
        model.threads = count
        answers = model(*of.inputs.values())
        found[count] = difference(list(answers) if isinstance(answers, tuple) else [answers], of.expected)
    return found


def row(name: str, batch: int, threads: Sequence[int], tolerance: float) -> list[str]:
    """One line of the table; the last cell is empty where model and batch agree."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = differences(case(name, batch, Path(scratch)), threads)
        except LookupError as missing:
            return [name, str(batch), *["-"] * len(threads), f"left out: {missing.args[0]}"]
        except Exception as error:  # whatever the compiler raises is its result
            return [name, str(batch), *["failed"] * len(threads), f"FAILED {type(error).__name__}: {str(error)[:300]}"]
    agrees = all(value <= tolerance for value in found.values())
    return [name, str(batch), *(f"{value:.0e}" for value in found.values()), "" if agrees else "DIFFERS"]


def main() -> int:
    """Show the table; 1 when a model failed or differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"names or .onnx files; default: {', '.join(workloads.STANDARD)}")
    parser.add_argument("--batches", default="1,4", help="batch sizes, comma separated")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, comma separated")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="largest relative L2 difference")
    options, console = parser.parse_args(), Console()
    batches, threads = ([int(n) for n in text.split(",")] for text in (options.batches, options.threads))
    table = Table("model", "batch", *(f"{count} thread(s)" for count in threads), "", title="Relative L2 difference from ONNX Runtime")
    failed = False
    for name in options.models or (*workloads.STANDARD, "ppocr_cls"):
        for batch in batches:
            cells = row(name, batch, threads, options.tolerance)
            console.print(*cells, highlight=False)
            table.add_row(*cells)
            failed = failed or cells[-1].startswith(("DIFFERS", "FAILED"))
    console.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
