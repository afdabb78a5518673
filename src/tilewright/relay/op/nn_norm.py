"""Softmax and normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Tuple
from tilewright.relay.op.broadcast import Add, Divide, Multiply
from tilewright.relay.op.elementwise import Negative, Sqrt
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, op, per_channel_types, tensors
from tilewright.relay.op.shaping import ExpandDims, sized
from tilewright.topi import norm as topi
from tilewright.topi.orders import Order, block
from tilewright.topi.shapes import Perm, axes_of, axis_of, differ, is_multiple, require_same_dtype, text


def _floating(t: TensorType) -> TensorType:
    if not t.dtype.is_float:
        raise ShapeError(f"a floating-point tensor was expected, and this one is {t.dtype}; cast it first")
    return t


def _wide(x: Array) -> Array:
    """Widen half floats to float32, the smallest type for sums."""
    return x.astype(np.float32) if x.dtype.itemsize < 4 else x


def _aligned(x: Array, axis: int, ndim: int) -> Array:
    return _wide(x).reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])


def _per_channel(data: TensorType, axis: int, **params: Type) -> None:
    """Require each parameter to be a vector with one element for each index of `axis`."""
    channels = data.shape[axis_of(axis, data.ndim)]
    for name, t in params.items():
        (p,) = tensors(t)
        require_same_dtype((data, p))
        if p.ndim != 1 or differ(p.shape[0], channels):
            raise ShapeError(f"{name} must have the shape ({channels},), one value for each element of axis {axis}, "
                             f"and it has {text(p.shape)}")


class AlongAxis(Op):
    """Base of the operators along one axis, independent of the other dimensions."""

    axis: int
    """Dimension along which elements are combined; negative counts from the end."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be floating-point."""
        t = _floating(tensors(data)[0])
        axis_of(self.axis, t.ndim)
        return t

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        order, axis = orders[0], self.axis % types[0].ndim
        if order is None or block(order, axis) > 1:
            return None
        return type(self)(**{**self.attributes(), "axis": order.index(axis)}), (order,), order


@op("nn.softmax", kind=Fusion.OUT_FUSABLE)
class Softmax(AlongAxis):
    """exp(x - max(x)) / sum(exp(x - max(x))) along `axis`."""

    precision = Precision.FOLLOW
    axis: int = -1

    def reference(self, data: Array) -> Array:
        if not data.size:
            return data
        x = _wide(data)
        powers = np.exp(x - x.max(axis=self.axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis=self.axis, keepdims=True), data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.softmax(data, self.axis)


@op("nn.log_softmax", kind=Fusion.OUT_FUSABLE)
class LogSoftmax(AlongAxis):
    """x - max(x) - log(sum(exp(x - max(x)))) along `axis`."""

    precision = Precision.FOLLOW
    axis: int = -1

    def reference(self, data: Array) -> Array:
        if not data.size:
            return data
        x = _wide(data)
        shifted = x - x.max(axis=self.axis, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=self.axis, keepdims=True)), data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.log_softmax(data, self.axis)


@op("nn.batch_norm", kind=Fusion.OPAQUE)
class BatchNorm(Op):
    """gamma * (data - moving_mean) / sqrt(moving_var + epsilon) + beta along `axis`; inference only (Ioffe and Szegedy,
    2015).

    The result is a tuple: the normalized data and the unchanged moving statistics.
    """

    precision = Precision.NEVER
    axis: int = 1
    """Dimension of the channels; negative counts from the end."""
    epsilon: float = 1e-5
    """Term added to the variance."""
    center: bool = True
    """True adds `beta`, False ignores it."""
    scale: bool = True
    """True multiplies by `gamma`, False ignores it."""

    @property
    def results(self) -> int:
        return 3

    def infer(self, data: Type, gamma: Type, beta: Type, moving_mean: Type, moving_var: Type) -> TupleType:
        """A tuple of three tensors: the types of the data (floating-point), of `moving_mean` and of `moving_var`."""
        t = _floating(tensors(data)[0])
        _per_channel(t, self.axis, gamma=gamma, beta=beta, moving_mean=moving_mean, moving_var=moving_var)
        return TupleType((t, moving_mean, moving_var))

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """The parameters and statistics from the channels of the data."""
        return per_channel_types(types, self.axis)

    def reference(self, data: Array, gamma: Array, beta: Array, moving_mean: Array,
                  moving_var: Array) -> tuple[Array, ...]:
        scale, shift = self._scale_and_shift(gamma, beta, moving_mean, moving_var)
        x = _wide(data)
        result = x * _aligned(scale, self.axis, data.ndim) + _aligned(shift, self.axis, data.ndim)
        return np.asarray(result, data.dtype), moving_mean, moving_var

    def _scale_and_shift(self, gamma: Array, beta: Array, mean: Array, var: Array) -> tuple[Array, Array]:
        inverse = 1 / np.sqrt(_wide(var) + np.asarray(self.epsilon, _wide(var).dtype))
        scale = _wide(gamma) * inverse if self.scale else inverse
        return scale, (_wide(beta) if self.center else 0) - _wide(mean) * scale

    def simplify(self, call: Call) -> Expr | None:
        """batch_norm(x, …) -> (x * scale + shift, moving_mean, moving_var)"""
        data, *params = call.args
        t = data.tensor_type
        scale, shift = (self._constants(params) if all(isinstance(p, Constant) for p in params)
                        else self._expressions(params))
        trailing = t.ndim - 1 - axis_of(self.axis, t.ndim)
        if trailing:
            channels = t.shape[self.axis]
            scale, shift = (self._columns(v, channels, trailing) for v in (scale, shift))
        scaled = Multiply()(data, scale, span=call.span)
        return Tuple((Add()(scaled, shift, span=call.span), params[2], params[3]), call.span)

    def _constants(self, params: list[Expr]) -> tuple[Expr, Expr]:
        gamma, beta, mean, var = (p.value for p in params if isinstance(p, Constant))
        return tuple(Constant(np.asarray(v, gamma.dtype))
                     for v in self._scale_and_shift(gamma, beta, mean, var))  # type: ignore[return-value]

    def _expressions(self, params: list[Expr]) -> tuple[Expr, Expr]:
        """Return the scale and the shift, as TVM spells them."""
        gamma, beta, mean, var = params
        one, epsilon = (Constant(np.asarray(v, var.tensor_type.dtype.numpy())) for v in (1, self.epsilon))
        inverse = Divide()(one, Sqrt()(Add()(var, epsilon)))
        scale = Multiply()(inverse, gamma) if self.scale else inverse
        moved = Multiply()(Negative()(mean), scale)
        return scale, Add()(moved, beta) if self.center else moved

    def _columns(self, vector: Expr, channels: Any, trailing: int) -> Expr:
        if isinstance(vector, Constant):
            return Constant(vector.value.reshape((channels,) + (1,) * trailing))
        return ExpandDims(1, trailing)(vector)


@op("nn.dropout", kind=Fusion.OPAQUE)
class Dropout(Op):
    """The data unchanged, and a mask of ones: inference drops nothing."""

    precision = Precision.NEVER
    rate: float = 0.5
    """Share of elements that training drops; not used for inference."""

    @property
    def results(self) -> int:
        return 2

    def infer(self, data: Type) -> TupleType:
        """A tuple of two tensors of the type of the data."""
        (t,) = tensors(data)
        return TupleType((t, t))

    def reference(self, data: Array) -> tuple[Array, ...]:
        return data, np.ones_like(data)

    def simplify(self, call: Call) -> Expr | None:
        """dropout(x) -> (x, ones)."""
        from tilewright.relay.op.create import OnesLike

        return Tuple((call.args[0], OnesLike()(call.args[0])), call.span)


def _normalized(data: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    x = _wide(data)
    mean = x.mean(axis=axes, keepdims=True)
    variance = np.square(x - mean).mean(axis=axes, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + np.asarray(epsilon, x.dtype)))


class Normalization(Op):
    """Base of the normalizations with a gamma and a beta for each index of `axis`."""

    precision = Precision.FOLLOW
    axis: int
    """Dimension of `gamma` and `beta`; negative counts from the end."""
    epsilon: float
    """Term added to the variance."""
    center: bool
    """True adds `beta`, False ignores it."""
    scale: bool
    """True multiplies by `gamma`, False ignores it."""

    def infer(self, data: Type, gamma: Type, beta: Type) -> TensorType:
        """The type of the data (floating-point); `gamma` and `beta` are vectors over `axis`."""
        t = _floating(tensors(data)[0])
        _per_channel(t, self.axis, gamma=gamma, beta=beta)
        return t

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """`gamma` and `beta` from the data."""
        return per_channel_types(types, self.axis)

    def _scaled(self, x: Array, gamma: Array, beta: Array, dtype: Any) -> Array:
        x = x * _aligned(gamma, self.axis, x.ndim) if self.scale else x
        x = x + _aligned(beta, self.axis, x.ndim) if self.center else x
        return np.asarray(x, dtype)

    def _finish(self, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        name = self.name.removeprefix("nn.")
        return topi.scaled(x, self.axis % x.ndim, gamma if self.scale else None, beta if self.center else None, name)


@op("nn.layer_norm", kind=Fusion.OUT_FUSABLE)
class LayerNorm(Normalization):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta, with the statistics along `axis` (Ba et al., 2016)."""

    axis: int = -1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True

    def reference(self, data: Array, gamma: Array, beta: Array) -> Array:
        return self._scaled(_normalized(data, axes_of(self.axis, data.ndim), self.epsilon), gamma, beta, data.dtype)

    def compute(self, data: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        return self._finish(topi.normalize(data, [self.axis], self.epsilon), gamma, beta)


@op("nn.instance_norm", kind=Fusion.OUT_FUSABLE)
class InstanceNorm(Normalization):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta, with the statistics of each image and channel (Ulyanov et
    al., 2016).
    """

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid | None:
        """The statistics do not depend on the order of an image's elements; the batch must stay first."""
        perm = perms[0]
        if perm is None:
            return self, (None,) * 3, None
        if perm[0] != 0:
            return None
        return InstanceNorm(perm.index(self.axis % len(perm)), self.epsilon, self.center,
                            self.scale), (perm, None, None), perm

    def _over(self, ndim: int) -> tuple[int, ...]:
        return tuple(d for d in range(1, ndim) if d != self.axis % ndim)

    def reference(self, data: Array, gamma: Array, beta: Array) -> Array:
        return self._scaled(_normalized(data, self._over(data.ndim), self.epsilon), gamma, beta, data.dtype)

    def compute(self, data: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        return self._finish(topi.normalize(data, self._over(data.ndim), self.epsilon), gamma, beta)


@op("nn.group_norm", kind=Fusion.OUT_FUSABLE)
class GroupNorm(Normalization):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta, with the statistics of each image and group of channels.

    Source: Wu and He, Group Normalization, 2018.
    """

    num_groups: int
    """Number of groups; it divides the channels."""
    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True

    def infer(self, data: Type, gamma: Type, beta: Type) -> TensorType:
        """The type of the data (floating-point); `num_groups` divides the channels."""
        t = Normalization.infer(self, data, gamma, beta)
        channels = t.shape[axis_of(self.axis, t.ndim)]
        if not is_multiple(channels, self.num_groups):
            raise ShapeError(f"the {channels} channels cannot be divided into {self.num_groups} groups")
        return t

    def _grouped(self, shape: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """The shape with a separate dimension for the groups, and the axes of the statistics."""
        axis = self.axis % len(shape)
        grouped = (*shape[:axis], self.num_groups, shape[axis] // self.num_groups, *shape[axis + 1 :])
        return grouped, tuple(d for d in range(1, len(grouped)) if d != axis)

    def reference(self, data: Array, gamma: Array, beta: Array) -> Array:
        shape, axes = self._grouped(data.shape)
        normal = _normalized(data.reshape(shape), axes, self.epsilon).reshape(data.shape)
        return self._scaled(normal, gamma, beta, data.dtype)

    def simplify(self, call: Call) -> Expr | None:
        """group_norm(x, gamma, beta) -> instance_norm over the groups as a dimension, times gamma, plus beta."""
        data, gamma, beta = call.args
        t = data.tensor_type
        axis = self.axis % t.ndim
        ones = Constant(np.ones(self.num_groups, t.dtype.numpy()))
        normal = InstanceNorm(axis, self.epsilon, False, False)(sized(self._grouped(t.shape)[0])(data), ones, ones,
            span=call.span)
        result: Expr = sized(t.shape)(normal)
        channels = (t.shape[axis], *(1,) * (t.ndim - 1 - axis))
        if self.scale:
            result = Multiply()(result, sized(channels)(gamma), span=call.span)
        return Add()(result, sized(channels)(beta), span=call.span) if self.center else result


@op("nn.l2_normalize", kind=Fusion.OUT_FUSABLE)
class L2Normalize(Op):
    """x / sqrt(max(sum(x * x), eps)) along `axis`."""

    precision = Precision.FOLLOW
    eps: float
    """Lower bound of the sum of squares."""
    axis: tuple[int, ...] | None = None
    """Dimensions of the sum; None means all."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be floating-point."""
        t = _floating(tensors(data)[0])
        axes_of(self.axis, t.ndim)
        return t

    def reference(self, data: Array) -> Array:
        x = _wide(data)
        total = np.square(x).sum(axis=axes_of(self.axis, x.ndim), keepdims=True)
        return np.asarray(x / np.sqrt(np.maximum(total, np.asarray(self.eps, x.dtype))), data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.l2_normalize(data, axes_of(self.axis, data.ndim), self.eps)


@op("nn.lrn", kind=Fusion.OPAQUE)
class LRN(AlongAxis):
    """x / (bias + alpha / size * sum of x * x over `size` neighbouring channels)^beta (Krizhevsky et al., 2012)."""

    precision = Precision.FOLLOW
    size: int = 5
    """Number of channels of a neighbourhood, 1 or more."""
    axis: int = 1
    bias: float = 2
    """Term added to the scaled sum."""
    alpha: float = 1e-5
    """Factor of the sum of squares."""
    beta: float = 0.75
    """Exponent of the denominator."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be floating-point."""
        t = _floating(tensors(data)[0])
        axis_of(self.axis, t.ndim)
        if self.size < 1:
            raise ShapeError(f"a neighbourhood of {self.size} is empty; size must be 1 or more")
        return t

    def _reach(self) -> tuple[int, int]:
        return (self.size - 1) // 2, self.size // 2

    def reference(self, data: Array) -> Array:
        x, axis = _wide(data), self.axis % data.ndim
        before, after = self._reach()
        squares = np.pad(np.square(x), [(before, after) if d == axis else (0, 0) for d in range(x.ndim)])
        total = sum(np.take(squares, np.arange(k, k + x.shape[axis]), axis=axis) for k in range(self.size))
        scale = np.asarray(self.bias, x.dtype) + np.asarray(self.alpha / self.size, x.dtype) * total
        return np.asarray(x / scale ** np.asarray(self.beta, x.dtype), data.dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.lrn(data, self.size, self.axis % data.ndim, self.bias, self.alpha, self.beta)
