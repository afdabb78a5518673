"""Views in TVMScript: other shapes of a buffer's memory, and parts of it. The parser replaces them by the buffer.

    B = T.Buffer((16384,), data=A.data)           B[k] is A[k // 128, k % 128]
    S = T.match_buffer(A[i, j:j + 4], (4,))       S[k] is A[i, j + k]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from tilewright.scalar import expr as E
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import Buffer, PrimExpr, Value

Indices: TypeAlias = tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A buffer seen with another `shape`: the element at `i` is that of `buffer` at `places(i)`."""

    name: str
    buffer: Buffer
    shape: tuple[Any, ...]
    places: Callable[[Sequence[PrimExpr]], Indices]

    @property
    def dtype(self) -> Any:
        return self.buffer.dtype


def source_of(target: Buffer | View) -> tuple[Buffer, Callable[[Sequence[PrimExpr]], Indices]]:
    """Return the buffer behind a buffer or a view, and the map of indices to those of that buffer."""
    return (target.buffer, target.places) if isinstance(target, View) else (target, tuple)


def dense_strides(target: Buffer | View) -> tuple[Any, ...]:
    """Return the distances between elements, in elements, of a buffer, or of an array with the shape of a view."""
    if isinstance(target, Buffer) and target.strides:
        return target.strides
    strides: list[Any] = [1] if target.shape else []
    for n in reversed(target.shape[1:]):
        strides.insert(0, strides[0] * n)
    return tuple(strides)


def reshaped(
    name: str, target: Buffer | View, shape: Sequence[Any], offset: PrimExpr, strides: Sequence[Any] = ()
) -> View | str:
    """Return the memory of `target` from element `offset` on, with another shape, dense or with strides, or say why it
    does not fit."""
    sizes, sources = tuple(shape), target.shape
    buffer, behind = source_of(target)
    first = E.number_of(offset)
    if first == 0 and not strides and _alike(sizes, sources):
        return View(name, buffer, sizes, behind)
    if isinstance(target, Buffer) and target.strides:
        return f"'{target.name}' has strides; only dense memory has views of other shapes"
    if not all(isinstance(n, int) for n in (*sizes, *sources)):
        return f"the sizes of '{name}' and '{target.name}' must be numbers, or the same expressions"
    used = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if strides else prod(sizes)
    if isinstance(first, int) and first + used > prod(sources):
        return f"'{name}' has {used} elements from element {first} on, but '{target.name}' has only {prod(sources)}"

    def places(i: Sequence[PrimExpr]) -> Indices:
        position: PrimExpr = E.const(0, "int64")
        for v, n in zip(i, strides or sizes, strict=True):
            position = E.add(position, E.mul(v, n)) if strides else E.add(E.mul(position, n), v)
        return behind(_unravelled(E.add(position, offset), sources))

    return View(name, buffer, sizes, places)


def _unravelled(position: PrimExpr, shape: Sequence[Any]) -> list[PrimExpr]:
    """Return the indices of the element at a position in row-major order."""
    indices: list[PrimExpr] = []
    for n in reversed(shape[1:]):
        indices.append(E.floormod(position, n))
        position = E.floordiv(position, n)
    return [*([position] if shape else []), *reversed(indices)]


def part(
    name: str, target: Buffer | View, region: Sequence[tuple[PrimExpr, Value]], shape: Sequence[Any] | None
) -> View | str:
    """Return the part of `target` that `region` gives, the first index and the extent for each dimension, or say why it
    does not fit. `shape` has the last extents; the others are 1."""
    sizes = tuple(n for _, n in region) if shape is None else tuple(shape)
    skipped = len(region) - len(sizes)
    if skipped < 0:
        return f"'{name}' has {len(sizes)} dimensions, but the region of '{target.name}' has {len(region)}"
    for (_, extent), n in zip(region, (*(1,) * skipped, *sizes), strict=True):
        if not same_size(extent, n):
            return f"'{name}' has the size {n} where the region of '{target.name}' has {extent}"
    starts = [start for start, _ in region]
    buffer, behind = source_of(target)

    def places(i: Sequence[PrimExpr]) -> Indices:
        own: list[Value] = [*(0,) * skipped, *i]
        return behind([E.add(start, v) for start, v in zip(starts, own, strict=True)])

    return View(name, buffer, sizes, places)


def _alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(same_size, a, b))


def same_size(a: Value, b: Value) -> bool:
    """Return whether two sizes are known to be equal."""
    x, y = E.match(E.as_expr(a), E.as_expr(b))
    return x is y or E.number_of(simplify(E.sub(x, y), Ranges())) == 0
