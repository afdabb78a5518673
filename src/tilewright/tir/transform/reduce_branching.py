"""Remove conditions where computing too much changes nothing.

    for i in T.serial(16):             ->      for i in T.serial(16):
        if i < 14: A[i] = 1                        A[i] = 1
    for i in T.serial(16):                     for i in T.serial(16):
        if i >= 14: A[i] = 2                       if i >= 14: A[i] = 2

A condition is removed if its branches differ only in parts without effect, or if the statements would write, where it
is false, only values that memory has already or that are overwritten before they are read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.structural import structural_equal
from tilewright.ir.transform import PassContext
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import Buffer, Load, PrimExpr, as_expr
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import (
    AttrStmt,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    expressions,
    map_bodies,
    map_expressions,
    path_to,
    walk_stmt,
)
from tilewright.tir.transform.known_values import remove_redundant_stores
from tilewright.tir.transform.loop_facts import inside
from tilewright.tir.transform.remove_no_op import without_effect_removed

FIELDS: Final = ("use_dataflow_analysis",)
MARK: Final = "overcompute"
"""Key of the attribute around statements that run although their condition is false."""


def reduce_branching(func: PrimFunc) -> PrimFunc:
    """Remove conditions of `func`.

    Values in memory are followed with the field `use_dataflow_analysis` of the option
    `tir.ReduceBranchingThroughOvercompute`.
    """
    given = PassContext.current().get("tir.ReduceBranchingThroughOvercompute")
    for name in given:
        if name not in FIELDS:
            raise OptionError(
                f"tir.ReduceBranchingThroughOvercompute has no field '{name}'{nearest(name, FIELDS)}; the fields are "
                f"{', '.join(FIELDS)}", code="TW0207")
    body, follows = func.body, bool(given.get("use_dataflow_analysis"))
    while (found := _removable(body, follows)) is not None:
        body = _with(body, found, found.then_case)
    return func.with_body(body)


def _removable(body: Stmt, follows: bool) -> IfThenElse | None:
    return next(
        (s for s in walk_stmt(body) if isinstance(s, IfThenElse) and (_same_branches(s) or (
            follows and s.else_case is None and _stays_inside(body, s) and _changes_nothing(body, s)))), None)


def _with(s: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if s is old:
        return new
    if isinstance(s, IfThenElse):
        then, other = _with(s.then_case, old, new), None if s.else_case is None else _with(s.else_case, old, new)
        return s if then is s.then_case and other is s.else_case else replace(s, then_case=then, else_case=other)
    return map_bodies(s, lambda b: _with(b, old, new)) or s


def _same_branches(s: IfThenElse) -> bool:
    if s.else_case is None:
        return False
    return structural_equal(without_effect_removed(s.then_case), without_effect_removed(s.else_case))


def _changes_nothing(body: Stmt, s: IfThenElse) -> bool:
    """Return whether the statements under a condition would have no effect where it is false."""
    copy = map_expressions(s.then_case, lambda e: e)
    more = replace(s, else_case=AttrStmt(0, MARK, as_expr(0), copy))
    left = remove_redundant_stores(_with(body, s, more), MARK)
    return left is None or not any(
        isinstance(x, AttrStmt) and x.attr_key == MARK and without_effect_removed(x.body) is not None
        for x in walk_stmt(left))


def _stays_inside(body: Stmt, s: IfThenElse) -> bool:
    """Return whether all accesses under a condition are inside their buffers where it is false, too."""
    ranges = Ranges()
    for x in path_to(body, s):
        ranges = inside(x, ranges) if isinstance(x, For) else ranges
    return _accesses_inside(s.then_case, ranges)


def _accesses_inside(s: Stmt, ranges: Ranges) -> bool:
    ranges = inside(s, ranges) if isinstance(s, For) else ranges
    places: list[tuple[Buffer, tuple[PrimExpr, ...]]] = [(s.buffer, s.indices)] if isinstance(s, Store) else []
    places += [(e.buffer, e.indices) for top in expressions(s) for e in walk(top) if isinstance(e, Load)]
    for buffer, indices in places:
        for i, n in zip(indices, buffer.shape, strict=True):
            low, high = bounds(simplify(i, ranges), ranges)
            if low is None or high is None or not isinstance(n, int) or low < 0 or high >= n:
                return False
    return all(_accesses_inside(b, ranges) for b in bodies(s))
