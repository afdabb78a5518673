"""Values that are cached in the order of the loops that compute them: `cache_write` after splits, fuses and orders.

    s[C].reorder(j, i);  CC = s.cache_write(C, "global")
      ->  CC[j, i] = A[i, j] * 2;  C[i, j] = CC[j, i]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import ScheduleError
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import Buffer, PrimExpr, Var, add, floordiv, floormod, mul, number_of
from tilewright.scalar.walk import substitute
from tilewright.te.stage import Fuse, Relation, Split, Stage, values_of
from tilewright.tir.block_rewrites import find_block, nest_of, swap, top_statements
from tilewright.tir.stmt import Block, IterVar, PrimFunc, redirect, stored_buffers, substitute_stmt


@dataclass(frozen=True, slots=True)
class LoopOrder:
    """A layout that follows loops: `leaves` are its axes, outermost loop first, `points` the former axes over these,
    and `places` its axes over the former ones, `roots`."""

    roots: tuple[IterVar, ...]
    leaves: tuple[IterVar, ...]
    points: tuple[PrimExpr, ...]
    places: tuple[PrimExpr, ...]

    @staticmethod
    def of(stage: Stage, roots: Sequence[IterVar]) -> LoopOrder:
        """Return the layout of the spatial loops of a stage. Raises `ScheduleError` if a split leaves a remainder."""
        relations = [r for r in stage.relations if isinstance(r, (Split, Fuse))]
        for r in relations:
            if isinstance(r, Split) and number_of(simplify(floormod(r.parent.extent, r.inner.extent), Ranges())) != 0:
                raise ScheduleError(
                    f"cache_write of '{stage.op.name}': the split of '{r.parent.var.name}' leaves a remainder, so its "
                    "loops are no layout; call cache_write before that split")
        loops = [a for a in stage.leaf_iter_vars if a.kind == "spatial"]
        leaves = tuple(IterVar(Var(f"{a.var.name}.c"), simplify(a.extent, Ranges())) for a in loops)
        own: dict[PrimExpr, PrimExpr] = {a.var: new.var for a, new in zip(loops, leaves, strict=True)}
        found = values_of(roots, relations)
        places = _places(roots, relations)
        return LoopOrder(
            tuple(roots), leaves, tuple(substitute(found[a], own) for a in roots), tuple(places[a] for a in loops))

    def at(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """Return the place of an element in the layout."""
        given: dict[PrimExpr, PrimExpr] = {a.var: i for a, i in zip(self.roots, indices, strict=True)}
        return tuple(substitute(e, given) for e in self.places)


def _places(roots: Sequence[IterVar], relations: Sequence[Relation]) -> dict[IterVar, PrimExpr]:
    """Return each loop as an expression of the root axes."""
    value: dict[IterVar, PrimExpr] = {a: a.var for a in roots}
    for r in relations:
        if isinstance(r, Split) and r.parent in value:
            value[r.outer] = floordiv(value[r.parent], r.inner.extent)
            value[r.inner] = floormod(value[r.parent], r.inner.extent)
        elif isinstance(r, Fuse) and r.parents[0] in value:
            value[r.fused] = value[r.parents[0]]
            for a in r.parents[1:]:
                value[r.fused] = add(mul(value[r.fused], a.extent), value[a])
    return value


def compute_in_order(func: PrimFunc, block: str, order: LoopOrder) -> PrimFunc:
    """Let a block of te compute its results in a layout of loops, and let all other blocks read them there."""
    statements = top_statements(func)
    k, node = find_block(statements, block)
    axes = tuple(IterVar(Var(a.var.name), a.extent) for a in order.leaves)
    own: dict[PrimExpr, PrimExpr] = {a.var: new.var for a, new in zip(order.leaves, axes, strict=True)}
    spatial = [i for i in node.iters if i.kind != "reduce"]
    rest = tuple(i for i in node.iters if i.kind == "reduce")
    points: dict[PrimExpr, PrimExpr] = {
        i.var: substitute(e, own) for i, e in zip(spatial, order.points, strict=True)}
    at = tuple(a.var for a in axes)
    made: Block = node
    new = {b: Buffer(b.name, [a.extent for a in order.leaves], b.dtype, b.scope) for b in stored_buffers(node)}
    for old, b in new.items():
        changed = redirect(made, old, b, lambda _: at)
        assert isinstance(changed, Block)
        made = changed
    init = None if made.init is None else substitute_stmt(made.init, points)
    nest = nest_of(replace(made, iters=(*axes, *rest), bindings=(), init=init, body=substitute_stmt(made.body, points)))
    body = swap(func.body, statements[k], nest)
    for old, b in new.items():
        body = redirect(body, old, b, order.at)
    inner = tuple(new.get(b, b) for b in func.attrs["intermediates"])
    return replace(func, body=body, attrs={**func.attrs, "intermediates": inner})


__all__ = ["LoopOrder", "compute_in_order"]
