"""How the axes of a block fit to those of an instruction: `get_tensorize_loop_mapping` and
`get_auto_tensorize_mapping_info` of TVM's `tvm.tir.schedule.analysis`.

    C[i, j] += A[i, k] * B[k, j]  with  C[n, y, x, c] += A[n, y + r, x + s, k] * B[r, s, k, c]
        ->  (n, y, x) is i,  c is j,  (r, s, k) is k
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import IntImm, Load, PrimExpr, add, const, mul, number_of
from tilewright.scalar.walk import free_vars
from tilewright.tir.block_scope import StmtSRef
from tilewright.tir.index_map import IndexMap
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import Block, For, IterVar, PrimFunc, Store, path_to, walk_stmt


@dataclass(frozen=True, slots=True, eq=False)
class TensorizeInfo:
    """The loops of a block that are the loops of an instruction."""

    loop_map: dict[StmtSRef, For]
    """Loops of the program, and those of the instruction's description."""
    desc_loop_indexer: dict[For, int]
    """Positions of the loops of the description, outermost first."""
    block_iter_paddings: list[IntImm] | None
    """Numbers whose multiples the extents of the block's axes must be; None if they are."""


@dataclass(frozen=True, slots=True, eq=False)
class AutoTensorizeMappingInfo:
    """The axes of a block in groups that are the axes of an instruction."""

    mappings: list[IndexMap]
    lhs_iters: list[IterVar]
    """The axes of the block."""
    rhs_iters: list[IterVar]
    """The axes of the instruction's description."""


def get_tensorize_loop_mapping(
    sch: Schedule, block: BlockAt, desc_func: PrimFunc, allow_padding: bool = False
) -> TensorizeInfo | None:
    """Return the loops of a block that are those of an instruction; None if they do not fit.

    The axes of the description take, from the last one on, the last axes of the same kind of the block, each of which
    must be one loop, of a multiple of the instruction's extent unless `allow_padding` is set.
    """
    node = sch.get(block)
    loops: dict[PrimExpr, For] = {f.var: f for f in map(sch.get, sch.get_loops(block))}
    inner, own = _described(desc_func)
    outer: dict[PrimExpr, For] = {f.var: f for f in own}
    left = len(node.iters)
    found: dict[StmtSRef, For] = {}
    padding = [1] * left
    for axis, bound in zip(reversed(inner.iters), reversed(inner.bindings), strict=True):
        left = next((k for k in reversed(range(left)) if node.iters[k].kind == axis.kind), -1)
        theirs = None if left < 0 else loops.get(node.bindings[left])
        mine, size, trips = outer.get(bound), number_of(axis.extent), theirs and number_of(theirs.extent)
        if theirs is None or mine is None or not isinstance(size, int) or not isinstance(trips, int):
            return None
        if trips % size:
            if not allow_padding:
                return None
            padding[left] = size
        found[StmtSRef(theirs, None)] = mine
    needed = [const(n, "int32") for n in padding] if any(n > 1 for n in padding) else None
    return TensorizeInfo(found, {f: k for k, f in enumerate(own)}, needed)  # type: ignore[arg-type]


def get_auto_tensorize_mapping_info(
    sch: Schedule, block: BlockAt, desc_func: PrimFunc
) -> AutoTensorizeMappingInfo | None:
    """Return how groups of a block's axes are the axes of an instruction, by the operands that they index; None if an
    axis of the instruction has no group, or the operands do not fit. Axes of no group come first."""
    node, (inner, _) = sch.get(block), _described(desc_func)
    theirs, mine = _uses(node), _uses(inner)
    if theirs is None or mine is None or len(set(mine)) != len(mine):
        return None
    groups: list[list[IterVar]] = [[a for a, use in zip(node.iters, theirs, strict=True) if use == u] for u in mine]
    if not all(groups):
        return None
    alone = [a for a, use in zip(node.iters, theirs, strict=True) if use not in mine]
    results = (*(a.var for a in alone), *map(_joined, groups))
    return AutoTensorizeMappingInfo(
        [IndexMap(tuple(a.var for a in node.iters), results)], list(node.iters), list(inner.iters))


def _described(desc: PrimFunc) -> tuple[Block, list[For]]:
    """Return the innermost block of a description, and the loops around it."""
    inner = [s for s in walk_stmt(desc.body) if isinstance(s, Block)][-1]
    return inner, [s for s in path_to(desc.body, inner) if isinstance(s, For)]


def _uses(node: Block) -> list[tuple[str, frozenset[int]]] | None:
    """Return for each axis its kind, and the operands that it indexes: 0 is the result, then those that are read, in
    order. None if the block is no store to one element."""
    store = node.body
    if not isinstance(store, Store):
        return None
    reads = [e for e in _in_order(store.value) if e.buffer is not store.buffer]
    ranges = Ranges()
    for a in node.iters:
        if number_of(a.extent) != 1:  # an axis of one element stays in the indices
            ranges = ranges.bind_loop(a.var, const(0, a.var.dtype), a.extent)
    accesses: Sequence[Sequence[PrimExpr]] = [store.indices, *(e.indices for e in reads)]
    used = [{v for i in at for v in free_vars(simplify(i, ranges))} for at in accesses]
    return [(a.kind, frozenset(k for k, names in enumerate(used) if a.var in names)) for a in node.iters]


def _in_order(e: PrimExpr) -> list[Load]:
    return [e] if isinstance(e, Load) else [x for operand in e.operands() for x in _in_order(operand)]


def _joined(axes: Sequence[IterVar]) -> PrimExpr:
    """Return the number of a point of several axes, the last of which is fastest."""
    found: PrimExpr = axes[0].var
    for a in axes[1:]:
        found = add(mul(found, a.extent), a.var)
    return found


__all__ = [
    "AutoTensorizeMappingInfo", "TensorizeInfo", "get_auto_tensorize_mapping_info", "get_tensorize_loop_mapping",
]
