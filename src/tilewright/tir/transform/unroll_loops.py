"""Unroll loops, and fold expressions that become constant.

    for m in T.unrolled(2):            ->      if n < 7:
        if n + m < 8:                              C[n + 1] = A[n + 1]
            C[n + m] = A[n + m]                C[n] = A[n]            (in the order of m)

Every statement is specialized once, with the values of all enclosing unrolled variables. An index is split into an
invariant part and multiples of unrolled variables, so that a copy of it costs one addition. Loops of one trip are
unrolled, too. A loop is kept if its copies would have more than `MOST_STATEMENTS` statements. Needs a simplified
program; leaves one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.base.errors import ScheduleError
from tilewright.scalar.arith.bounds import bounds_of_form
from tilewright.scalar.arith.linear import LinearForm, expression
from tilewright.scalar.arith.ranges import Interval, Ranges
from tilewright.scalar.arith.simplify import decide, difference, form_of, is_index, simplify
from tilewright.scalar.arith.solve import assume
from tilewright.scalar.expr import Add, Comparison, IntImm, Load, PrimExpr, Select, Var, const, logical_not, number_of
from tilewright.scalar.walk import walk
from tilewright.tir.stmt import (
    SERIAL,
    UNROLLED,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    bodies,
    expressions,
    map_bodies,
    seq,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.loop_facts import inside, lasting, runs_once

MOST_STATEMENTS: Final = 1 << 14
"""Largest number of statements of an unrolled loop, including inner unrolled loops. Schedules stay far below it."""


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Unroll the loops of `func`. Raises `ScheduleError` for an unrolled loop of unknown extent."""
    return func.with_body(_Unroller(func.body).stmt(func.body) or Seq(()))


class _Unroller:
    def __init__(self, body: Stmt) -> None:
        self.kept: set[Var] = set()
        """The variables of unrolled loops that are kept."""
        self.count(body)
        self.unrolled = {
            s.var for s in walk_stmt(body)
            if isinstance(s, For) and s.var not in self.kept and (s.kind == UNROLLED or runs_once(s))}
        self.uses: dict[PrimExpr, tuple[Var, ...]] = {}
        self.decides: dict[int, bool] = {}
        self.env: dict[Var, int] = {}
        self.enter(Ranges())

    def enter(self, ranges: Ranges) -> None:
        """Switch to other ranges, and clear the caches derived from the old ones."""
        self.ranges = ranges
        self.copies: dict[tuple[object, ...], PrimExpr] = {}
        self.splits: dict[PrimExpr, tuple[PrimExpr | None, int, list[tuple[Var, int]]] | None] = {}
        self.signs: dict[PrimExpr, tuple[type[Comparison], Interval, list[tuple[Var, int]]] | None] = {}

    def count(self, s: Stmt) -> int:
        """Return the number of statements of `s` after unrolling."""
        inside = sum(map(self.count, bodies(s)))
        if isinstance(s, For) and s.kind == UNROLLED and isinstance(s.extent, IntImm):
            copies = max(1, s.extent.value) * inside
            if copies <= MOST_STATEMENTS:
                return copies
            self.kept.add(s.var)
        return inside + isinstance(s, (Store, Evaluate))

    # Statements.
    def stmt(self, s: Stmt) -> Stmt | None:
        match s:
            case Store():
                return self.store(s)
            case Seq():
                parts = [self.stmt(x) for x in s.stmts]
                return seq(*parts) if any(p is not None for p in parts) else None
            case For():
                return self.loop(s)
            case IfThenElse():
                return self.branch(s)
            case Let():
                return self.binding(s)
            case Evaluate():
                return Evaluate(self.expr(s.value))
            case _:
                return map_bodies(s, self.stmt)

    def binding(self, s: Let) -> Stmt | None:
        """Give a binding in a copy of an unrolled body a new variable, since copies have different values."""
        value, body = self.expr(s.value), self.stmt(s.body)
        if body is None or not self.env:
            return None if body is None else Let(s.var, value, body)
        own = Var(s.var.name, s.var.dtype)
        return Let(own, value, substitute_stmt(body, {s.var: own}))

    def store(self, s: Store) -> Stmt | None:
        mask = None if s.mask is None else self.expr(s.mask)
        known = None if mask is None else number_of(mask)
        if known == 0:
            return None
        return Store(s.buffer, self.expr(s.value), tuple(map(self.expr, s.indices)), None if known == 1 else mask)

    def loop(self, s: For) -> Stmt | None:
        if s.kind == UNROLLED and s.var in self.kept:
            s = replace(s, kind=SERIAL)
        low, extent = self.expr(s.min), self.expr(s.extent)
        if isinstance(extent, IntImm) and (s.kind == UNROLLED or extent.value <= 1):
            if not isinstance(low, IntImm):
                s, low = replace(s, body=substitute_stmt(s.body, {s.var: Add(low, s.var)})), IntImm(s.var.dtype, 0)
            if s.var not in self.unrolled:  # runs once only in this copy
                self.unrolled.add(s.var)
                self.uses.clear()
                self.enter(self.ranges)
            return self.copied(s, range(low.value, low.value + extent.value)) if isinstance(low, IntImm) else None
        if s.kind == UNROLLED:
            raise ScheduleError(
                f"the unrolled loop '{s.var.name}' has {extent} iterations, which is not a constant; split "
                "it by a constant first", s.origin)
        loop, outer = replace(s, min=low, extent=extent), self.ranges
        hidden = self.env.pop(s.var, None)
        self.enter(inside(loop, outer))
        body = self.stmt(s.body)
        self.enter(outer)
        if hidden is not None:
            self.env[s.var] = hidden
        return None if body is None else replace(loop, body=body)

    def copied(self, s: For, values: range) -> Stmt | None:
        parts: list[Stmt | None] = []
        for value in values:
            self.env[s.var] = value
            parts.append(self.stmt(s.body))
        self.env.pop(s.var, None)
        return seq(*parts) if any(p is not None for p in parts) else None

    def branch(self, s: IfThenElse) -> Stmt | None:
        condition = self.expr(s.condition)
        known = number_of(condition)
        if known is not None:
            chosen = s.then_case if known else s.else_case
            return None if chosen is None else self.stmt(chosen)
        opposite = logical_not(condition)
        then = self.under(condition, s.then_case)
        other = None if s.else_case is None else self.under(opposite, s.else_case)
        if then is None:
            return None if other is None else IfThenElse(opposite, other)
        return IfThenElse(condition, then, other)

    def under(self, condition: PrimExpr, s: Stmt) -> Stmt | None:
        """Unroll `s` under `condition`, which is used if there are conditions that it could decide."""
        if not self.has_decisions(s):
            return self.stmt(s)
        outer = self.ranges
        self.enter(assume(lasting(condition, s), outer))
        inner = self.stmt(s)
        self.enter(outer)
        return inner

    def has_decisions(self, s: Stmt) -> bool:
        known = self.decides.get(id(s))
        if known is None:
            known = isinstance(s, IfThenElse) or (isinstance(s, Store) and s.mask is not None)
            known = (
                known or any(self.has_decisions(x) for x in bodies(s)) or any(_has_select(e) for e in expressions(s))
            )
            self.decides[id(s)] = known
        return known

    # Expressions.
    def variables(self, e: PrimExpr) -> tuple[Var, ...]:
        """Return the unrolled variables in `e`."""
        known = self.uses.get(e)
        if known is None:
            found: dict[Var, None] = {}
            if isinstance(e, Var) and e in self.unrolled:
                found[e] = None
            for x in e.operands():
                found.update(dict.fromkeys(self.variables(x)))
            known = self.uses[e] = tuple(found)
        return known

    def expr(self, e: PrimExpr) -> PrimExpr:
        """Return `e` with the current values of unrolled variables."""
        used = self.variables(e)
        if not used:
            return e if not isinstance(e, Comparison) else simplify(e, self.ranges)
        env = self.env
        key = (e, *[env.get(v) for v in used])
        known = self.copies.get(key)
        if known is None:
            known = self.copies[key] = self.copy(e)
        return known

    def copy(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, Load):
            return Load(e.buffer, [self.expr(i) for i in e.indices])
        if is_index(e.dtype):
            split = self.split(e)
            if split is not None:
                rest, k, terms = split
                for v, c in terms:
                    k += c * self.env[v]
                return const(k, e.dtype) if rest is None else Add(rest, const(k, e.dtype)) if k else rest
        elif isinstance(e, Comparison):
            return self.comparison(e)
        elif isinstance(e, Select):
            known = number_of(self.expr(e.condition))
            if known is not None:
                return self.expr(e.true_value if known else e.false_value)
        new = e.with_operands([self.expr(x) for x in e.operands()])
        return simplify(new, self.ranges) if is_index(e.dtype) else new

    def split(self, e: PrimExpr) -> tuple[PrimExpr | None, int, list[tuple[Var, int]]] | None:
        """Return `e` as an invariant expression, a constant, and multiples of unrolled variables; None for other forms.
        """
        if e not in self.splits:
            form = form_of(e, self.ranges)
            terms = self.terms(form)
            rest = LinearForm({a: k for a, k in form.coefs.items() if a not in self.env})
            self.splits[e] = (
                None if terms is None else (expression(rest, e.dtype) if rest.coefs else None, form.const, terms)
            )
        return self.splits[e]

    def terms(self, form: LinearForm) -> list[tuple[Var, int]] | None:
        """Return the multiples of unrolled variables in a form; None if another atom contains one."""
        terms = []
        for a, k in form.coefs.items():
            if isinstance(a, Var) and a in self.env:
                terms.append((a, k))
            elif any(v in self.env for v in self.variables(a)):
                return None
        return terms

    def comparison(self, e: Comparison) -> PrimExpr:
        if is_index(e.a.dtype):
            if e not in self.signs:
                kind, d = difference(e, self.ranges)
                terms = self.terms(d)
                rest = LinearForm({a: k for a, k in d.coefs.items() if a not in self.env}, d.const)
                self.signs[e] = None if terms is None else (kind, bounds_of_form(rest, self.ranges), terms)
            sign = self.signs[e]
            if sign is not None:
                kind, (lo, hi), terms = sign
                shift = sum(k * self.env[v] for v, k in terms)
                decided = decide(kind, (None if lo is None else lo + shift, None if hi is None else hi + shift))
                if decided is not None:
                    return IntImm("bool", decided)
        return simplify(e.with_operands([self.expr(x) for x in e.operands()]), self.ranges)


def _has_select(e: PrimExpr) -> bool:
    return any(isinstance(x, Select) for x in walk(e))
