"""Recurrent operators: LSTM, RNN, SVDF. int8 data are in `recurrent_integer.py`.

Weights may be quantized while data are floats; then data and states are quantized at each step, row by row
(`hybrid.py`). Each call starts with the stored states, or zeros; final states are not kept for the next call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import ModelError
from tilewright.relay.expr import Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape, slice_axis
from tilewright.relay.frontend.tflite.hybrid import asymmetric, dequantized, symmetric
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.recurrent_basic import basic_lstm
from tilewright.relay.frontend.tflite.recurrent_integer import integer_lstm, integer_svdf
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate
from tilewright.relay.frontend.tflite.sequences import Step, sequence

_BASIC_INPUTS = 5


class _Rows:
    """Rows of float data, quantized once for all products with quantized weights."""

    __slots__ = ("_by_range", "_quantized", "expr")

    def __init__(self, expr: Expr, by_range: bool) -> None:
        self.expr, self._by_range = expr, by_range
        self._quantized: tuple[Expr, Expr] | None = None

    def times(self, w: Value) -> Expr:
        """The product with a weight matrix; a vector is a diagonal matrix, so the product is elementwise."""
        if w.rank not in (1, 2):
            raise ModelError(f"tensor '{w.tensor.name}', a matrix of weights, has {w.rank} dimensions; the file is "
                             "damaged: convert it again", code="TW0103")
        if w.rank == 1:
            return op.multiply(self.expr, _real(w))
        if not w.is_quantized:
            return op.nn.dense(self.expr, _real(w))
        if self._quantized is None:
            self._quantized = asymmetric(self.expr) if self._by_range else symmetric(self.expr)
        whole, scale = self._quantized
        product = op.nn.dense(whole, cast(w.expr, "int32"), units=w.shape[0], out_dtype="int32")
        return op.multiply_add(cast(product, "float32"), op.multiply(scale, constant(w.scale, "float32")),
                               constant(-0.0, "float32"))


def _real(v: Value | None) -> Expr | None:
    """A tensor as float32, dequantized if necessary."""
    if v is None:
        return None
    return dequantized(v) if v.is_quantized else cast(v.expr, "float32")


def _require_floats(x: Value, node: Node) -> None:
    if x.dtype != "float32":
        node.refuse(f"its input is {x.dtype}, but only float32 is supported; convert the model with float or with "
                    "dynamic-range weights")


def _clipped(x: Expr, limit: float) -> Expr:
    return op.clip(x, a_min=-limit, a_max=limit) if limit > 0 else x


@dataclass(frozen=True, slots=True)
class _Gate:
    """The weights of one gate; None for those it does not have."""

    input: Value | None
    recurrent: Value | None
    peephole: Expr | None
    bias: Expr | None
    norm: Expr | None
    auxiliary: Value | None = None

    def of(self, x: _Rows, h: _Rows, c: Expr, aux: _Rows | None) -> Expr:
        """The input of a gate's activation, summed in the kernels' order, which affects rounding."""
        if self.input is None or self.recurrent is None:
            raise ModelError("one of its gates has no weights; the file is damaged: convert it again", code="TW0103")
        total = (x.times(self.input) if self.bias is None or self.norm is not None
                 else op.add(self.bias, x.times(self.input)))
        if aux is not None and self.auxiliary is not None:
            total = op.add(total, aux.times(self.auxiliary))
        total = op.add(total, h.times(self.recurrent))
        if self.peephole is not None:
            total = op.add(total, op.multiply(c, self.peephole))
        if self.norm is None:
            return total
        total = op.multiply(_normalized(total), self.norm)
        return op.add(total, self.bias) if self.bias is not None else total


def _normalized(x: Expr) -> Expr:
    """Normalize rows to mean zero and variance one."""
    centre = op.subtract(x, op.mean(x, axis=(-1,), keepdims=True))
    variance = op.mean(op.multiply(centre, centre), axis=(-1,), keepdims=True)
    return op.multiply(centre, op.rsqrt(op.add(variance, constant(1e-8, "float32"))))


@dataclass(frozen=True, slots=True)
class _Lstm:
    """One direction of an LSTM: gates, output projection, clipping limits."""

    gates: tuple[_Gate, _Gate, _Gate, _Gate]
    projection: Value | None
    projection_bias: Expr | None
    activation: int
    cell_clip: float
    proj_clip: float
    by_range: bool
    node: Node

    def step(self, data: Sequence[Expr], states: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
        """Output and states (output, cell) of a step. `data` has the input, and the auxiliary input if any."""
        x, *more = (_Rows(d, self.by_range) for d in data)
        h, c, aux = _Rows(states[0], self.by_range), states[1], more[0] if more else None
        into, forget, cell, out = self.gates
        forgotten = op.sigmoid(forget.of(x, h, c, aux))
        taken = op.sigmoid(into.of(x, h, c, aux)) if into.input is not None else op.subtract(constant(1, "float32"),
            forgotten)
        new = activate(cell.of(x, h, c, aux), self.activation, self.node)
        c = _clipped(op.add(op.multiply(forgotten, c), op.multiply(taken, new)), self.cell_clip)
        found: Expr = op.multiply(op.sigmoid(out.of(x, h, c, aux)), activate(c, self.activation, self.node))
        if self.projection is not None:
            found = _Rows(found, self.by_range).times(self.projection)
            found = _clipped(op.add(found, self.projection_bias) if self.projection_bias is not None else found,
                             self.proj_clip)
        return found, [found, c]


def _gates(weights: Sequence[Value | None], norms: Sequence[Value | None], auxiliary: Sequence[Value | None] = (None,)
           * 4) -> tuple[_Gate, _Gate, _Gate, _Gate]:
    """The gates from 15 tensors in the schema's order: four input, four recurrent, three peephole and four biases."""
    peepholes = [_real(weights[8]), _real(weights[9]), None, _real(weights[10])]
    extra = [_real(v) for v in norms] or [None] * 4
    made = [_Gate(weights[k], weights[4 + k], peepholes[k], _real(weights[11 + k]), extra[k], auxiliary[k])
            for k in range(4)]
    return made[0], made[1], made[2], made[3]


@converter("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_sequence_lstm(
    x: Value, *rest: Value | None, fused_activation_function: int = 0, cell_clip: float = 0.0, proj_clip: float = 0.0,
    time_major: bool = False, asymmetric_quantize_inputs: bool = False, diagonal_recurrent_tensors: bool = False,
    node: Node,
) -> Expr:
    given, h, c = _checked(x, rest, node)
    if x.dtype == "int8":
        return integer_lstm(x, given, h, c, cell_clip, proj_clip, time_major, node)
    cell = _full(given, fused_activation_function, cell_clip, proj_clip, asymmetric_quantize_inputs, node)
    return sequence([x.expr], [h.expr, c.expr], cell.step, time_major)


@converter("LSTM")
def lstm(
    x: Value, *rest: Value | None, fused_activation_function: int = 0, cell_clip: float = 0.0, proj_clip: float = 0.0,
    asymmetric_quantize_inputs: bool = False, node: Node,
) -> tuple[Expr, ...]:
    """One step of an LSTM. The full kernel has one result, the output; the basic one has four."""
    if len(rest) == _BASIC_INPUTS - 1:
        there = [v for v in rest if v is not None]
        if len(there) < len(rest):
            node.refuse(f"{len(rest) - len(there)} of its {_BASIC_INPUTS} inputs are missing; the file is damaged: "
                        "convert it again")
        return basic_lstm(x, *there, node=node)
    given, h, c = _checked(x, rest, node)
    if x.dtype == "int8":
        return (integer_lstm(x, given, h, c, cell_clip, proj_clip, True, node),)
    cell = _full(given, fused_activation_function, cell_clip, proj_clip, asymmetric_quantize_inputs, node)
    return (cell.step([x.expr], [h.expr, c.expr])[0],)


def _full(given: Sequence[Value | None], activation: int, cell_clip: float, proj_clip: float, by_range: bool,
          node: Node) -> _Lstm:
    return _Lstm(_gates(given[:15], given[19:]), given[15], _real(given[16]), activation, cell_clip, proj_clip,
                 by_range, node)


def _checked(x: Value, rest: Sequence[Value | None], node: Node) -> tuple[list[Value | None], Value, Value]:
    """The 23 inputs after the first, padded with None, and the two states among them."""
    if x.dtype != "int8":
        _require_floats(x, node)
    given = [*rest, *[None] * (23 - len(rest))]
    h, c = given[17], given[18]
    if len(given) != 23 or h is None or c is None:
        node.refuse(f"it has {len(rest) + 1} inputs; an LSTM must have 20, 24 with layer normalization, or 5 in the "
                    "basic kernel")
    return given, h, c


@converter("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_sequence_lstm(
    x: Value, *rest: Value | None, fused_activation_function: int = 0, cell_clip: float = 0.0, proj_clip: float = 0.0,
    merge_outputs: bool = False, time_major: bool = True, asymmetric_quantize_inputs: bool = False, node: Node,
) -> tuple[Expr, ...]:
    """Two LSTMs, the second backward. An auxiliary input with own weights feeds both; otherwise it feeds the second."""
    _require_floats(x, node)
    given = [*rest, *[None] * (47 - len(rest))]
    aux = given[38]
    crossed = aux is not None and given[40] is not None
    found = []
    for k, states, auxiliary in ((0, given[34:36], given[39:43]), (1, given[36:38], given[43:47])):
        part = given[17 * k : 17 * k + 17]
        h, c = states
        if h is None or c is None:
            node.refuse(f"it has {len(rest) + 1} inputs, but its states are missing; the file is damaged: convert it "
                        "again")
        gates = _gates(part[:15], [], auxiliary if crossed else (None,) * 4)
        one = _Lstm(gates, part[15], _real(part[16]), fused_activation_function, cell_clip, proj_clip,
                    asymmetric_quantize_inputs, node)
        data = [x.expr, aux.expr] if aux is not None and crossed else [aux.expr if aux is not None and k else x.expr]
        found.append(sequence(data, [h.expr, c.expr], one.step, time_major, reverse=bool(k)))
    return (op.concatenate(Tuple(tuple(found)), axis=2),) if merge_outputs else tuple(found)


def _rnn_step(w: Value, r: Value, b: Value, activation: int, by_range: bool, node: Node,
              auxiliary: Value | None = None) -> Step:
    bias = _real(b)

    def step(data: Sequence[Expr], states: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
        x, *more = (_Rows(d, by_range) for d in data)
        total = op.add(bias, x.times(w))
        if more and auxiliary is not None:
            total = op.add(total, more[0].times(auxiliary))
        total = op.add(total, _Rows(states[0], by_range).times(r))
        found = activate(total, activation, node)
        return found, [found]

    return step


@converter("RNN")
def rnn(
    x: Value, w: Value, r: Value, b: Value, h: Value, *, fused_activation_function: int = 0,
    asymmetric_quantize_inputs: bool = False, node: Node,
) -> Expr:
    _require_floats(x, node)
    return _rnn_step(w, r, b, fused_activation_function, asymmetric_quantize_inputs, node)([x.expr], [h.expr])[0]


@converter("UNIDIRECTIONAL_SEQUENCE_RNN")
def unidirectional_sequence_rnn(
    x: Value, w: Value, r: Value, b: Value, h: Value, *, time_major: bool = False, fused_activation_function: int = 0,
    asymmetric_quantize_inputs: bool = False, node: Node,
) -> Expr:
    _require_floats(x, node)
    return sequence([x.expr], [h.expr], _rnn_step(w, r, b, fused_activation_function, asymmetric_quantize_inputs, node),
                    time_major)


@converter("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_sequence_rnn(
    x: Value, fw: Value, fr: Value, fb: Value, fh: Value, bw: Value, br: Value, bb: Value, bh: Value,
    aux: Value | None = None, fa: Value | None = None, ba: Value | None = None, *, time_major: bool = False,
    fused_activation_function: int = 0, merge_outputs: bool = False, asymmetric_quantize_inputs: bool = False,
    node: Node,
) -> tuple[Expr, ...]:
    """Two RNNs, the second backward; the auxiliary input is used as in `BIDIRECTIONAL_SEQUENCE_LSTM`."""
    _require_floats(x, node)
    crossed, by_range = fa is not None and ba is not None, asymmetric_quantize_inputs
    found = []
    for reverse, (w, r, b, h, a) in enumerate(((fw, fr, fb, fh, fa), (bw, br, bb, bh, ba))):
        data = [x.expr, aux.expr] if aux is not None and crossed else [aux.expr if aux is not None and reverse
            else x.expr]
        step = _rnn_step(w, r, b, fused_activation_function, by_range, node, a)
        found.append(sequence(data, [h.expr], step, time_major, bool(reverse)))
    return (op.concatenate(Tuple(tuple(found)), axis=2),) if merge_outputs else tuple(found)


@converter("SVDF")
def svdf(
    x: Value, feature: Value, time: Value, b: Value | None, state: Value, *, rank: int = 0,
    fused_activation_function: int = 0, asymmetric_quantize_inputs: bool = False, node: Node,
) -> Expr:
    """A filter over features (a matrix product), then a filter over the last steps in time, which are the state."""
    if not x.rank == feature.rank == time.rank == 2:
        node.refuse(f"its input and weights have {x.rank}, {feature.rank} and {time.rank} dimensions, but must have 2 "
                    "each")
    batch, filters, memory = x.shape[0], feature.shape[0], time.shape[1]
    if rank < 1 or filters % rank:
        node.refuse(f"it has {filters} filters, which is not a multiple of its rank {rank}")
    if x.dtype == "int8":
        return integer_svdf(x, feature, time, b, state, rank, node)
    _require_floats(x, node)
    new = reshape(_Rows(x.expr, asymmetric_quantize_inputs).times(feature), (batch, filters, 1))
    kept = slice_axis(reshape(state.expr, (batch, filters, memory)), 2, 0, memory - 1)
    remembered = op.concatenate(Tuple((kept, new)), axis=2) if memory > 1 else new
    weighted = op.sum(op.multiply(remembered, _real(time)), axis=(2,))
    total = op.sum(reshape(weighted, (batch, filters // rank, rank)), axis=(2,))
    return activate(op.add(total, b.expr) if b is not None else total, fused_activation_function, node)
