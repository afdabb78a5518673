"""Operators that move elements without changing them: transpose, concatenate, slice, pad, repeat."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Expr, Tuple
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, Relaid, op, tensors
from tilewright.topi import transform as topi
from tilewright.topi.orders import Order, block, fits, has_blocks
from tilewright.topi.shapes import (
    Perm,
    Shape,
    axes_of,
    axis_of,
    cuts,
    differ,
    is_too_small,
    permutation,
    product,
    require_at_least,
    require_same_dtype,
    slices,
    text,
)


def _permuted(values: Sequence[Any], perm: Perm) -> tuple[Any, ...]:
    return tuple(values[p] for p in perm)


_order = functools.lru_cache(1024)(permutation)


@op("transpose", kind=Fusion.INJECTIVE)
class Transpose(Op):
    """The data with permuted dimensions: dimension k of the result is dimension `axes[k]` of the data."""

    objects = True
    precision = Precision.FOLLOW
    axes: tuple[int, ...] | None = None
    """Dimension of the input for each dimension of the result; None reverses them."""

    def order(self, ndim: int) -> Perm:
        """Return the axes, counted from the front."""
        return _order(self.axes, ndim)

    def infer(self, data: Type) -> TensorType:
        """The sizes of the data in the order of `axes`; the dtype of the data."""
        (t,) = tensors(data)
        return TensorType(_permuted(t.shape, self.order(t.ndim)), t.dtype)

    def reference(self, data: Array) -> Array:
        return np.ascontiguousarray(data.transpose(self.order(data.ndim))).reshape(
            _permuted(data.shape, self.order(data.ndim)))

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.transpose(data, self.order(data.ndim))

    def simplify(self, call: Call) -> Expr | None:
        """No move -> the input; transpose of transpose -> one; a move of dimensions of size one only -> reshape."""
        data = call.args[0]
        source = data.tensor_type
        order = self.order(source.ndim)
        if order == tuple(range(source.ndim)):
            return data
        if isinstance(data, Call) and isinstance(data.op, Transpose):
            return Transpose(_permuted(data.op.order(source.ndim), order))(data.args[0], span=call.span)
        long = [a for a in order if not (isinstance(source.shape[a], int) and source.shape[a] == 1)]
        if long == sorted(long) and source.is_static:
            from tilewright.relay.op.shaping import Reshape

            return Reshape(call.tensor_type.shape, allowzero=True)(data, span=call.span)
        return None

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        """For stored = transpose(logical, perm), the result is `stored` transposed from `perm` to the requested order.
        """
        perm = perms[0]
        if perm is None:
            return self, (None,), None
        axes = tuple(perm.index(a) for a in self.order(len(perm)))
        return Transpose(axes), (perm,), None


def _fields(data: Any, what: str) -> tuple[TensorType, ...]:
    if not isinstance(data, TupleType):
        raise ShapeError(f"{what} takes one tuple of tensors, and was given {data!r}")
    if not data.fields:
        raise ShapeError(f"{what} got an empty tuple; give at least one tensor")
    fields = tensors(*data.fields)
    require_same_dtype(fields)
    return fields


@op("concatenate", kind=Fusion.INJECTIVE, variadic=True)
class Concatenate(Op):
    """The tensors of a tuple joined along `axis`.

    `relayout` takes and returns one order for each tensor of the tuple.
    """

    objects = True
    precision = Precision.FOLLOW
    axis: int = 0
    """Dimension along which the tensors are joined; negative counts from the end."""

    def infer(self, data: Type) -> TensorType:
        """The sum of the sizes along `axis`; dtypes and other sizes must be equal."""
        parts = _fields(data, self.name)
        first = parts[0]
        axis = axis_of(self.axis, first.ndim)
        for p in parts[1:]:
            if p.ndim != first.ndim or any(
                    differ(a, b) for d, (a, b) in enumerate(zip(p.shape, first.shape, strict=True)) if d != axis):
                raise ShapeError(f"{text(first.shape)} and {text(p.shape)} cannot be joined along axis {axis}: they "
                                 "differ along another axis")
        total = sum((p.shape[axis] for p in parts[1:]), first.shape[axis])
        return TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)

    def reference(self, data: Sequence[Array]) -> Array:
        return np.concatenate(list(data), axis=self.axis)

    def compute(self, data: Sequence[te.Tensor]) -> te.Tensor:
        return topi.concatenate(data, self.axis % data[0].ndim)

    def joined_axis(self, data: TupleType) -> int:
        return axis_of(self.axis, tensors(data.fields[0])[0].ndim)

    def simplify(self, call: Call) -> Expr | None:
        parts = call.args[0]
        return parts.fields[0] if isinstance(parts, Tuple) and len(parts.fields) == 1 else None

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        perm = next((p for p in perms if p is not None), None)
        if perm is None:
            return self, tuple(perms), None
        return Concatenate(axis=perm.index(self.axis % len(perm))), (perm,) * len(perms), perm

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        """Join tensors of whole blocks block by block."""
        order = next(o for o in orders if has_blocks(o))
        if order is None or not all(fits(order, t.shape) for t in types):
            return None
        return Concatenate(axis=order.index(self.axis % types[0].ndim)), (order,) * len(orders), order


@op("stack", kind=Fusion.INJECTIVE, variadic=True)
class Stack(Op):
    """The tensors of a tuple, all of one shape, stacked along a new dimension."""

    objects = True
    precision = Precision.FOLLOW
    axis: int = 0
    """Position of the new dimension in the result; negative counts from the end."""

    def infer(self, data: Type) -> TensorType:
        """The common shape with the number of tensors inserted at `axis`; the common dtype."""
        parts = _fields(data, self.name)
        first = parts[0]
        for p in parts[1:]:
            if p.ndim != first.ndim or any(map(differ, p.shape, first.shape)):
                raise ShapeError(f"{text(first.shape)} and {text(p.shape)} cannot be stacked: all shapes must be equal")
        axis = axis_of(self.axis, first.ndim + 1)
        return TensorType((*first.shape[:axis], len(parts), *first.shape[axis:]), first.dtype)

    def reference(self, data: Sequence[Array]) -> Array:
        return np.stack(list(data), axis=self.axis)

    def compute(self, data: Sequence[te.Tensor]) -> te.Tensor:
        return topi.stack(data, self.axis % (data[0].ndim + 1))


@op("split", kind=Fusion.INJECTIVE)
class Split(Op):
    """A tuple of the parts of the data along `axis`."""

    objects = True
    precision = Precision.FOLLOW
    indices_or_sections: int | tuple[int, ...]
    """Number of equal parts, or the indices at which the parts after the first begin."""
    axis: int = 0
    """Dimension that is split; negative counts from the end."""

    @property
    def results(self) -> int:
        cut = self.indices_or_sections
        return cut if isinstance(cut, int) else len(cut) + 1

    def _cuts(self, size: Any) -> list[Any]:
        """Return the first index of each part, and the size."""
        return cuts(size, self.indices_or_sections)

    def infer(self, data: Type) -> TupleType:
        """A tuple of the parts, each of the dtype of the data; equal parts must divide the size."""
        (t,) = tensors(data)
        axis = axis_of(self.axis, t.ndim)
        sizes, cut = [b - a for a, b in itertools.pairwise(self._cuts(t.shape[axis]))], self.indices_or_sections
        if isinstance(cut, int):
            sizes = [t.shape[axis] // cut] * cut
        return TupleType(tuple(TensorType((*t.shape[:axis], n, *t.shape[axis + 1 :]), t.dtype) for n in sizes))

    def windows(self, data: TensorType) -> tuple[tuple[int, int], ...]:
        axis = axis_of(self.axis, data.ndim)
        return tuple((axis, begin) for begin in self._cuts(data.shape[axis])[:-1])

    def reference(self, data: Array) -> tuple[Array, ...]:
        return tuple(np.split(data, self._cuts(data.shape[self.axis])[1:-1], axis=self.axis))

    def compute(self, data: te.Tensor) -> tuple[te.Tensor, ...]:
        axis = self.axis % data.ndim
        return tuple(topi.part(data, axis, a, b) for a, b in itertools.pairwise(self._cuts(topi.dims(data)[axis])))

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        """Give all parts the order of the data."""
        perm = perms[0]
        if perm is None:
            return self, (None,), None
        return Split(self.indices_or_sections, axis=perm.index(self.axis % len(perm))), (perm,), perm

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        """Split parts of whole blocks block by block."""
        order, axis = orders[0], self.axis % types[0].ndim
        points = self._cuts(types[0].shape[axis])
        size = 1 if order is None else block(order, axis)
        if order is None or any(not isinstance(p, int) or p % size for p in points):
            return None
        return Split(tuple(p // size for p in points[1:-1]), axis=order.index(axis)), (order,), order


@op("strided_slice", kind=Fusion.INJECTIVE)
class StridedSlice(Op):
    """`data[begin:end:strides]` along `axes`, as in numpy; bounds outside of the data are clamped."""

    objects = True
    precision = Precision.FOLLOW
    begin: tuple[int, ...]
    """First index of each sliced dimension; negative counts from the end."""
    end: tuple[int, ...]
    """Exclusive last index of each sliced dimension, or its number of elements with `slice_mode` "size"."""
    strides: tuple[int, ...] | None = None
    """Step of each sliced dimension; None means 1. Negative steps go backward."""
    axes: tuple[int, ...] | None = None
    """Dimensions that are sliced; None means the leading ones."""
    slice_mode: str = "end"
    """Meaning of `end`: "end" (exclusive bounds) or "size" (numbers of elements, -1 for the rest)."""

    def slices(self, shape: Shape) -> list[tuple[Any, Any, int]]:
        """Return the first index, the number of elements and the step of each dimension."""
        return slices(shape, self.begin, self.end, self.strides, self.axes, self.slice_mode)

    def infer(self, data: Type) -> TensorType:
        """The number of selected indices for each dimension; the dtype of the data."""
        (t,) = tensors(data)
        return TensorType([n for _, n, _ in self.slices(t.shape)], t.dtype)

    def windows(self, data: TensorType) -> tuple[tuple[int, int], ...] | None:
        along = self.slices(data.shape)
        cut = [(d, first) for d, (first, n, _) in enumerate(along) if n != data.shape[d]] or [(0, 0)]
        return (cut[0],) if len(cut) == 1 and all(step == 1 for _, _, step in along) else None

    def reference(self, data: Array) -> Array:
        ends = ((first, first + step * n, step) for first, n, step in self.slices(data.shape))
        return np.ascontiguousarray(
            data[tuple([slice(first, end if end >= 0 else None, step) for first, end, step in ends])])

    def compute(self, data: te.Tensor) -> te.Tensor:
        along = self.slices(topi.dims(data))
        return topi.strided_slice(data, [f for f, _, _ in along], [s for _, _, s in along], [n for _, n, _ in along])

    def simplify(self, call: Call) -> Expr | None:
        same_type = call.tensor_type == call.args[0].tensor_type
        whole = same_type and all(step == 1 for _, _, step in self.slices(call.tensor_type.shape))
        return call.args[0] if whole else None

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        perm = perms[0]
        if perm is None:
            return self, (None,), None
        named = range(len(self.begin)) if self.axes is None else self.axes
        return (
            StridedSlice(self.begin, self.end, self.strides, tuple(perm.index(a % len(perm)) for a in named),
                         self.slice_mode), (perm,), perm
        )


@op("slice_like", kind=Fusion.INJECTIVE)
class SliceLike(Op):
    """The leading part of `data` that has the size of the second tensor along `axes`; the second tensor is not read."""

    objects = True
    precision = Precision.FOLLOW
    axes: tuple[int, ...] | None = None
    """Dimensions that are cut to the size of `shape_like`; None or empty means all that both tensors have."""

    def _shape(self, shape: Shape, like: Shape) -> Shape:
        axes = axes_of(self.axes, len(shape)) if self.axes else tuple(range(min(len(shape), len(like))))
        for d in axes:
            if d >= len(like) or is_too_small(shape[d] - like[d], 0):
                raise ShapeError(f"{text(shape)} cannot be sliced to {text(like)} along axis {d}")
        return tuple(like[d] if d in axes else n for d, n in enumerate(shape))

    def infer(self, data: Type, shape_like: Type) -> TensorType:
        """The shape of the data with the sizes of `shape_like` at `axes`; the dtype of the data."""
        t, like = tensors(data, shape_like)
        return TensorType(self._shape(t.shape, like.shape), t.dtype)

    def reference(self, data: Array, shape_like: Array) -> Array:
        return data[tuple(slice(n) for n in self._shape(data.shape, shape_like.shape))].copy()

    def compute(self, data: te.Tensor, shape_like: te.Tensor) -> te.Tensor:
        return topi.strided_slice(data, [0] * data.ndim, [1] * data.ndim,
                                  self._shape(topi.dims(data), topi.dims(shape_like)), "slice_like")


@op("nn.pad", kind=Fusion.INJECTIVE)
class Pad(Op):
    """`data` with `pad_width[d] = (before, after)` elements added along each dimension."""

    objects = True
    precision = Precision.FOLLOW
    pad_width: tuple[tuple[int, int], ...]
    """Number of elements added (before, after) along each dimension."""
    pad_mode: str = "constant"
    """Added elements: "constant" (`pad_value`), "edge" (nearest element) or "reflect" (mirrored without the edge)."""

    def reads_once(self, argument: int) -> bool:
        return argument == 0 and self.pad_mode == "constant"

    def infer(self, data: Type, pad_value: Type) -> TensorType:
        """The sizes of the data plus both paddings; the dtype of the data. `pad_value` is a scalar."""
        t, value = tensors(data, pad_value)
        if len(self.pad_width) != t.ndim or any(len(w) != 2 for w in self.pad_width):
            raise ShapeError(f"pad_width must have a pair (before, after) for each of the {t.ndim} dimensions, and it "
                             f"is {self.pad_width}")
        if self.pad_mode not in ("constant", "edge", "reflect"):
            raise ShapeError(f"pad_mode '{self.pad_mode}' is not supported; it must be constant, edge or reflect")
        if product(value.shape) != 1:
            raise ShapeError(f"pad_value must be a scalar, and it has the shape {text(value.shape)}")
        for n, w in zip(t.shape, self.pad_width, strict=True):
            if any(is_too_small(more, 0) for more in w):
                raise ShapeError(f"pad_width {self.pad_width} is negative; use strided_slice to cut elements off")
            if self.pad_mode == "reflect" and any(w) and any(is_too_small(n - p, 1) for p in w):
                raise ShapeError(f"a dimension of {n} can be reflected by at most {n - 1} elements, but pad_width has "
                                 f"{max(w)}")
        return TensorType([n + b + a for n, (b, a) in zip(t.shape, self.pad_width, strict=True)], t.dtype)

    def reference(self, data: Array, pad_value: Array) -> Array:
        if self.pad_mode == "constant":
            return np.pad(data, self.pad_width, constant_values=pad_value.astype(data.dtype).item())
        return np.pad(data, self.pad_width, mode="edge" if self.pad_mode == "edge" else "reflect")

    def compute(self, data: te.Tensor, pad_value: te.Tensor) -> te.Tensor:
        value = topi.reshape(pad_value, ()) if pad_value.ndim else pad_value
        return topi.pad(data, self.pad_width, self.pad_mode, value)

    def simplify(self, call: Call) -> Expr | None:
        return None if any(map(any, self.pad_width)) else call.args[0]

    def relayout(self, perms: Sequence[Perm | None]) -> Relaid:
        perm = perms[0]
        if perm is None:
            return self, (None, None), None
        return Pad(_permuted(self.pad_width, perm), self.pad_mode), (perm, None), perm

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        """Blocked axes can be padded only by whole blocks, and only with a constant."""
        order = orders[0]
        if order is None or any(n % block(order, d) or (n and block(order, d) > 1 and self.pad_mode != "constant")
                                for d, w in enumerate(self.pad_width) for n in w):
            return None
        size = {d: block(order, d) for d in range(len(self.pad_width))}
        widths = [(self.pad_width[p][0] // size[p], self.pad_width[p][1] // size[p]) if isinstance(p, int) else (0, 0)
                  for p in order]
        return Pad(tuple(widths), self.pad_mode), (order, None), order


@op("repeat", kind=Fusion.INJECTIVE)
class Repeat(Op):
    """The data with each element repeated `repeats` times along `axis` (`numpy.repeat`)."""

    objects = True
    precision = Precision.FOLLOW
    repeats: int
    """Number of copies of each element."""
    axis: int | None = None
    """Dimension along which elements are repeated; None flattens the data."""

    def infer(self, data: Type) -> TensorType:
        """The shape of the data with its size at `axis` times `repeats`; a vector without `axis`."""
        (t,) = tensors(data)
        if self.axis is None:
            return TensorType((product(t.shape) * self.repeats,), t.dtype)
        at = axis_of(self.axis, t.ndim)
        return TensorType([n * self.repeats if d == at else n for d, n in enumerate(t.shape)], t.dtype)

    def reference(self, data: Array) -> Array:
        return np.repeat(data, self.repeats, self.axis)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.repeat(data, self.repeats, None if self.axis is None else self.axis % data.ndim)


@op("tile", kind=Fusion.INJECTIVE)
class Tile(Op):
    """The whole tensor repeated `reps[d]` times along each dimension (`numpy.tile`)."""

    objects = True
    precision = Precision.FOLLOW
    reps: tuple[int, ...]
    """Number of copies of the whole tensor along each dimension, aligned at the last dimension."""

    def _aligned(self, shape: Shape) -> tuple[Shape, tuple[int, ...]]:
        n = max(len(shape), len(self.reps))
        return (*(1,) * (n - len(shape)), *shape), (*(1,) * (n - len(self.reps)), *self.reps)

    def infer(self, data: Type) -> TensorType:
        """The sizes of the data times `reps`, ranks aligned at the last dimension; the dtype of the data."""
        (t,) = tensors(data)
        for n in self.reps:
            require_at_least(n, 0)
        return TensorType([n * r for n, r in zip(*self._aligned(t.shape), strict=True)], t.dtype)

    def reference(self, data: Array) -> Array:
        return np.tile(data, self.reps)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.tile(data, self.reps)


@op("reverse", kind=Fusion.INJECTIVE)
class Reverse(Op):
    """The data with the elements along `axis` in reverse order."""

    objects = True
    precision = Precision.FOLLOW
    axis: int
    """Dimension that is reversed; negative counts from the end."""

    def infer(self, data: Type) -> TensorType:
        """The type of the data."""
        (t,) = tensors(data)
        axis_of(self.axis, t.ndim)
        return t

    def reference(self, data: Array) -> Array:
        return np.flip(data, self.axis).copy()

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.reverse(data, self.axis % data.ndim)
