"""Checks that a program accesses only elements that exist: the pass `OOBChecker`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.scalar.arith import Ranges, bounds, simplify
from tilewright.scalar.arith.solve import assume
from tilewright.scalar.expr import PrimExpr, as_expr, logical_not, number_of
from tilewright.scalar.walk import substitute
from tilewright.tir.stmt import Block, For, IfThenElse, Let, PrimFunc, Stmt, bodies
from tilewright.tir.transform.memory_accesses import Access, accesses_of
from tilewright.tir.transform.module_passes import PrimFuncPass

Points = Mapping[PrimExpr, PrimExpr]


def check_accesses(func: PrimFunc) -> PrimFunc:
    """Raise `ScheduleError` for the first index that can be negative or past the end of its dimension; the function
    itself is returned unchanged. An index whose range is unknown is accepted."""
    for access, points, ranges in _visit(func.body, {}, Ranges()):
        for condition in access.path:
            ranges = assume(substitute(condition, points), ranges)
        for k, (index, size) in enumerate(zip(access.indices, access.buffer.shape, strict=True)):
            low, high = bounds(simplify(substitute(index, points), ranges), ranges)
            end = number_of(as_expr(size))
            if (low is not None and low < 0) or (high is not None and end is not None and high >= end):
                raise ScheduleError(
                    f"index {k} of {access.seen} goes from {low} to {high}, but dimension {k} of buffer "
                    f"{access.buffer.name} has {size} elements", code="TW0612")
    return func


def _visit(s: Stmt, points: Points, ranges: Ranges) -> Iterator[tuple[Access, Points, Ranges]]:
    """Yield each access with the values of axes and names, and the ranges of the loops and conditions around it."""
    for access in accesses_of(s):
        yield access, points, ranges
    match s:
        case For():
            inside = ranges.bind_loop(s.var, substitute(s.min, points), substitute(s.extent, points))
            yield from _visit(s.body, points, inside)
        case IfThenElse():
            condition = substitute(s.condition, points)
            yield from _visit(s.then_case, points, assume(condition, ranges))
            if s.else_case is not None:
                yield from _visit(s.else_case, points, assume(logical_not(condition), ranges))
        case Let():
            yield from _visit(s.body, {**points, s.var: substitute(s.value, points)}, ranges)
        case Block():
            bound: dict[PrimExpr, PrimExpr] = {**points}
            bound.update((i.var, substitute(b, points)) for i, b in zip(s.iters, s.bindings, strict=True))
            inside = assume(substitute(s.predicate, bound), ranges)
            for b in bodies(s):
                yield from _visit(b, bound, inside)
        case _:
            for b in bodies(s):
                yield from _visit(b, points, ranges)


@dataclass(frozen=True)
class OOBChecker(PrimFuncPass):
    """Refuses a module in which an index can be outside of its buffer: `ScheduleError`. It changes nothing."""

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return check_accesses(function)
