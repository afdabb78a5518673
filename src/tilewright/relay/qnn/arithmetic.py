"""Elementwise arithmetic and concatenation of quantized tensors, each operand with its own scale and zero point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.op import broadcast
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.relay.op.transform import Concatenate
from tilewright.relay.qnn import numerics as N
from tilewright.relay.qnn.scaling import Requantize
from tilewright.topi.shapes import broadcast_shapes, require_same_dtype

_PARAMETERS = ("lhs_scale", "lhs_zero_point", "rhs_scale", "rhs_zero_point", "output_scale", "output_zero_point")


class Arithmetic(Op):
    """Base of the operators of two quantized tensors, each with its scale and zero point."""

    lhs_axis: int
    """Dimension of `lhs` that its scale and zero point are indexed by, unless they are scalars."""
    rhs_axis: int
    """Dimension of `rhs` that its scale and zero point are indexed by, unless they are scalars."""

    def infer(
        self, lhs: Type, rhs: Type, lhs_scale: Type, lhs_zero_point: Type, rhs_scale: Type, rhs_zero_point: Type,
        output_scale: Type,
        output_zero_point: Type,
    ) -> TensorType:
        """The broadcast shape of two quantized tensors of one dtype; that dtype."""
        a, b, *parameters = tensors(lhs, rhs, lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point, output_scale,
                                    output_zero_point)
        require_same_dtype((N.require_quantized(a, "lhs"), N.require_quantized(b, "rhs")))
        out = TensorType(broadcast_shapes(a.shape, b.shape), a.dtype)
        owners = ((a, self.lhs_axis), (a, self.lhs_axis), (b, self.rhs_axis), (b, self.rhs_axis), (out, -1), (out, -1))
        for p, what, (owner, axis) in zip(parameters, _PARAMETERS, owners, strict=True):
            N.require_parameter(p, what, owner, axis)
        return out


class Sum(Arithmetic):
    """Base of sum and difference: both operands are requantized to the result's scale as int32, then combined."""

    of_arrays: ClassVar[Callable[..., Any]]
    plain: ClassVar[type[Op]]
    sign: ClassVar[int]

    def reference(self, lhs: Array, rhs: Array, s1: Array, z1: Array, s2: Array, z2: Array, s: Array,
                  z: Array) -> Array:
        a = Requantize(axis=self.lhs_axis, out_dtype="int32").reference(lhs, s1, z1, s, z)
        b = Requantize(axis=self.rhs_axis, out_dtype="int32").reference(rhs, s2, z2, s, z)
        whole = self.of_arrays(a.astype(np.int64), b) - self.sign * N.along(np.asarray(z), max(lhs.ndim, rhs.ndim), -1)
        return N.saturated(whole, lhs.dtype.name)

    def simplify(self, call: Call) -> Expr:
        lhs, rhs, s1, z1, s2, z2, s, z = call.args
        span, dtype = call.span, lhs.tensor_type.dtype
        a = Call(Requantize(axis=self.lhs_axis, out_dtype="int32"), [lhs, s1, z1, s, z], span=span)
        b = Call(Requantize(axis=self.rhs_axis, out_dtype="int32"), [rhs, s2, z2, s, z], span=span)
        whole: Expr = Call(self.plain(), [_lowered(a), _lowered(b)], span=span)
        if not N.is_zero(z):
            back = broadcast.Subtract() if self.sign > 0 else broadcast.Add()
            whole = Call(back, [whole, N.spread(z, call.tensor_type.ndim, -1, span)], span=span)
        return N.saturated_graph(whole, N.constant(0, "int32"), dtype, span)


@op("qnn.add", kind=Fusion.BROADCAST)
class QnnAdd(Sum):
    """lhs + rhs."""

    lhs_axis: int = -1
    rhs_axis: int = -1
    of_arrays = staticmethod(np.add)
    plain = broadcast.Add
    sign = 1


@op("qnn.subtract", kind=Fusion.BROADCAST)
class QnnSubtract(Sum):
    """lhs - rhs."""

    lhs_axis: int = -1
    rhs_axis: int = -1
    of_arrays = staticmethod(np.subtract)
    plain = broadcast.Subtract
    sign = -1


@op("qnn.mul", kind=Fusion.BROADCAST)
class QnnMul(Arithmetic):
    """lhs * rhs: the int32 product of both minus their zero points, requantized with the product of their scales."""

    lhs_axis: int = -1
    rhs_axis: int = -1

    def reference(self, lhs: Array, rhs: Array, s1: Array, z1: Array, s2: Array, z2: Array, s: Array,
                  z: Array) -> Array:
        a = lhs.astype(np.int32) - N.along(np.asarray(z1), lhs.ndim, self.lhs_axis)
        b = rhs.astype(np.int32) - N.along(np.asarray(z2), rhs.ndim, self.rhs_axis)
        scale = np.asarray(s1 * s2, np.float32)
        return Requantize(axis=self.lhs_axis, out_dtype=lhs.dtype.name).reference(a * b, scale, np.zeros((), np.int32),
            s, z)

    def simplify(self, call: Call) -> Expr:
        lhs, rhs, s1, z1, s2, z2, s, z = call.args
        span = call.span
        a = N.difference(N.casted(lhs, "int32", span), N.spread(z1, lhs.tensor_type.ndim, self.lhs_axis, span), span)
        b = N.difference(N.casted(rhs, "int32", span), N.spread(z2, rhs.tensor_type.ndim, self.rhs_axis, span), span)
        scale: Expr = Call(broadcast.Multiply(), [s1, s2], span=span)
        if isinstance(s1, Constant) and isinstance(s2, Constant):
            scale = Constant(np.asarray(s1.value * s2.value, np.float32))
        product = Call(broadcast.Multiply(), [a, b], span=span)
        return Call(Requantize(axis=self.lhs_axis, out_dtype=str(lhs.tensor_type.dtype)),
                    [product, scale, N.constant(0, "int32"), s, z], span=span)


@op("qnn.concatenate", kind=Fusion.INJECTIVE)
class QnnConcatenate(Op):
    """The tensors of a tuple, each requantized to the scale and zero point of the result, joined along `axis`."""

    axis: int = 0
    """Dimension along which the tensors are joined; negative counts from the end."""

    def infer(self, data: Type, input_scales: Type, input_zero_points: Type, output_scale: Type,
              output_zero_point: Type) -> TensorType:
        """The type of `concatenate`; scales and zero points are tuples of the same length."""
        groups = [g.fields for g in (data, input_scales, input_zero_points) if isinstance(g, TupleType)]
        if len(groups) != 3 or len(set(map(len, groups))) != 1:
            raise ShapeError("data, input_scales and input_zero_points must be tuples of one length")
        for t, s, z in zip(*groups, strict=True):
            (tensor,) = tensors(t)
            N.require_quantized(tensor, "data")
            for p, what in ((s, "input_scale"), (z, "input_zero_point")):
                N.require_parameter(p, what, tensor, self.axis)
        out = Concatenate(self.axis).infer(data)
        N.require_parameter(output_scale, "output_scale", out, self.axis)
        N.require_parameter(output_zero_point, "output_zero_point", out, self.axis)
        return out

    def reference(self, data: Sequence[Array], scales: Sequence[Array], zero_points: Sequence[Array], s: Array,
                  z: Array) -> Array:
        dtype = data[0].dtype.name
        parts = [Requantize(self.axis, out_dtype=dtype).reference(x, a, b, s, z)
                 for x, a, b in zip(data, scales, zero_points, strict=True)]
        return np.concatenate(parts, axis=self.axis)

    def simplify(self, call: Call) -> Expr:
        data, scales, zero_points, s, z = call.args
        dtype = str(call.tensor_type.dtype)
        parts = zip(*(_fields(t) for t in (data, scales, zero_points)), strict=True)
        made = [_lowered(Call(Requantize(self.axis, out_dtype=dtype), [x, a, b, s, z], span=call.span))
                for x, a, b in parts]
        return Call(Concatenate(self.axis), [Tuple(tuple(made))], span=call.span)


def _fields(e: Expr) -> list[Expr]:
    kind = e.checked_type
    assert isinstance(kind, TupleType)
    return list(e.fields) if isinstance(e, Tuple) else [TupleGetItem(e, k) for k in range(len(kind.fields))]


def _lowered(call: Call) -> Expr:
    """The lowered form of a requantization."""
    return call.op.simplify(call) or call
