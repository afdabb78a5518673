"""Reductions along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import BOOL, DataType, TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.broadcast import difference
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, attributes, op, tensors
from tilewright.scalar import expr as E
from tilewright.topi import reduction as topi
from tilewright.topi.elementwise import greatest, least
from tilewright.topi.orders import Order, places, single, without
from tilewright.topi.shapes import Perm, Shape, axes_of, broadcast_shapes, differ, product, require_same_dtype, text

Axis = int | tuple[int, ...] | None


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """Return `shape` reduced along `axes`."""
    if keepdims:
        return tuple(1 if d in axes else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def relaid(axes: Sequence[int], keepdims: bool, perm: Perm) -> tuple[tuple[int, ...], Perm | None] | None:
    """Return the axes in a tensor stored by `perm`, and the order of the result; None if that order is the identity.

    Without `keepdims`, the kept dimensions stay in the stored order, which the order of the result describes.
    """
    stored = tuple(sorted(perm.index(a) for a in axes))
    if keepdims:
        return stored, perm
    kept = [p for p in perm if p not in axes]
    rank = {p: k for k, p in enumerate(sorted(kept))}
    order = tuple(rank[p] for p in kept)
    return stored, None if order == tuple(range(len(order))) else order


@attributes
class Reduction(Op):
    """Base of the reductions."""

    axis: Axis = None
    """Dimension or dimensions that are reduced; None means all. Negative counts from the end."""
    keepdims: bool = False
    """True keeps the reduced dimensions with size one."""
    exclude: bool = False
    """True reduces all dimensions except those of `axis`."""
    combine: ClassVar[Callable[..., E.PrimExpr]]
    of_arrays: ClassVar[Callable[..., Any]]

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Return the reduced axes in ascending order."""
        return axes_of(self.axis, ndim, self.exclude)

    def result(self, dtype: DataType) -> DataType:
        """Return the dtype of the result. Raises `ShapeError` for a dtype that the operator does not accept."""
        return dtype

    def infer(self, data: Type) -> TensorType:
        """The shape without the reduced dimensions (size one with `keepdims`); the dtype of the data."""
        (t,) = tensors(data)
        return TensorType(reduced_shape(t.shape, self.axes(t.ndim), self.keepdims), self.result(t.dtype))

    def reference(self, data: Array) -> Array:
        dtype = self.result(DataType(data.dtype)).numpy()
        with np.errstate(all="ignore"):
            return np.asarray(self.of_arrays(data, axis=self.axes(data.ndim), keepdims=self.keepdims), dtype)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.reduce(data, self.axes(data.ndim), self.keepdims, self.combine, self.name)

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid | None:
        perm = perms[0]
        if perm is None:
            return self, tuple(perms), None
        found = relaid(self.axes(len(perm)), self.keepdims, perm)
        if found is None:
            return None
        attrs = {**self.attributes(), "axis": found[0], "exclude": False}
        return type(self)(**attrs), (perm,) * len(perms), found[1]

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        """Reduce all blocks of the axes; with `keepdims` they remain, in blocks of one."""
        order = orders[0]
        if order is None or len(orders) > 1:
            return None
        axes = self.axes(types[0].ndim)
        attrs = {**self.attributes(), "axis": places(order, axes), "exclude": False}
        left = single(order, reduced_shape(types[0].shape, axes, True)) if self.keepdims else without(order, axes)
        return type(self)(**attrs), (order,), left


def _sum(data: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    wide = np.float32 if data.dtype.itemsize < 4 and DataType(data.dtype).is_float else data.dtype
    return np.sum(data, axis=axis, keepdims=keepdims, dtype=wide)


def _nonempty(data: TensorType, axes: Sequence[int], name: str) -> None:
    if any(isinstance(data.shape[a], int) and data.shape[a] == 0 for a in axes):
        raise ShapeError(f"the {name} of no elements is not defined: {text(data.shape)} is empty along the axes "
                         f"{text(axes)}")


@op("sum", kind=Fusion.REDUCE)
class Sum(Reduction):
    """The sum. Integers wrap around in their own type; floats of 16 bits are summed in float32."""

    precision = Precision.NEVER
    combine = staticmethod(te.sum)
    of_arrays = staticmethod(_sum)


@op("prod", kind=Fusion.REDUCE)
class Prod(Reduction):
    """The product. Integers wrap around in their own type."""

    combine = staticmethod(te.prod)
    of_arrays = staticmethod(lambda data, axis, keepdims: np.prod(data, axis=axis, keepdims=keepdims, dtype=data.dtype))


class Extreme(Reduction):
    """Base of maximum and minimum."""

    precision = Precision.FOLLOW
    def infer(self, data: Type) -> TensorType:
        """The shape without the reduced dimensions, which must not be empty; the dtype of the data."""
        (t,) = tensors(data)
        _nonempty(t, self.axes(t.ndim), self.name)
        return Reduction.infer(self, data)


@op("max", kind=Fusion.REDUCE)
class Max(Extreme):
    """The largest element."""

    combine = staticmethod(greatest)
    of_arrays = staticmethod(np.max)


@op("min", kind=Fusion.REDUCE)
class Min(Extreme):
    """The smallest element."""

    combine = staticmethod(least)
    of_arrays = staticmethod(np.min)


class Quantifier(Reduction):
    """Base of `all` and `any`, which accept bool only."""

    def result(self, dtype: DataType) -> DataType:
        if dtype != BOOL:
            raise ShapeError(f"a boolean tensor was expected, and this one is {dtype}; compare it with zero first")
        return dtype


@op("all", kind=Fusion.REDUCE)
class All(Quantifier):
    """True where all elements are true."""

    combine = staticmethod(te.min)
    of_arrays = staticmethod(np.all)


@op("any", kind=Fusion.REDUCE)
class Any_(Quantifier):
    """True where at least one element is true."""

    combine = staticmethod(te.max)
    of_arrays = staticmethod(np.any)


def _divided(total: te.Tensor, count: Any) -> te.Tensor:
    """Divide sums by a count; 16-bit floats in float32, because float16 has no number above 65504."""
    dtype = total.dtype
    if dtype.is_float and dtype.bits == 16:
        return te.compute(
            total.shape, lambda *i: E.cast(dtype, E.div(E.cast("float32", total(*i)), E.cast("float32", count))),
            name="mean")
    return te.compute(total.shape, lambda *i: E.div(total(*i), E.cast(total.dtype, count)), name="mean")


def _mean(data: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    total = _sum(data, axis, keepdims)
    count = math.prod(data.shape[a] for a in axis)
    return (total / np.asarray(count, total.dtype) if DataType(data.dtype).is_float else total if data.dtype == np.bool_
            else np.trunc(total / count))


@op("mean", kind=Fusion.REDUCE)
class Mean(Reduction):
    """The sum divided by the number of elements; integers are rounded toward zero."""

    precision = Precision.NEVER
    of_arrays = staticmethod(_mean)

    def compute(self, data: te.Tensor) -> te.Tensor:
        axes = self.axes(data.ndim)
        return _divided(topi.reduce(data, axes, self.keepdims, te.sum, "sum"),
                        product(TensorType(data.shape).shape[a] for a in axes))


@op("variance", kind=Fusion.REDUCE)
class Variance(Reduction):
    """The mean of (data - mean)^2, where `mean` is an input with the reduced axes kept."""

    precision = Precision.NEVER
    unbiased: bool = False
    """True divides by n - 1 instead of n."""

    def infer(self, data: Type, mean: Type) -> TensorType:  # type: ignore[override]
        """The shape without the reduced dimensions; `mean` has the dtype and keeps these dimensions with size one."""
        t, m = tensors(data, mean)
        require_same_dtype((t, m))
        wanted = reduced_shape(t.shape, self.axes(t.ndim), True)
        if m.shape != wanted:
            raise ShapeError(f"the mean must have shape {text(wanted)}, and it has {text(m.shape)}; take it along the "
                             "same axes with keepdims=True")
        return Reduction.infer(self, data)

    def _count(self, shape: Shape) -> Any:
        return product(shape[a] for a in self.axes(len(shape))) - (1 if self.unbiased else 0)

    def reference(self, data: Array, mean: Array) -> Array:  # type: ignore[override]
        total = _sum(np.square(difference(data, mean)), self.axes(data.ndim), self.keepdims)
        with np.errstate(all="ignore"):
            return np.asarray(total / self._count(data.shape), data.dtype)

    def compute(self, data: te.Tensor, mean: te.Tensor) -> te.Tensor:  # type: ignore[override]
        axes = self.axes(data.ndim)

        def squared(*i: E.Var) -> E.PrimExpr:
            d = data(*i) - mean(*(0 if k in axes else v for k, v in enumerate(i)))
            return d * d

        return _divided(topi.reduce(te.compute(data.shape, squared, name="squared"), axes, self.keepdims, te.sum,
                                    "sum"), self._count(TensorType(data.shape).shape))


@attributes
class ArgReduction(Op):
    """Base of argmax and argmin: row-major positions along the reduced axes."""

    precision = Precision.NEVER
    axis: Axis = None
    """Dimension or dimensions that are reduced; None means all. Negative counts from the end."""
    keepdims: bool = False
    """True keeps the reduced dimensions with size one."""
    exclude: bool = False
    """True reduces all dimensions except those of `axis`."""
    select_last_index: bool = False
    """True returns the last of equal elements, False the first."""
    greatest: ClassVar[bool]

    def infer(self, data: Type) -> TensorType:
        """The shape without the reduced dimensions, which must not be empty; int32."""
        (t,) = tensors(data)
        axes = axes_of(self.axis, t.ndim, self.exclude)
        _nonempty(t, axes, self.name)
        return TensorType(reduced_shape(t.shape, axes, self.keepdims), "int32")

    def reference(self, data: Array) -> Array:
        axes = axes_of(self.axis, data.ndim, self.exclude)
        kept = [d for d in range(data.ndim) if d not in axes]
        rows = data.transpose(*kept, *axes).reshape([data.shape[d] for d in kept]
            + [math.prod(data.shape[d] for d in axes)])
        find = np.argmax if self.greatest else np.argmin
        found = rows.shape[-1] - 1 - find(rows[..., ::-1], axis=-1) if self.select_last_index else find(rows, axis=-1)
        return np.asarray(found, np.int32).reshape(reduced_shape(data.shape, axes, self.keepdims))

    def compute(self, data: te.Tensor) -> te.Tensor:
        axes = axes_of(self.axis, data.ndim, self.exclude)
        return topi.arg_reduce(data, axes, self.keepdims, self.greatest, self.select_last_index, "int32", self.name)

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid | None:
        perm = perms[0]
        if perm is None:
            return self, (None,), None
        axes = axes_of(self.axis, len(perm), self.exclude)
        found = relaid(axes, self.keepdims, perm)
        if found is None or [perm.index(a) for a in axes] != sorted(perm.index(a) for a in axes):
            return None
        attrs = {**self.attributes(), "axis": found[0], "exclude": False}
        return type(self)(**attrs), (perm,), found[1]


@op("argmax", kind=Fusion.REDUCE)
class ArgMax(ArgReduction):
    """The position of the largest element."""

    greatest = True


@op("argmin", kind=Fusion.REDUCE)
class ArgMin(ArgReduction):
    """The position of the smallest element."""

    greatest = False


class Collapse(Op):
    """Base of the sums along the dimensions that broadcasting would repeat."""

    def _require(self, shape: Shape, wanted: Shape) -> Shape:
        if len(wanted) > len(shape) or any(map(differ, broadcast_shapes(wanted, shape), shape)):
            raise ShapeError(f"{text(shape)} cannot be collapsed to {text(wanted)}, which does not broadcast to it")
        return wanted

    def _collapsed(self, data: Array, wanted: Sequence[int]) -> Array:
        lead = data.ndim - len(wanted)
        repeated = (*range(lead), *(d + lead for d, n in enumerate(wanted) if n == 1))
        return np.asarray(data.sum(axis=repeated, keepdims=True, dtype=data.dtype).reshape(tuple(wanted)))


@op("collapse_sum_to", kind=Fusion.OPAQUE)
class CollapseSumTo(Collapse):
    """The sum along the dimensions that `broadcast_to` from `shape` to the shape of the data would repeat."""

    shape: tuple[int, ...]
    """Shape of the result; it broadcasts to that of the data."""

    def infer(self, data: Type) -> TensorType:
        """`shape`, which must broadcast to that of the data; the dtype of the data."""
        (t,) = tensors(data)
        return TensorType(self._require(t.shape, self.shape), t.dtype)

    def reference(self, data: Array) -> Array:
        return self._collapsed(data, self.shape)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.collapse_sum(data, self.shape)


@op("collapse_sum_like", kind=Fusion.OPAQUE)
class CollapseSumLike(Collapse):
    """The sum along the dimensions that broadcasting from the shape of the second tensor would repeat; its elements are
    not read.
    """

    def infer(self, data: Type, collapse_type: Type) -> TensorType:
        """The shape of the second tensor, which must broadcast to that of the data; the dtype of the data."""
        t, like = tensors(data, collapse_type)
        return TensorType(self._require(t.shape, like.shape), t.dtype)

    def reference(self, data: Array, collapse_type: Array) -> Array:
        return self._collapsed(data, collapse_type.shape)

    def compute(self, data: te.Tensor, collapse_type: te.Tensor) -> te.Tensor:
        return topi.collapse_sum(data, collapse_type.extents)

    def simplify(self, call: Call) -> Expr | None:
        wanted = call.tensor_type
        return CollapseSumTo(wanted.shape)(call.args[0], span=call.span) if wanted.is_static else None
