"""Turns inner loops into one block over tiles, for `tensorize` and for steps that move a whole tile.

    for io: for ii in range(4): with block("C", v = io * 4 + ii): C[v] = …
      ->  for io: with block("C_o", vo = io): for ii: with block("C", vi = ii): C[vo * 4 + vi] = …

The initial value of a reduction goes to the outer block, in loops and a block `C_init` of its own. `dissolved`
(`block_tree.py`) is the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.types import BOOL, INT64
from tilewright.scalar.arith import Ranges, linear, simplify
from tilewright.scalar.arith.linear import LinearForm, expression
from tilewright.scalar.expr import IntImm, PrimExpr, Var, add, const, floordiv, mul, number_of
from tilewright.scalar.walk import free_vars
from tilewright.tir.block_rewrites import free_name
from tilewright.tir.legality import constant, fault, reduces_over
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import Block, For, IterVar, PrimFunc, Stmt, nest, substitute_stmt
from tilewright.tir.transform.lower_blocks import mixed_loops


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of a block as a tile and a place in it: `point` is its value, `start` the tile, `rest` the place. Without
    `inner`, the axis does not depend on the loops of the tile."""

    outer: IterVar
    start: PrimExpr
    inner: IterVar | None
    rest: PrimExpr
    point: PrimExpr


def blockize(func: PrimFunc, loop: Var, preserve_unit_iters: bool = True) -> tuple[PrimFunc, str]:
    """Turn a loop with its body into one block over tiles. Return its name. Without `preserve_unit_iters`, the inner
    block has no axes of one point. Raises `ScheduleError`."""
    s = Schedule(func)
    target = s.loop(loop)
    inner: list[For] = []
    body: Stmt = target
    while isinstance(body, For):
        inner.append(body)
        body = body.body
    if not isinstance(body, Block):
        raise fault(
            f"loop '{loop.name}' contains several statements; only loops around a single block can "
            "become a block", target, func
        )
    if any(f.kind != "serial" for f in inner) or not (isinstance(body.predicate, IntImm) and body.predicate.value):
        raise fault(
            f"the loops of block '{body.name}' inside '{loop.name}' are annotated, or do not cover its whole domain",
            target, func)
    mixed = next((f for f in inner if f.var in mixed_loops(body)), None)
    if mixed is not None:
        raise fault(
            f"loop '{mixed.var.name}' fuses a spatial and a reduction axis of block '{body.name}'; call blockize "
            "before that fuse",
            mixed, func)
    around = Ranges()
    for f in s.around(target) if not preserve_unit_iters else ():
        around = around.bind(f.var, 0, 0) if isinstance(f, For) and number_of(f.extent) == 1 else around
    axes = [
        _tile(func, target, it, binding, inner, around, preserve_unit_iters)
        for it, binding in zip(body.iters, body.bindings, strict=True)]
    name = free_name(func, body.name + "_o")
    points: dict[PrimExpr, PrimExpr] = {it.var: a.point for it, a in zip(body.iters, axes, strict=True)}
    own = [a for a in axes if a.inner is not None]
    tile = replace(
        body, iters=tuple(a.inner for a in own if a.inner is not None), bindings=tuple(a.rest for a in own), init=None,
        body=substitute_stmt(body.body, points))
    init = None if body.init is None else _first(func, body, inner, own, points)
    block = Block(
        name, tuple(a.outer for a in axes), tuple(a.start for a in axes), IntImm(BOOL, 1), init, nest(inner, tile), {},
        body.origin)
    s._replace(target, block)
    return s.func, name


def _first(
    func: PrimFunc, body: Block, inner: Sequence[For], axes: Sequence[_Axis], points: dict[PrimExpr, PrimExpr]
) -> Stmt:
    """Return the loops that store the initial values of a tile."""
    assert body.init is not None
    loops = [f for f in inner if not reduces_over(body, f.var)]
    fresh = {f.var: Var(f.var.name) for f in loops}
    spatial = [(a.inner, a.rest) for a in axes if a.inner is not None and a.inner.kind != "reduce"]
    new = {i.var: Var(f"{i.var.name}_init") for i, _ in spatial}
    first = Block(
        free_name(func, f"{body.name}_init"), tuple(replace(i, var=new[i.var]) for i, _ in spatial),
        tuple(rest for _, rest in spatial), IntImm(BOOL, 1), None,
        substitute_stmt(substitute_stmt(body.init, points), new))
    return nest(loops, substitute_stmt(first, fresh), fresh)


def _tile(
    func: PrimFunc, at: For, it: IterVar, binding: PrimExpr, inner: Sequence[For], around: Ranges,
    keeps_units: bool
) -> _Axis:
    """Return an axis of a block as a tile and a place in it; `around` has the ranges of loops outside."""
    extents = {f.var: constant(f.extent, f"loop '{f.var.name}'", f, func) for f in inner}
    if not any(v in extents for v in free_vars(binding)):
        return _Axis(it, binding, None, const(0, INT64), it.var)
    ranges = Ranges()
    for v, n in extents.items():
        if n > 1 or not keeps_units:
            ranges = ranges.bind(v, 0, n - 1)
    form = linear(simplify(binding, ranges))
    rest, outer, size = LinearForm({}), LinearForm({}, form.const), 1
    for atom, c in sorted(form.coefs.items(), key=lambda item: abs(item[1])):
        if isinstance(atom, Var) and atom in extents:
            if c != size and extents[atom] != 1:
                raise fault(
                    f"axis '{it.var.name}' is '{binding}', "
                    f"which is not a whole tile of the loops from '{at.var.name}' in",
                    at, func)
            rest, size = rest.plus(LinearForm({atom: c})), size * extents[atom]
        elif any(v in extents for v in free_vars(atom)):
            raise fault(
                f"axis '{it.var.name}' is '{binding}', which is not the sum of a tile's start and an offset "
                "in the tile", at, func)
        else:
            outer = outer.plus(LinearForm({atom: c}))
    whole = constant(it.extent, f"axis '{it.var.name}'", at, func)
    if whole % size or outer.const % size or any(c % size for c in outer.coefs.values()):
        raise fault(f"axis '{it.var.name}' of extent {whole} is not a multiple of the tile size {size}", at, func)
    own = IterVar(Var(f"{it.var.name}_o"), const(whole // size, INT64), it.kind)
    start = simplify(floordiv(expression(outer), size), around)
    first = const(0, INT64) if whole == size else mul(own.var, size)
    if size == 1 and not keeps_units:
        return _Axis(own, start, None, const(0, INT64), first)
    place = IterVar(Var(f"{it.var.name}_i"), const(size, INT64), it.kind)
    return _Axis(own, start, place, expression(rest), add(first, place.var))
