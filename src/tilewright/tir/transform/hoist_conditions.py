"""Move loop-invariant conditions and bindings out of loops.

    for i in T.serial(8):              ->      if n < 4:
        if n < 4:                                  for i in T.serial(8):
            A[i] = B[i]                                A[i] = B[i]

Both branches get a copy of the loop, in which the condition is decided. A condition stays if it reads memory that the
loop writes, or is beside other statements of the loop's body.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.transform import PassContext
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.rewrite import Rewriter
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    Buffer,
    Div,
    FloorDiv,
    FloorMod,
    Load,
    PrimExpr,
    Select,
    TruncDiv,
    TruncMod,
    Var,
    all_of,
    logical_not,
    number_of,
)
from tilewright.scalar.walk import free_vars, has_effect, rewrite, walk
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    THREAD,
    Allocate,
    AttrStmt,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    map_bodies,
    map_expressions,
    stored_buffers,
    walk_stmt,
)
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.unify_threads import check_threads


class HoistedConditionals(enum.Flag):
    """Conditions that `HoistExpression` moves."""

    Never = 0
    IfElseStmt = 1
    """Conditions of statements."""
    IfElseExpr = 2
    """Conditions of values, `T.if_then_else`."""
    BooleanExpression = 4
    """Operands of `and` in conditions, one by one."""
    UsingBlockVar = 8
    """Conditions of variables of threads; all conditions also leave loops over threads."""
    All = IfElseStmt | IfElseExpr | BooleanExpression | UsingBlockVar


class HoistedLetBindings(enum.Flag):
    """Bindings that `HoistExpression` moves."""

    Never = 0
    RequiredByConditional = 1
    """Those that a condition needs to be moved."""
    LetStmt = 2
    """All bindings of statements."""
    LetExpr = 4
    """Bindings in expressions. An expression has none here: they are replaced by their values."""
    All = RequiredByConditional | LetStmt | LetExpr


_DIVISIONS: Final = (Div, FloorDiv, FloorMod, TruncDiv, TruncMod)


def hoist_conditions(func: PrimFunc, *, basic: bool = False) -> PrimFunc:
    """Move the conditions of statements out of loops; variables are bound once afterwards.

    The field `support_block_scope_hosting` of the option `tir.HoistIfThenElse` includes `UsingBlockVar`, unless
    `basic` is set.
    """
    given = _fields("tir.HoistIfThenElse", "support_block_scope_hosting")
    kinds = HoistedConditionals.IfElseStmt
    if given.get("support_block_scope_hosting") and not basic:
        kinds |= HoistedConditionals.UsingBlockVar
    return _hoisted(func, kinds, HoistedLetBindings.Never)


def hoist_expressions(func: PrimFunc) -> PrimFunc:
    """Move the conditions and the bindings that the option `tir.HoistExpression` names out of loops, by default all."""
    given = _fields("tir.HoistExpression", "hoisted_conditionals", "hoisted_let_bindings")
    return _hoisted(
        func, HoistedConditionals(given.get("hoisted_conditionals", HoistedConditionals.All.value)),
        HoistedLetBindings(given.get("hoisted_let_bindings", HoistedLetBindings.All.value)))


def _fields(option: str, *known: str) -> dict[str, int]:
    """Return the fields of an option after a check of their names and values."""
    given: dict[str, int] = PassContext.current().get(option)
    for name, value in given.items():
        if name not in known or not isinstance(value, int):
            raise OptionError(
                f"{option} has no field '{name}' of value {value!r}{nearest(name, known)}; the fields are "
                f"{', '.join(known)}, all integers", code="TW0207")
    return given


def _hoisted(func: PrimFunc, conditionals: HoistedConditionals, lets: HoistedLetBindings) -> PrimFunc:
    check_threads(func)
    threads = frozenset(s.var for s in walk_stmt(func.body) if isinstance(s, For) and THREAD in s.annotations)
    return convert_ssa(func.with_body(_Hoister(conditionals, lets, threads).stmt(func.body)))


@dataclass(frozen=True, slots=True)
class _Scope:
    """The surroundings of a place in a loop: variables and memory that exist only there, memory that the loop writes,
    and whether the place is reached under a condition."""

    variables: frozenset[Var]
    memory: frozenset[Buffer]
    guarded: bool = False

    def binding(self, var: Var) -> _Scope:
        return replace(self, variables=self.variables | {var})

    def under(self) -> _Scope:
        return replace(self, guarded=True)

    def permits(self, e: PrimExpr) -> bool:
        """Return whether `e` has the same value outside of the loop, and can be computed there."""
        if has_effect(e) or not self.variables.isdisjoint(free_vars(e)):
            return False
        for x in walk(e):
            if isinstance(x, Load) and (self.guarded or x.buffer in self.memory):
                return False
            if self.guarded and isinstance(x, _DIVISIONS) and not number_of(x.b):
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Hoister:
    conditionals: HoistedConditionals
    lets: HoistedLetBindings
    threads: frozenset[Var]

    @property
    def uses_threads(self) -> bool:
        return HoistedConditionals.UsingBlockVar in self.conditionals

    def stmt(self, s: Stmt) -> Stmt:
        found = next(self.movable(s), None) if isinstance(s, For) and self.may_leave(s) else None
        if isinstance(found, Let):
            return Let(found.var, found.value, self.stmt(_without(s, found)))
        if found is not None:
            then, other = (_decided(s, _Known.of(found, value)) for value in (True, False))
            other = None if other is None else self.stmt(other)
            if then is not None:
                return IfThenElse(found, self.stmt(then), other)
            if other is not None:
                return IfThenElse(logical_not(found), other)
        return map_bodies(s, self.stmt) or s

    def may_leave(self, s: For) -> bool:
        return s.kind in (SERIAL, PARALLEL) and (self.uses_threads or THREAD not in s.annotations)

    def movable(self, loop: For) -> Iterator[Let | PrimExpr]:
        """Yield the bindings and conditions in the body of a loop that can leave it, outermost first."""
        owned = {s.buffer for s in walk_stmt(loop.body) if isinstance(s, Allocate)}
        scope = _Scope(frozenset([loop.var]), frozenset(owned | {*stored_buffers(loop.body)}))
        return self.inside(loop.body, scope)

    def inside(self, s: Stmt, scope: _Scope) -> Iterator[Let | PrimExpr]:
        match s:
            case For() if self.may_leave(s):
                yield from self.inside(s.body, scope.binding(s.var))
            case Let():
                yield from self.binding(s, scope)
                yield from self.inside(s.body, scope.binding(s.var))
            case IfThenElse():
                if HoistedConditionals.IfElseStmt in self.conditionals:
                    yield from self.parts(s.condition, scope)
                for branch in (s.then_case, s.else_case):
                    if branch is not None:
                        yield from self.inside(branch, scope.under())
            case AttrStmt() | Allocate():
                yield from self.inside(s.body, scope)
            case Store() | Evaluate():
                if HoistedConditionals.IfElseExpr in self.conditionals:
                    for e in expressions(s):
                        for x in walk(e):
                            if isinstance(x, Select):
                                yield from self.parts(x.condition, scope.under())

    def binding(self, s: Let, scope: _Scope) -> Iterator[Let]:
        if not scope.permits(s.value) or scope.guarded:
            return
        needed = HoistedLetBindings.RequiredByConditional in self.lets and any(
            isinstance(c, PrimExpr) and s.var in free_vars(c) for c in self.inside(s.body, scope))
        if needed or HoistedLetBindings.LetStmt in self.lets:
            yield s

    def parts(self, condition: PrimExpr, scope: _Scope) -> Iterator[PrimExpr]:
        """Yield the condition, or the operands of its conjunction, where they can be moved."""
        separate = HoistedConditionals.BooleanExpression in self.conditionals
        for part in conjuncts(condition) if separate else [condition]:
            permitted = self.uses_threads or self.threads.isdisjoint(free_vars(part))
            if permitted and number_of(part) is None and part.dtype.lanes == 1 and scope.permits(part):
                yield part


def _without(s: Stmt, let: Let) -> Stmt:
    """Return `s` with a binding replaced by its body."""
    return let.body if s is let else map_bodies(s, lambda b: _without(b, let)) or s


@dataclass(frozen=True, slots=True)
class _Known:
    """A condition with its value, and what follows from it."""

    condition: PrimExpr
    value: bool
    facts: Rewriter

    @classmethod
    def of(cls, condition: PrimExpr, value: bool) -> _Known:
        return cls(condition, value, Rewriter(Ranges()).within(condition if value else logical_not(condition)))

    def decide(self, e: PrimExpr) -> bool | None:
        """Return the value of a condition if it follows, else None."""
        if e is self.condition or e is logical_not(self.condition):
            return self.value if e is self.condition else not self.value
        found = number_of(self.facts.of(e))
        return None if found is None else bool(found)

    def rest(self, e: PrimExpr) -> PrimExpr | bool:
        """Return a condition without the parts that follow, or its value."""
        whole = self.decide(e)
        if whole is not None:
            return whole
        parts = [(c, self.decide(c)) for c in conjuncts(e)]
        if any(value is False for _, value in parts):
            return False
        open_parts = [c for c, value in parts if value is None]
        return True if not open_parts else e if len(open_parts) == len(parts) else all_of(*open_parts)

    def choice(self, e: PrimExpr) -> PrimExpr | None:
        if not isinstance(e, Select) or e.condition.dtype.lanes > 1:
            return None
        rest = self.rest(e.condition)
        if isinstance(rest, bool):
            return e.true_value if rest else e.false_value
        return None if rest is e.condition else Select(rest, e.true_value, e.false_value)


def _decided(s: Stmt, known: _Known) -> Stmt | None:
    """Return `s` with the conditions decided that follow from a known one; None if nothing is left."""
    memo: dict[PrimExpr, PrimExpr] = {}
    return _branches(map_expressions(s, lambda e: rewrite(e, known.choice, memo)), known)


def _branches(s: Stmt, known: _Known) -> Stmt | None:
    if not isinstance(s, IfThenElse):
        return map_bodies(s, lambda b: _branches(b, known))
    rest = known.rest(s.condition)
    if isinstance(rest, bool):
        chosen = s.then_case if rest else s.else_case
        return None if chosen is None else _branches(chosen, known)
    then = _branches(s.then_case, known)
    other = None if s.else_case is None else _branches(s.else_case, known)
    if then is None:
        return None if other is None else IfThenElse(logical_not(rest), other)
    return IfThenElse(rest, then, other)
