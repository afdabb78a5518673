"""Folds of scales through additions and activations, in TVM's form: `ForwardFoldScaleAxis`, `BackwardFoldScaleAxis`.

    nn.conv2d(add(nn.relu(multiply(%x, s)), %b), %w)
        -> nn.conv2d(add(nn.relu(%x), divide(%b, s')), multiply(%w, s'))                           forward
    multiply(nn.relu(add(nn.conv2d(%x, %w), %b)), s)
        -> nn.relu(add(nn.conv2d(%x, multiply(%w, s')), multiply(%b, s')))                         backward

A message is a request for a scale along some axes of a value. Convolutions and dense layers send one to their data
(forward) or to their users (backward); activations and additions pass it on, activations only for positive scales.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.broadcast import Add, Divide, Multiply, Subtract
from tilewright.relay.op.elementwise import LeakyRelu, Relu
from tilewright.relay.op.nn_conv import Conv2d, Conv3d
from tilewright.relay.op.nn_matmul import BiasAdd, Dense
from tilewright.relay.op.registry import Op
from tilewright.relay.op.shaping import ExpandDims, Reshape, Squeeze
from tilewright.relay.visitor import operands, post_order, with_operands
from tilewright.tir.data_layout import layout

MOST_STEPS: Final = 200
"""Largest number of operators that a scale crosses."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request for a scale that varies along `axes` only. `positive`: it crosses an activation. `divides`: the
    reciprocal is needed."""

    axes: tuple[int, ...]
    positive: bool = False
    divides: bool = False
    steps: int = 0

    def passed(self, positive: bool = False, divides: bool = False) -> Message | None:
        """Return the message one operator farther."""
        if self.steps == MOST_STEPS:
            return None
        return Message(self.axes, self.positive or positive, self.divides or divides, self.steps + 1)

    def permits(self, scale: Expr) -> bool:
        """Return whether the scale has the signs that the operators between need."""
        while isinstance(scale, Call) and isinstance(scale.op, (ExpandDims, Reshape, Squeeze)):
            scale = scale.args[0]
        if not (self.positive or self.divides):
            return True
        if not isinstance(scale, Constant):
            return False
        return bool(np.all(scale.value > 0) if self.positive else np.all(scale.value != 0))


@dataclass(frozen=True, slots=True)
class Scaled:
    """A value without its scale: the whole value is `value * scale`, the scale along `axes`."""

    value: Expr
    scale: Expr
    axes: tuple[int, ...]

    def whole(self) -> Expr:
        """Return the value with its scale."""
        return Call(Multiply(), [self.value, aligned(self.scale, self.value.tensor_type, self.axes)])


def squeezed(lhs: Expr, rhs: Expr, axes: Sequence[int]) -> Expr | None:
    """Return `rhs` without axes of size 1 if it broadcasts to `lhs` and varies along exactly `axes`, else None."""
    x, y = lhs.known_type(), rhs.known_type()
    if not isinstance(x, TensorType) or not isinstance(y, TensorType) or y.ndim > x.ndim:
        return None
    base, gone = x.ndim - y.ndim, []
    for k, n in enumerate(x.shape):
        if k in axes:
            if k < base or y.shape[k - base] != n:
                return None
        elif k >= base:
            if y.shape[k - base] != 1:
                return None
            gone.append(k - base)
    return Call(Squeeze(tuple(gone)), [rhs]) if gone else rhs


def aligned(scale: Expr, wide: TensorType, axes: Sequence[int]) -> Expr:
    """Return a squeezed scale in a shape that broadcasts to `wide`."""
    if len(axes) > 1:
        return Call(Reshape(tuple(n if k in axes else 1 for k, n in enumerate(wide.shape))), [scale])
    behind = wide.ndim - axes[0] - 1
    return Call(ExpandDims(axis=1, num_newaxis=behind), [scale]) if behind > 0 else scale


def channel_axes(name: str, letter: str) -> tuple[int, ...]:
    """Return the positions of a dimension and of its blocks in a layout."""
    return tuple(sorted(layout(name).pieces(letter)))


def _conv_axes(e: Call, name: str) -> tuple[int, ...] | None:
    """Return the axes of the channels in the layout `name`, if either none or all of the layouts have blocks."""
    channels = channel_axes(name, "C")
    small = [len(channels), len(channel_axes(e.op.kernel_layout, "O")), len(channel_axes(e.op.kernel_layout, "I"))]
    same = all(a.known_type() is not None for a in e.args) and len({a.tensor_type.dtype for a in e.args[:2]}) == 1
    return channels if small in ([1] * 3, [2] * 3) and same else None


def _is_depthwise(e: Call) -> bool:
    return bool(e.op.groups > 1 and e.op.kernel_shape(e.args[1].tensor_type)[1] == 1
                and e.op.kernel_shape(e.args[1].tensor_type)[0] == e.op.groups)


def _weighted(e: Call, data: Expr, weight: Expr, scale: Expr, letter: str) -> Call:
    """Return the convolution or dense layer with scaled weights."""
    kind = weight.tensor_type
    axes = (1 if letter == "I" else 0,) if isinstance(e.op, Dense) else channel_axes(e.op.kernel_layout, letter)
    return Call(e.op, [data, Call(Multiply(), [weight, aligned(scale, kind, axes)]), *e.args[2:]], span=e.span)


def fold_forward(function: Function) -> Expr:
    """Fold scales into the weights after them."""
    order = post_order(function.body, inside=False)
    asked = _requests(order, function.body)
    new: dict[Expr, Expr | Scaled] = {}
    for e in order:
        new[e] = _forward(e, new, asked.get(e))
    return _body(function, _plain(new[function.body]))


def _plain(value: Expr | Scaled) -> Expr:
    return value.whole() if isinstance(value, Scaled) else value


def _body(function: Function, body: Expr) -> Expr:
    return function if body is function.body else with_operands(function, [body])


def _requests(order: Sequence[Expr], body: Expr) -> dict[Expr, Message]:
    """Return the messages of all users of each value, where they agree."""
    found: dict[Expr, Message | None] = {body: None}
    for e in reversed(order):
        sent = _sent(e, found.get(e))
        for o, message in zip(operands(e), sent, strict=True):
            if o not in found:
                found[o] = message
                continue
            known = found[o]
            found[o] = None if known is None or message is None or known.axes != message.axes else replace(
                known, positive=known.positive or message.positive, divides=known.divides or message.divides,
                steps=max(known.steps, message.steps))
    return {e: m for e, m in found.items() if m is not None}


def _sent(e: Expr, own: Message | None) -> list[Message | None]:
    """Return the messages of a node to its operands."""
    none: list[Message | None] = [None] * len(operands(e))
    if not isinstance(e, Call) or not isinstance(e.op, Op):
        return none
    if isinstance(e.op, (Conv2d, Conv3d)):
        axes = _conv_axes(e, e.op.data_layout)
        return [Message(axes), *none[1:]] if axes and (e.op.groups == 1 or _is_depthwise(e)) else none
    if isinstance(e.op, Dense):
        return [Message((1,)), *none[1:]] if e.args[0].tensor_type.ndim == 2 and (
            e.args[0].tensor_type.dtype == e.args[1].tensor_type.dtype) else none
    if own is None:
        return none
    if isinstance(e.op, (Relu, LeakyRelu)):
        return [own.passed(positive=True)]
    if isinstance(e.op, (Add, Subtract)):
        lhs, rhs = e.args
        if squeezed(lhs, rhs, own.axes) is not None:
            return [own.passed(divides=True), None]
        if squeezed(rhs, lhs, own.axes) is not None:
            return [None, own.passed(divides=True)]
    return none


def _forward(e: Expr, new: Mapping[Expr, Expr | Scaled], asked: Message | None) -> Expr | Scaled:
    old = operands(e)
    now = [new.get(o, o) for o in old]
    scaled = [v for v in now if isinstance(v, Scaled)]
    if isinstance(e, Call) and isinstance(e.op, Op):
        if isinstance(e.op, Multiply) and asked is not None and not scaled:
            for x, s in ((0, 1), (1, 0)):
                scale = squeezed(e.args[x], _plain(now[s]), asked.axes)
                if scale is not None and asked.permits(scale):
                    return Scaled(_plain(now[x]), scale, asked.axes)
        if len(scaled) == 1 and (found := _through(e, now, scaled[0])) is not None:
            return found
    plain = [_plain(v) for v in now]
    return e if all(a is b for a, b in zip(old, plain, strict=True)) else with_operands(e, plain)


def _through(e: Call, now: Sequence[Expr | Scaled], s: Scaled) -> Expr | Scaled | None:
    """Return a call with one scaled argument: its scale moves to the result, or into the weights."""
    if isinstance(e.op, (Relu, LeakyRelu)):
        return Scaled(Call(e.op, [s.value], span=e.span), s.scale, s.axes)
    if isinstance(e.op, (Add, Subtract)):
        args: list[Any] = [v.value if isinstance(v, Scaled) else Call(
            Divide(), [v, aligned(s.scale, s.value.tensor_type, s.axes)]) for v in now]
        return Scaled(Call(e.op, args, span=e.span), s.scale, s.axes)
    if now[0] is s and isinstance(e.op, (Conv2d, Conv3d, Dense)):
        letter = "O" if isinstance(e.op, (Conv2d, Conv3d)) and e.op.groups > 1 else "I"
        return _weighted(e, s.value, _plain(now[1]), s.scale, letter)
    return None


def fold_backward(function: Function) -> Expr:
    """Fold scales into the weights before them."""
    return _Backward(function).folded()


class _Backward:
    """A walk with the messages of values that have one user, and the new nodes."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.order = post_order(function.body, inside=False)
        self.uses: dict[Expr, int] = {function.body: 1}
        for e in self.order:
            for o in operands(e):
                self.uses[o] = self.uses.get(o, 0) + 1
        self.messages: dict[Expr, Message] = {}
        self.new: dict[Expr, Expr] = {}

    def folded(self) -> Expr:
        for e in self.order:
            message = self._message(e) if isinstance(e, Call) and isinstance(e.op, Op) and self.uses.get(
                e, 0) == 1 else None
            if message is not None:
                self.messages[e] = message
            self.new[e] = self._rewritten(e)
        return _body(self.function, self.new[self.function.body])

    def _message(self, e: Call) -> Message | None:
        if isinstance(e.op, (Conv2d, Conv3d)):
            axes = _conv_axes(e, e.op.out_layout or e.op.data_layout)
            return Message(axes) if axes else None
        if isinstance(e.op, Dense):
            same = e.args[0].tensor_type.dtype == e.args[1].tensor_type.dtype
            return Message((e.tensor_type.ndim - 1,)) if same and e.tensor_type.ndim == 2 else None
        if not isinstance(e.op, (Relu, LeakyRelu, BiasAdd, Add, Subtract)):
            return None
        first = self.messages.get(e.args[0])
        if isinstance(e.op, (Relu, LeakyRelu)):
            return first and first.passed(positive=True)
        if isinstance(e.op, BiasAdd):
            axis = e.op.axis % e.tensor_type.ndim
            return first.passed() if first is not None and first.axes == (axis,) else None
        lhs, rhs = e.args
        second = self.messages.get(rhs)
        if first is not None and second is not None:
            if first.axes != second.axes or lhs.tensor_type.shape != rhs.tensor_type.shape:
                return None
            return Message(first.axes, first.positive or second.positive, steps=max(first.steps, second.steps)).passed()
        if first is not None and squeezed(lhs, rhs, first.axes) is not None:
            return first.passed()
        return second.passed() if second is not None and squeezed(rhs, lhs, second.axes) is not None else None

    def _rewritten(self, e: Expr) -> Expr:
        if isinstance(e, Call) and isinstance(e.op, Multiply):
            for x, s in (e.args, e.args[::-1]):
                message = self.messages.get(x)
                scale = None if message is None else squeezed(x, self.new[s], message.axes)
                if message is not None and scale is not None and message.permits(scale):
                    return self._scaled(x, message.axes, scale)
        old = operands(e)
        now = [self.new.get(o, o) for o in old]
        return e if all(a is b for a, b in zip(old, now, strict=True)) else with_operands(e, now)

    def _scaled(self, e: Expr, axes: tuple[int, ...], scale: Expr) -> Expr:
        """Return `e` times `scale`, with the scale in the weights."""
        if not isinstance(e, Call):
            return Call(Multiply(), [self.new[e], aligned(scale, e.tensor_type, axes)])
        if isinstance(e.op, (Conv2d, Conv3d, Dense)):
            return _weighted(e, self.new[e.args[0]], self.new[e.args[1]], scale, "O")
        if isinstance(e.op, BiasAdd):
            return Call(e.op, [self._scaled(e.args[0], axes, scale), Call(Multiply(), [self.new[e.args[1]], scale])],
                        span=e.span)
        args = []
        for a in e.args:
            if a in self.messages:
                args.append(self._scaled(a, axes, scale))
            else:
                args.append(Call(Multiply(), [self.new[a], aligned(scale, e.tensor_type, axes)]))
        return Call(e.op, args, span=e.span)
