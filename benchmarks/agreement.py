"""Whether compiled models answer what ONNX Runtime answers: each model, batch size and number of threads.

    python benchmarks/agreement.py                                  # every model, batches of 1 and 4, 1 and 2 threads
    python benchmarks/agreement.py bert_base my_model.onnx --batches 1 --threads 1

A batch other than that of the file is taken from the model's variant with open dimensions where there is one; else the
inputs of the file are declared anew, which works where the graph does not fix the batch in a reshape.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import models
import peers
import workloads
from compare import difference

MODELS = (*workloads.STANDARD, "ppocr_cls")
TOLERANCE = {"auto": 1e-4, "off": 1e-5}


@dataclass(frozen=True)
class Case:
    """A model file, inputs of one batch size, and what ONNX Runtime answers."""

    name: str
    batch: int
    path: Path
    inputs: dict[str, NDArray[Any]]
    expected: list[NDArray[Any]]


@dataclass
class Row:
    """The largest relative L2 difference of an output, by number of threads; or why there is none."""

    model: str
    batch: int
    differences: dict[int, float] = field(default_factory=dict)
    left_out: str = ""
    failure: str = ""

    def differs(self, tolerance: float) -> bool:
        """True when the model cannot be compiled, or answers something else."""
        return bool(self.failure) or not all(value <= tolerance for value in self.differences.values())

    def line(self, tolerance: float) -> str:
        """The row as text."""
        found = " ".join(f"{value:12.1e}" for value in self.differences.values())
        why = f"left out: {self.left_out}" if self.left_out else f"FAILED: {self.failure}" if self.failure else ""
        return f"{Path(self.model).stem:32} {self.batch:>5} {found}{why}" + (
            "  DIFFERS" if found and self.differs(tolerance) else ""
        )


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
        raise LookupError(
            f"the graph does not take a batch of {batch}: {str(refusal).splitlines()[0][:120]}"
        ) from refusal


def differences(of: Case, threads: Sequence[int], winograd: str) -> dict[int, float]:
    """The largest relative L2 difference of an output from the expected one, for each number of threads; compiled
    afresh."""
    import tilewright
    from tilewright.compiler.cache import Cache

    shapes, config = {name: x.shape for name, x in of.inputs.items()}, {"relay.backend.winograd": winograd}
    model = tilewright.compile(of.path, shapes, threads=threads[0], config=config, cache=Cache(None))
    found = {}
    for count in threads:
        model.threads = count
        answers = model(*of.inputs.values())
        found[count] = difference(list(answers) if isinstance(answers, tuple) else [answers], of.expected)
    return found


def judged(name: str, batch: int, threads: Sequence[int], winograd: str) -> Row:
    """What became of one model with one batch."""
    row = Row(name, batch)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            row.differences = differences(case(name, batch, Path(scratch)), threads, winograd)
        except LookupError as missing:
            row.left_out = str(missing.args[0])
        except Exception as error:  # whatever the compiler raises is its result
            row.failure = f"{type(error).__name__}: {error}"
    return row


def main() -> int:
    """Print a line for each model and batch; 1 when one failed or differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"names or .onnx files; default: {', '.join(MODELS)}")
    parser.add_argument("--batches", default="1,4", help="batch sizes, comma separated")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, comma separated")
    parser.add_argument(
        "--winograd", choices=list(TOLERANCE), default="auto", help="whether Winograd's algorithm may be used"
    )
    parser.add_argument(
        "--tolerance", type=float, help=f"largest relative L2 difference; default: {TOLERANCE} by --winograd"
    )
    parser.add_argument("--json", type=Path, help="write the findings to this file")
    options = parser.parse_args()
    batches, threads = ([int(n) for n in text.split(",")] for text in (options.batches, options.threads))
    tolerance = TOLERANCE[options.winograd] if options.tolerance is None else options.tolerance
    print(
        f"relative L2 difference from ONNX Runtime\n{'model':32} {'batch':>5} "
        + " ".join(f"{n:>2} thread(s)" for n in threads)
    )
    rows = []
    for name in options.models or MODELS:
        for batch in batches:
            rows.append(judged(name, batch, threads, options.winograd))
            print(rows[-1].line(tolerance), flush=True)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(r) for r in rows], indent=1))
    return 1 if any(r.differs(tolerance) for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
