"""LSTM and SVDF of int8 data, identical to TensorFlow Lite's reference kernels: 16-bit cell states, 32-bit sums.

A gate adds the products of the input and of the last output, each rescaled to Q3.12 and saturated to 16 bits. A table
applies its activation (`gate_tables.py`). One matrix product serves all gates, and that of the input all steps.

Source: `lstm_eval.cc`, `lstm.cc`, `reference/svdf.h` and `portable_tensor_utils.cc` of TensorFlow Lite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.types import INT32
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape, slice_axis
from tilewright.relay.frontend.tflite.fractions import inverse_root, of, times, truncated_quotient
from tilewright.relay.frontend.tflite.gate_tables import MOST_BITS, by_sigmoid, by_tanh
from tilewright.relay.frontend.tflite.node import Node, Value, constant, scale_of, zero_point_of
from tilewright.relay.frontend.tflite.rescale import by_fixed_point, requantize, rescaled, saturated
from tilewright.relay.frontend.tflite.sequences import sequence
from tilewright.relay.qnn.numerics import fixed_point

Array = np.ndarray[Any, Any]
Inputs = Sequence["Value | None"]

_INPUT, _FORGET, _CELL, _OUTPUT = range(4)
_ONE: Final = (1 << 15) - 1
_WEIGHTS, _RECURRENT, _PEEPHOLES, _BIASES, _PROJECTION, _NORMS = 0, 4, 8, 11, 15, 19
"""Index of the gates' tensors in the schema, counted after the data."""
_PEEPHOLE_OF: Final = {_INPUT: 8, _FORGET: 9, _OUTPUT: 10}


def integer_lstm(x: Value, given: Inputs, h: Value, c: Value, cell_clip: float, proj_clip: float, time_major: bool,
                 node: Node) -> Expr:
    """All steps of an int8 LSTM; `given` has its 23 other tensors. Raises `ModelError` for unsupported forms."""
    cell = _cell(given, h, c, cell_clip, proj_clip, time_major, node)
    if x.rank not in (2, 3):
        node.refuse(f"its input has {x.rank} dimensions, but must have 2 or 3")
    *lead, depth = x.shape
    batch = lead[-1] if time_major else lead[0]
    units, width = _sizes(cell, batch, depth)
    states = [reshape(h.expr, (batch, width)), reshape(c.expr, (batch, units))]
    flat = reshape(x.expr, (math.prod(lead), depth))
    taken = requantize(cell.products(flat, x, _WEIGHTS, None if cell.norms else _BIASES), cell.factors(_WEIGHTS, x),
                       1.0, 0, "int16", axis=1)
    taken = reshape(taken, (*lead, taken.tensor_type.shape[1]))
    if len(lead) == 1:
        return cell.step([taken], states)[0]
    return sequence([taken], states, cell.step, time_major)


def _cell(given: Inputs, h: Value, c: Value, cell_clip: float, proj_clip: float, time_major: bool, node: Node) -> _Cell:
    power = math.log2(c.scale)
    bits = 15 + round(power)
    if c.dtype != "int16" or power != round(power) or not 0 <= bits <= MOST_BITS:
        node.refuse(f"the state of its cells is {c.dtype} of scale {c.scale}, but must be int16 with a power of two "
                    f"from 2^-15 to 2^{MOST_BITS - 15}; convert the model again")
    if len(node.intermediates) != 5:
        node.refuse(f"it has {len(node.intermediates)} intermediate tensors, but 5 are needed; LSTMs with 8-bit cells "
                    "are not supported: convert it with 16-bit cells")
    gates = tuple(k for k in range(4) if k != _INPUT or given[_WEIGHTS] is not None)
    wanted = [_WEIGHTS + k for k in gates] + [_RECURRENT + k for k in gates]
    missing = next((k for k in wanted if given[k] is None), None)
    if missing is not None:
        node.refuse(
            f"its input {missing + 1}, the weights of a gate, is missing; the file is damaged: convert it again")
    clip = _quantized_limit(cell_clip, c.scale, 1 << 15, node)
    return _Cell(tuple(given), gates, h, c, power, bits, clip, _quantized_limit(proj_clip, h.scale, 1 << 7, node),
                 time_major, node)


def _sizes(cell: _Cell, batch: int, depth: int) -> tuple[int, int]:
    """The numbers of cells and outputs, from the output gate's recurrent weights; refuses tensors of other sizes."""
    recurrent = cell.shape(_RECURRENT + _OUTPUT)
    if len(recurrent) != 2:
        cell.node.refuse(f"its input {_RECURRENT + _OUTPUT + 1} has the shape {recurrent}, but must be a matrix; the "
                         "file is damaged: convert it again")
    units, width = recurrent
    wanted: dict[int, tuple[int, ...]] = {_PROJECTION: (width, units), _PROJECTION + 1: (width,)}
    of_gates: dict[int, tuple[int, ...]] = {_WEIGHTS: (units, depth), _RECURRENT: (units, width), _BIASES: (units,),
                                            _NORMS: (units,)}
    for first, shape in of_gates.items():
        wanted |= dict.fromkeys((first + k for k in cell.gates), shape)
    wanted |= dict.fromkeys(range(_PEEPHOLES, _PEEPHOLES + 3), (units,))
    for k, shape in sorted(wanted.items()):
        if cell.given[k] is not None and cell.shape(k) != shape:
            cell.node.refuse(f"its input {k + 1} has the shape {cell.shape(k)}, but must have {shape}; the file is "
                             "damaged: convert it again")
    for state, what, shape in ((cell.h, "output", (batch, width)), (cell.c, "cells", (batch, units))):
        if math.prod(state.shape) != math.prod(shape):
            cell.node.refuse(f"the state of its {what} has the shape {state.shape}, but must have {shape}; the file is "
                             "damaged: convert it again")
    if cell.given[_PROJECTION] is None and width != units:
        cell.node.refuse(f"it has {units} cells and {width} outputs, which must be equal without a projection; the "
                         "file is damaged: convert it again")
    return units, width


def _quantized_limit(limit: float, scale: float, most: int, node: Node) -> int:
    if math.isnan(limit):
        node.refuse("a clipping limit of its states is NaN; the file is damaged: convert it again")
    return int(np.clip(np.float32(limit) / np.float32(scale), -most, most - 1))


@dataclass(frozen=True, slots=True)
class _Cell:
    """One LSTM: its tensors, the gates it has, and clipping limits in units of its states."""

    given: tuple[Value | None, ...]
    gates: tuple[int, ...]
    h: Value
    c: Value
    power: float
    bits: int
    cell_clip: int
    proj_clip: int
    time_major: bool
    node: Node

    @property
    def norms(self) -> bool:
        return self.given[_NORMS + _FORGET] is not None

    def _there(self, k: int) -> Value:
        found = self.given[k]
        assert found is not None
        return found

    def shape(self, k: int) -> tuple[int, ...]:
        return self._there(k).shape

    def unit(self, gate: int) -> np.float32:
        """The scale of the input of a gate's activation."""
        return np.float32(scale_of(self.node.intermediates[gate]) if self.norms else 2.0**-12)

    def factors(self, weights: int, x: Value) -> Array:
        """The rescaling factor of each row of the sums."""
        found = []
        for k in self.gates:
            w = self._there(weights + k)
            factor = np.float32(np.float32(np.float32(w.scale) * np.float32(x.scale)) / self.unit(k))
            found += [float(factor)] * w.shape[0]
        return np.asarray(found, np.float64)

    def products(self, data: Expr, x: Value, weights: int, biases: int | None) -> Expr:
        """int32 sums of the products of rows with the weights of all gates, concatenated by gate."""
        stored = [self.node.stored(self._there(weights + k)) for k in self.gates]
        total = _dense(data, x.scale, x.zero_point, np.concatenate(stored, axis=0))
        if biases is None:
            return total
        added = [self._bias(biases + k, len(w)) for k, w in zip(self.gates, stored, strict=True)]
        return op.nn.bias_add(total, Constant(np.concatenate(added).astype(np.int32)), axis=1)

    def _bias(self, k: int, count: int) -> Array:
        found = self.given[k]
        return np.zeros(count, np.int32) if found is None else self.node.stored(found)

    def step(self, data: Sequence[Expr], states: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
        """The output of a step, and the states after it: output and cell."""
        h, c = states
        again = requantize(self.products(h, self.h, _RECURRENT, None), self.factors(_RECURRENT, self.h), 1.0, 0,
                           "int32", axis=1)
        total = _held(op.add(again, cast(data[0], "int32")))
        units = total.tensor_type.shape[1] // len(self.gates)
        sums = {gate: slice_axis(total, 1, k * units, (k + 1) * units) for k, gate in enumerate(self.gates)}
        old = cast(c, "int32")
        forgotten = by_sigmoid(self._before(_FORGET, sums, old))
        new = by_tanh(self._before(_CELL, sums, old), 3)
        taken = by_sigmoid(self._before(_INPUT, sums, old)) if _INPUT in sums else op.subtract(constant(_ONE, "int32"),
            forgotten)
        kept = _shifted(op.multiply(forgotten, old), 15)
        cell = _held(op.add(kept, _shifted(op.multiply(taken, new), 30 + int(self.power))))
        if self.cell_clip > 0:
            cell = op.clip(cell, a_min=-self.cell_clip, a_max=self.cell_clip)
        shown = op.multiply(by_sigmoid(self._before(_OUTPUT, sums, cell)), by_tanh(cell, self.bits))
        found = self._projected(self._hidden(shown))
        return found, [found, cast(cell, "int16")]

    def _before(self, gate: int, sums: dict[int, Expr], cell: Expr) -> Expr:
        """The input of a gate's activation, with peephole and layer normalization if the gate has them."""
        total = sums[gate]
        peephole = self.given[_PEEPHOLE_OF[gate]] if gate in _PEEPHOLE_OF else None
        if peephole is not None:
            factor = np.float32(2.0**self.power * float(np.float32(peephole.scale)) / float(self.unit(gate)))
            weight = _spread(self.node.stored(peephole), self._outputs(), cell.tensor_type.shape, self.time_major)
            total = _held(op.add(rescaled(op.multiply(cell, Constant(weight)), float(factor)), total))
        norm = self.given[_NORMS + gate]
        if norm is None:
            return total
        return _normalized(total, self.node.stored(norm), self._bias(_BIASES + gate, norm.shape[0]), norm.scale)

    def _outputs(self) -> int:
        w = self.given[_PROJECTION]
        return self.h.shape[-1] if w is None else w.shape[0]

    def _hidden(self, shown: Expr) -> Expr:
        hidden = self.node.intermediates[4]
        factor = np.float32(2.0**-15 / float(np.float32(scale_of(hidden))) * 2.0**-15)
        return saturated(rescaled(shown, float(factor)), self._hidden_zero(), "int8")

    def _hidden_zero(self) -> int:
        """The zero point of the hidden state; before a projection, the kernels use its negative on both sides."""
        zero = zero_point_of(self.node.intermediates[4])
        return zero if self.given[_PROJECTION] is None else -zero

    def _projected(self, hidden: Expr) -> Expr:
        w, b, between = self.given[_PROJECTION], self.given[_PROJECTION + 1], self.node.intermediates[4]
        if w is None:
            return hidden
        total = _dense(hidden, scale_of(between), self._hidden_zero(), self.node.stored(w))
        if b is not None:
            total = op.nn.bias_add(total, Constant(self.node.stored(b).astype(np.int32)), axis=1)
        factor = np.float32(np.float32(np.float32(w.scale) * np.float32(scale_of(between))) / np.float32(self.h.scale))
        found = requantize(total, float(factor), 1.0, self.h.zero_point, "int8")
        return op.clip(found, a_min=-self.proj_clip, a_max=self.proj_clip) if self.proj_clip > 0 else found


def _dense(data: Expr, scale: float, zero_point: int, weight: Array) -> Expr:
    """int32 products of int8 rows with rows of weights whose zero point is zero."""
    return op.qnn.dense(
        data, Constant(np.ascontiguousarray(weight)), constant(zero_point, "int32"), constant(0, "int32"),
        constant(scale, "float32"), constant(1, "float32"), units=weight.shape[0], out_dtype=INT32)


def _spread(peephole: Array, outputs: int, shape: Sequence[int], time_major: bool) -> Array:
    """int32 peephole weights for the cells of all rows.

    With fewer outputs than cells (a projection), the kernels only use as many cells as there are outputs. They count
    these per row, or, if time is the first dimension, over all rows as one vector.
    """
    batch, units = shape
    rows, columns = (1, batch * units) if time_major else (batch, units)
    found = np.zeros((rows, columns), np.int32)
    used = min(outputs * batch if time_major else outputs, columns)
    found[:, :used] = np.tile(peephole[:outputs], batch)[:used]
    return found.reshape(batch, units)


def _held(x: Expr) -> Expr:
    """Saturate to 16 bits, as int32."""
    return op.clip(x, a_min=-(1 << 15), a_max=_ONE)


def _shifted(x: Expr, count: int) -> Expr:
    """int32 x / 2^count, rounded half away from zero."""
    sign = op.right_shift(x, constant(31, "int32"))
    return op.right_shift(op.add(op.add(x, constant(1 << (count - 1), "int32")), sign), constant(count, "int32"))


def _normalized(x: Expr, weight: Array, bias: Array, scale: float) -> Expr:
    """Normalize int32 rows of 16-bit numbers with ten extra bits, multiply by weights of `scale`, and add a bias."""
    wide, count = cast(x, "int64"), x.tensor_type.shape[1]
    mean = truncated_quotient(op.multiply(op.sum(wide, axis=(1,), keepdims=True), of(1 << 10)), count)
    squares = op.multiply(op.sum(op.multiply(wide, wide), axis=(1,), keepdims=True), of((1 << 20) // count))
    variance = truncated_quotient(op.subtract(squares, op.multiply(mean, mean)), 1 << 20)
    guard = max(1, int(np.float32(10000) * np.float32(scale)))
    root, shift = inverse_root(op.where(op.less(variance, of(1)), of(guard), variance))
    scaled = times(op.subtract(op.multiply(wide, of(1 << 10)), mean), root)
    half = op.right_shift(op.left_shift(of(1), shift), of(1))
    sign = op.where(op.greater(shift, of(0)), op.right_shift(scaled, of(63)), of(0))
    whole = op.right_shift(op.add(op.add(scaled, half), sign), shift)
    total = op.add(op.multiply(whole, Constant(weight.astype(np.int64))), Constant(bias.astype(np.int64)))
    multiplier, exponent = fixed_point(float(np.float32(scale)))
    return _held(by_fixed_point(cast(_halves_away(total), "int32"), multiplier, exponent + 12))


def _halves_away(x: Expr) -> Expr:
    """int64 x / 1024, rounded half away from zero."""
    return truncated_quotient(op.where(op.greater(x, of(0)), op.add(x, of(512)), op.subtract(x, of(512))), 1 << 10)


def integer_svdf(x: Value, feature: Value, time: Value, b: Value | None, state: Value, rank: int, node: Node) -> Expr:
    """SVDF of int8 with a 16-bit state. The zero point of the result implements the activation."""
    batch, filters, memory = x.shape[0], feature.shape[0], time.shape[1]
    if state.dtype != "int16" or time.dtype != "int16":
        node.refuse(f"its state is {state.dtype} and its time weights are {time.dtype}; with int8 data both must be "
                    "int16: convert the model again")
    single = np.float32
    first = single(single(single(x.scale) * single(feature.scale)) / single(state.scale))
    new = requantize(_dense(x.expr, x.scale, x.zero_point, node.stored(feature)), float(first), 1.0, 0, "int16")
    kept = slice_axis(reshape(state.expr, (batch, filters, memory)), 2, 0, memory - 1)
    remembered = (op.concatenate(Tuple((kept, reshape(new, (batch, filters, 1)))), axis=2) if memory > 1
                  else reshape(new, (batch, filters, 1)))
    weighted = op.sum(op.multiply(cast(remembered, "int32"), cast(time.expr, "int32")), axis=(2,))
    total = op.sum(reshape(weighted, (batch, filters // rank, rank)), axis=(2,))
    second = single(single(single(state.scale) * single(time.scale)) / single(scale_of(node.output)))
    return requantize(op.add(total, b.expr) if b is not None else total, float(second), 1.0, zero_point_of(node.output),
                      "int8")
