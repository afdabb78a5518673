"""Errors of a quantized network relative to the float one: by layer, and at its outputs.

An error is the root of the summed squares of the difference, divided by that of the float values. A layer has two:
`own` with quantized data and weight after float layers, `error` after quantized layers. Both are measured with
simulated quantization in one program, which contains the float network, the simulated one, and each layer alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.broadcast import Subtract
from tilewright.relay.op.reduction import Mean
from tilewright.relay.quantize.float_evaluation import Runner, Sample
from tilewright.relay.quantize.ranges import Array
from tilewright.relay.quantize.selection import Selection
from tilewright.relay.quantize.simulate import Parameters, channel_axis, simulated, simulated_value, simulated_weight


@dataclass(frozen=True)
class LayerError:
    """The errors of one layer."""

    name: str
    operator: str
    own: float
    error: float
    quantized: bool = True


@dataclass(frozen=True)
class Report:
    """The result of post-training quantization: relative errors of layers, and of the program's outputs by name."""

    calibration: str
    samples: int
    layers: tuple[LayerError, ...]
    outputs: dict[str, float]
    bytes_before: int
    bytes_after: int

    @property
    def error(self) -> float:
        """The greatest error of an output."""
        return max(self.outputs.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: each error also as a signal-to-noise ratio in decibels, None without noise."""
        found = asdict(self)
        found["layers"] = [{**asdict(e), "own_snr_db": decibels(e.own), "snr_db": decibels(e.error)}
                           for e in self.layers]
        found["outputs"] = {name: {"error": e, "snr_db": decibels(e)} for name, e in self.outputs.items()}
        return found


def decibels(error: float) -> float | None:
    """A relative error as a signal-to-noise ratio in decibels; None without noise."""
    return -20 * math.log10(error) if error > 0 else None


def relative(noise: float, signal: float) -> float:
    """The relative error, given the sums of squares of noise and signal."""
    return math.sqrt(noise / signal) if signal > 0 else 0.0 if noise == 0 else math.inf


@dataclass(frozen=True)
class Setting:
    """A quantization of a network: selected values, levels, and replaced biases."""

    function: Function
    places: Selection
    of_value: Callable[[Expr], Parameters]
    of_weight: Callable[[Call], Parameters]
    biases: Mapping[Expr, Constant] = field(default_factory=dict)

    def simulated(self, made: dict[Expr, Expr] | None = None) -> Function:
        """The network with simulated quantization."""
        return simulated(self.function, self.places, self.of_value, self.of_weight, self.biases, made)

    def alone(self, layer: Call) -> Call:
        """A layer with quantized data and weight after float layers."""
        data = simulated_value(layer.args[0], self.of_value(self.places.scales[layer.args[0]]))
        return Call(layer.op, [data, simulated_weight(layer, self.of_weight(layer))], span=layer.span)


def layer_errors(how: Setting, layers: Sequence[Call], samples: Sequence[Sample],
                 runner: Runner) -> dict[Call, tuple[float, float]]:
    """The own error (zero for a float layer) and the error of each layer, over all samples."""
    made: dict[Expr, Expr] = {}
    how.simulated(made)
    chosen = set(how.places.layers)
    alone = {e: how.alone(e) for e in layers if e in chosen}
    run = runner(how.function, [*layers, *(_result_of(e, made) for e in layers), *alone.values()])
    signal, noise, own = (dict.fromkeys(layers, 0.0) for _ in range(3))
    for sample in samples:
        found = iter(run(sample))
        expected = {e: next(found) for e in layers}
        for e, wanted in expected.items():
            signal[e] += _squares(wanted)
            noise[e] += _squares(next(found) - wanted)
        for e in alone:
            own[e] += _squares(next(found) - expected[e])
    return {e: (relative(own[e], signal[e]), relative(noise[e], signal[e])) for e in layers}


def channel_shifts(how: Setting, samples: Sequence[Sample], runner: Runner) -> dict[Call, Array]:
    """The mean difference of the float result and the own result of each quantized layer, per output channel; float32.
    """
    results: list[Expr] = []
    for e in how.places.layers:
        others = tuple(d for d in range(e.tensor_type.ndim) if d != channel_axis(e))
        results.append(Call(Mean(axis=others), [Call(Subtract(), [e, how.alone(e)])]))
    run = runner(how.function, results)
    sums = [np.zeros(r.tensor_type.shape, np.float64) for r in results]
    for sample in samples:
        for total, x in zip(sums, run(sample), strict=True):
            total += x
    return {e: (total / len(samples)).astype(np.float32) for e, total in zip(how.places.layers, sums, strict=True)}


def _result_of(layer: Expr, made: Mapping[Expr, Expr]) -> Expr:
    """A layer in the simulated network, without the quantization of its result."""
    new = made[layer]
    return (new.args[0] if isinstance(new, Call) and isinstance(layer, Call) and type(new.op) is not type(layer.op)
            else new)


def _squares(x: Array) -> float:
    return float(np.sum(np.square(x, dtype=np.float64)))


def output_errors(names: Sequence[str], run: Callable[[Sample], list[Array]], expected: Sequence[Sequence[Array]],
                  samples: Sequence[Sample]) -> dict[str, float]:
    """The relative error of each output of a program over the samples, compared with the expected values."""
    noise, signal = np.zeros(len(names)), np.zeros(len(names))
    for sample, wanted in zip(samples, expected, strict=True):
        for k, (x, y) in enumerate(zip(run(sample), wanted, strict=True)):
            noise[k] += _squares(x.astype(np.float64) - y)
            signal[k] += _squares(y)
    return {name: relative(n, s) for name, n, s in zip(names, noise, signal, strict=True)}
