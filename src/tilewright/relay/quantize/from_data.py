"""Post-training quantization: turns a float network and data into an integer network and a report of its errors.

Weights are int8 with a scale for each output channel; values are bytes with a zero point. Ranges come from data
(`ranges.py`). Layers named in `skip` stay in float. With `max_error`, the layers with the largest errors do too, as
many as necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.settings import nearest
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.quantize.errors import LayerError, Report, Setting, channel_shifts, layer_errors, output_errors
from tilewright.relay.quantize.float_evaluation import Runner, distributions, samples_of
from tilewright.relay.quantize.integers import QuantizeRealize
from tilewright.relay.quantize.pipeline import prerequisite_optimize
from tilewright.relay.quantize.ranges import Distribution, Levels, divergence_of, least_error_of, percentile_of
from tilewright.relay.quantize.selection import Selection, is_layer, layers, select
from tilewright.relay.quantize.simulate import Parameters, channel_axis, constants, rebuilt, weight_axis
from tilewright.relay.transform.fold_constant import FoldConstant
from tilewright.relay.visitor import consumers, post_order

T = TypeVar("T")
CALIBRATIONS: Final = ("minmax", "percentile", "kl", "mse")


@dataclass(frozen=True)
class PostTraining:
    """The options of post-training quantization. Raises `OptionError` for invalid values.

    `calibration` chooses the range of a value: "minmax", "percentile" (`percentile` of the magnitudes), "kl" or "mse".
    `per_channel` gives weights a scale for each output channel; `symmetric` values have as many levels below zero as
    above. Values are stored as `dtype`, "uint8" or "int8". `bias_correction` adds the mean error of each channel to the
    layer's bias. Layers in `skip` stay in float, and with `max_error`, a relative error of outputs, the worst others.
    Errors are measured on the first `measured` samples.
    """

    calibration: str = "minmax"
    percentile: float = 0.9999
    per_channel: bool = True
    symmetric: bool = False
    dtype: str = "uint8"
    bias_correction: bool = False
    max_error: float | None = None
    skip: Sequence[str] = ()
    measured: int = 32

    def __post_init__(self) -> None:
        for name, known in (("calibration", CALIBRATIONS), ("dtype", ("uint8", "int8"))):
            given = getattr(self, name)
            if given not in known:
                raise OptionError(f"{name} is {given!r}; it must be one of "
                                  f"{', '.join(known)}{nearest(str(given), known)}",
                                  code="TW1001")
        if not 0 < self.percentile <= 1:
            raise OptionError(f"percentile is {self.percentile!r}; it must be above 0 and at most 1, the fraction of "
                              "the values that is kept", code="TW1001")
        if self.max_error is not None and not self.max_error >= 0:
            raise OptionError(f"max_error is {self.max_error!r}; it must be a relative error of 0 or more: 0.05 is "
                              "five percent",
                              code="TW1001")
        if self.measured < 1:
            raise OptionError(f"measured is {self.measured!r}; it must be at least 1 sample",
                              code="TW1001")


@dataclass(frozen=True)
class Quantized:
    """An integer network, and its errors relative to the float network."""

    module: IRModule
    report: Report


def post_training(mod: IRModule, params: Mapping[str, Any] | None, dataset: Any, config: PostTraining,
                  runner: Runner) -> Quantized:
    """Implementation of `compiler.calibration.post_training`; `runner` runs the programs."""
    return _Work(prerequisite_optimize(mod, params), dataset, config, runner).quantized()


class _Work:
    """A float network, its layers by name, and the statistics of its values."""

    def __init__(self, mod: IRModule, dataset: Any, config: PostTraining, runner: Runner) -> None:
        self.mod, self.config, self.runner = mod, config, runner
        main = mod["main"]
        if dataset is None:
            raise OptionError("post-training quantization needs calibration data; give inputs of the network: a "
                              "dictionary of arrays, or an iterable of them", code="TW1002")
        self.function: Function = with_biases(main) if config.bias_correction else main
        self.names = layer_names(self.function)
        if not self.names:
            raise CompileError("there is nothing to quantize: the network has no 2-D convolution or matrix product of "
                               "float32 with constant weights", code="TW1003")
        for name in config.skip:
            if name not in self.names.values():
                near = nearest(name, self.names.values()) or "; the layers are: " + ", ".join(self.names.values())
                raise OptionError(f"skip: the network has no layer '{name}'{near}", code="TW1001")
        self.samples = samples_of(dataset, self.function)
        self.measured = self.samples[: config.measured]
        self.kept = {e for e, name in self.names.items() if name in config.skip}
        places = self.places(self.kept)
        self.seen = distributions(self.function, list(places.values), self.samples, runner,
                                  counted=config.calibration != "minmax")
        self.ends = {e: self._ends(d) for e, d in self.seen.items()}
        self.weights = {e: constants(self._weight_levels(e)) for e in self.names}

    def places(self, kept: set[Call]) -> Selection:
        return select(self.function, lambda e: e not in kept)

    def _ends(self, d: Distribution) -> tuple[float, float]:
        """The range of one value, by the configured method."""
        match self.config.calibration:
            case "percentile":
                return d.within(percentile_of(d, self.config.percentile))
            case "kl":
                return d.within(divergence_of(d))
            case "mse":
                return least_error_of(d, self._levels)
        return d.within(d.most())

    def _levels(self, low: float, high: float) -> Levels:
        return Levels.symmetric(max(-low, high), 8) if self.config.symmetric else Levels.between(low, high)

    def _weight_levels(self, layer: Call) -> Levels:
        assert isinstance(layer.args[1], Constant)
        w = np.abs(layer.args[1].value)
        axes = tuple(d for d in range(w.ndim) if d != weight_axis(layer))
        return Levels.symmetric(w.max(axis=axes, keepdims=True) if self.config.per_channel else w.max(), 8)

    def parameters(self, places: Selection) -> dict[Expr, Parameters]:
        """The levels of each scale, for the union of the ranges of all values that share it."""
        ends: dict[Expr, tuple[float, float]] = {}
        for e in places.values:
            low, high = self.ends[e]
            least, greatest = ends.get(places.scales[e], (low, high))
            ends[places.scales[e]] = min(low, least), max(high, greatest)
        return {e: constants(self._levels(*pair)) for e, pair in ends.items()}

    def setting(self, places: Selection) -> Setting:
        """The quantization of a selection, with corrected biases if configured."""
        values = self.parameters(places)
        plain = Setting(self.function, places, values.__getitem__, self.weights.__getitem__)
        if not self.config.bias_correction or not places.layers:
            return plain
        shifts = channel_shifts(plain, self.samples, self.runner)
        biases: dict[Expr, Constant] = {}
        for e in post_order(self.function.body, inside=False):
            if (isinstance(e, Call) and isinstance(e.op, BiasAdd) and e.args[0] in shifts
                    and isinstance(e.args[1], Constant)):
                biases[e] = Constant(e.args[1].value + shifts[e.args[0]], e.args[1].span)
        return replace(plain, biases=biases)

    def integers(self, how: Setting) -> IRModule:
        """The integer module; layers outside of the selection stay in float."""
        made = self.mod.copy()
        made["main"] = how.simulated()
        return FoldConstant()(QuantizeRealize(self.config.dtype)(made))

    def quantized(self) -> Quantized:
        names = _output_names(self.function)
        run = self.runner(self.function, _outputs(self.function))
        expected = [run(s) for s in self.measured]
        order = list(self.names)
        first = self.setting(self.places(self.kept))
        errors = layer_errors(first, order, self.measured, self.runner)
        worst = sorted(first.places.layers, key=lambda e: -errors[e][0])

        def attempt(how: Setting) -> tuple[Setting, IRModule, dict[str, float]]:
            mod = self.integers(how)
            return how, mod, output_errors(names, self.runner(mod["main"], _outputs(mod["main"])), expected,
                                           self.measured)

        found = attempt(first)
        wanted = self.config.max_error
        if wanted is not None and max(found[2].values()) > wanted:
            found = _fewest(lambda count: attempt(self.setting(self.places(self.kept | set(worst[:count])))),
                            len(worst), lambda f: max(f[2].values()) <= wanted)
        how, mod, outputs = found
        now = errors if how is first else layer_errors(how, order, self.measured, self.runner)
        chosen = set(how.places.layers)
        rows = tuple(LayerError(self.names[e], e.op.name, errors[e][0], now[e][1], e in chosen) for e in order)
        return Quantized(mod, Report(self.config.calibration, len(self.samples), rows, outputs,
                                     _constant_bytes(self.function), _constant_bytes(mod["main"])))


def _fewest(attempt: Callable[[int], T], most: int, good: Callable[[T], bool]) -> T:
    """The result of `attempt` for the least number up to `most` that is good, else for `most`; found by bisection."""
    low, high = 1, most
    found: T | None = None
    while low < high:
        middle = (low + high) // 2
        tried = attempt(middle)
        if good(tried):
            high, found = middle, tried
        else:
            low = middle + 1
    return attempt(most) if found is None else found


def layer_names(function: Function) -> dict[Call, str]:
    """The quantizable layers, named after the model's nodes, or by kind and number if these have no unique names."""
    found: dict[Call, str] = {}
    taken: set[str] = set()
    for k, e in enumerate(layers(function)):
        name = e.span.name if e.span is not None and e.span.name else f"{e.op.name.rpartition('.')[2]}_{k}"
        name = name if name not in taken else f"{name}_{k}"
        taken.add(name)
        found[e] = name
    return found


def with_biases(function: Function) -> Function:
    """Return `function` with a zero bias after each layer without a bias."""
    users = consumers(post_order(function, inside=False))

    def biased(old: Expr, new: Expr) -> Expr:
        if not isinstance(old, Call) or not is_layer(old):
            return new
        first = users[old][0] if len(users[old]) == 1 else None
        if isinstance(first, Call) and isinstance(first.op, BiasAdd):
            return new
        axis = channel_axis(old)
        return Call(BiasAdd(axis), [new, Constant(np.zeros(old.tensor_type.shape[axis], np.float32))], span=old.span)

    return rebuilt(function, biased)


def _outputs(function: Function) -> tuple[Expr, ...]:
    return function.body.fields if isinstance(function.body, Tuple) else (function.body,)


def _output_names(function: Function) -> list[str]:
    names = function.attrs.get("output_tensor_names", ())
    return [names[k] if k < len(names) else f"output{k}" for k in range(len(_outputs(function)))]


def _constant_bytes(function: Function) -> int:
    return sum(e.value.nbytes for e in post_order(function.body, inside=False) if isinstance(e, Constant))
