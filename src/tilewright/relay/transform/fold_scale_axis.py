"""Fold per-channel scales into the weights of the preceding or following convolution or product.

    multiply(nn.conv2d(%x, w), s)         -> nn.conv2d(%x, w * s)
    multiply(add(nn.conv2d(%x, w), b), s) -> add(nn.conv2d(%x, w * s), b * s)
    nn.conv2d(multiply(%x, s), w)         -> nn.conv2d(%x, w * s)
    divide(nn.conv2d(%x, w), s)           -> nn.conv2d(%x, w * (1 / s))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.broadcast import Add
from tilewright.relay.op.nn_conv import Conv1d, Conv2d, Conv2dTranspose, Conv3d
from tilewright.relay.op.nn_matmul import Dense
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.scale_messages import fold_backward, fold_forward
from tilewright.relay.transform.simplify_expr import constant_factor
from tilewright.relay.visitor import operands, post_order, rewrite


@dataclass(frozen=True)
class FoldScaleAxis(FunctionPass):
    """Fold per-channel scales into the weights of convolutions and dense layers. Floating-point, constant scales,
    single-use values only.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        uses: dict[Expr, int] = {}
        for e in post_order(function):
            for o in operands(e):
                uses[o] = uses.get(o, 0) + 1
        rule = _Rule(uses)
        return rewrite(function, rule.apply, origin=rule.origin)


@dataclass(frozen=True)
class ForwardFoldScaleAxis(FunctionPass):
    """Fold per-channel scales of the input of a convolution or dense layer into its weights, across activations and
    additions.

    Weights and scales need not be constants. TVM's form: products and quotients stay calls, for `FoldConstant`.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 3

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return fold_forward(function)


@dataclass(frozen=True)
class BackwardFoldScaleAxis(FunctionPass):
    """Fold per-channel scales of the result of a convolution or dense layer into its weights, across activations and
    additions that have one reader. The form is that of `ForwardFoldScaleAxis`.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 3

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return fold_backward(function)


class _Rule:
    def __init__(self, uses: dict[Expr, int]) -> None:
        self.uses = uses
        self.origin: dict[Expr, Expr] = {}

    def apply(self, e: Expr) -> Expr | None:
        if not isinstance(e, Call):
            return None
        scaled = constant_factor(e)
        if scaled is not None and e.tensor_type.dtype.is_float:
            return self._backward(*scaled) if _same_shape(scaled[0], e) else None
        return self._forward(e)

    def _once(self, e: Expr) -> bool:
        return self.uses.get(self.origin.get(e, e), 1) == 1

    def _backward(self, x: Expr, scale: Constant) -> Expr | None:
        """Return `x` with its channels scaled by changing the weights that produce it, or None."""
        if not isinstance(x, Call) or not self._once(x):
            return None
        if isinstance(x.op, Add) and isinstance(x.args[1], Constant) and _same_shape(x.args[0], x):
            inner = self._backward(x.args[0], scale)
            if inner is None:
                return None
            shift = Constant(np.asarray(x.args[1].value * scale.value, scale.value.dtype), x.args[1].span)
            return Call(x.op, [inner, shift], span=x.span)
        axes = result_axes(x.op) if isinstance(x.op, Op) else None
        if axes is None or not isinstance(x.args[1], Constant):
            return None
        weight = x.args[1].value
        factors = per_channel(scale.value, axes.channel % x.tensor_type.ndim, x.tensor_type.ndim,
                              weight.shape[axes.weight])
        if factors is None or weight.dtype != scale.value.dtype:
            return None
        return Call(x.op, [x.args[0], _scaled(x.args[1], factors, axes.weight), *x.args[2:]], span=x.span)

    def _forward(self, e: Call) -> Expr | None:
        """Fold the scales of the input of a convolution or product into its weights; None if there are none."""
        axes = input_axes(e.op) if isinstance(e.op, Op) else None
        if axes is None or not isinstance(e.args[1], Constant):
            return None
        x, weight = e.args[0], e.args[1]
        while (scaled := constant_factor(x)) is not None:
            if not self._once(x) or not _same_shape(scaled[0], x) or not x.tensor_type.dtype.is_float:
                break
            rank = x.tensor_type.ndim
            factors = per_channel(scaled[1].value, axes.channel % rank, rank, x.tensor_type.shape[axes.channel])
            if factors is None or weight.value.shape[axes.weight] != len(factors):
                break
            x, weight = scaled[0], _scaled(weight, factors, axes.weight)
        return None if x is e.args[0] else Call(e.op, [x, weight, *e.args[2:]], span=e.span)


@dataclass(frozen=True, slots=True)
class Axes:
    """The channel axis of a tensor, and the axis of the weight that has one entry for each of these channels."""

    channel: int
    weight: int


def result_axes(op: Op) -> Axes | None:
    """Return the axes of an operator's output channels; None if its weight has no axis for them."""
    if isinstance(op, (Conv1d, Conv2d, Conv3d)):
        return _found(op.out_layout or op.data_layout, op.kernel_layout, "O")
    if isinstance(op, Conv2dTranspose) and op.groups == 1:
        return _found(op.out_layout or op.data_layout, op.kernel_layout, "O")
    return Axes(-1, 0) if isinstance(op, Dense) else None


def input_axes(op: Op) -> Axes | None:
    """Return the axes of an operator's input channels; None if its weight has no axis for them."""
    if isinstance(op, (Conv1d, Conv2d, Conv3d)) and op.groups == 1:
        return _found(op.data_layout, op.kernel_layout, "I")
    return Axes(-1, 1) if isinstance(op, Dense) else None


def _found(data: str, kernel: str, letter: str) -> Axes | None:
    """Find the axes by the letters of the layouts; None for blocked layouts, whose channels have two axes."""
    if not (data.isupper() and kernel.isupper()):
        return None
    return Axes(data.index("C"), kernel.index(letter))


def per_channel(scale: np.ndarray[Any, Any], channel: int, rank: int, count: int) -> np.ndarray[Any, Any] | None:
    """Return the factors of the `count` channels if `scale` varies only along axis `channel` of `rank`, else None."""
    shape = (1,) * (rank - scale.ndim) + scale.shape
    if scale.ndim > rank or any(d != 1 for k, d in enumerate(shape) if k != channel):
        return None
    return np.broadcast_to(scale.reshape(-1), (count,)) if shape[channel] in (1, count) else None


def _scaled(weight: Constant, factors: np.ndarray[Any, Any], axis: int) -> Constant:
    shape: Sequence[int] = [-1 if k == axis else 1 for k in range(weight.value.ndim)]
    return Constant(np.asarray(weight.value * factors.reshape(shape), weight.value.dtype), weight.span)


def _same_shape(a: Expr, b: Expr) -> bool:
    return a.known_type() == b.known_type()
