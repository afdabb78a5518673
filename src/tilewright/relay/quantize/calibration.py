"""Calibrate the scales and bounds of simulated quantizations, by TVM's options.

    simulated_quantize(%x, %dom_scale, %clip_min, %clip_max) -> simulated_quantize(%x, 0.0625f, -127f, 127f)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.annotation import SimulatedQuantize
from tilewright.relay.quantize.config import QAnnotateKind, QConfig, current_qconfig
from tilewright.relay.quantize.float_evaluation import Runner, distributions, samples_of
from tilewright.relay.quantize.ranges import Array, Distribution, Levels, divergence_of, percentile_of
from tilewright.relay.quantize.simulate import constants, float_form, rebuilt
from tilewright.relay.visitor import calls

_PERCENTILE = 0.99999
"""The fraction of all magnitudes that TVM's `percentile` mode keeps."""


@dataclass(frozen=True)
class QuantizeCalibrate(ModulePass):
    """Replace the variables of simulated quantizations by numbers, as the current `qconfig` requests.

    `dataset` has inputs by name, on which `runner` runs the network. Raises `OptionError` if the mode needs data but
    has no dataset.
    """

    dataset: Iterable[Any] | None
    runner: Runner
    exact: ClassVar[bool] = False

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        config = current_qconfig()
        return mod.map_functions(lambda f: _calibrated(f, self.dataset, config, self.runner), Function)


def _calibrated(function: Function, dataset: Iterable[Any] | None, config: QConfig, runner: Runner) -> Function:
    marked = [e for e in calls(function.body, inside=False) if isinstance(e.op, SimulatedQuantize)]
    inputs = [e for e in marked if e.op.kind_of_value != QAnnotateKind.WEIGHT]
    most = _magnitudes(function, inputs, dataset, config, runner)
    shared: dict[Expr, float] = {}
    for e in inputs:
        shared[e.args[1]] = max(shared.get(e.args[1], 0.0), most[e])

    def replace(old: Expr, new: Expr) -> Expr:
        if not (isinstance(new, Call) and isinstance(new.op, SimulatedQuantize) and isinstance(old, Call)):
            return new
        kind = new.op.kind_of_value
        range_of = _weight_range(new.args[0], config) if kind == QAnnotateKind.WEIGHT else shared[old.args[1]]
        return Call(new.op, [new.args[0], *constants(_levels(range_of, config, kind))], span=new.span)

    return rebuilt(function, replace)


def _magnitudes(function: Function, inputs: Sequence[Call], dataset: Iterable[Any] | None, config: QConfig,
                runner: Runner) -> dict[Expr, float]:
    if config.calibrate_mode == "global_scale":
        return dict.fromkeys(inputs, float(config.global_scale))
    if dataset is None:
        raise OptionError(f"calibrate_mode {config.calibrate_mode!r} needs calibration data; give quantize(mod, params"
                          ", dataset) a list of inputs by name, or use calibrate_mode='global_scale'", code="TW1002")
    made: dict[Expr, Expr] = {}
    plain = float_form(function, made)
    of_value = {e: made[e.args[0]] for e in inputs}
    found = distributions(plain, list(dict.fromkeys(of_value.values())), samples_of(dataset, plain), runner,
                          config.calibrate_chunk_by)
    measure: Callable[[Distribution], float] = (divergence_of if config.calibrate_mode == "kl_divergence"
        else lambda d: percentile_of(d, _PERCENTILE))
    ranges = {e: measure(d) for e, d in found.items()}
    return {e: ranges[v] for e, v in of_value.items()}


def _weight_range(weight: Expr, config: QConfig) -> float:
    assert isinstance(weight, Constant)
    most = float(np.abs(weight.value).max(initial=0))
    if config.weight_scale == "max" or most == 0.0:
        return most or 1.0
    return float(2.0 ** np.ceil(np.log2(most)))


def _levels(most: float, config: QConfig, kind: int) -> Levels:
    """TVM's levels: a range of `2^(bits - 1)` steps, symmetric around zero."""
    steps = 1 << (config.get_nbit_by_kind(kind) - 1)
    scale: Array = np.asarray((most or 1.0) / steps, np.float32)
    return Levels(scale, -(steps - 1), steps - 1)
