"""Recurrent operators in float: LSTM, RNN, SVDF. Weights may be integers of a scale, and stand for the numbers.

Sequences are loops over time (`relay/loops.py`). States begin as the model stores them, or as zeros, in every call; what the last turn leaves is
not kept for the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.errors import ModelError
from tilewright.relay.expr import Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, number, reshape, slice_axis, transpose
from tilewright.relay.frontend.tflite.hybrid import dequantized
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate
from tilewright.relay.loops import Loop, Turn

_FEW: Final = 4
"""Steps in time that are written one after another rather than looped over."""
Step = Callable[[Expr, Sequence[Expr]], tuple[Expr, list[Expr]]]


def _real(v: Value | None) -> Expr | None:
    """Floats, also of weights that are integers of a scale."""
    if v is None:
        return None
    return dequantized(v) if v.is_quantized else cast(v.expr, "float32")


def _require_floats(x: Value, node: Node) -> None:
    if x.dtype != "float32":
        node.refuse(f"its input is {x.dtype}, and is supported in float32; convert the model with float or with dynamic-range weights")


def _clipped(x: Expr, limit: float) -> Expr:
    return op.clip(x, a_min=-limit, a_max=limit) if limit > 0 else x


@dataclass(frozen=True, slots=True)
class _Gate:
    """The weights of one gate; None for what it does not have."""

    input: Expr | None
    recurrent: Expr | None
    peephole: Expr | None
    bias: Expr | None
    norm: Expr | None
    auxiliary: Expr | None = None

    def of(self, x: Expr, h: Expr, c: Expr, aux: Expr | None) -> Expr:
        """What goes into the gate's activation."""
        if self.input is None or self.recurrent is None:
            raise ModelError("one of its gates has no weights; the file is damaged: convert it again")
        total = op.add(op.nn.dense(x, self.input), op.nn.dense(h, self.recurrent))
        if aux is not None and self.auxiliary is not None:
            total = op.add(total, op.nn.dense(aux, self.auxiliary))
        if self.peephole is not None:
            total = op.add(total, op.multiply(c, self.peephole))
        if self.norm is not None:
            total = op.multiply(_normalized(total), self.norm)
        return op.add(total, self.bias) if self.bias is not None else total


def _normalized(x: Expr) -> Expr:
    """Rows of mean zero and variance one."""
    centre = op.subtract(x, op.mean(x, axis=(-1,), keepdims=True))
    variance = op.mean(op.multiply(centre, centre), axis=(-1,), keepdims=True)
    return op.multiply(centre, op.rsqrt(op.add(variance, constant(1e-8, "float32"))))


@dataclass(frozen=True, slots=True)
class _Lstm:
    """One direction of an LSTM: gates, the projection of its output, limits."""

    gates: tuple[_Gate, _Gate, _Gate, _Gate]
    projection: Expr | None
    projection_bias: Expr | None
    activation: int
    cell_clip: float
    proj_clip: float
    node: Node

    def step(self, x: Expr, states: Sequence[Expr], aux: Expr | None = None) -> tuple[Expr, list[Expr]]:
        """The output of a step and the states behind it: output and cell."""
        h, c = states
        into, forget, cell, out = self.gates
        forgotten = op.sigmoid(forget.of(x, h, c, aux))
        taken = op.sigmoid(into.of(x, h, c, aux)) if into.input is not None else op.subtract(constant(1, "float32"), forgotten)
        new = activate(cell.of(x, h, c, aux), self.activation, self.node)
        c = _clipped(op.add(op.multiply(forgotten, c), op.multiply(taken, new)), self.cell_clip)
        h = op.multiply(op.sigmoid(out.of(x, h, c, aux)), activate(c, self.activation, self.node))
        if self.projection is not None:
            h = op.nn.dense(h, self.projection)
            h = _clipped(op.add(h, self.projection_bias) if self.projection_bias is not None else h, self.proj_clip)
        return h, [h, c]


def _over_time(x: Expr, states: Sequence[Expr], step: Step, reverse: bool) -> Expr:
    """The outputs of all steps over data (time, batch, …), along the first dimension."""
    count = x.tensor_type.shape[0]
    if count <= _FEW:
        rows: list[Expr] = []
        for k in range(count):
            place = count - 1 - k if reverse else k
            row, states = step(reshape(slice_axis(x, 0, place, place + 1), x.tensor_type.shape[1:]), states)
            rows.append(row)
        return op.stack(Tuple(tuple(rows[::-1] if reverse else rows)), axis=0)
    loop = Loop()
    source = loop.outside(x)

    def turn(time: Expr, values: Sequence[Expr]) -> Turn:
        place = op.subtract(number(count - 1), time) if reverse else time
        row, after = step(op.take(source, place, axis=0), values)
        return Turn(after, (row,))

    return loop.run(count, states, turn, (reverse,))[2][0]


def _sequence(x: Value, states: Sequence[Expr], step: Step, time_major: bool, reverse: bool = False) -> Expr:
    """The same over data of either order of time and batch."""
    data = x.expr if time_major else transpose(x.expr, (1, 0, 2))
    found = _over_time(data, states, step, reverse)
    return found if time_major else transpose(found, (1, 0, 2))


def _gates(weights: Sequence[Value | None], norms: Sequence[Value | None], auxiliary: Sequence[Value | None] = (None,) * 4) -> tuple[_Gate, _Gate, _Gate, _Gate]:
    """From 15 tensors in the schema's order: four of inputs, four recurrent, three peepholes, four biases."""
    real = [_real(v) for v in weights]
    peepholes = [real[8], real[9], None, real[10]]
    extra = [_real(v) for v in norms] or [None] * 4
    more = [_real(v) for v in auxiliary]
    made = [_Gate(real[k], real[4 + k], peepholes[k], real[11 + k], extra[k], more[k]) for k in range(4)]
    return made[0], made[1], made[2], made[3]


@converter("UNIDIRECTIONAL_SEQUENCE_LSTM")
def unidirectional_sequence_lstm(
    x: Value, *rest: Value | None, fused_activation_function: int = 0, cell_clip: float = 0.0, proj_clip: float = 0.0, time_major: bool = False,
    diagonal_recurrent_tensors: bool = False, node: Node,
) -> Expr:
    return _sequence_lstm(x, rest, fused_activation_function, cell_clip, proj_clip, time_major, node)


def _sequence_lstm(
    x: Value, rest: Sequence[Value | None], activation: int, cell_clip: float, proj_clip: float, time_major: bool, node: Node,
) -> Expr:
    given, h, c = _checked(x, rest, node)
    lstm = _Lstm(_gates(given[:15], given[19:]), _real(given[15]), _real(given[16]), activation, cell_clip, proj_clip, node)
    return _sequence(x, [h.expr, c.expr], lstm.step, time_major)


def _checked(x: Value, rest: Sequence[Value | None], node: Node) -> tuple[list[Value | None], Value, Value]:
    """The inputs behind the first, all 23 of them, and the states among them."""
    _require_floats(x, node)
    given = [*rest, *[None] * (23 - len(rest))]
    h, c = given[17], given[18]
    if len(given) != 23 or h is None or c is None:
        node.refuse(f"it has {len(rest) + 1} inputs, and an LSTM has 20 with its states, or 24 with layer normalization; the basic kernel is not supported")
    return given, h, c


@converter("LSTM")
def lstm(
    x: Value, *rest: Value | None, fused_activation_function: int = 0, cell_clip: float = 0.0, proj_clip: float = 0.0, node: Node,
) -> tuple[Expr, ...]:
    """One step: the full kernel, whose only result is the output."""
    given, h, c = _checked(x, rest, node)
    cell = _Lstm(_gates(given[:15], given[19:]), _real(given[15]), _real(given[16]), fused_activation_function, cell_clip, proj_clip, node)
    return (cell.step(x.expr, [h.expr, c.expr])[0],)


@converter("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_sequence_lstm(
    x: Value, *rest: Value | None, fused_activation_function: int = 0, cell_clip: float = 0.0, proj_clip: float = 0.0, merge_outputs: bool = False,
    time_major: bool = True, node: Node,
) -> tuple[Expr, ...]:
    _require_floats(x, node)
    given = [*rest, *[None] * (47 - len(rest))]
    if any(v is not None for v in given[38:]):
        node.refuse("it has an auxiliary input, which is not supported; convert the layers apart")
    found = []
    for k, states in ((0, given[34:36]), (1, given[36:38])):
        part = given[17 * k : 17 * k + 17]
        h, c = states
        assert h is not None and c is not None
        one = _Lstm(_gates(part[:15], []), _real(part[15]), _real(part[16]), fused_activation_function, cell_clip, proj_clip, node)
        found.append(_sequence(x, [h.expr, c.expr], one.step, time_major, reverse=bool(k)))
    return (op.concatenate(Tuple(tuple(found)), axis=2),) if merge_outputs else tuple(found)


def _rnn_step(w: Value, r: Value, b: Value, activation: int, node: Node) -> Step:
    weight, recurrent, bias = _real(w), _real(r), _real(b)

    def step(x: Expr, states: Sequence[Expr]) -> tuple[Expr, list[Expr]]:
        total = op.add(op.add(op.nn.dense(x, weight), op.nn.dense(states[0], recurrent)), bias)
        found = activate(total, activation, node)
        return found, [found]

    return step


@converter("RNN")
def rnn(x: Value, w: Value, r: Value, b: Value, h: Value, *, fused_activation_function: int = 0, node: Node) -> Expr:
    _require_floats(x, node)
    return _rnn_step(w, r, b, fused_activation_function, node)(x.expr, [h.expr])[0]


@converter("UNIDIRECTIONAL_SEQUENCE_RNN")
def unidirectional_sequence_rnn(
    x: Value, w: Value, r: Value, b: Value, h: Value, *, time_major: bool = False, fused_activation_function: int = 0, node: Node,
) -> Expr:
    _require_floats(x, node)
    return _sequence(x, [h.expr], _rnn_step(w, r, b, fused_activation_function, node), time_major)


@converter("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_sequence_rnn(
    x: Value, fw: Value, fr: Value, fb: Value, fh: Value, bw: Value, br: Value, bb: Value, bh: Value, *auxiliary: Value, time_major: bool = False,
    fused_activation_function: int = 0, merge_outputs: bool = False, node: Node,
) -> tuple[Expr, ...]:
    _require_floats(x, node)
    if auxiliary:
        node.refuse("it has an auxiliary input, which is not supported; convert the layers apart")
    forward = _sequence(x, [fh.expr], _rnn_step(fw, fr, fb, fused_activation_function, node), time_major)
    backward = _sequence(x, [bh.expr], _rnn_step(bw, br, bb, fused_activation_function, node), time_major, reverse=True)
    return (op.concatenate(Tuple((forward, backward)), axis=2),) if merge_outputs else (forward, backward)


@converter("SVDF")
def svdf(
    x: Value, feature: Value, time: Value, b: Value | None, state: Value, *, rank: int = 0, fused_activation_function: int = 0, node: Node,
) -> Expr:
    """A filter over features and over the last steps in time: a matrix product, then one over what is remembered."""
    _require_floats(x, node)
    if not x.rank == feature.rank == time.rank == 2:
        node.refuse(f"its input and weights have {x.rank}, {feature.rank} and {time.rank} dimensions, and must have 2 each")
    batch, filters, memory = x.shape[0], feature.shape[0], time.shape[1]
    if rank < 1 or filters % rank:
        node.refuse(f"it has {filters} filters of rank {rank}, which does not divide them")
    new = reshape(op.nn.dense(x.expr, _real(feature)), (batch, filters, 1))
    kept = slice_axis(reshape(state.expr, (batch, filters, memory)), 2, 1, memory)
    remembered = op.concatenate(Tuple((kept, new)), axis=2) if memory > 1 else new
    weighted = op.sum(op.multiply(remembered, _real(time)), axis=(2,))
    total = op.sum(reshape(weighted, (batch, filters // rank, rank)), axis=(2,))
    return activate(op.add(total, b.expr) if b is not None else total, fused_activation_function, node)
