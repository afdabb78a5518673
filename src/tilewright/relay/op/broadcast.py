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
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, declare, op, tensors
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.topi import elementwise as topi
from tilewright.topi.divisors import greatest_divisor
from tilewright.topi.orders import Order, block, fits, rank, single
from tilewright.topi.shapes import Perm, broadcast_shapes, require_broadcast, require_same_dtype
from tilewright.topi.transform import dims


def common_order(perms: Sequence[Perm | None]) -> Perm | None:
    """The storage order for operands of an elementwise operator: that of the first one that has any.

    A perm longer than a tensor's rank means that leading dimensions of one are added to the tensor first.
    """
    return next((p for p in perms if p is not None), None)


class Broadcasting(Op):
    """Base of the elementwise operators of several inputs, which must be stored in the same order."""

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        perm = common_order(perms)
        return self, (perm,) * len(perms), perm

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
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
        """The broadcast shape of two tensors of one dtype. The dtype is theirs, unless the operator has its own."""
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


Add = declare(Function2, "add", Fusion.BROADCAST, "x + y. Integers wrap around; bool is the logical or.",
    of_arrays=np.add, of_elements=E.add, precision=Precision.FOLLOW)


def difference(x: Array, y: Array) -> Any:
    """x - y; for booleans, whether they differ."""
    return np.logical_xor(x, y) if x.dtype == np.bool_ else np.subtract(x, y)


Subtract = declare(Function2, "subtract", Fusion.BROADCAST, "x - y. Integers wrap around; bool is the exclusive or.",
    of_arrays=difference, of_elements=E.sub, precision=Precision.FOLLOW)
Multiply = declare(Function2, "multiply", Fusion.BROADCAST, "x * y. Integers wrap around; bool is the logical and.",
    of_arrays=np.multiply, of_elements=E.mul, precision=Precision.FOLLOW)


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


FloorDivide = declare(
    Function2, "floor_divide", Fusion.BROADCAST,
    "floor(x / y).",
    of_arrays=lambda x, y: np.floor(x / y) if DataType(x.dtype).is_float else np.floor_divide(x, y),
    of_elements=E.floordiv)
Mod = declare(Function2, "mod", Fusion.BROADCAST, "The remainder with the sign of x, as C's `%` and `fmod`.",
    of_arrays=np.fmod, of_elements=E.truncmod)
FloorMod = declare(Function2, "floor_mod", Fusion.BROADCAST, "The remainder with the sign of y, as Python's `%`.",
    of_arrays=np.mod, of_elements=E.floormod)
TruncDivide = declare(
    Function2, "trunc_divide", Fusion.BROADCAST,
    "x / y rounded toward zero, for floating-point types, too.",
    of_arrays=lambda x, y: np.trunc(x / y) if DataType(x.dtype).is_float else _divide(x, y),
    of_elements=lambda x, y: I.trunc(E.div(x, y)) if x.dtype.is_float else E.div(x, y))
TruncMod = declare(
    Function2, "trunc_mod", Fusion.BROADCAST,
    "The remainder of `trunc_divide`, with the sign of x; the same as `mod`.",
    of_arrays=np.fmod, of_elements=E.truncmod)
Power = declare(
    Function2, "power", Fusion.BROADCAST,
    "x to the power y. Integers wrap around; a negative integer exponent gives 1 / x^-y rounded toward zero.",
    of_arrays=I.power, of_elements=topi.power, precision=Precision.NEVER)
Maximum = declare(Function2, "maximum", Fusion.BROADCAST, "The larger of x and y; NaN if either is NaN.",
    of_arrays=np.maximum, of_elements=topi.greater_of, precision=Precision.FOLLOW)
Minimum = declare(Function2, "minimum", Fusion.BROADCAST, "The smaller of x and y; NaN if either is NaN.",
    of_arrays=np.minimum, of_elements=topi.lesser_of, precision=Precision.FOLLOW)


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


Equal = declare(Comparison, "equal", Fusion.BROADCAST, "x == y.", of_arrays=np.equal, node=E.EQ, objects=True)
NotEqual = declare(Comparison, "not_equal", Fusion.BROADCAST, "x != y.",
    of_arrays=np.not_equal, node=E.NE, objects=True)
Less = declare(Comparison, "less", Fusion.BROADCAST, "x < y.", of_arrays=np.less, node=E.LT)
LessEqual = declare(Comparison, "less_equal", Fusion.BROADCAST, "x <= y.", of_arrays=np.less_equal, node=E.LE)
Greater = declare(Comparison, "greater", Fusion.BROADCAST, "x > y.", of_arrays=np.greater, node=E.GT)
GreaterEqual = declare(Comparison, "greater_equal", Fusion.BROADCAST, "x >= y.", of_arrays=np.greater_equal, node=E.GE)


class Logical(Function2):
    """Base of the operators of booleans."""

    def result(self, dtype: DataType) -> DataType:
        if dtype != BOOL:
            raise ShapeError(f"boolean tensors were expected, and these are {dtype}; compare them with zero first")
        return dtype


LogicalAnd = declare(Logical, "logical_and", Fusion.BROADCAST, "True where both inputs are true.",
    of_arrays=np.logical_and, of_elements=E.logical_and)
LogicalOr = declare(Logical, "logical_or", Fusion.BROADCAST, "True where at least one input is true.",
    of_arrays=np.logical_or, of_elements=E.logical_or)
LogicalXor = declare(Logical, "logical_xor", Fusion.BROADCAST, "True where exactly one input is true.",
    of_arrays=np.logical_xor, of_elements=topi.exclusive_or)


class Bitwise(Function2):
    """Base of the bit operators of integers; some accept bool, too."""

    booleans: ClassVar[bool] = True

    def result(self, dtype: DataType) -> DataType:
        if not dtype.is_integer and not (self.booleans and dtype == BOOL):
            raise ShapeError(f"integer tensors were expected, and these are {dtype}")
        return dtype


BitwiseAnd = declare(Bitwise, "bitwise_and", Fusion.BROADCAST, "The bits that are set in both inputs.",
    of_arrays=np.bitwise_and, of_elements=topi.bits_and)
BitwiseOr = declare(Bitwise, "bitwise_or", Fusion.BROADCAST, "The bits that are set in at least one input.",
    of_arrays=np.bitwise_or, of_elements=topi.bits_or)
BitwiseXor = declare(Bitwise, "bitwise_xor", Fusion.BROADCAST, "The bits that are set in exactly one input.",
    of_arrays=np.bitwise_xor, of_elements=topi.bits_xor)
LeftShift = declare(Bitwise, "left_shift", Fusion.BROADCAST, "x shifted left by y bits, 0 <= y < width of the type.",
    booleans=False, of_arrays=np.left_shift, of_elements=I.shift_left)
RightShift = declare(
    Bitwise, "right_shift", Fusion.BROADCAST,
    "x shifted right by y bits, 0 <= y < width of the type; signed types keep their sign.",
    booleans=False, of_arrays=np.right_shift, of_elements=I.shift_right)


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
