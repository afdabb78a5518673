"""`tilewright.quantize`: quantize a float model file with calibration data, and compile the result.

    q = tilewright.quantize("model.onnx", images)
    q.report.error; q.report.layers            relative errors of the outputs, and of each layer
    m = q.compile(threads=2); m.save("int8.so")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.array_files import read_npz
from tilewright.base.errors import InputError, OptionError
from tilewright.base.settings import nearest
from tilewright.compiler.calibration import post_training
from tilewright.compiler.formats import format_of
from tilewright.compiler.model import Model, compile
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr
from tilewright.relay.quantize.errors import Report
from tilewright.relay.quantize.from_data import PostTraining


@dataclass(frozen=True)
class QuantizedModel:
    """A quantized network (`module`, in the qnn dialect) and the `report` of its errors."""

    module: IRModule
    report: Report

    def compile(self, target: Any = "llvm", threads: int | None = None, **options: Any) -> Model:
        """Return the compiled model; arguments are those of `tilewright.compile`."""
        return compile(self.module, None, target, threads, **options)


def quantize(
    model: Any, data: Any, shapes: Mapping[str, Sequence[int]] | None = None, **options: Any
) -> QuantizedModel:
    """Quantize a float model to 8-bit integers from its values for `data`.

    `model` is an argument of `tilewright.compile`. `data` are inputs: a dictionary of arrays with samples along the
    first axis, such a `.npz`, an iterable of dictionaries, or arrays for a single input. Dynamic dimensions have the
    sizes of `shapes`, else those of the first sample. `options` are those of `relay.quantize.PostTraining`. Raises
    `InputError` for unsuitable data, `OptionError`, and the errors of `tilewright.compile` for a model.
    """
    known = list(PostTraining.__dataclass_fields__)
    for name in options:
        if name not in known:
            raise OptionError(
                "quantize: there is no option "
                f"'{name}'{nearest(name, known) or '; the options are: ' + ', '.join(known)}", code="TW1001")
    config = PostTraining(**options)
    samples = _read(data)
    params: dict[str, Any] = {}
    if isinstance(model, (IRModule, Expr)):
        mod = model if isinstance(model, IRModule) else IRModule.from_expr(model)
    else:
        form = format_of(model)
        mod, params = form.read(model, _sizes(form.survey(model, dict(shapes or {}))[0], samples, dict(shapes or {})))
    found = post_training(mod, params, samples, config)
    return QuantizedModel(found.module, found.report)


def _read(data: Any) -> Any:
    """Return the data in memory; an iterable becomes a list, because it is read more than once."""
    if isinstance(data, (str, os.PathLike)):
        try:
            return read_npz(data)
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read calibration data from '{data}': {error}; write a .npz with np.savez(path, "
                "input_name=array)", code="TW1002"
            ) from None
    if isinstance(data, Mapping) or hasattr(data, "shape"):
        return data
    if not isinstance(data, Iterable):
        raise InputError(
            "calibration data are a dictionary of arrays, an iterable of them, an array or the path of a .npz, not a "
            f"{type(data).__name__}", code="TW1002")
    return list(data)


def _sizes(
    signature: Sequence[tuple[str, Sequence[int | str], str]], data: Any, shapes: dict[str, Sequence[int]]
) -> dict[str, Sequence[int]]:
    """Return the shapes of all inputs of dynamic sizes: given ones, else those of the first sample, with a dynamic
    batch of 1."""
    first = data[0] if isinstance(data, list) and data else data
    for name, dims, _ in signature:
        if name in shapes or all(isinstance(d, int) for d in dims):
            continue
        found = first.get(name) if isinstance(first, Mapping) else first if len(signature) == 1 else None
        if found is None:
            raise InputError(
                f"input '{name}' has dynamic dimensions, but the data have no array of that name; give "
                f"shapes={{'{name}': (1, …)}}",
                code="TW1002")
        whole = tuple(np.shape(found))
        shapes[name] = (1, *whole[1:]) if isinstance(data, Mapping) or hasattr(data, "shape") else whole
    return shapes
