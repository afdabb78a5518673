"""Turns inner loops into one block over tiles, for `tensorize` and for steps that move a whole tile."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.types import BOOL, INT64
from tilewright.scalar.arith import Ranges, linear, simplify
from tilewright.scalar.arith.linear import LinearForm, expression
from tilewright.scalar.expr import IntImm, PrimExpr, Var, add, const, floordiv, mul
from tilewright.scalar.walk import free_vars
from tilewright.tir.legality import constant, fault, reduces_over
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import Block, For, IterVar, PrimFunc, Stmt, nest, substitute_stmt
from tilewright.tir.transform.lower_blocks import mixed_loops


def blockize(func: PrimFunc, loop: Var) -> tuple[PrimFunc, str]:
    """Turn a loop with its body into one block over tiles.

    for io: for ii in range(4): C[io * 4 + ii] = …  ->  for io: with block("C_o", vo = io): for ii: C[vo * 4 + ii] = …
    """
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
    axes, points = [], dict[PrimExpr, PrimExpr]()
    for it, binding in zip(body.iters, body.bindings, strict=True):
        axes.append(_tile(func, target, it, binding, inner))
        own, _, size, rest = axes[-1]
        points[it.var] = add(mul(own.var, size), rest)
    name = body.name + "_o"
    fresh = {f.var: Var(f.var.name) for f in inner}
    init = None
    if body.init is not None:
        spatial = [f for f in inner if not reduces_over(body, f.var)]
        init = nest(spatial, substitute_stmt(substitute_stmt(body.init, points), fresh), fresh)
    block = Block(
        name, tuple(a for a, _, _, _ in axes), tuple(b for _, b, _, _ in axes), IntImm(BOOL, 1), init,
        nest(inner, substitute_stmt(body.body, points)), {k: v for k, v in body.annotations.items() if k != "combiner"},
        body.origin)
    s._replace(target, block)
    return s.func, name


def _tile(
    func: PrimFunc, at: For, it: IterVar, binding: PrimExpr, inner: Sequence[For]
) -> tuple[IterVar, PrimExpr, int, PrimExpr]:
    """Return the axis over tiles, its binding, the size of a tile, and the position of an inner trip in the tile."""
    extents = {f.var: constant(f.extent, f"loop '{f.var.name}'", f, func) for f in inner}
    ranges = Ranges()
    for v, n in extents.items():
        ranges = ranges.bind(v, 0, n - 1)
    form = linear(simplify(binding, ranges))
    rest, outer, size = LinearForm({}), LinearForm({}, form.const), 1
    for atom, c in sorted(form.coefs.items(), key=lambda item: abs(item[1])):
        if isinstance(atom, Var) and atom in extents:
            if c != size:
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
    own = IterVar(Var(it.var.name), const(whole // size, INT64), it.kind)
    return own, simplify(floordiv(expression(outer), size), Ranges()), size, expression(rest)
