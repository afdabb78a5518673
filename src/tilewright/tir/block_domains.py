"""Computes the points of a block at which it uses a box of a buffer: the inverse of its indices.

    with block("B", v of 8): B[v * 16 + …] (16 elements)      B[i * 32 : i * 32 + 32]  ->  v = i * 2 : i * 2 + 2
    with block("C", v of 256): … B[v // 16, v % 16]           B[i, 0 : 16]             ->  v = i * 16 : i * 16 + 16

An index is a multiple of one axis with an offset, or a digit of one axis (`v // 16`, `v % 16 // 4`). Other axes have
all of their points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges, bounds, linear, simplify
from tilewright.scalar.expr import (
    Buffer,
    FloorDiv,
    FloorMod,
    IntImm,
    PrimExpr,
    Var,
    add,
    const,
    floordiv,
    floormod,
    mul,
    number_of,
    sub,
)
from tilewright.scalar.walk import free_vars
from tilewright.tir.region import Box, Size, region_of
from tilewright.tir.stmt import Block


@dataclass(frozen=True, slots=True)
class Points:
    """The points `first : first + size` of an axis. If they are `exact`, all of them use only elements of the box."""

    first: PrimExpr
    size: Size
    exact: bool


@dataclass(frozen=True, slots=True)
class _Digit:
    """The index `v % high // low` of an axis, which is in `first : first + size`."""

    low: int
    high: int
    first: PrimExpr
    size: Size


def points_using(
    node: Block, buffer: Buffer, box: Box, outer: Ranges, *, stores: bool = False
) -> dict[Var, Points | None]:
    """Return the points of the axes of `node` at which it reads elements of a box of `buffer` (or, with `stores`, reads
    or stores them). `outer` are the ranges of the variables of the box. An axis has no entry if the indices do not
    contain it, and None if its points are unknown."""
    axes = {i.var: i.extent for i in node.iters}
    ranges = Ranges()
    for v, n in axes.items():  # an axis of one point stays a variable
        ranges = ranges if number_of(n) == 1 else ranges.bind_loop(v, const(0, INT64), n)
    used = region_of(node.body, buffer, ranges, stores=stores)
    if used is None:
        return dict.fromkeys(axes)
    found: dict[Var, Points | None] = {}
    digits: dict[Var, list[_Digit]] = {}
    for (base, length), (first, size) in zip(used, box, strict=True):
        form = linear(simplify(base, ranges))
        inside = [v for v in axes if v in free_vars(base)]
        if len(inside) != 1 or len(form.coefs) != 1:
            found.update(dict.fromkeys(inside))
            continue
        (v,) = inside
        (atom, scale), = form.coefs.items()
        digit = None if atom is v else _digit(atom, v, axes[v])
        if digit is not None and scale == 1 and form.const == 0 and length == 1:
            digits.setdefault(v, []).append(_Digit(*digit, first, size))
        elif atom is v and scale > 0 and v not in found:
            found[v] = _multiples(scale, form.const, length, first, size, outer)
        elif atom is v and scale == -1 and v not in found and length == 1:
            found[v] = Points(simplify(sub(form.const + 1, add(first, size)), outer), size, True)
        else:
            found[v] = None
    for v, n in axes.items():
        if number_of(n) == 1 and v not in found:
            found[v] = Points(const(0, INT64), 1, True)
    for v, parts in digits.items():
        found[v] = None if v in found else _number(parts, axes[v], outer)
    return found


def joined(parts: Sequence[Points | None]) -> tuple[PrimExpr, Size] | None:
    """Return the first point and the number of points that contain all `parts` of an axis; None for unknown ones."""
    known = [p for p in parts if p is not None]
    if len(known) != len(parts) or not known:
        return None
    start = known[0]
    if all(p.first is start.first and p.size is start.size for p in known):
        return start.first, start.size
    ends: list[tuple[int, int]] = []
    for p in known:
        apart = linear(sub(p.first, start.first))
        if apart.coefs or not isinstance(p.size, int):
            return None
        ends.append((apart.const, apart.const + p.size))
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    return add(start.first, low) if low else start.first, high - low


def _multiples(
    scale: int, offset: int, length: Size, first: PrimExpr, size: Size, outer: Ranges
) -> Points | None:
    """Return the points v with an element of `scale * v + offset : … + length` in the box."""
    if scale == 1 and length == 1:
        return Points(sub(first, offset) if offset else first, size, True)
    if not isinstance(length, int) or not isinstance(size, int):
        return None
    low = simplify(floordiv(sub(first, offset + length - scale), scale), outer)
    high = simplify(floordiv(add(first, size - 1 - offset), scale), outer)
    count = bounds(simplify(sub(high, low), outer), outer)[1]
    most = (size + length - 2) // scale + 1
    whole = length == scale and size % scale == 0
    aligned = whole and simplify(floormod(sub(first, offset), scale), outer) is const(0, first.dtype)
    return Points(low, most if count is None else min(most, count + 1), aligned)


def _digit(e: PrimExpr, v: Var, extent: PrimExpr) -> tuple[int, int] | None:
    """Return `low` and `high` of an index in one of the forms of `v % high // low`; None for other indices."""
    if e is v:
        return (1, extent.value) if isinstance(extent, IntImm) else None
    if not isinstance(e, (FloorDiv, FloorMod)) or not isinstance(e.b, IntImm) or e.b.value < 1:
        return None
    inner = _digit(e.a, v, extent)
    if inner is None or isinstance(e, FloorDiv):
        return None if inner is None else (inner[0] * e.b.value, inner[1])
    (low, high), end = inner, inner[0] * e.b.value
    if end >= high:
        return low, high
    assert isinstance(extent, IntImm)
    return (low, end) if high == extent.value or high % end == 0 else None


def _number(parts: Sequence[_Digit], extent: PrimExpr, outer: Ranges) -> Points | None:
    """Return the points of an axis with given digits, which must begin with the highest."""
    assert isinstance(extent, IntImm)
    ordered = sorted(parts, key=lambda d: -d.low)
    first: PrimExpr = const(0, INT64)
    above = extent.value
    for k, d in enumerate(ordered):
        if d.high < above:
            return None if k == 0 else Points(simplify(first, outer), above, False)
        first = add(first, mul(d.first, d.low))
        above = d.low
        if d.size != 1:
            if not isinstance(d.size, int):
                return None
            rest = ordered[k + 1 :]
            full = all(isinstance(x.first, IntImm) and x.first.value == 0 and x.size == x.high // x.low for x in rest)
            return Points(simplify(first, outer), d.size * d.low, full)
    return Points(simplify(first, outer), above, True)
