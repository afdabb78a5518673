"""Functions that move elements without changing them: shapes, orders, parts, repetitions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Value, Var
from tilewright.topi import definitions
from tilewright.topi import transform as of
from tilewright.topi.algorithms import fastest
from tilewright.topi.shapes import (
    Shape,
    axis_of,
    cuts,
    differ,
    expanded,
    fill_left_over,
    permutation,
    product,
    require_elements,
    slices,
    squeezed,
    text,
)
from tilewright.topi.tag import INJECTIVE, tagged
from tilewright.topi.transform import dims

Tensors = Sequence[te.Tensor]
Places = Sequence[int | None] | te.Tensor
_BEYOND: Final = 2**31 - 1
"""An index after the end of every dimension."""


@tagged(INJECTIVE)
def expand_dims(a: te.Tensor, axis: int, num_newaxis: int = 1) -> te.Tensor:
    """Insert `num_newaxis` dimensions of size one before dimension `axis`."""
    return of.reshape(a, expanded(dims(a), axis, num_newaxis), "expand_dims")


@tagged(INJECTIVE)
def expand_like(a: te.Tensor, shape_like: te.Tensor, axis: int | Sequence[int]) -> te.Tensor:
    """Repeat `a` along the dimensions `axis` of `shape_like`, which `a` lacks. Raises `ShapeError` if other
    dimensions of both differ."""
    new = {axis_of(d, shape_like.ndim) for d in ((axis,) if isinstance(axis, int) else axis)}
    kept = [d for d in range(shape_like.ndim) if d not in new]
    if len(kept) != a.ndim or any(differ(n, dims(shape_like)[d]) for n, d in zip(dims(a), kept, strict=True)):
        raise ShapeError(f"{text(dims(a))} is not {text(dims(shape_like))} without the dimensions {text(sorted(new))}")
    return te.compute(shape_like.shape, lambda *i: a(*(i[d] for d in kept)), name="expand_like")


@tagged(INJECTIVE)
def transpose(a: te.Tensor, axes: Sequence[int] | None = None) -> te.Tensor:
    """Permute the dimensions: dimension k of the result is dimension `axes[k]`; without `axes`, reverse them."""
    return of.transpose(a, permutation(axes, a.ndim))


@tagged(INJECTIVE)
def flip(a: te.Tensor, axis: int = 0) -> te.Tensor:
    """Reverse the elements along `axis`."""
    return of.reverse(a, axis_of(axis, a.ndim))


@tagged(INJECTIVE)
def reverse_sequence(a: te.Tensor, seq_lengths: te.Tensor, seq_axis: int = 1, batch_axis: int = 0) -> te.Tensor:
    """Reverse the first `seq_lengths[b]` elements along `seq_axis`, for each b along `batch_axis`."""
    along, batch = axis_of(seq_axis, a.ndim), axis_of(batch_axis, a.ndim)

    def element(*i: Var) -> PrimExpr:
        length = E.minimum(E.cast("int64", seq_lengths(i[batch])), a.shape[along])
        place = E.if_then_else(i[along] < length, length - 1 - i[along], i[along])
        return a(*(place if d == along else v for d, v in enumerate(i)))

    return te.compute(a.shape, element, name="reverse_sequence")


@tagged(INJECTIVE)
def strided_slice(
    a: te.Tensor, begin: Places, end: Places, strides: Places | None = None,
    axes: Sequence[int] | None = None, slice_mode: str = "end", assume_inbound: bool = True,
) -> te.Tensor:
    """Return `a[begin:end:strides]` along `axes` (default: the leading ones), with numpy's meaning.

    With `slice_mode` "size", `end` holds sizes instead, where -1 means all remaining elements. `begin`, `end` and
    `strides` may be shorter than the number of dimensions, and None is the first or last index. They may also be
    vectors: then the sizes of the result are symbolic, and the caller's array determines them. `assume_inbound` has no
    effect: bounds are clamped.
    """
    if isinstance(begin, te.Tensor) or isinstance(end, te.Tensor) or isinstance(strides, te.Tensor):
        return _slice_at(a, begin, [] if strides is None else strides)
    steps = _steps(strides, len(begin) if axes is None else len(axes))
    along = slices(dims(a), _starts(begin, steps), _ends(end, steps), steps, axes, slice_mode)
    return of.strided_slice(a, [f for f, _, _ in along], [s for _, _, s in along], [n for _, n, _ in along])


def _steps(strides: Sequence[int | None] | None, n: int) -> list[int]:
    """Return at least `n` steps: 1 for None and for what is missing."""
    given = [1 if s is None else s for s in strides or ()]
    return given + [1] * (n - len(given))


def _starts(begin: Sequence[int | None], steps: Sequence[int]) -> list[int]:
    """Replace None by the first index in the direction of each step."""
    starts = itertools.zip_longest(begin, steps[: len(begin)], fillvalue=1)
    return [b if b is not None else 0 if step > 0 else _BEYOND for b, step in starts]


def _ends(end: Sequence[int | None], steps: Sequence[int]) -> list[int]:
    """Replace None, and what is missing at the end, by the place after the last index in the direction of each step."""
    ends = itertools.zip_longest(end, steps[: max(len(end), len(steps))])
    return [e if e is not None else _BEYOND if step is None or step > 0 else -_BEYOND for e, step in ends]


def _slice_at(a: te.Tensor, begin: Places, strides: Places) -> te.Tensor:
    """Return the elements from `begin` on, in steps of `strides`, which are known only at run time."""
    starts, steps = _numbers(begin, a.ndim), _numbers(strides, a.ndim)

    def element(*i: Var) -> PrimExpr:
        where = list[PrimExpr]()
        for x, start, given, size in zip(i, starts, steps, a.shape, strict=True):
            step = E.const(1, "int64") if given is None else given
            start = E.if_then_else(step > 0, 0, size - 1) if start is None else start
            first = E.if_then_else(start < 0, start + size, start)
            where.append(E.maximum(E.minimum(E.maximum(E.minimum(first, size - 1), 0) + x * step, size - 1), 0))
        return a(*where)

    return te.compute([te.size_var(f"size{d}") for d in range(a.ndim)], element, name="strided_slice")


@tagged(INJECTIVE)
def strided_set(a: te.Tensor, v: te.Tensor, begin: Places, end: Places, strides: Places | None = None) -> te.Tensor:
    """Return `a` with `a[begin:end:strides]`, which has the shape of `v`, replaced by `v`. Raises `ShapeError` if the
    shapes differ.

    `begin`, `end` and `strides` are numbers, or vectors of at most one integer for each dimension. For vectors, the
    caller must ensure that the shape of `v` fits.
    """
    if isinstance(begin, te.Tensor) or isinstance(end, te.Tensor) or isinstance(strides, te.Tensor):
        return _set_at(a, v, *(_numbers(x, a.ndim) for x in (begin, end, [] if strides is None else strides)))
    steps = _steps(strides, len(begin))
    along = slices(dims(a), _starts(begin, steps), _ends(end, steps), steps, None, "end")
    if any(differ(n, m) for (_, n, _), m in zip(along, dims(v), strict=True)):
        raise ShapeError(
            f"the part to set has the shape {text([n for _, n, _ in along])}, but the values have {text(dims(v))}"
        )

    def element(*i: Var) -> PrimExpr:
        inside, where = E.all_of(), list[PrimExpr]()
        for x, (first, n, step) in zip(i, along, strict=True):
            distance = x - first if step > 0 else first - x
            inside = E.all_of(inside, distance >= 0, E.floordiv(distance, abs(step)) < n)
            inside = inside if abs(step) == 1 else E.all_of(inside, E.compare(E.EQ, E.floormod(distance, abs(step)), 0))
            where.append(E.floordiv(distance, abs(step)))
        return E.if_then_else(inside, v(*where), a(*i))

    return te.compute(a.shape, element, name="strided_set")


def _numbers(given: Places, n: int) -> list[PrimExpr | None]:
    """Return one index for each of `n` dimensions, from numbers or a tensor; None for the last dimensions that have
    none. Raises `ShapeError` for more than `n` numbers, and for tensors that are not vectors."""
    if isinstance(given, te.Tensor):
        length = E.number_of(given.shape[0]) if given.ndim == 1 else n + 1
        count = n if length is None else int(length)
    else:
        count = len(given)
    if count > n:
        raise ShapeError(
            f"begin, end and strides need at most one integer for each of the {n} dimensions; one of them is {given!r}"
        )
    found = [given[k] if k < count else None for k in range(n)]
    return [None if x is None else E.cast("int64", E.as_expr(x)) for x in found]


def _set_at(
    a: te.Tensor, v: te.Tensor, begin: Sequence[PrimExpr | None], end: Sequence[PrimExpr | None],
    strides: Sequence[PrimExpr | None],
) -> te.Tensor:
    """Replace a part whose bounds are known only at run time; without bounds, it is the whole dimension."""

    def element(*i: Var) -> PrimExpr:
        inside, where = E.all_of(), list[PrimExpr]()
        for x, low, high, given, size, most in zip(i, begin, end, strides, a.shape, v.shape, strict=True):
            step = E.const(1, "int64") if given is None else given
            up, pace = step > 0, E.maximum(E.maximum(step, 0 - step), 1)
            low = E.if_then_else(up, 0, size - 1) if low is None else low
            high = E.if_then_else(up, size, -1 - size) if high is None else high
            first, last = (E.if_then_else(place < 0, place + size, place) for place in (low, high))
            first = E.if_then_else(up, E.maximum(first, 0), E.minimum(first, size - 1))
            distance = E.if_then_else(up, x - first, first - x)
            before = E.if_then_else(up, E.compare(E.LT, x, last), E.compare(E.GT, x, last))
            inside = E.all_of(
                inside, before, distance >= 0, E.compare(E.EQ, E.floormod(distance, pace), 0),
                E.floordiv(distance, pace) < most
            )
            where.append(E.floordiv(distance, pace))
        return E.if_then_else(inside, v(*where), a(*i))

    return te.compute(a.shape, element, name="strided_set")


@tagged(INJECTIVE)
def reshape(a: te.Tensor, newshape: Sequence[Any]) -> te.Tensor:
    """Reshape to `newshape`, in row-major order; one size may be -1, for the rest."""
    wanted = tuple(newshape)
    return of.reshape(a, require_elements(dims(a), fill_left_over(dims(a), wanted, wanted), wanted))


@tagged(INJECTIVE)
def squeeze(a: te.Tensor, axis: int | Sequence[int] | None = None) -> te.Tensor:
    """Remove dimensions of size one: those in `axis`, or all."""
    return of.reshape(a, squeezed(dims(a), axis), "squeeze")


@tagged(INJECTIVE)
def concatenate(a_tuple: Tensors, axis: int = 0) -> te.Tensor:
    """Concatenate the tensors along `axis`."""
    return of.concatenate(list(a_tuple), axis_of(axis, a_tuple[0].ndim))


@tagged(INJECTIVE)
def stack(a: Tensors, axis: int = 0) -> te.Tensor:
    """Stack tensors of one shape along a new dimension `axis`."""
    return of.stack(list(a), axis_of(axis, a[0].ndim + 1))


@tagged(INJECTIVE)
def split(ary: te.Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[te.Tensor]:
    """Split along `axis`: into equal parts, or at the indices of a sequence."""
    at = axis_of(axis, ary.ndim)
    return [of.part(ary, at, a, b) for a, b in itertools.pairwise(cuts(dims(ary)[at], indices_or_sections))]


@tagged(INJECTIVE)
def repeat(a: te.Tensor, repeats: int, axis: int | None) -> te.Tensor:
    """Repeat each element `repeats` times along `axis`; without an axis, flatten first."""
    return of.repeat(a, repeats, None if axis is None else axis_of(axis, a.ndim))


@tagged(INJECTIVE)
def tile(a: te.Tensor, reps: Sequence[int]) -> te.Tensor:
    """Repeat the whole tensor `reps[d]` times along each dimension."""
    return of.tile(a, tuple(reps))


@tagged(INJECTIVE)
def layout_transform(array: te.Tensor, src_layout: str, dst_layout: str) -> te.Tensor:
    """Convert from `src_layout` to `dst_layout`; both can be blocked: `NCHW` -> `NCHW8c`. Incomplete blocks are padded
    with zeros."""
    return of.layout_transform(array, src_layout, dst_layout)


@tagged(INJECTIVE)
def sliding_window(data: te.Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]) -> te.Tensor:
    """Return every window of `window_shape` over the dimensions from `axis` on, at distances `strides`: window
    positions first, then elements."""
    at = axis_of(axis, data.ndim)
    if len(window_shape) != len(strides) or at + len(window_shape) != data.ndim:
        raise ShapeError(
            f"windows of {text(tuple(window_shape))} with strides {text(tuple(strides))} do not cover the dimensions "
            f"from {at} on of {text(dims(data))}"
        )
    places = [(n - w) // s + 1 for n, w, s in zip(dims(data)[at:], window_shape, strides, strict=True)]
    count = len(window_shape)

    def element(*i: Var) -> PrimExpr:
        where = (p * s + w for p, s, w in zip(i[at : at + count], strides, i[at + count :], strict=True))
        return data(*i[:at], *where)

    return te.compute([*dims(data)[:at], *places, *window_shape], element, name="sliding_window")


@tagged(INJECTIVE)
def meshgrid(a_tuple: Tensors, indexing: str = "xy") -> list[te.Tensor]:
    """Return vectors as coordinates of a grid, one tensor for each; `indexing` "xy" swaps the first two dimensions."""
    if indexing not in ("ij", "xy"):
        raise ShapeError(f"indexing '{indexing}' is not supported; it must be ij or xy")
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = [product(dims(a_tuple[d])) for d in order]

    def coordinate(k: int) -> te.Tensor:
        x = a_tuple[k]
        return te.compute(shape, lambda *i: x(*([i[order.index(k)]] * x.ndim)), name="meshgrid")

    return [coordinate(k) for k in range(len(a_tuple))]


@tagged("matmul")
def matmul(a: te.Tensor, b: te.Tensor, transp_a: bool = False, transp_b: bool = False) -> te.Tensor:
    """Return the product of two matrices, each transposed on request."""
    x, y = dims(a)[::-1] if transp_a else dims(a), dims(b)[::-1] if transp_b else dims(b)
    if a.ndim != 2 or b.ndim != 2 or differ(x[1], y[0]):
        raise ShapeError(
            f"{text(x)} and {text(y)} cannot be multiplied; give two matrices, where the columns of the first equal "
            "the rows of the second"
        )
    return fastest(definitions.matmul)(a, b, transp_a, transp_b, a.dtype)


@tagged("matmul")
def tensordot(a: te.Tensor, b: te.Tensor, axes: int | Sequence[Any]) -> te.Tensor:
    """Sum products along `axes`: the last n of `a` and first n of `b`, or a sequence of axes for each (numpy's rule).
    """
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    left, right = [axis_of(d, a.ndim) for d in left], [axis_of(d, b.ndim) for d in right]
    if len(left) != len(right) or any(differ(dims(a)[x], dims(b)[y]) for x, y in zip(left, right, strict=True)):
        raise ShapeError(f"{text(dims(a))} along {text(left)} and {text(dims(b))} along {text(right)} differ in size")
    rows, columns = [d for d in range(a.ndim) if d not in left], [d for d in range(b.ndim) if d not in right]
    shape: Shape = (*(dims(a)[d] for d in rows), *(dims(b)[d] for d in columns))
    depth = product(dims(a)[d] for d in left)
    x = of.reshape(of.transpose(a, [*rows, *left]), (product(dims(a)[d] for d in rows), depth))
    y = of.reshape(of.transpose(b, [*right, *columns]), (depth, product(dims(b)[d] for d in columns)))
    return of.reshape(fastest(definitions.matmul)(x, y, False, False, a.dtype), shape, "tensordot")


@tagged(INJECTIVE)
def trilu(data: te.Tensor, k: te.Tensor | Value, upper: bool) -> te.Tensor:
    """Return the upper (or lower) triangle of each matrix, from the diagonal `k` on; zeros elsewhere."""
    offset = k(*(0,) * k.ndim) if isinstance(k, te.Tensor) else k

    def element(*i: Var) -> PrimExpr:
        distance = i[-1] - i[-2]
        inside = distance >= E.cast("int64", offset) if upper else distance <= E.cast("int64", offset)
        return E.if_then_else(inside, data(*i), E.const(0, data.dtype))

    return te.compute(data.shape, element, name="trilu")


__all__ = [
    "concatenate", "expand_dims", "expand_like", "flip", "layout_transform", "matmul", "meshgrid", "repeat", "reshape",
    "reverse_sequence", "sliding_window",
    "split", "squeeze", "stack", "strided_set", "strided_slice", "tensordot", "tile", "transpose", "trilu",
]
