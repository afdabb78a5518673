"""What a schedule must not do, checked where a step is asked for, and errors that show the loops and mark the one at fault."""

from __future__ import annotations

from tilewright.errors import ScheduleError
from tilewright.expr import Var
from tilewright.expr_walk import free_vars
from tilewright.tir.printer import text_marking
from tilewright.tir.stmt import PARALLEL, ROLLING, VECTORIZED, Block, For, PrimFunc, Stmt, bodies, walk_stmt

ACROSS_LANES = ("sum", "prod", "max", "min")
"""Reductions whose partial results in lanes can be combined."""


def fault(message: str, at: Stmt, func: PrimFunc | None = None) -> ScheduleError:
    """An error that shows the nest around `at`, its first line marked."""
    return ScheduleError(f"{message}. The loops there:\n{text_marking(_nest_of(func, at), at)}", code="TW0612")


def _nest_of(func: PrimFunc | None, at: Stmt) -> Stmt:
    """The outermost loop around `at`, which is what the mark is shown in."""
    if func is None:
        return at
    stack = [func.body]
    while stack:
        s = stack.pop()
        if isinstance(s, (For, Block)) and any(x is at for x in walk_stmt(s)):
            return s
        stack.extend(bodies(s))
    return at


def reduces_over(block: Block, loop: Var) -> bool:
    """Whether `loop` is one of the block's reduction loops."""
    return any(i.kind == "reduce" and loop in free_vars(b) for i, b in zip(block.iters, block.bindings, strict=True))


def check_kind(func: PrimFunc, loop: For, kind: str, around: list[Stmt]) -> None:
    """Raise `ScheduleError` unless the trips of `loop` may run as `kind`, inside of the statements `around`."""
    lanes = next((s for s in around if isinstance(s, For) and s.kind == VECTORIZED), None)
    if lanes is not None and kind in (PARALLEL, VECTORIZED):
        raise fault(f"loop '{loop.var.name}' cannot be {kind} inside of the vectorized loop '{lanes.var.name}'", loop, func)
    if kind not in (PARALLEL, VECTORIZED):
        return
    reductions = [s for s in walk_stmt(loop) if isinstance(s, Block) and reduces_over(s, loop.var)]
    if kind == PARALLEL:
        _check_parallel(func, loop, reductions)
    else:
        _check_lanes(func, loop, reductions)


def _check_parallel(func: PrimFunc, loop: For, reductions: list[Block]) -> None:
    if reductions:
        why = f"its trips add to the same elements of block '{reductions[0].name}'; rfactor that reduction first"
        raise fault(f"loop '{loop.var.name}' cannot be parallel: {why}", loop, func)
    if loop.annotations.get(ROLLING):
        raise fault(f"loop '{loop.var.name}' cannot be parallel: a rolling buffer keeps what one trip made for the next", loop, func)


def _check_lanes(func: PrimFunc, loop: For, reductions: list[Block]) -> None:
    for s in walk_stmt(loop):
        if isinstance(s, For) and s is not loop and s.kind in (PARALLEL, VECTORIZED):
            raise fault(f"loop '{loop.var.name}' cannot be vectorized around the {s.kind} loop '{s.var.name}'", loop, func)
    if loop.annotations.get(ROLLING):
        raise fault(f"loop '{loop.var.name}' cannot be vectorized: a rolling buffer keeps what one trip made for the next", loop, func)
    if not reductions:
        return
    body: Stmt = loop
    while isinstance(body, For):
        body = body.body
    (block, *_), (combiner) = reductions, reductions[0].annotations.get("combiner")
    if body is not block or block.init is None:
        raise fault(f"loop '{loop.var.name}' reduces block '{block.name}' and holds other statements; vectorize another loop, or rfactor", loop, func)
    if combiner is None or combiner.name not in ACROSS_LANES:
        raise fault(f"reduction '{block.name}' cannot be vectorized along '{loop.var.name}': only sums, products, maxima and minima of one value can", loop, func)
    mixed = {v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "spatial" for v in free_vars(b)}
    over = {v for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" for v in free_vars(b)}
    if mixed & over:
        name = next(iter(mixed & over)).name
        raise fault(f"loop '{name}' of block '{block.name}' is over a spatial and a reduction axis at once; vectorize another block, or split before fusing", loop, func)
