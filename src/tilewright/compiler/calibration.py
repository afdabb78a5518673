"""Quantization that runs the network on data: the entries of `relay.quantize` that need compiled programs."""

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
    """What computes these nodes of `function`, compiled for this machine."""
    made = compile(Function(function.params, Tuple(tuple(results))))

    def run(sample: Sample) -> list[Array]:
        answer = made(*(sample[p.name_hint] for p in function.params))
        return [np.asarray(a) for a in (answer if isinstance(answer, tuple) else (answer,))]

    return run


def quantize(mod: IRModule, params: Mapping[str, Any] | None = None, dataset: Iterable[Any] | None = None) -> IRModule:
    """`mod` in integers, as the current `qconfig` says: its layers, and the sums, pools and concatenations between
    them.

    `dataset`, inputs by name for each run, is what `kl_divergence` and `percentile` find ranges in. Raises
    `OptionError` where they have none, `InputError` for data of other names or shapes.
    """
    return pipeline.quantize(mod, params, dataset, compiled)


def calibrate(dataset: Iterable[Any] | None = None) -> Callable[..., IRModule]:
    """`QuantizeCalibrate` as a function `(mod, context) -> mod`, which is what the field's scripts make a pass of."""
    return lambda mod, context=None: QuantizeCalibrate(dataset, compiled)(mod)


def post_training(
    mod: IRModule, params: Mapping[str, Any] | None = None, dataset: Any = None, config: PostTraining | None = None
) -> Quantized:
    """Quantize the `main` of a float module by what its values are for `dataset`: inputs by name, or arrays where there
    is one input.

    Needs known shapes. Raises `OptionError` for options and names of layers, `InputError` for data that do not fit,
    `CompileError` where there is nothing to quantize.
    """
    return from_data.post_training(mod, params, dataset, config or PostTraining(), compiled)
