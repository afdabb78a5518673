"""Another layout for a value: its memory, every access to it, and the loops that compute it.

    transform_layout("B", lambda i, j: (i // 4, j, i % 4))
    for i in range(8): for j in range(6): B[i, j] = …; C[…] = B[x, y]
      ->
    for i0 in range(2): for i1 in range(6): for i2 in range(4): B[i0, i1, i2] = …; C[…] = B[x // 4, y, x % 4]

A layout is a list of sums of digits of the old indices (`i // 4`, `i % 4`, `i // 2 % 8`, times their places), each digit used once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.arith import Ranges, bounds, linear, simplify
from tilewright.errors import ScheduleError
from tilewright.expr import Buffer, FloorDiv, FloorMod, IntImm, PrimExpr, Var, add, as_expr, cast, const, floordiv, floormod, mul
from tilewright.expr_walk import substitute
from tilewright.tir.block_rewrites import redirect
from tilewright.tir.stmt import SERIAL, Block, For, IterVar, PrimFunc, Stmt, Store, map_bodies, map_expressions, stored_buffers
from tilewright.types import INT64


@dataclass(frozen=True, slots=True)
class Layout:
    """`new` over the variables `old`, the sizes of the new dimensions, and each old variable in terms of the variables `axes`."""

    old: tuple[Var, ...]
    new: tuple[PrimExpr, ...]
    sizes: tuple[int, ...]
    axes: tuple[Var, ...]
    inverse: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class _Digit:
    """`value`, which is `variable // place % size`."""

    variable: PrimExpr
    place: int
    size: int
    value: PrimExpr


def layout_of(mapping: Callable[..., Any], names: Sequence[str], extents: Sequence[Any]) -> Layout:
    """The layout that `mapping` of old indices to new ones describes. Raises `ScheduleError` when it is not one to one."""
    old = tuple(Var(n) for n in names)
    ranges = Ranges()
    for v, n in zip(old, extents, strict=True):
        if not isinstance(n, IntImm):
            raise ScheduleError(f"a layout is for known sizes, and axis '{v.name}' has {n}")
        ranges = ranges.bind(v, 0, n.value - 1)
    made = mapping(*old)
    items = made if isinstance(made, (list, tuple)) else (made,)
    new = tuple(simplify(cast(INT64, as_expr(e)), ranges) for e in items if e is not AXIS_SEPARATOR)
    axes = tuple(Var(f"{'.'.join(dict.fromkeys(v.name for v in old))}.{k}" if not isinstance(e, Var) else e.name) for k, e in enumerate(new))
    sizes = []
    digits: list[_Digit] = []
    for e, axis in zip(new, axes, strict=True):
        low, high = bounds(e, ranges)
        if low != 0 or high is None:
            raise ScheduleError(f"a dimension of a layout starts at 0, and {e} does not")
        sizes.append(high + 1)
        digits += _digits(e, axis, ranges)
    inverse = tuple(_rebuilt(v, [d for d in digits if d.variable is v], ranges) for v in old)
    return Layout(old, new, tuple(sizes), axes, inverse)


AXIS_SEPARATOR = "axis_separator"
"""Between the indices of a layout: where memory of several dimensions would be cut. Memory of a CPU has one; it says nothing here."""


def _digits(e: PrimExpr, axis: Var, ranges: Ranges) -> list[_Digit]:
    form = linear(e)
    if form.const:
        raise _not_one_to_one(e)
    found: list[_Digit] = []
    place = 1
    for atom, factor in sorted(form.coefs.items(), key=lambda item: item[1]):
        variable, lower, size = _split(atom, ranges)
        if factor != place:
            raise _not_one_to_one(e)
        found.append(_Digit(variable, lower, size, floormod(floordiv(axis, place), size)))
        place *= size
    return found


def _split(atom: PrimExpr, ranges: Ranges) -> tuple[PrimExpr, int, int]:
    high = bounds(atom, ranges)[1]
    if high is None:
        raise _not_one_to_one(atom)
    lower = 1
    while not isinstance(atom, Var):
        if isinstance(atom, FloorDiv) and isinstance(atom.b, IntImm):
            lower *= atom.b.value
        elif not isinstance(atom, FloorMod):
            raise _not_one_to_one(atom)
        atom = atom.a
    return atom, lower, high + 1


def _rebuilt(v: Var, digits: Sequence[_Digit], ranges: Ranges) -> PrimExpr:
    """A variable from its digits, all of which must be there."""
    value: PrimExpr = const(0, INT64)
    place = 1
    for d in sorted(digits, key=lambda d: d.place):
        if d.place != place:
            raise _not_one_to_one(v)
        value = add(value, mul(d.value, d.place))
        place *= d.size
    if place - 1 != bounds(v, ranges)[1]:
        raise _not_one_to_one(v)
    return value


def _not_one_to_one(e: PrimExpr) -> ScheduleError:
    return ScheduleError(f"the layout is not one to one in {e}: each index is cut by factors of its size into digits (i // 4, i % 4), each used once")


def transform_layout(func: PrimFunc, block: Block, layout: Layout) -> PrimFunc:
    """`func` with the value of `block` in another layout. Raises `ScheduleError` for a block that is no plain computation."""
    results = stored_buffers(block)
    spatial = [i for i in block.iters if i.kind == "spatial"]
    own = [s for s in (block.body, block.init) if isinstance(s, Store)]
    if len(results) != 1 or any(s.indices != tuple(i.var for i in spatial) for s in own):
        raise ScheduleError(f"block '{block.name}' has several results, or does not store at its own axes, so its layout cannot be changed")
    (old,) = results
    new = Buffer(old.name, layout.sizes, old.dtype, old.scope)
    axes = [IterVar(Var(a.name), const(n, INT64)) for a, n in zip(layout.axes, layout.sizes, strict=True)]
    values: dict[PrimExpr, PrimExpr] = {a: i.var for a, i in zip(layout.axes, axes, strict=True)}
    ranges = Ranges()
    for i in axes:
        ranges = ranges.bind_loop(i.var, const(0, INT64), i.extent)
    points: dict[PrimExpr, PrimExpr] = {i.var: simplify(substitute(e, values), ranges) for i, e in zip(spatial, layout.inverse, strict=True)}
    rest = [i for i in block.iters if i.kind != "spatial"]
    iters = (*axes, *rest)
    loops = tuple(Var(i.var.name) for i in iters)

    def at(indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(substitute(e, dict(zip(layout.old, indices, strict=True))) for e in layout.new)

    def moved(s: Stmt | None) -> Stmt | None:
        if s is None:
            return None
        direct = redirect(s, old, new, lambda _: tuple(i.var for i in axes))
        return map_expressions(direct, lambda e: substitute(e, points))

    body, init = moved(block.body), moved(block.init)
    assert body is not None
    nest: Stmt = replace(block, iters=iters, bindings=loops, init=init, body=body)
    for v, i in zip(reversed(loops), reversed(iters), strict=True):
        nest = For(v, const(0, INT64), i.extent, SERIAL, nest, origin=block.origin)

    def visit(s: Stmt) -> Stmt:
        inside = s
        while isinstance(inside, For):
            inside = inside.body
        return nest if inside is block else map_bodies(s, visit) or s

    body = redirect(visit(func.body), old, new, at)
    attrs = {**func.attrs, "intermediates": tuple(new if b is old else b for b in func.attrs.get("intermediates", ()))}
    return replace(func, params=tuple(new if b is old else b for b in func.params), body=body, attrs=attrs)
