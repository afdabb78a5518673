"""Operators of several inputs whose shapes broadcast as in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.errors import NoNativeKernel, ShapeError
from tilewright.base.types import BOOL, FLOAT32, DataType, TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.topi import elementwise as topi
from tilewright.topi.divisors import greatest_divisor
from tilewright.topi.orders import Order, block, fits, rank, single
from tilewright.topi.shapes import Perm, broadcast_shapes, require_broadcast, require_same_dtype
from tilewright.topi.transform import dims


def common_order(perms: Sequence[Perm | None]) -> Perm | None:
    """The order for tensors that meet elementwise: that of the first one that has any.

    A perm longer than a tensor's rank means that the tensor is first given leading dimensions of one.
    """
    return next((p for p in perms if p is not None), None)


class Broadcasting(Op):
    """Base of the elementwise operators of several inputs, which must be stored in one order."""

    def relayout(self, perms: Sequence[Perm | None]) -> tuple[Op, tuple[Perm | None, ...], Perm | None]:
        perm = common_order(perms)
        return self, (perm,) * len(perms), perm

    def reblock(self, orders: Sequence[Order | None],
                types: Sequence[TensorType]) -> tuple[Op, tuple[Order | None, ...], Order | None] | None:
        """The order with the largest blocks; a dimension that is repeated has blocks of one."""
        ndim = max(t.ndim for t in types)
        known = [o for o in orders if o is not None and rank(o) == ndim]
        order = max(known, key=lambda o: math.prod(block(o, d) for d in range(ndim)), default=None)
        if order is None:
            return None
        wide = [(*(1,) * (ndim - t.ndim), *t.shape) for t in types]
        wanted = tuple(single(order, shape) for shape in wide)
        if not all(map(fits, wanted, wide)) or not fits(order, broadcast_shapes(*wide)):
            return None
        return self, wanted, order


class Binary(Broadcasting):
    """Base of the operators of two tensors."""

    def infer(self, lhs: Type, rhs: Type) -> TensorType:
        """The broadcast shape of two tensors of one dtype; that dtype, or the one that the operator names."""
        a, b = tensors(lhs, rhs)
        if a.dtype is not b.dtype:
            require_same_dtype((a, b))
        return TensorType(a.shape if a.shape == b.shape else broadcast_shapes(a.shape, b.shape), self.result(a.dtype))

    def result(self, dtype: DataType) -> DataType:
        """Return the dtype of the result. Raises `ShapeError` for a dtype that the operator does not accept."""
        return dtype

    def numpy(self, lhs: Array, rhs: Array) -> Any:
        """The operator on arrays that broadcast."""
        raise NotImplementedError

    def element(self, x: E.PrimExpr, y: E.PrimExpr) -> E.PrimExpr:
        """The operator on two elements."""
        raise NoNativeKernel(f"{self.name} has no tensor expression")

    def reference(self, lhs: Array, rhs: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.numpy(lhs, rhs), self.result(DataType(lhs.dtype)).numpy())

    def compute(self, lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        return topi.broadcast(broadcast_shapes(dims(lhs), dims(rhs)), self.element, lhs, rhs, name=self.name)


class Function2(Binary):
    """Base of the operators given by two functions: one of arrays, one of scalar expressions."""

    of_arrays: ClassVar[Callable[..., Any]]
    of_elements: ClassVar[Callable[..., E.PrimExpr]]

    def numpy(self, lhs: Array, rhs: Array) -> Any:
        return self.of_arrays(lhs, rhs)

    def element(self, x: E.PrimExpr, y: E.PrimExpr) -> E.PrimExpr:
        return self.of_elements(x, y)


@op("add", kind=Fusion.BROADCAST)
class Add(Function2):
    """x + y. Integers wrap around; bool is the logical or."""

    precision = Precision.FOLLOW
    of_arrays = staticmethod(np.add)
    of_elements = staticmethod(E.add)


def difference(x: Array, y: Array) -> Any:
    """x - y; of truth values, whether they differ."""
    return np.logical_xor(x, y) if x.dtype == np.bool_ else np.subtract(x, y)


@op("subtract", kind=Fusion.BROADCAST)
class Subtract(Function2):
    """x - y. Integers wrap around; bool is the exclusive or."""

    precision = Precision.FOLLOW
    of_arrays = staticmethod(difference)
    of_elements = staticmethod(E.sub)


@op("multiply", kind=Fusion.BROADCAST)
class Multiply(Function2):
    """x * y. Integers wrap around; bool is the logical and."""

    precision = Precision.FOLLOW
    of_arrays = staticmethod(np.multiply)
    of_elements = staticmethod(E.mul)


def _divide(x: Array, y: Array) -> Any:
    if DataType(x.dtype).is_float:
        return np.true_divide(x, y)
    quotient = np.floor_divide(x, y)
    return quotient + ((quotient * y != x) & ((x < 0) != (y < 0)) & (y != 0))


@op("divide", kind=Fusion.BROADCAST)
class Divide(Function2):
    """x / y. Integer quotients are rounded toward zero, as in C."""

    precision = Precision.FOLLOW
    of_arrays = staticmethod(_divide)
    of_elements = staticmethod(E.div)


@op("quotient", kind=Fusion.BROADCAST)
class Quotient(Divide):
    """x / y of float32, rounded once. No pass replaces the division by a product with the reciprocal."""

    precision = Precision.NEVER

    def infer(self, x: Type, y: Type) -> TensorType:
        """The broadcast shape of two float32 tensors; float32."""
        a, b = tensors(x, y)
        if a.dtype is not FLOAT32 or b.dtype is not FLOAT32:
            raise ShapeError(f"quotient: its inputs must be float32, and they are {a.dtype} and {b.dtype}; cast them "
                             "first")
        return TensorType(broadcast_shapes(a.shape, b.shape), FLOAT32)


@op("floor_divide", kind=Fusion.BROADCAST)
class FloorDivide(Function2):
    """floor(x / y)."""

    of_arrays = staticmethod(lambda x, y: np.floor(x / y) if DataType(x.dtype).is_float else np.floor_divide(x, y))
    of_elements = staticmethod(E.floordiv)


@op("mod", kind=Fusion.BROADCAST)
class Mod(Function2):
    """The remainder with the sign of x, as C's `%` and `fmod`."""

    of_arrays = staticmethod(np.fmod)
    of_elements = staticmethod(E.truncmod)


@op("floor_mod", kind=Fusion.BROADCAST)
class FloorMod(Function2):
    """The remainder with the sign of y, as Python's `%`."""

    of_arrays = staticmethod(np.mod)
    of_elements = staticmethod(E.floormod)


@op("trunc_divide", kind=Fusion.BROADCAST)
class TruncDivide(Function2):
    """x / y rounded toward zero, for floating-point types, too."""

    of_arrays = staticmethod(lambda x, y: np.trunc(x / y) if DataType(x.dtype).is_float else _divide(x, y))
    of_elements = staticmethod(lambda x, y: I.trunc(E.div(x, y)) if x.dtype.is_float else E.div(x, y))


@op("trunc_mod", kind=Fusion.BROADCAST)
class TruncMod(Function2):
    """The remainder of `trunc_divide`, with the sign of x; the same as `mod`."""

    of_arrays = staticmethod(np.fmod)
    of_elements = staticmethod(E.truncmod)


@op("power", kind=Fusion.BROADCAST)
class Power(Function2):
    """x to the power y. Integers wrap around; a negative integer exponent gives 1 / x^-y rounded toward zero."""

    precision = Precision.NEVER
    of_arrays = staticmethod(I.power)
    of_elements = staticmethod(topi.power)


@op("maximum", kind=Fusion.BROADCAST)
class Maximum(Function2):
    """The larger of x and y; NaN if either is NaN."""

    precision = Precision.FOLLOW
    of_arrays = staticmethod(np.maximum)
    of_elements = staticmethod(topi.greater_of)


@op("minimum", kind=Fusion.BROADCAST)
class Minimum(Function2):
    """The smaller of x and y; NaN if either is NaN."""

    precision = Precision.FOLLOW
    of_arrays = staticmethod(np.minimum)
    of_elements = staticmethod(topi.lesser_of)


@op("gcd", kind=Fusion.OPAQUE)
class Gcd(Binary):
    """The greatest common divisor of two integers, not negative; gcd(x, 0) is |x|."""

    def result(self, dtype: DataType) -> DataType:
        if not dtype.is_integer:
            raise ShapeError(f"integer tensors were expected, and these are {dtype}")
        return dtype

    def numpy(self, lhs: Array, rhs: Array) -> Any:
        return np.gcd(lhs, rhs)

    def compute(self, lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        return greatest_divisor(lhs, rhs, broadcast_shapes(dims(lhs), dims(rhs)))


class Comparison(Binary):
    """Base of the comparisons: the result is boolean."""

    precision = Precision.NEVER
    of_arrays: ClassVar[Callable[..., Any]]
    node: ClassVar[type[E.Comparison]]

    def result(self, dtype: DataType) -> DataType:
        return BOOL

    def numpy(self, lhs: Array, rhs: Array) -> Any:
        return self.of_arrays(lhs, rhs)

    def element(self, x: E.PrimExpr, y: E.PrimExpr) -> E.PrimExpr:
        return E.compare(self.node, x, y)


@op("equal", kind=Fusion.BROADCAST)
class Equal(Comparison):
    """x == y."""

    objects = True
    of_arrays = staticmethod(np.equal)
    node = E.EQ


@op("not_equal", kind=Fusion.BROADCAST)
class NotEqual(Comparison):
    """x != y."""

    objects = True
    of_arrays = staticmethod(np.not_equal)
    node = E.NE


@op("less", kind=Fusion.BROADCAST)
class Less(Comparison):
    """x < y."""

    of_arrays = staticmethod(np.less)
    node = E.LT


@op("less_equal", kind=Fusion.BROADCAST)
class LessEqual(Comparison):
    """x <= y."""

    of_arrays = staticmethod(np.less_equal)
    node = E.LE


@op("greater", kind=Fusion.BROADCAST)
class Greater(Comparison):
    """x > y."""

    of_arrays = staticmethod(np.greater)
    node = E.GT


@op("greater_equal", kind=Fusion.BROADCAST)
class GreaterEqual(Comparison):
    """x >= y."""

    of_arrays = staticmethod(np.greater_equal)
    node = E.GE


class Logical(Function2):
    """Base of the operators of booleans."""

    def result(self, dtype: DataType) -> DataType:
        if dtype != BOOL:
            raise ShapeError(f"boolean tensors were expected, and these are {dtype}; compare them with zero first")
        return dtype


@op("logical_and", kind=Fusion.BROADCAST)
class LogicalAnd(Logical):
    """True where both inputs are true."""

    of_arrays = staticmethod(np.logical_and)
    of_elements = staticmethod(E.logical_and)


@op("logical_or", kind=Fusion.BROADCAST)
class LogicalOr(Logical):
    """True where at least one input is true."""

    of_arrays = staticmethod(np.logical_or)
    of_elements = staticmethod(E.logical_or)


@op("logical_xor", kind=Fusion.BROADCAST)
class LogicalXor(Logical):
    """True where exactly one input is true."""

    of_arrays = staticmethod(np.logical_xor)
    of_elements = staticmethod(topi.exclusive_or)


class Bitwise(Function2):
    """Base of the bit operators of integers; some accept bool, too."""

    booleans: ClassVar[bool] = True

    def result(self, dtype: DataType) -> DataType:
        if not dtype.is_integer and not (self.booleans and dtype == BOOL):
            raise ShapeError(f"integer tensors were expected, and these are {dtype}")
        return dtype


@op("bitwise_and", kind=Fusion.BROADCAST)
class BitwiseAnd(Bitwise):
    """The bits that are set in both inputs."""

    of_arrays = staticmethod(np.bitwise_and)
    of_elements = staticmethod(topi.bits_and)


@op("bitwise_or", kind=Fusion.BROADCAST)
class BitwiseOr(Bitwise):
    """The bits that are set in at least one input."""

    of_arrays = staticmethod(np.bitwise_or)
    of_elements = staticmethod(topi.bits_or)


@op("bitwise_xor", kind=Fusion.BROADCAST)
class BitwiseXor(Bitwise):
    """The bits that are set in exactly one input."""

    of_arrays = staticmethod(np.bitwise_xor)
    of_elements = staticmethod(topi.bits_xor)


@op("left_shift", kind=Fusion.BROADCAST)
class LeftShift(Bitwise):
    """x shifted left by y bits, 0 <= y < width of the type."""

    booleans = False
    of_arrays = staticmethod(np.left_shift)
    of_elements = staticmethod(I.shift_left)


@op("right_shift", kind=Fusion.BROADCAST)
class RightShift(Bitwise):
    """x shifted right by y bits, 0 <= y < width of the type; signed types keep their sign."""

    booleans = False
    of_arrays = staticmethod(np.right_shift)
    of_elements = staticmethod(I.shift_right)


@op("where", kind=Fusion.BROADCAST)
class Where(Broadcasting):
    """`x` where the condition is true, `y` elsewhere."""

    objects = True
    precision = Precision.FOLLOW
    def infer(self, condition: Type, x: Type, y: Type) -> TensorType:
        """The broadcast shape of all three; the common dtype of `x` and `y`."""
        c, a, b = tensors(condition, x, y)
        require_same_dtype((a, b))
        return TensorType(broadcast_shapes(c.shape, a.shape, b.shape), a.dtype)

    def reference(self, condition: Array, x: Array, y: Array) -> Array:
        return np.asarray(np.where(condition.astype(bool), x, y))

    def compute(self, condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
        return topi.broadcast(broadcast_shapes(*map(dims, (condition, x, y))), topi.selected, condition, x, y,
                              name="where")


@op("multiply_add", kind=Fusion.BROADCAST)
class MultiplyAdd(Broadcasting):
    """x * y + z of float32, rounded once (fused multiply-add). No pass splits it; with z = -0 it is a product that no
    pass moves.

    Quantized networks use it to reproduce the rounding of another runtime exactly.
    """

    def infer(self, x: Type, y: Type, z: Type) -> TensorType:
        """The broadcast shape of three float32 tensors; float32."""
        given = tensors(x, y, z)
        for t in given:
            if t.dtype is not FLOAT32:
                raise ShapeError(f"multiply_add: its inputs must be float32, and one is {t.dtype}; cast it first")
        return TensorType(broadcast_shapes(*(t.shape for t in given)), FLOAT32)

    def reference(self, x: Array, y: Array, z: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(x.astype(np.float64) * y + z, np.float32)

    def compute(self, x: te.Tensor, y: te.Tensor, z: te.Tensor) -> te.Tensor:
        return topi.broadcast(broadcast_shapes(*map(dims, (x, y, z))), I.multiply_add, x, y, z, name="multiply_add")


def _expanded(data: TensorType, shape: Sequence[Any]) -> TensorType:
    return TensorType(require_broadcast(data.shape, tuple(shape)), data.dtype)


@op("broadcast_to", kind=Fusion.BROADCAST)
class BroadcastTo(Op):
    """The data repeated along new dimensions and dimensions of size one, to have `shape`."""

    objects = True
    precision = Precision.FOLLOW
    shape: tuple[int, ...]
    """Shape of the result."""

    def infer(self, data: Type) -> TensorType:
        """`shape`, to which the data must broadcast; the dtype of the data."""
        return _expanded(tensors(data)[0], self.shape)

    def reference(self, data: Array) -> Array:
        return np.broadcast_to(data, self.shape).copy()

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.broadcast(self.shape, lambda x: x, data, name="broadcast_to")

    def resized(self, shape: tuple[Any, ...]) -> Op:
        return BroadcastTo(shape)

    def simplify(self, call: Call) -> Expr | None:
        return call.args[0] if call.args[0].tensor_type.shape == self.shape else None


@op("broadcast_to_like", kind=Fusion.BROADCAST)
class BroadcastToLike(Op):
    """The data repeated to have the shape of the second tensor, whose elements are not read."""

    precision = Precision.FOLLOW
    def infer(self, data: Type, broadcast_type: Type) -> TensorType:
        """The shape of the second tensor; the dtype of the data."""
        t, like = tensors(data, broadcast_type)
        return _expanded(t, like.shape)

    def reference(self, data: Array, broadcast_type: Array) -> Array:
        return np.broadcast_to(data, broadcast_type.shape).copy()

    def compute(self, data: te.Tensor, broadcast_type: te.Tensor) -> te.Tensor:
        return topi.broadcast(broadcast_type.shape, lambda x: x, data, name="broadcast_to_like")

    def simplify(self, call: Call) -> Expr | None:
        shape = call.tensor_type
        return BroadcastTo(shape.shape)(call.args[0], span=call.span) if shape.is_static else None
