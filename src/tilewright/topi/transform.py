"""Tensor expressions of operators that move elements without changing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.base.types import TensorType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Value, Var
from tilewright.tir.data_layout import bijective_layout
from tilewright.topi.shapes import product, same

Dims = Sequence[Any]


def dims(x: te.Tensor) -> tuple[Any, ...]:
    """Return the shape, with static sizes as ints."""
    return TensorType(x.shape).shape


def reshape(x: te.Tensor, shape: Dims, name: str = "reshape") -> te.Tensor:
    """Return `x` reshaped in row-major order."""
    source = dims(x)

    def element(*i: Var) -> PrimExpr:
        return x(*_regroup(i, shape, source))

    return te.compute(shape, element, name=name)


def _regroup(i: Sequence[Value], shape: Dims, source: Dims) -> list[Value]:
    """Return the indices in `source` of the element at `i` in `shape`; runs of matching dimensions stay separate."""
    where: list[Value] = []
    a = b = 0
    while a < len(source) or b < len(shape):
        if a < len(source) and b < len(shape) and same(source[a], shape[b]):
            where.append(i[b])
            a, b = a + 1, b + 1
            continue
        a_end, b_end = _run(source, shape, a, b)
        position: Value = E.const(0, "int64")
        for v, n in zip(i[b:b_end], shape[b:b_end], strict=True):
            position = E.add(E.mul(position, n), v)
        inner: list[Value] = []
        for n in reversed(source[a + 1 : a_end]):
            inner.append(E.floormod(position, n))
            position = E.floordiv(position, n)
        where += [*([position] if a < a_end else []), *reversed(inner)]
        a, b = a_end, b_end
    return where


def _run(source: Dims, shape: Dims, a: int, b: int) -> tuple[int, int]:
    """Return the ends of the shortest runs from `a` and `b` with equal numbers of elements, or those of the shapes if
    symbolic sizes cannot be compared: `(h, 3, w, 3)` and `(h * 3, w * 3)` begin with the runs `(h, 3)` and `(h * 3)`.
    """
    ends = ((i, total - i) for total in range(a + b + 2, len(source) + len(shape) + 1)
            for i in range(max(a + 1, total - len(shape)), min(len(source), total - b - 1) + 1))
    return next(
        ((i, j) for i, j in ends if same(product(source[a:i]), product(shape[b:j]))), (len(source), len(shape)))


def transpose(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """Return the transpose: dimension k of the result is dimension `axes[k]` of `x`."""
    place = {a: k for k, a in enumerate(axes)}
    return te.compute(
        [x.shape[a] for a in axes], lambda *i: x(*(i[place[d]] for d in range(x.ndim))), name="transpose"
    )


def concatenate(parts: Sequence[te.Tensor], axis: int) -> te.Tensor:
    """Concatenate the parts along `axis`."""
    starts: list[Any] = [0]
    for p in parts:
        starts.append(starts[-1] + dims(p)[axis])

    def element(*i: Var) -> PrimExpr:
        def within(part: te.Tensor, start: Any) -> PrimExpr:
            return part(*(v - start if d == axis else v for d, v in enumerate(i)))

        value = within(parts[-1], starts[-2])
        for part, start, end in reversed(list(zip(parts[:-1], starts, starts[1:], strict=False))):
            value = E.if_then_else(i[axis] < end, within(part, start), value)
        return value

    shape = [starts[-1] if d == axis else n for d, n in enumerate(dims(parts[0]))]
    return te.compute(shape, element, name="concatenate")


def stack(parts: Sequence[te.Tensor], axis: int) -> te.Tensor:
    """Stack the parts along a new dimension."""

    def element(*i: Var) -> PrimExpr:
        rest = (*i[:axis], *i[axis + 1 :])
        value = parts[-1](*rest)
        for k in range(len(parts) - 2, -1, -1):
            value = E.if_then_else(E.compare(E.EQ, i[axis], k), parts[k](*rest), value)
        return value

    shape = dims(parts[0])
    return te.compute([*shape[:axis], len(parts), *shape[axis:]], element, name="stack")


def strided_slice(
    x: te.Tensor, begin: Sequence[int], strides: Sequence[int], shape: Dims, name: str = "strided_slice"
) -> te.Tensor:
    """Return `x[begin + i * strides]` for every point of `shape`; one begin and stride for each dimension."""
    return te.compute(
        shape, lambda *i: x(*(v * s + b for v, b, s in zip(i, begin, strides, strict=True))), name=name
    )


def pad(
    x: te.Tensor, widths: Sequence[tuple[int, int]], mode: str, value: te.Tensor | PrimExpr, name: str = "pad",
    attrs: dict[str, Any] | None = None,
) -> te.Tensor:
    """Pad `x` with `(before, after)` elements along each dimension.

    The new elements are `value` (`mode` constant) in the type of `x`, the edge, or the mirror image, without the edge
    itself (reflect) or with it (symmetric).
    """
    sizes = dims(x)
    shape = [n + before + after for n, (before, after) in zip(sizes, widths, strict=True)]

    def constant(*i: Var) -> PrimExpr:
        inside = E.all_of()
        where: list[PrimExpr] = []
        for v, n, (before, after) in zip(i, sizes, widths, strict=True):
            if before:
                inside = E.all_of(inside, v >= before)
            if after:
                inside = E.all_of(inside, v < before + n)
            where.append(v - before)
        new = value() if isinstance(value, te.Tensor) else value
        return E.if_then_else(inside, x(*where), new.astype(x.dtype))

    def outside(v: PrimExpr, n: Any, before: int, after: int) -> PrimExpr:
        p = v - before
        if mode == "edge":
            return E.maximum(E.minimum(p, n - 1), 0) if before or after else p
        repeated = int(mode == "symmetric")
        back = E.if_then_else(p >= n, 2 * (n - 1) + repeated - p, p) if after else p
        return E.if_then_else(p < 0, 0 - repeated - p, back) if before else back

    def replicated(*i: Var) -> PrimExpr:
        return x(*(outside(v, n, *w) for v, n, w in zip(i, sizes, widths, strict=True)))

    return te.compute(shape, constant if mode == "constant" else replicated, name=name, attrs=attrs)


def regroup(x: te.Tensor, split: Dims, axes: Sequence[int], shape: Dims, name: str) -> te.Tensor:
    """Reshape `x` to `split`, transpose by `axes`, and reshape to `shape`."""
    ordered = [split[a] for a in axes]
    source = dims(x)

    def element(*i: Var) -> PrimExpr:
        middle = _regroup(i, shape, ordered)
        where: list[Value] = [0] * len(split)
        for a, v in zip(axes, middle, strict=True):
            where[a] = v
        return x(*_regroup(where, split, source))

    return te.compute(shape, element, name=name)


def part(x: te.Tensor, axis: int, begin: Any, end: Any) -> te.Tensor:
    """Return the elements from `begin` to `end` along `axis`."""
    first = [begin if d == axis else 0 for d in range(x.ndim)]
    shape = dims(x)
    return strided_slice(x, first, [1] * x.ndim, [*shape[:axis], end - begin, *shape[axis + 1 :]], "split")


def repeat(x: te.Tensor, repeats: int, axis: int | None) -> te.Tensor:
    """Repeat each element `repeats` times along `axis`; without an axis, flatten first."""
    if axis is None:
        x, axis = reshape(x, (product(dims(x)),)), 0
    at = axis
    return te.compute(
        [n * repeats if d == at else n for d, n in enumerate(dims(x))],
        lambda *i: x(*(v // repeats if d == at else v for d, v in enumerate(i))), name="repeat",
    )


def tile(x: te.Tensor, reps: tuple[int, ...]) -> te.Tensor:
    """Repeat the whole tensor `reps[d]` times along each dimension."""
    n = max(x.ndim, len(reps))
    lead = n - x.ndim
    sizes, times = (*(1,) * lead, *dims(x)), (*(1,) * (n - len(reps)), *reps)
    return te.compute(
        [n * r for n, r in zip(sizes, times, strict=True)],
        lambda *i: x(*(v % n if r != 1 else v for v, n, r in zip(i[lead:], sizes[lead:], times[lead:], strict=True))),
        name="tile",
    )


def reverse(x: te.Tensor, axis: int) -> te.Tensor:
    """Reverse the elements along `axis`."""
    return te.compute(
        x.shape, lambda *i: x(*(x.shape[d] - 1 - v if d == axis else v for d, v in enumerate(i))), name="reverse"
    )


def layout_transform(x: te.Tensor, src_layout: str, dst_layout: str) -> te.Tensor:
    """Convert `x` to another layout (`NCHW` -> `NCHW8c`); the last block of a dimension is padded with zeros if
    necessary."""
    way = bijective_layout(src_layout, dst_layout)
    sizes = dims(x)
    shape = way.forward_shape(sizes)
    filled = way.backward_shape(shape)

    def element(*i: Var) -> PrimExpr:
        where = way.backward_index(i)
        short = [w < n for w, n, m in zip(where, sizes, filled, strict=True) if not same(n, m)]
        return E.if_then_else(E.all_of(*short), x(*where), E.const(0, x.dtype)) if short else x(*where)

    return te.compute(shape, element, name="layout_transform")
