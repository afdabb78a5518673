"""Quantization entries of `relay.quantize` that run compiled programs on data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.compiler.model import compile
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr, Function, Tuple
from tilewright.relay.quantize import from_data, pipeline
from tilewright.relay.quantize.calibration import QuantizeCalibrate
from tilewright.relay.quantize.float_evaluation import Sample
from tilewright.relay.quantize.from_data import PostTraining, Quantized
from tilewright.relay.quantize.ranges import Array


def compiled(function: Function, results: Sequence[Expr]) -> Callable[[Sample], list[Array]]:
    """Compile `function` for this machine with these nodes as results, and return it as a Python function."""
    made = compile(Function(function.params, Tuple(tuple(results))))

    def run(sample: Sample) -> list[Array]:
        answer = made(*(sample[p.name_hint] for p in function.params))
        return [np.asarray(a) for a in (answer if isinstance(answer, tuple) else (answer,))]

    return run


def quantize(mod: IRModule, params: Mapping[str, Any] | None = None, dataset: Iterable[Any] | None = None) -> IRModule:
    """Quantize layers, sums, pools and concatenations of `mod` to integers, under the current `qconfig`.

    `dataset` is an iterable of inputs by name, in which `kl_divergence` and `percentile` find ranges. Raises
    `OptionError` if they have no data, `InputError` for data of other names or shapes.
    """
    return pipeline.quantize(mod, params, dataset, compiled)


def calibrate(dataset: Iterable[Any] | None = None) -> Callable[..., IRModule]:
    """Return `QuantizeCalibrate` as a function `(mod, context) -> mod`, which TVM's scripts turn into a pass."""
    return lambda mod, context=None: QuantizeCalibrate(dataset, compiled)(mod)


def post_training(
    mod: IRModule, params: Mapping[str, Any] | None = None, dataset: Any = None, config: PostTraining | None = None
) -> Quantized:
    """Quantize the `main` of a float module from its values for `dataset`: inputs by name, or arrays for a single
    input.

    Needs static shapes. Raises `OptionError` for invalid options and layer names, `InputError` for unsuitable data,
    `CompileError` if nothing can be quantized.
    """
    return from_data.post_training(mod, params, dataset, config or PostTraining(), compiled)
