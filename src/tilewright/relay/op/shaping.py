"""Operators that keep the elements and their order, and change the shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, op, tensors
from tilewright.scalar.expr import PrimExpr
from tilewright.topi import transform as topi
from tilewright.topi.orders import Order, places, without
from tilewright.topi.shapes import (
    Shape,
    axes_of,
    differ,
    expanded,
    fill_left_over,
    product,
    require_elements,
    same,
    squeezed,
    text,
)


class View(Op):
    """Base of the operators that only change the shape."""

    objects = True
    precision = Precision.FOLLOW
    view: ClassVar[bool] = True

    def shape_of(self, shape: Shape) -> Shape:
        """Return the shape of the result. Raises `ShapeError` for a shape that does not fit."""
        raise NotImplementedError

    def infer(self, data: Type) -> TensorType:
        """The new shape, with as many elements; the dtype of the data."""
        (t,) = tensors(data)
        return TensorType(self.shape_of(t.shape), t.dtype)

    def reference(self, data: Array) -> Array:
        return data.reshape(self.shape_of(data.shape))

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.reshape(data, self.shape_of(topi.dims(data)), self.name)

    def simplify(self, call: Call) -> Expr | None:
        """A view without effect -> its input; views of views -> one reshape."""
        (data,) = call.args[:1]
        result = call.tensor_type
        if data.tensor_type.shape == result.shape:
            return data
        if isinstance(data, Call) and isinstance(data.op, Op) and data.op.view and result.is_static:
            return sized(result.shape)(data.args[0], span=call.span)
        return None


@op("reshape", kind=Fusion.INJECTIVE)
class Reshape(View):
    """The elements in row-major order under `newshape`.

    In `newshape`, 0 copies the dimension of the input (unless `allowzero`), and -1 is inferred from the number of
    elements. -2 copies all remaining dimensions, and -3 is the product of the next two. -4 splits the next one into the
    two numbers that follow (one may be -1).
    """

    newshape: tuple[Any, ...]
    """Sizes of the result, with the codes 0, -1, -2, -3 and -4 described above."""
    allowzero: bool = False
    """True makes 0 a size of zero; False copies the dimension of the input."""

    def __post_init__(self) -> None:
        if isinstance(self.newshape, int):
            object.__setattr__(self, "newshape", (self.newshape,))

    def resized(self, shape: Shape) -> Op:
        return Reshape(shape, allowzero=True)

    def shape_of(self, shape: Shape) -> Shape:
        result = fill_left_over(shape, self._spelled_out(shape), self.newshape)
        return require_elements(shape, result, self.newshape)

    def _spelled_out(self, shape: Shape) -> Shape:
        """Return the new shape with 0, -2, -3 and -4 resolved; -1 stays."""
        result: list[Any] = []
        wanted = list(self.newshape)
        at = 0  # number of input dimensions used so far

        def take(code: int) -> Any:
            nonlocal at
            if at >= len(shape):
                raise ShapeError(f"{code} in newshape {text(self.newshape)} needs dimension {at} of the input, which "
                                 f"has the shape {text(shape)}")
            at += 1
            return shape[at - 1]

        while wanted:
            n = wanted.pop(0)
            if isinstance(n, PrimExpr) or n > 0 or n == -1 or (n == 0 and self.allowzero):
                result.append(n)
                at += 1
            elif n == 0:
                result.append(take(0))
            elif n == -2:
                result += shape[at:]
                at = len(shape)
            elif n == -3:
                result.append(take(-3) * take(-3))
            elif n == -4 and len(wanted) >= 2:
                whole, first, second = take(-4), wanted.pop(0), wanted.pop(0)
                result += _split(whole, first, second)
            else:
                raise ShapeError(f"{n} in newshape {text(self.newshape)} is invalid; use sizes, 0, -1, -2, -3, or -4 "
                                 "before two sizes")
        return tuple(result)


def sized(shape: Shape) -> Reshape:
    """A reshape to these sizes, in which 0 is an actual size."""
    return Reshape(tuple(shape), allowzero=any(isinstance(d, int) and d == 0 for d in shape))


def _split(whole: Any, first: Any, second: Any) -> tuple[Any, Any]:
    if first == -1 and second != -1:
        first = whole // second
    elif second == -1 and first != -1:
        second = whole // first
    if -1 in (first, second) or differ(first * second, whole):
        raise ShapeError(f"-4 cannot split a dimension of {whole} into {first} and {second}")
    return first, second


@op("contrib_reverse_reshape", kind=Fusion.INJECTIVE)
class ReverseReshape(View):
    """`reshape` whose codes (0, -1, -2, -3) are read from the last dimension to the first."""

    newshape: tuple[int, ...]
    """Sizes of the result, with the codes 0, -1, -2 and -3 of `reshape`."""

    def shape_of(self, shape: Shape) -> Shape:
        if -4 in self.newshape:
            raise ShapeError("-4 (which splits a dimension) is not supported in a newshape that is read from the "
                             "right; use reshape")
        return tuple(Reshape(self.newshape[::-1]).shape_of(tuple(shape)[::-1]))[::-1]


@op("reshape_like", kind=Fusion.INJECTIVE)
class ReshapeLike(Op):
    """The elements in row-major order under the shape of the second tensor, whose elements are not read.

    The dimensions `lhs_begin` to `lhs_end` of the data are replaced by `rhs_begin` to `rhs_end` of the second tensor.
    """

    objects = True
    precision = Precision.FOLLOW
    view: ClassVar[bool] = True
    lhs_begin: int = 0
    """First dimension of the data that is replaced; negative counts from the end."""
    lhs_end: int | None = None
    """Exclusive end of the replaced dimensions; None is the rank of the data."""
    rhs_begin: int = 0
    """First dimension that is taken from the second tensor."""
    rhs_end: int | None = None
    """Exclusive end of the taken dimensions; None is the rank of the second tensor."""

    def _shape(self, shape: Shape, like: Shape) -> Shape:
        begin, end, _ = slice(self.lhs_begin, self.lhs_end).indices(len(shape))
        return (*shape[:begin], *like[self.rhs_begin : self.rhs_end], *shape[max(begin, end) :])

    def infer(self, data: Type, shape_like: Type) -> TensorType:
        """The shape of the second tensor, with as many elements; the dtype of the data."""
        t, like = tensors(data, shape_like)
        return TensorType(Reshape(self._shape(t.shape, like.shape), allowzero=True).shape_of(t.shape), t.dtype)

    def reference(self, data: Array, shape_like: Array) -> Array:
        return data.reshape(self._shape(data.shape, shape_like.shape))

    def compute(self, data: te.Tensor, shape_like: te.Tensor) -> te.Tensor:
        return topi.reshape(data, self._shape(topi.dims(data), topi.dims(shape_like)))

    def simplify(self, call: Call) -> Expr | None:
        result = call.tensor_type
        return Reshape(result.shape, allowzero=True)(call.args[0], span=call.span) if result.is_static else None


@op("squeeze", kind=Fusion.INJECTIVE)
class Squeeze(View):
    """The data without dimensions of size one."""

    axis: int | tuple[int, ...] | None = None
    """Dimension or dimensions to remove, of size one; None means all of size one."""

    def shape_of(self, shape: Shape) -> Shape:
        return squeezed(shape, self.axis)

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        """Remove all blocks of the removed dimensions, whose size is one."""
        order, (t,) = orders[0], types
        gone = (axes_of(self.axis, t.ndim) if self.axis is not None
                else tuple(d for d, n in enumerate(t.shape) if same(n, 1)))
        return None if order is None else (Squeeze(places(order, gone)), (order,), without(order, gone))


@op("expand_dims", kind=Fusion.INJECTIVE)
class ExpandDims(View):
    """The data with `num_newaxis` dimensions of size one inserted before dimension `axis`."""

    axis: int
    """Position of the first new dimension; negative counts from the end of the result."""
    num_newaxis: int = 1
    """Number of new dimensions of size one."""

    def shape_of(self, shape: Shape) -> Shape:
        return expanded(shape, self.axis, self.num_newaxis)


@op("nn.batch_flatten", kind=Fusion.INJECTIVE)
class BatchFlatten(View):
    """(n, d1 * d2 * …): all dimensions but the first flattened."""

    def shape_of(self, shape: Shape) -> Shape:
        if not shape:
            raise ShapeError("a scalar has no batch dimension; apply expand_dims first")
        return (shape[0], product(shape[1:]))
