"""Checks that a schedule step preserves the meaning of the program. Errors show the loops and mark the one at fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilewright.base.errors import CompileError, ScheduleError, TargetError
from tilewright.scalar.arith import Ranges
from tilewright.scalar.arith.iter_map import detect_iter_map
from tilewright.scalar.expr import (
    Add,
    Buffer,
    IntImm,
    Load,
    Max,
    Min,
    Mul,
    PlacedBuffer,
    PrimExpr,
    Var,
    as_expr,
    number_of,
)
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars, substitute, walk
from tilewright.tir.accesses import Access, accesses
from tilewright.tir.block_tree import child_blocks
from tilewright.tir.coverage import fills, lives_in_trips, writes_whole
from tilewright.tir.dependence import Meeting, across_trips, pairs, turned, written_in
from tilewright.tir.printer import text_marking
from tilewright.tir.stmt import (
    PARALLEL,
    ROLLING,
    THREAD,
    VECTORIZED,
    Block,
    For,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    bodies,
    expressions,
    handed_out,
    loaded_buffers,
    path_to,
    stored_buffers,
    walk_stmt,
)
from tilewright.tir.threads import is_virtual
from tilewright.tir.transform.lower_blocks import mixed_loops

ACROSS_LANES = ("sum", "prod", "max", "min")
"""Reductions whose partial results in lanes can be combined."""


def fault(message: str, at: Stmt, func: PrimFunc | None = None) -> ScheduleError:
    """Return an error that shows the nest around `at`, with its first line marked."""
    return ScheduleError(f"{message}. The loops there:\n{text_marking(_nest_of(func, at), at)}", code="TW0612")


def _nest_of(func: PrimFunc | None, at: Stmt) -> Stmt:
    """Return the outermost loop around `at`, in which the mark is shown."""
    if func is None:
        return at
    stack = [func.body]
    while stack:
        s = stack.pop()
        if isinstance(s, (For, Block)) and any(x is at for x in walk_stmt(s)):
            return s
        stack.extend(bodies(s))
    return at


def constant(extent: object, what: str, at: Stmt, func: PrimFunc | None) -> int:
    """Return an extent as a number. Raises `ScheduleError` if it is known only at run time."""
    if isinstance(extent, (int, IntImm)):
        return int(extent)
    raise fault(f"{what} has {extent} iterations, a number known only at run time; this step needs a "
                "constant", at, func)


def reduces_over(block: Block, loop: Var) -> bool:
    """Return whether `loop` is one of the block's reduction loops."""
    return any(i.kind == "reduce" and loop in free_vars(b) for i, b in zip(block.iters, block.bindings, strict=True))


def check_kind(func: PrimFunc, loop: For, kind: str, around: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` unless the trips of `loop` can run as `kind` inside the statements `around`."""
    check_nested(func, loop, kind, around)
    check_trips(func, loop, kind, around)


def check_nested(func: PrimFunc, loop: For, kind: str, around: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` for a loop of lanes or threads inside vector lanes."""
    lanes = next((s for s in around if isinstance(s, For) and s.kind == VECTORIZED), None)
    if lanes is not None and kind in (PARALLEL, VECTORIZED):
        raise fault(
            f"loop '{loop.var.name}' cannot be {kind} inside the vectorized loop '{lanes.var.name}'", loop, func)
    for s in walk_stmt(loop) if kind == VECTORIZED else ():
        if isinstance(s, For) and s is not loop and s.kind in (PARALLEL, VECTORIZED):
            raise fault(
                f"loop '{loop.var.name}' cannot be vectorized around the {s.kind} loop '{s.var.name}'", loop, func)


def check_trips(func: PrimFunc, loop: For, kind: str, around: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` if a trip of `loop` depends on another one, or both write the same element."""
    if kind not in (PARALLEL, VECTORIZED) or (isinstance(loop.extent, IntImm) and loop.extent.value <= 1):
        return
    _check_kinds(func, [loop], kind)
    reductions = [s for s in walk_stmt(loop) if isinstance(s, Block) and reduces_over(s, loop.var)]
    if kind == PARALLEL:
        _check_parallel(func, loop, reductions)
    else:
        _check_lanes(func, loop, reductions)
    _check_apart(func, loop, kind, around)


def _check_kinds(func: PrimFunc, loops: Sequence[For], change: str) -> None:
    """Raise `ScheduleError` if an axis inside, over one of `loops`, is neither spatial nor a reduction axis."""
    over = {f.var for f in loops}
    for s in (s for s in walk_stmt(loops[0]) if isinstance(s, Block)):
        for it, binding in zip(s.iters, s.bindings, strict=True):
            if it.kind not in ("spatial", "reduce") and any(v in over for v in free_vars(binding)):
                raise fault(
                    f"axis '{it.var.name}' of block '{s.name}' is T.axis.{it.kind}, and its iterations keep their "
                    f"order, so its loops cannot be {change}", loops[0], func)


def check_threads(func: PrimFunc, loop: For) -> None:
    """Raise `ScheduleError` unless the trips of `loop` can be distributed among threads: only sums may depend on each
    other."""
    _check_apart(func, loop, "bound to threads", path_to(func.body, loop))


def _check_apart(func: PrimFunc, loop: For, kind: str, around: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` if different trips access the same element, except in sums along the loop."""
    outer = _ranges(around)
    kept = _kept_in(func, loop, around)
    found = [a for a in accesses(loop) if a.buffer not in kept]
    written = written_in(found)
    for a, b in pairs(found):
        summed = a.block is b.block and a.block is not None and reduces_over(a.block, loop.var) and is_sum(a.block)
        if not summed and not (a is b and _stores_same(a, loop)) and across_trips(loop.var, a, b, outer, written):
            raise fault(f"loop '{loop.var.name}' cannot be {kind}: {_clash(a, b)} in different iterations", loop, func)


def _stores_same(a: Access, loop: For) -> bool:
    """Return whether trips that write the same element write the same value: the block's axes determine both.

    This is true for stages of tensor expressions, however their loops are split, fused and guarded.
    """
    block = a.block
    if (
        block is None or not isinstance(block.body, Store) or block.body is not a.at
        or any(i.kind == "reduce" for i in block.iters)
    ):
        return False
    store = block.body
    element = [i for i in store.indices if not isinstance(i, IntImm)]
    axes = [i.var for i in block.iters]
    loops = {loop.var, *(f.var for f in a.loops)}
    values = (store.value, *(() if store.mask is None else (store.mask,)))
    return (
        len(element) == len(axes) and all(any(x is v for x in element) for v in axes)
        and store.buffer not in loaded_buffers(store) and not any(v in loops for e in values for v in free_vars(e))
    )


def _clash(a: Access, b: Access) -> str:
    """Describe a conflict of two accesses to one buffer in words."""
    first, second = (a, b) if a.writes else (b, a)
    if first is second:
        return f"'{a.buffer.name}' is written at {first}, which may be one element"
    return (
        f"'{a.buffer.name}' is written at {first} and "
        f"{'written' if second.writes else 'read'} at {second}, which may be one element"
    )


def _ranges(around: Iterable[Stmt]) -> Ranges:
    ranges = Ranges()
    for s in around:
        ranges = ranges.bind_loop(s.var, s.min, s.extent) if isinstance(s, For) else ranges
    return ranges


def _kept_in(func: PrimFunc, loop: For, around: Sequence[Stmt]) -> set[Buffer]:
    """Return the intermediate values that each trip of `loop` computes and consumes: each trip, also of the outer
    loops, has its own memory for them."""
    inner = {b for b in func.attrs.get("intermediates", ()) if b in stored_buffers(loop)}
    if not inner:
        return inner
    used: set[Buffer] = set()
    stack = [func.body]
    while stack:
        s = stack.pop()
        if s is not loop:
            used.update(e.buffer for top in expressions(s) for e in walk(top) if isinstance(e, Load))
            used.update([s.buffer] if isinstance(s, Store) else [])
            stack.extend(bodies(s))
    within = _ranges([*around, loop])
    nest = [s for s in (*around, loop) if isinstance(s, For)]
    return {
        b for b in inner - used
        if fills(loop.body, b, within) or all(lives_in_trips(f, b, _ranges(nest[:k])) for k, f in enumerate(nest))}


def is_sum(block: Block) -> bool:
    """Return whether `block` combines terms in any order: it has a known reducer, or updates an element over reduction
    axes by a commutative operation, and reads only the result element that it stores."""
    if block.annotations.get("combiner") is None and not _updates(block) and not _contains_sums(block):
        return False
    stores = [s for s in walk_stmt(block.body) if isinstance(s, Store)]
    at = stores[0].indices if stores else ()
    reduce = [i.var for i in block.iters if i.kind == "reduce"]
    if any(s.indices != at for s in stores) or any(v in reduce for i in at for v in free_vars(i)):
        return False
    return all(e.indices == at for e in _own_loads(block))


def _contains_sums(block: Block) -> bool:
    """Return whether all stores of a block are in blocks inside that are sums, as after `blockize`."""
    inside = child_blocks(block.body)
    stores = sum(isinstance(s, Store) for s in walk_stmt(block.body))
    return bool(inside) and all(map(is_sum, inside)) and stores == sum(
        isinstance(s, Store) for b in inside for s in walk_stmt(b.body))


def _updates(block: Block) -> bool:
    """Return whether a block with reduction axes is `X[i] = X[i] + term`, or the same with `*`, `max` or `min`."""
    if not isinstance(block.body, Store) or all(i.kind != "reduce" for i in block.iters):
        return False
    value, stored = block.body.value, (block.body.buffer, block.body.indices)
    return isinstance(value, (Add, Mul, Max, Min)) and any(
        isinstance(e, Load) and (e.buffer, e.indices) == stored for e in (value.a, value.b))


def _own_loads(block: Block) -> Iterator[Load]:
    made = set(stored_buffers(block))
    for s in walk_stmt(block):
        for top in expressions(s):
            yield from (e for e in walk(top) if isinstance(e, Load) and e.buffer in made)


# The order of trips.
def check_fuse(func: PrimFunc, loops: Sequence[For]) -> None:
    """Raise `ScheduleError` if the bounds of one loop depend on another of the loops."""
    for k, f in enumerate(loops):
        for v in (*free_vars(f.min), *free_vars(f.extent)):
            if any(v is g.var for g in loops[:k]):
                raise fault(
                    f"loop '{f.var.name}' goes from {f.min} for {f.extent} iterations, which depends on loop "
                    f"'{v.name}', so they cannot be fused",
                    loops[0], func)


def check_bounds(func: PrimFunc, order: Sequence[For]) -> None:
    """Raise `ScheduleError` if a loop would be placed outside of one that its bounds depend on."""
    for k, f in enumerate(order):
        for v in (*free_vars(f.min), *free_vars(f.extent)):
            if any(v is g.var for g in order[k + 1 :]):
                raise fault(
                    f"loop '{f.var.name}' goes from {f.min} for {f.extent} iterations, which depends on loop "
                    f"'{v.name}', so it must stay inside that loop",
                    f, func)


def check_order(func: PrimFunc, chain: Sequence[For], order: Sequence[For], around: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` unless the nest `chain` can run with its loops in the order `order`."""
    outer, whole = _ranges(around), chain[0]
    _check_kinds(func, chain, "reordered")
    kept = _kept_in(func, chain[-1], [*around, *chain[:-1]])
    found = [a for a in accesses(whole) if a.buffer not in kept]
    written = written_in(found)
    before, after = [f.var for f in chain], [f.var for f in order]
    for a, b in pairs(found):
        if a is b and _stores_same(a, whole):
            continue
        if turned(before, after, a, b, outer, written) and not _added_up(a, b, outer, written):
            names = ", ".join(v.name for v in after)
            raise fault(
                f"the loops cannot run in the order {names}: {_clash(a, b)} in iterations that would "
                "change their order", whole, func)


def _added_up(a: Access, b: Access, outer: Ranges, written: frozenset[Buffer]) -> bool:
    """Return whether both accesses belong to one sum, and conflict only when they add to the same result."""
    block = a.block
    if block is None or block is not b.block or not is_sum(block):
        return False
    if mixed_loops(block) and block.init is not None and any(a.at is s or b.at is s for s in walk_stmt(block.init)):
        return False  # the first step of the sum stores the initial value
    spatial = [b for i, b in zip(block.iters, block.bindings, strict=True) if i.kind != "reduce"]
    return Meeting(a, b, outer, written).apart(spatial)


def check_any_order(func: PrimFunc, at: Stmt, step: str) -> None:
    """Raise `ScheduleError` unless all loops of the nest `at` can run in any order, except for the order within sums.
    """
    outer = _ranges(path_to(func.body, at))
    found = accesses(at)
    written = written_in(found)
    loops = [s.var for s in walk_stmt(at) if isinstance(s, For)]
    for a, b in pairs(found):
        if (
            any(v in {f.var for f in a.loops} and across_trips(v, a, b, outer, written) for v in loops)
            and not _added_up(a, b, outer, written)
        ):
            raise fault(f"{step}: {_clash(a, b)} in different iterations, whose order the step would change", at, func)


# Blocks that move.
def makers(func: PrimFunc, buffer: Buffer) -> list[Block]:
    """Return the blocks that store to a buffer, without blocks inside of others."""
    return [s for s in child_blocks(func.body) if buffer in stored_buffers(s)]


def only_maker(func: PrimFunc, block: Block) -> None:
    """Raise `ScheduleError` if another block also stores to results of `block`, as after `decompose_reduction`."""
    for buffer in stored_buffers(block):
        other = next((m for m in makers(func, buffer) if m is not block), None)
        if other is not None:
            raise fault(
                f"'{buffer.name}' is also computed by block '{other.name}', so '{block.name}' is not a complete block; "
                "apply this step before the computation is split into two blocks", block,
                func)


def check_complete(func: PrimFunc, block: Block) -> None:
    """Raise `ScheduleError` unless the value that `block` stores depends only on its point, and not on results of other
    points."""
    stores = [s for s in walk_stmt(block.body) if isinstance(s, Store)]
    at = {s.indices for s in stores}
    axes = Ranges()
    for i in block.iters:
        axes = axes.bind_loop(i.var, as_expr(0), i.extent)
    for e in _own_loads(block):
        places = {s.indices for s in stores if s.buffer is e.buffer}
        filled = len(places) == 1 and fills(block.body, e.buffer, axes)
        if (block.init is None or at != {e.indices}) and not filled:
            raise fault(
                f"block '{block.name}' reads {e}, which it also writes, so the order of its iterations cannot change",
                block, func)


def check_sum(func: PrimFunc, block: Block) -> None:
    """Raise `ScheduleError` if `block` has a reducer but reads results other than the element that it updates."""
    if block.annotations.get("combiner") is not None and not is_sum(block):
        raise fault(
            f"block '{block.name}' reads elements of its result other than the one it updates, so it is not a plain "
            "reduction",
            block, func)


def check_own_axes(func: PrimFunc, block: Block) -> None:
    """Raise `ScheduleError` if the body of `block` uses a loop variable directly instead of its axes."""
    if not block.iters:  # without axes nothing is known, so steps that need to know reject the block
        return
    around = {s.var for s in path_to(func.body, block) if isinstance(s, For)}
    for s in (x for part in (block.init, block.body) if part is not None for x in walk_stmt(part)):
        v = next((v for e in expressions(s) for v in free_vars(e) if v in around), None)
        if v is not None:
            raise fault(
                f"block '{block.name}' uses the loop variable '{v.name}' directly; bind an axis to it: v = "
                f"T.axis.spatial(extent, {v.name})",
                block, func)


def place_among(func: PrimFunc, node: Block, target: For, index: int, *, after: bool = False) -> int:
    """Return the position among the statements of `target` where `node` moves to: before the first that uses its
    results, or, with `after`, behind the last that changes what it reads. An `index` of -1 is the last such position,
    -2 the first, and another one the position itself. Raises `ScheduleError` for any other."""
    inside = target.body.stmts if isinstance(target.body, Seq) else (target.body,)
    made, read = set(stored_buffers(node)), set(loaded_buffers(node))
    users = [k for k, s in enumerate(inside) if made & {*loaded_buffers(s), *stored_buffers(s)}]
    sources = [k + 1 for k, s in enumerate(inside) if read & set(stored_buffers(s))]
    first = max([0, *sources, *(k + 1 for k in users if after)])
    last = len(inside) if after else min([len(inside), *users])
    found = last if index == -1 else first if index == -2 else index
    if not first <= found <= last:
        raise fault(
            f"block '{node.name}' cannot be placed at index {index} of the {len(inside)} statements in loop "
            f"'{target.var.name}'; choose {first} to {last}, -1 for the last of these or -2 for the first",
            target, func)
    return found


def check_passed(func: PrimFunc, node: Block, target: Stmt, link: Sequence[Buffer]) -> None:
    """Raise `ScheduleError` unless `node` can move into (or stay in) `target`: no block that it passes changes what it
    reads, or uses what it writes. `link` are the buffers for which it moves there."""
    around = _around_both(func, node, target)
    for other in _passed(func, node, target):
        for mine, theirs in _clashes(func, node, other, link, around):
            how = "writes" if theirs.writes else "reads"
            does = "writes" if mine.writes else "reads"
            raise fault(
                f"block '{node.name}' {does} {mine} and cannot move past block '{other.name}', which {how} {theirs}",
                other, func)


def _around_both(func: PrimFunc, a: Stmt, b: Stmt) -> list[For]:
    own = path_to(func.body, a)
    return [s for s in path_to(func.body, b) if isinstance(s, For) and any(s is x for x in own)]


def _clashes(
    func: PrimFunc, node: Block, other: Block, but: Sequence[Buffer], around: Sequence[For]
) -> Iterator[tuple[Access, Access]]:
    """Yield the accesses of two blocks that may conflict (one is a write) in one trip of the common loops `around`."""
    touched = (
        set(stored_buffers(node)) & {*stored_buffers(other), *loaded_buffers(other)} | set(loaded_buffers(node))
        & set(stored_buffers(other))
    )
    if not touched - set(but):
        return
    found = [a for a in accesses(func.body) if a.buffer in touched and a.buffer not in but]
    written, same = written_in(found), {f.var: (0, 0) for f in around}
    for a in (x for x in found if x.block is node):
        for b in (x for x in found if x.block is other):
            if a.buffer is b.buffer and (a.writes or b.writes) and Meeting(a, b, Ranges(), written).possible(same):
                yield a, b


def _passed(func: PrimFunc, node: Block, target: Stmt) -> list[Block]:
    order = {id(s): k for k, s in enumerate(walk_stmt(func.body))}
    first, last = sorted((order[id(node)], order[id(target)]))
    with_target = path_to(func.body, target)
    own = next(
        (
            s for s in path_to(func.body, node)
            if isinstance(s, For) and s is not target and not any(s is x for x in with_target)),
        node)
    beside = {id(s) for s in (*walk_stmt(target), *walk_stmt(own))}
    return [
        s for s in child_blocks(func.body) if s is not node and (first < order[id(s)] < last or id(s) in beside)]


def check_inlined(func: PrimFunc, node: Block) -> None:
    """Raise `ScheduleError` if the inputs of `node` may have other values when its result is read."""
    only_maker(func, node)
    check_complete(func, node)
    made = stored_buffers(node)
    passed = next((s for s in walk_stmt(func.body) for e in expressions(s) if set(made) & set(handed_out(e))), None)
    if passed is not None:
        raise fault(
            f"block '{node.name}' cannot be inlined: a function takes the address of its result, in\n{passed}", node,
            func)
    for reader in (s for s in child_blocks(func.body) if set(made) & set(loaded_buffers(s))):
        around = _around_both(func, node, reader)
        if around and not all(fills(around[-1].body, b, _ranges(around)) for b in made):
            around = []
        for other in (reader, *_passed(func, node, reader)):
            for mine, theirs in _clashes(func, node, other, made, around):
                why = f"it reads {mine}, and block '{other.name}' writes {theirs} in between"
                raise fault(f"block '{node.name}' cannot be computed in block '{reader.name}': {why}", other, func)


def check_written_whole(func: PrimFunc, block: Block, at: Stmt) -> None:
    """Raise `ScheduleError` unless `block`, in the nest `at`, writes every element of the parameters that it writes.

    Stores of initial values do not count; they may be in a nest of their own.
    """
    initial = set() if block.init is None else set(walk_stmt(block.init))
    for a in accesses(at):
        if a.block is block and a.writes and a.buffer in func.params and a.at not in initial and not writes_whole(a):
            raise fault(
                f"block '{block.name}' writes {a} for only a part of '{a.buffer.name}', and a full copy would change "
                "the rest",
                block, func)


def check_all_points(func: PrimFunc, block: Block) -> None:
    """Raise `ScheduleError` unless the loops around `block` visit every point of its axes, so that they can be rebuilt.
    """
    loops = [s for s in path_to(func.body, block) if isinstance(s, For)]
    points: dict[PrimExpr, PrimExpr] = dict(zip((i.var for i in block.iters), block.bindings, strict=True))
    domain, guard = Buffer(block.name, [i.extent for i in block.iters]), substitute(block.predicate, points)
    if not (
        writes_whole(Access(domain, block.bindings, True, tuple(loops), (guard,), block, block))
        or visits_all(block, loops, guard)
    ):
        raise fault(
            f"the loops around block '{block.name}' may cover only a part of its axes, but this step would cover all",
            block, func)


def visits_all(block: Block, loops: Sequence[For], guard: PrimExpr) -> bool:
    """Return whether the bindings are independent iterators of the loops, each over all points of its axis, such as
    `i_j // 8` and `i_j % 8`."""
    over = {f.var: Range(f.min, f.extent) for f in loops}
    found = detect_iter_map(block.bindings, over, guard, "surjective").indices
    for axis, index in zip(block.iters, found, strict=False):
        (extent, scale) = (index.args[0].extent, index.args[0].scale) if index.args else (1, 1)
        if number_of(as_expr(scale)) != 1 or number_of(as_expr(index.base)) != 0:
            return False
        if as_expr(extent) is not axis.extent and number_of(as_expr(extent)) != number_of(axis.extent):
            return False
    return len(found) == len(block.iters)


def check_once(func: PrimFunc, block: Block, loops: Sequence[For], around: Sequence[Stmt]) -> None:
    """Raise `ScheduleError` if the nest `loops` around `block` visits a point more than once."""
    points: dict[PrimExpr, PrimExpr] = dict(zip((i.var for i in block.iters), block.bindings, strict=True))
    guard = substitute(block.predicate, points)
    visit = Access(stored_buffers(block)[0], block.bindings, True, tuple(loops), (guard,), block, block)
    outer = _ranges(around)
    for f in loops:
        if across_trips(f.var, visit, visit, outer, frozenset()):
            raise fault(
                f"iterations of loop '{f.var.name}' recompute points of block '{block.name}', each time from the "
                "initial value",
                f, func)


def check_not_used_before(func: PrimFunc, block: Block, target: For) -> None:
    """Raise `ScheduleError` if other blocks in `target` access results of `block` before their initialization."""
    outer = _ranges(path_to(func.body, target))
    found = accesses(target)
    written = written_in(found)
    place = {id(s): k for k, s in enumerate(walk_stmt(target))}
    initial = [] if block.init is None else list(walk_stmt(block.init))
    for first in (a for a in found if a.block is block and a.at in initial and a.writes):
        for other in (a for a in found if a.block is not block and a.buffer is first.buffer):
            if _earlier(other, first, outer, written, place[id(other.at)] < place[id(first.at)]):
                raise fault(
                    f"'{first.buffer.name}' is {'written' if other.writes else 'read'} at {other} before block "
                    f"'{block.name}' stores its initial value there",
                    target, func)


def _earlier(a: Access, b: Access, outer: Ranges, written: frozenset[Buffer], before: bool) -> bool:
    """Return whether `a` may access an element before `b` does. `before`: `a` precedes `b` within one trip."""
    meeting = Meeting(a, b, outer, written)
    same: dict[Var, tuple[int | None, int | None]] = {}
    for f, g in zip(a.loops, b.loops, strict=False):
        if f.var is not g.var:
            break
        if meeting.possible({**same, f.var: (None, -1)}):
            return True
        same[f.var] = (0, 0)
    return before and meeting.possible(same)


def _check_parallel(func: PrimFunc, loop: For, reductions: list[Block]) -> None:
    if reductions:
        why = f"its iterations add to the same elements of block '{reductions[0].name}'; rfactor that reduction first"
        raise fault(f"loop '{loop.var.name}' cannot be parallel: {why}", loop, func)
    if loop.annotations.get(ROLLING):
        raise fault(
            f"loop '{loop.var.name}' cannot be parallel: a rolling buffer passes data from one iteration to the "
            "next", loop,
            func)


def _check_lanes(func: PrimFunc, loop: For, reductions: list[Block]) -> None:
    if loop.annotations.get(ROLLING):
        raise fault(
            f"loop '{loop.var.name}' cannot be vectorized: a rolling buffer passes data from one iteration to the next",
            loop, func)
    if not reductions:
        return
    body: Stmt = loop
    while isinstance(body, For):
        body = body.body
    (block, *_), (combiner) = reductions, reductions[0].annotations.get("combiner")
    if body is not block or block.init is None:
        raise fault(
            f"loop '{loop.var.name}' is a reduction loop of block '{block.name}' and contains other statements; "
            "vectorize another loop, or use rfactor",
            loop, func)
    if combiner is None or combiner.name not in ACROSS_LANES or isinstance(block.body, Let):
        raise fault(
            f"reduction '{block.name}' cannot be vectorized along '{loop.var.name}': only sums, products, maxima and "
            "minima of one value support this",
            loop, func)
    mixed = {v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind != "reduce" for v in free_vars(b)}
    over = {v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" for v in free_vars(b)}
    if mixed & over:
        name = next(iter(mixed & over)).name
        raise fault(
            f"loop '{name}' of block '{block.name}' fuses a spatial and a reduction axis; vectorize another loop, or "
            "split before fusing",
            loop, func)


def refuse_gpu_threads(func: PrimFunc) -> None:
    """Raise `TargetError` for loops bound to GPU threads, since code is generated only for CPUs."""
    for s in walk_stmt(func.body):
        tag = s.annotations.get(THREAD, "") if isinstance(s, For) else ""
        if isinstance(s, For) and tag and not is_virtual(s):
            raise TargetError(
                f"loop '{s.var.name}' of '{func.name}' is bound to '{tag}', GPU threads, but the target is a CPU; use "
                "parallel for cores and vectorize for vector lanes, or bind to te.thread_axis(n, 'vthread')",
                code="TW0512")


def refuse_addresses(func: PrimFunc) -> None:
    """Raise `CompileError` for memory at an address (`PlacedBuffer`), which code generation does not know."""
    for s in walk_stmt(func.body):
        used = [s.buffer] if isinstance(s, Store) else []
        used += [e.buffer for top in expressions(s) for e in walk(top) if isinstance(e, Load)]
        placed = next((b for b in used if isinstance(b, PlacedBuffer)), None)
        if placed is not None:
            raise CompileError(
                f"'{placed.name}' in '{func.name}' is memory at an address; such a program can be read and planned, "
                "but not compiled", code="TW0602")
