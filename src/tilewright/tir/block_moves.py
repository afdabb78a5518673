"""Rewrites that move whole computations: a reader into the loops of its producer, an initialization out of a reduction.

Each maps a program to a new one; `tir.Schedule` offers them as steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import ScheduleError
from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges, bounds, linear, simplify
from tilewright.scalar.arith.iter_map import IterMapLevel, detect_iter_map, inverse_affine_iter_map
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    EQ,
    LT,
    Buffer,
    IntImm,
    Load,
    PrimExpr,
    Var,
    all_of,
    compare,
    const,
    number_of,
)
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars, rewrite, substitute, walk
from tilewright.tir.accesses import accesses
from tilewright.tir.block_domains import points_using
from tilewright.tir.block_rewrites import free_name, reads
from tilewright.tir.block_tree import inserted, without_note
from tilewright.tir.coverage import writes_box
from tilewright.tir.legality import (
    check_all_points,
    check_complete,
    check_not_used_before,
    check_once,
    check_passed,
    check_written_whole,
    constant,
    fault,
    is_sum,
    makers,
    place_among,
    reduces_over,
)
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.region import Box, Region, Size, regenerate, region_of
from tilewright.tir.stmt import (
    ALIGNED,
    SERIAL,
    Block,
    For,
    IfThenElse,
    IterVar,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    loaded_buffers,
    seq,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.lower_blocks import mixed_loops


def stored_at_its_axes(func: PrimFunc, block: Block) -> None:
    """Raise `ScheduleError` unless the spatial axes of `block` index the dimensions of its results, in order."""
    axes = [i.var for i in stored_axes(block)]
    for s in walk_stmt(block.body):
        if not isinstance(s, Store):
            continue
        if (
            any(s.indices[k : k + 1] != (v,) for k, v in enumerate(axes))
            or any(free_vars(i) for i in s.indices[len(axes) :])
        ):
            indices = ", ".join(map(str, s.indices))
            raise fault(
                f"block '{block.name}' stores {s.buffer.name}[{indices}]; to be moved, it must store at its axes, in "
                "order",
                block, func)


def stored_axes(block: Block) -> list[IterVar]:
    """Return the spatial axes of a block without those of one point that index no store."""
    used = {v for s in walk_stmt(block.body) if isinstance(s, Store) for i in s.indices for v in free_vars(i)}
    return [i for i in block.iters if i.kind != "reduce" and (i.var in used or number_of(i.extent) != 1)]


def whole_domain(func: PrimFunc, block: Block) -> None:
    """Raise `ScheduleError` unless `block` stores exactly at its axes, so that the value stored at an index is known.
    """
    stored_at_its_axes(func, block)
    count = len(stored_axes(block)) + sum(i.kind == "reduce" for i in block.iters)
    for s in walk_stmt(block.body):
        if isinstance(s, Store) and len(s.indices) != count:
            raise fault(
                f"block '{block.name}' has {count} axes, but stores at {len(s.indices)} "
                "indices; the numbers must be equal", block, func)


def reverse_compute_at(
    func: PrimFunc, block: str, loop: Var, preserve_unit_loops: bool = False, index: int = -1
) -> PrimFunc:
    """Compute the reader of a value inside the loop that computes the value, for the part of each trip.

    for i: for j: B[i, j] = …;  for i: for j: C[i, j] = B[i, j] + 1
      ->  for i: { for j: B[i, j] = …;  for j: C[i, j] = B[i, j] + 1 }
    """
    s = Schedule(func)
    node, target = s.block(block), s.loop(loop)
    source = _made_inside(s, node, target)
    check_passed(func, node, target, (source,))
    check_all_points(func, node)
    for m in makers(func, source):
        if not is_sum(m):
            check_complete(func, m)
        if source in func.params:
            check_written_whole(func, m, func.body)
    ranges = Ranges()
    for f in [*s.around(target), target]:
        ranges = ranges.bind_loop(f.var, f.min, f.extent) if isinstance(f, For) else ranges
    box = region_of(target.body, source, ranges, stores=True)
    assert box is not None
    for _, size in box:
        if not isinstance(size, int):
            raise fault(
                f"an iteration of loop '{loop.name}' computes {size} elements of '{source.name}', but a "
                "constant number is needed", target,
                func)
    if not writes_box(target.body, source, box, ranges):
        raise fault(
            f"the elements of '{source.name}' that an iteration of loop '{target.var.name}' computes are "
            "not a contiguous box", target, func)
    region = _points_of_trip(func, node, source, box, ranges)
    place = place_among(func, node, target, index, after=True)
    s._remove(node)
    target = s.loop(loop)
    nest, _ = regenerate(node, region, ranges, preserve_unit_loops)
    s._replace(target, replace(target, body=inserted(target.body, place, nest)))
    if any(i.kind == "reduce" for i in node.iters):
        _check_sums(s, block, target)
    return s.func


def _points_of_trip(func: PrimFunc, node: Block, source: Buffer, box: Box, ranges: Ranges) -> Region:
    """Return the points of `node` that read exactly the elements `box` of `source`."""
    read = [a for a in accesses(node.body, source) if not a.writes]
    axes = {v for a in read for i in a.indices for v in free_vars(i)}
    limits = Ranges()
    for i in node.iters:
        limits = limits.bind_loop(i.var, const(0, INT64), i.extent)
    for a in read:
        _inside(func, node, source, a.indices, limits)
    found = points_using(node, source, box, ranges)
    region: list[tuple[PrimExpr, Size] | None] = []
    for i in node.iters:
        part = found.get(i.var)
        if (part is None and i.var in axes) or (part is not None and not part.exact):
            raise fault(
                f"block '{node.name}' reads '{source.name}' at other places than its own axes, each once", node, func)
        extent = constant(i.extent, f"axis '{i.var.name}'", node, func)
        whole = part is None or (
            isinstance(part.first, IntImm) and part.first.value == 0 and isinstance(part.size, int)
            and part.size >= extent)
        region.append((const(0, INT64), extent) if whole or part is None else (part.first, part.size))
    return region


def _inside(func: PrimFunc, node: Block, source: Buffer, at: Sequence[PrimExpr], limits: Ranges) -> None:
    """Raise `ScheduleError` if a read of `node` is not inside of the value."""
    for e, size in zip(at, source.shape, strict=True):
        low, high = bounds(e, limits)
        if low is None or low < 0 or not _holds(compare(LT, e, size), limits):
            raise fault(
                f"block '{node.name}' reads '{source.name}' from {low} to {high} in a dimension of {size} elements",
                node, func)


def _check_sums(s: Schedule, block: str, target: For) -> None:
    """Raise `ScheduleError` unless each sum of `block` begins with its first point, and adds each point once."""
    node = s.block(block)
    loops = [f for f in s.around(node) if isinstance(f, For)]
    check_once(s.func, node, loops, [])
    bound = list(zip(node.iters, node.bindings, strict=True))
    spatial = {v for i, b in bound if i.kind != "reduce" for v in free_vars(b)}
    for i, b in bound:
        form = linear(b)
        mixed = i.kind == "reduce" and any(v in spatial for v in free_vars(b))
        if mixed or (i.kind == "reduce" and any(c < 0 or not isinstance(a, Var) for a, c in form.coefs.items())):
            raise fault(
                f"the iterations of loop '{target.var.name}' would add to the sums of block '{block}' in another order",
                target, s.func)


def _loads(node: Block, source: Buffer) -> list[Load]:
    return [
        e for s in walk_stmt(node.body) for top in expressions(s) for e in walk(top)
        if isinstance(e, Load) and e.buffer is source]


def _made_inside(s: Schedule, node: Block, target: For) -> Buffer:
    """Return the one value that `node` reads and that each trip of `target` computes completely."""
    order = list(walk_stmt(s.func.body))
    inside = list(walk_stmt(target))
    if node in inside or order.index(node) < order.index(target):
        raise fault(f"block '{node.name}' does not come after loop '{target.var.name}'", target, s.func)
    plain = node.init is None and all(i.kind == "spatial" for i in node.iters)
    if not (plain and not set(loaded_buffers(node)) & set(stored_buffers(node))) and not is_sum(node):
        raise fault(
            f"block '{node.name}' reads what it writes, and is not a sum, so it cannot move to its input", node, s.func)
    found = []
    for buffer in (b for b in loaded_buffers(node) if b not in stored_buffers(node)):
        made = makers(s.func, buffer)
        if made and all(m in inside for m in made):
            found.append(buffer)
        elif any(m in inside or order.index(m) > order.index(target) for m in made):
            raise fault(
                f"the step requires all the producers of '{buffer.name}', which block '{node.name}' reads, in loop "
                f"'{target.var.name}'",
                target, s.func)
    if len(found) != 1:
        names = ", ".join(b.name for b in found) or "none"
        raise fault(
            f"block '{node.name}' must read exactly one value computed in loop '{target.var.name}'; it reads "
            f"{names}", target,
            s.func)
    around = [f.var for f in [*s.around(target), target] if isinstance(f, For)]
    for m in makers(s.func, found[0]):
        for v in around:
            if reduces_over(m, v):
                raise fault(f"'{found[0].name}' is complete only after the reduction loop '{v.name}'", target, s.func)
    return found[0]


def reverse_compute_inline(func: PrimFunc, block: str) -> PrimFunc:
    """Inline the only reader of a value into its producer, which then stores the reader's result.

    B[i] = A[i] * 2;  C[i] = B[i] + 1              ->  C[i] = A[i] * 2 + 1
    B[i] = A[i] * 2;  C[i, j] = B[i * 4 + j] + 1   ->  C[i // 4, i % 4] = A[i] * 2 + 1
    """
    s = Schedule(func)
    node = s.block(block)
    if not isinstance(node.body, Store) or node.init is not None or any(i.kind != "spatial" for i in node.iters):
        raise fault(
            f"block '{block}' is a reduction or has several results; only an elementwise reader can be inlined", node,
            func)
    inner = [b for b in loaded_buffers(node) if b not in func.params and len(makers(func, b)) == 1]
    chosen = [b for b in inner if isinstance(makers(func, b)[0].body, Store) and makers(func, b)[0].init is None]
    if len(chosen) != 1:
        raise fault(
            f"block '{block}' must read exactly one result of an elementwise block; it reads {len(chosen)}",
            node, func)
    (source,), (maker,) = chosen, makers(func, chosen[0])
    loads = _loads(node, source)
    if any(e.indices != loads[0].indices for e in loads):
        raise fault(f"block '{block}' reads '{source.name}' at several places", node, func)
    own = _axes_of_read(func, node, source, loads[0].indices)
    order = list(walk_stmt(func.body))
    late = [
        b.name for b in loaded_buffers(node)
        if b is not source and any(order.index(m) > order.index(maker) for m in makers(func, b))]
    if (
        reads(func.body, source, node) or late or any(i.kind != "spatial" for i in maker.iters)
        or source in loaded_buffers(maker)
    ):
        why = (
            f"reads '{late[0]}', which is computed later" if late
            else f"is not the only reader of '{source.name}', or that is a sum"
        )
        raise fault(f"block '{block}' {why}", node, func)
    check_complete(func, node)
    check_passed(func, node, maker, (source,))
    check_all_points(func, node)
    check_all_points(func, maker)
    made = maker.body
    assert isinstance(made, Store)
    limits = Ranges()
    for it in maker.iters:
        limits = limits.bind_loop(it.var, const(0, INT64), it.extent)
    at: dict[PrimExpr, PrimExpr] = dict(zip(own.places, made.indices, strict=True))
    points: dict[PrimExpr, PrimExpr] = {i.var: substitute(own.axes[i.var], at) for i in node.iters}
    points = {v: e if isinstance(e, Var) else simplify(e, limits) for v, e in points.items()}
    value = rewrite(
        node.body.value, lambda e: made.value if isinstance(e, Load) and e.buffer is source else points.get(e))
    guards = [compare(LT, points[i.var], i.extent) for i in node.iters]
    guards += [compare(EQ, substitute(e, points), k) for e, k in zip(loads[0].indices, made.indices, strict=True)]
    needed = [g for g in guards if not _holds(g, limits)]
    store: Stmt = Store(node.body.buffer, value, tuple(substitute(i, points) for i in node.body.indices))
    store = IfThenElse(all_of(*needed), store) if needed else store
    s._remove(node)
    s._replace(
        maker,
        replace(
            maker, body=store,
            annotations=without_note(maker, ALIGNED)))
    s._set(s.func.body, drop=source)
    return s.func


@dataclass(frozen=True, slots=True)
class _Read:
    """The axes of a block as expressions of `places`, the indices at which it reads a value."""

    places: tuple[Var, ...]
    axes: dict[Var, PrimExpr]


def _axes_of_read(func: PrimFunc, node: Block, source: Buffer, at: Sequence[PrimExpr]) -> _Read:
    """Return the inverse of the indices `at`. Raises `ScheduleError` unless they are inside of `source`, and different
    for all points of `node`."""
    ranges = Ranges()
    for it in node.iters:
        ranges = ranges.bind_loop(it.var, const(0, INT64), it.extent)
    _inside(func, node, source, at, ranges)
    places = tuple(Var(f"p{k}") for k in range(len(at)))
    found = detect_iter_map(
        at, {i.var: Range(const(0, INT64), i.extent) for i in node.iters}, check_level=IterMapLevel.NoCheck)
    axes: dict[Var, PrimExpr] = dict(inverse_affine_iter_map(found.indices, places)) if found.indices else {}
    axes.update({i.var: const(0, i.var.dtype) for i in node.iters if number_of(i.extent) == 1})
    axes.update({e: p for e, p in zip(at, places, strict=True) if isinstance(e, Var)})
    reached: dict[PrimExpr, PrimExpr] = dict(zip(places, at, strict=True))
    if any(
        i.var not in axes or not _holds(compare(EQ, substitute(axes[i.var], reached), i.var), ranges)
        for i in node.iters
    ):
        raise fault(
            f"block '{node.name}' reads '{source.name}' at [{', '.join(map(str, at))}], which may be one element for "
            "several of its points", node, func)
    return _Read(places, axes)


def _holds(condition: PrimExpr, ranges: Ranges) -> bool:
    return bool(getattr(simplify(condition, ranges), "value", 0))


def decompose_reduction(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, str]:
    """Initialize a reduction in a separate block before `loop`.

    for i: for k: { init: C[i] = 0; C[i] += A[i, k] }  ->  for i: { C[i] = 0;  for k: C[i] += A[i, k] }
    """
    s = Schedule(func)
    node, target = s.block(block), s.loop(loop)
    if node.init is None:
        raise fault(f"block '{block}' has no initial value to decompose", node, func)
    around = [f for f in s.around(node) if isinstance(f, For)]
    if target not in around:
        raise fault(f"loop '{loop.name}' is not around block '{block}'", target, func)
    outer, inner = around[: around.index(target)], around[around.index(target) :]
    wrong = next((f for f in outer if reduces_over(node, f.var)), None)
    if wrong is not None or mixed_loops(node):
        if wrong is not None:
            name = wrong.var.name
            reason = f"the reduction runs over loop '{name}', outside of '{loop.name}'; decompose it at '{name}'"
        else:
            name = next(iter(mixed_loops(node))).name
            reason = f"loop '{name}' fuses a reduction axis with another axis; decompose the reduction before that"
        raise fault(reason, wrong or target, func)
    if any(f.kind != SERIAL and reduces_over(node, f.var) for f in inner):
        raise fault(f"a reduction loop of block '{block}' is no longer serial", target, func)
    check_once(func, node, inner, s.around(target))
    check_not_used_before(func, node, target)
    name = free_name(func, f"{block}_init")
    reducing = {f.var for f in inner if reduces_over(node, f.var)}
    own: dict[PrimExpr, PrimExpr] = {f.var: Var(f.var.name) for f in inner}
    axes = [
        (replace(i, var=Var(i.var.name)), i, b) for i, b in zip(node.iters, node.bindings, strict=True)
        if i.kind != "reduce"]
    points: dict[PrimExpr, PrimExpr] = {old.var: new.var for new, old, _ in axes}
    axis_of: dict[PrimExpr, PrimExpr] = dict(zip((i.var for i in node.iters), node.bindings, strict=True))
    given = (substitute(c, axis_of) for c in conjuncts(node.predicate))
    limits = [c for c in given if not reducing & set(free_vars(c))]
    kept = _loops_of([*(b for _, _, b in axes), *limits], [f for f in inner if f.var not in reducing])
    _known_without(func, kept, reducing)
    first: Stmt = Block(
        name, tuple(new for new, _, _ in axes), tuple(substitute(b, own) for _, _, b in axes),
        substitute(all_of(*limits), own),
        None, substitute_stmt(node.init, points), without_note(node, "combiner"), node.origin)
    for f in reversed(kept):
        v = own[f.var]
        assert isinstance(v, Var)
        first = replace(f, var=v, min=substitute(f.min, own), extent=substitute(f.extent, own), body=first)
    s._replace(node, replace(node, init=None))
    target = s.loop(loop)
    s._replace(target, seq(first, target))
    return s.func, name


def _loops_of(used_in: Sequence[PrimExpr], loops: Sequence[For]) -> list[For]:
    """Return the loops that expressions depend on, also through bounds of loops."""
    used = {v for e in used_in for v in free_vars(e)}
    kept: list[For] = []
    for f in reversed(loops):
        if f.var in used:
            kept.insert(0, f)
            used.update(free_vars(f.min), free_vars(f.extent))
    return kept


def _known_without(func: PrimFunc, loops: Sequence[For], gone: set[Var]) -> None:
    """Raise `ScheduleError` if the bounds of a remaining loop depend on one of the variables `gone`."""
    for f in loops:
        v = next((v for v in (*free_vars(f.min), *free_vars(f.extent)) if v in gone), None)
        if v is not None:
            raise fault(
                f"loop '{f.var.name}' goes from {f.min} for {f.extent} iterations, which depends on the reduction "
                f"loop '{v.name}'",
                f, func)


def reorder_block_iter_var(func: PrimFunc, block: str, order: Sequence[int]) -> PrimFunc:
    """Reorder the axes of a block, with their bindings: `v0, v1 -> v1, v0`."""
    s = Schedule(func)
    node = s.block(block)
    if sorted(order) != list(range(len(node.iters))):
        raise ScheduleError(
            f"{list(order)} is not a permutation of the {len(node.iters)} axes of block '{block}'; give each number "
            f"from 0 to {len(node.iters) - 1} once")
    s._replace(
        node, replace(node, iters=tuple(node.iters[k] for k in order), bindings=tuple(node.bindings[k] for k in order)))
    return s.func
