"""Properties of the blocks of a schedule, for rules and postprocessors."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import Add, Buffer, Call, IntImm, Load, PrimExpr, Select, Sub, Var, number_of
from tilewright.scalar.walk import free_vars, walk
from tilewright.tir.loop_steps import LoopRV
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import (
    ROOT_BLOCK,
    Block,
    For,
    PrimFunc,
    Store,
    expressions,
    stored_buffers,
    walk_stmt,
)

TILED: Final = "meta_schedule.tiling_structure"
"""Annotation of a block that `MultiLevelTiling` tiled: the order of its tiles, such as "SSRSRS"."""


def is_root(sch: Schedule, at: BlockAt) -> bool:
    """Return whether a reference is to the root block of its function."""
    return at.block == ROOT_BLOCK and sch.get_sref(at).parent is None


def function_of(sch: Schedule, at: BlockAt) -> PrimFunc:
    """Return the current function of a block."""
    return sch.functions[at.func or next(iter(sch.functions))]


def loads_of(node: Block) -> dict[Buffer, list[Load]]:
    """Return the accesses of each buffer that a block reads, without those that it also writes."""
    found: dict[Buffer, list[Load]] = {}
    stored = stored_buffers(node)
    for s in walk_stmt(node.body):
        for top in expressions(s):
            for e in walk(top):
                if isinstance(e, Load) and e.buffer not in stored:
                    found.setdefault(e.buffer, []).append(e)
    return found


def is_reduction(node: Block) -> bool:
    """Return whether a block has axes of a reduction."""
    return any(i.kind == "reduce" for i in node.iters)


def is_spatial_program(func: PrimFunc) -> bool:
    """Return whether no block of a function reduces."""
    return not any(isinstance(s, Block) and is_reduction(s) for s in walk_stmt(func.body))


def stores_output(func: PrimFunc, node: Block) -> bool:
    """Return whether a block stores to a parameter."""
    return any(b in func.params for b in stored_buffers(node))


def axis_kinds(node: Block, loop: Var) -> set[str]:
    """Return the kinds of the axes that move with a loop."""
    return {i.kind for i, b in zip(node.iters, node.bindings, strict=True) if loop in free_vars(b)}


def extent_of(sch: Schedule, loop: LoopRV) -> int | None:
    """Return the number of iterations of a loop; None if it is symbolic."""
    found = number_of(sch.get(loop).extent)
    return None if found is None else int(found)


def is_trivially_bound(sch: Schedule, at: BlockAt) -> bool:
    """Return whether each axis of a block is one of the loops around it, in any order."""
    bindings, loops = sch.get(at).bindings, [v.var for v in sch.get_loops(at)]
    return len(bindings) == len(loops) and set(bindings) == set(loops)


def has_reuse(node: Block) -> bool:
    """Return whether tiling pays: a reduction, whose inputs do not depend on all of its spatial axes."""
    if TILED in node.annotations or len(stored_buffers(node)) != 1 or not is_reduction(node):
        return False
    spatial = {i.var for i in node.iters if i.kind == "spatial"}
    unused = 0
    for loads in loads_of(node).values():
        used = {v for e in loads for i in e.indices for v in free_vars(i)}
        unused += len(spatial - used)
    return unused >= 1


def lengths(node: Block) -> tuple[int, int]:
    """Return the numbers of points of the spatial axes and of the reduction of a block; -1 for symbolic sizes."""
    found = []
    for kind in ("spatial", "reduce"):
        sizes = [number_of(i.extent) for i in node.iters if i.kind == kind]
        found.append(-1 if any(s is None for s in sizes) else prod(int(s) for s in sizes if s is not None))
    return found[0], found[1]


def access_pattern(node: Block) -> tuple[bool, bool, bool]:
    """Return whether each read of a block is at its own axes or constants, at no axis twice, and in their order."""
    written = next((s.indices for s in walk_stmt(node.body) if isinstance(s, Store)), ())
    place = {v: k for k, v in enumerate(written) if isinstance(v, Var)}
    exists, injective, ordered = len(place) == len(written), True, True
    for loads in loads_of(node).values():
        if len({e.indices for e in loads}) > 1:
            return False, False, False
        axes = [_axis(i) for i in loads[0].indices]
        if any(a is not None and a not in place for a in axes):
            return False, False, False
        order = [place[a] for a in axes if a is not None]
        injective, ordered = injective and len(set(order)) == len(order), ordered and order == sorted(order)
    return exists, injective, ordered


def _axis(index: PrimExpr) -> Any:
    """Return the axis of an index such as `v` or `v + 1`, None for a constant, else the index."""
    if isinstance(index, IntImm):
        return None
    if isinstance(index, (Add, Sub)) and isinstance(index.b, IntImm):
        return index.a
    return index


def calls_of(node: Block) -> set[str]:
    """Return the names of the functions that a block calls."""
    return {
        e.op.name for s in walk_stmt(node.body) for top in expressions(s) for e in walk(top) if isinstance(e, Call)}


def is_copy(node: Block) -> bool:
    """Return whether a block copies a value without moving elements."""
    stores = [s for s in walk_stmt(node.body) if isinstance(s, Store)]
    return len(stores) == 1 and isinstance(stores[0].value, Load) and stores[0].value.indices == stores[0].indices


def reads_in_order(node: Block) -> bool:
    """Return whether a block stores one value, and reads some buffer at axes of its own in order, each at most once."""
    stores = [s for s in walk_stmt(node.body) if isinstance(s, Store)]
    if len(stores) != 1 or is_reduction(node):
        return False
    place = {v: k for k, v in enumerate(stores[0].indices) if isinstance(v, Var)}
    for loads in loads_of(node).values():
        order = [place.get(_axis(i), -1) for e in loads[:1] for i in e.indices if not isinstance(i, IntImm)]
        if len({e.indices for e in loads}) == 1 and -1 not in order and order == sorted(set(order)):
            return True
    return False


def attempt(sch: Schedule, step: str, *args: Any) -> bool:
    """Return whether a step can be applied; the schedule stays as it is."""
    trial = sch.copy()
    try:
        getattr(trial, step)(*args)
    except ScheduleError:
        return False
    return True


def blocks_inside(node: For | Block) -> list[Block]:
    """Return the blocks inside a loop or a block."""
    return [s for s in walk_stmt(node.body) if isinstance(s, Block)]


def selects(node: Block) -> bool:
    """Return whether a block computes one of two values by a condition."""
    return any(
        isinstance(e, Select) for s in walk_stmt(node.body) for top in expressions(s) for e in walk(top))
