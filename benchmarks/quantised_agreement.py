"""Whether quantised networks give the integers of the runtime that they are from: elements, how many differ, by how
many steps at most.

    python benchmarks/quantised_agreement.py                                     # torchvision's networks on every
        engine of torch, 100 inputs each
    python benchmarks/quantised_agreement.py resnet18 --engines x86,qnnpack --inputs 10
    python benchmarks/quantised_agreement.py resnet50_int8.onnx

Networks of torch have random weights and are calibrated on random pictures. ONNX files (QDQ and QLinear) are compared
with ONNX Runtime at its default, full optimisation. TFLite files have a program of their own, `tflite_agreement.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import models

NETWORKS: Final = ("resnet18", "mobilenet_v2")
ENGINES: Final = ("x86", "onednn", "qnnpack", "fbgemm")
Array = NDArray[Any]
Answer = Callable[[Array], Array]


@dataclass
class Row:
    """How the answers for some inputs differ; `largest` in steps of the quantised result."""

    model: str
    runtime: str
    elements: int = 0
    differing: int = 0
    largest: int = 0

    def add(self, found: Array, wanted: Array) -> None:
        """Count one answer."""
        if found.shape != wanted.shape:
            raise ValueError(f"{self.model}: the answer has the shape {found.shape}, and {wanted.shape} was expected")
        self.elements += wanted.size
        wrong = found != wanted
        self.differing += int(wrong.sum())
        if wrong.any():
            self.largest = max(
                self.largest, int(np.rint(np.abs(found[wrong].astype(np.float64) - wanted[wrong]) / step(wanted)).max())
            )

    def line(self) -> str:
        """The row as text."""
        return f"{self.model:32} {self.runtime:14} {self.elements:>9} {self.differing:>9} {self.largest:>8}"


def step(values: Array) -> float:
    """The least difference of two values; 1 for integers."""
    if values.dtype.kind in "iu":
        return 1.0
    gaps = np.diff(np.unique(values.astype(np.float64)))
    return float(gaps[gaps > gaps.max(initial=0) * 1e-3].min(initial=np.inf)) if gaps.size else 1.0


def quantised(name: str, engine: str, size: int) -> Any:
    """A network of torchvision, quantised for `engine` with statistics of random pictures."""
    models.declare_missing_operators()
    import torch
    import torchvision
    from torch.ao.quantization import convert, get_default_qconfig, prepare

    torch.backends.quantized.engine = engine
    torch.manual_seed(0)
    module = getattr(torchvision.models.quantization, name)(weights=None, quantize=False).eval()
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):  # statistics of a trained network are none that do nothing
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            part.weight.data.uniform_(0.5, 1.5)
            part.bias.data.normal_(0, 0.1)
    module.fuse_model()
    module.qconfig = get_default_qconfig(engine)
    with torch.no_grad():
        prepare(module, inplace=True)
        for _ in range(4):
            module(torch.randn(2, 3, size, size))
        return convert(module, inplace=True)


def of_torch(name: str, engine: str, count: int, size: int) -> Row:
    """A network on one of torch's engines."""
    import torch

    import tilewright

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = quantised(name, engine, size)
        example = torch.zeros(1, 3, size, size)
        with torch.no_grad():
            traced = torch.jit.trace(module, example, check_trace=False).eval()
        compiled = tilewright.compile(traced, shapes={"x": tuple(example.shape)}, threads=1)
    row = Row(f"{name} {size}x{size}", f"torch {engine}")
    for picture in pictures(count, (1, 3, size, size), np.float32):
        with torch.no_grad():
            wanted = module(torch.from_numpy(picture)).numpy()
        row.add(compiled(picture), wanted)
    return row


def pictures(count: int, shape: Sequence[int], dtype: Any) -> Iterator[Array]:
    """Random inputs, the same in every run."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        if np.dtype(dtype).kind == "f":
            yield rng.standard_normal(shape, np.float32)
        else:
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            yield rng.integers(low, high + 1, shape).astype(dtype)


def of_file(path: Path, count: int) -> Row:
    """An ONNX file beside ONNX Runtime."""
    import tilewright

    compiled = tilewright.compile(path, threads=1)
    (given,) = compiled.inputs
    inputs = list(pictures(count, given.shape, given.dtype.numpy()))
    row = Row(path.stem, "ONNX Runtime")
    for x, wanted in zip(inputs, _onnxruntime_answers(path, inputs), strict=True):
        found = compiled(x)
        row.add(found[0] if isinstance(found, tuple) else found, wanted)
    return row


def _onnxruntime_answers(path: Path, inputs: Sequence[Array]) -> Iterator[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return (np.asarray(session.run(None, {name: x})[0]) for x in inputs)


def main() -> int:
    """Print a line for each model; 1 when an element differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "models", nargs="*",
        help=f"networks of torchvision.models.quantization, .onnx files; default: {', '.join(NETWORKS)}"
    )
    parser.add_argument("--engines", default=",".join(ENGINES), help="engines of torch, comma separated")
    parser.add_argument("--inputs", type=int, default=100, help="how many inputs")
    parser.add_argument("--size", type=int, default=96, help="height and width of the pictures for torch")
    parser.add_argument("--json", type=Path, help="write the findings to this file")
    options = parser.parse_args()
    print(f"{'model':32} {'runtime':14} {'elements':>9} {'differing':>9} {'largest':>8}")
    rows: list[Row] = []
    for name in options.models or NETWORKS:
        engines = [""] if Path(name).suffix == ".onnx" else options.engines.split(",")
        for engine in engines:
            rows.append(
                of_torch(name, engine, options.inputs, options.size) if engine else of_file(Path(name), options.inputs)
            )
            print(rows[-1].line(), flush=True)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(r) for r in rows], indent=1))
    return 1 if any(r.differing for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
