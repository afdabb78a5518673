"""Guard every memory access of a lowered program by a check.

    for i in T.serial(n):                      for i in T.serial(n):
        B[i] = A[I[i]]                 ->          if I[i] < 0 or I[i] >= 64:
                                                       T.call_extern("void", "tw_fault_4", site, I[i], i, 0)
                                                   else:
                                                       B[i] = A[I[i]]

Needs a lowered program (no blocks); vectorized and unrolled loops around checks become serial. Accesses that loop
ranges prove to be in bounds are not checked. With `uninitialized`, each allocated buffer gets a shadow buffer of flags
that records the written elements. With `overlaps`, no written parameter may share memory with another. A wrong access
is skipped and the program continues, so that checks work in parallel loops; its results are invalid. Raises nothing;
`tilewright.base.memory_faults` describes the reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.base.errors import Origin
from tilewright.base.memory_faults import ARITIES, FAULT, OVERLAP, OVERLAPS, UNINITIALIZED, Site
from tilewright.base.types import BOOL, INT64
from tilewright.ir.transform import PassContext
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import is_index, prove, simplify
from tilewright.scalar.arith.solve import assume, conjuncts
from tilewright.scalar.expr import (
    GE,
    LT,
    NE,
    Buffer,
    Call,
    IntImm,
    Load,
    PrimExpr,
    Var,
    all_of,
    any_of,
    as_expr,
    cast,
    compare,
    const,
    if_then_else,
    logical_not,
    mul,
)
from tilewright.scalar.intrinsics import address_of, call_extern, call_pure_extern
from tilewright.scalar.walk import walk
from tilewright.tir.printer import PrintedFunc
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    Allocate,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    handed_out,
    seq,
    stored_buffers,
)
from tilewright.tir.transform.loop_facts import inside
from tilewright.tir.transform.memory_accesses import Access, accesses_of

_LONGEST_LINE: Final = 140


@dataclass(frozen=True, slots=True)
class Checks:
    """The enabled checks. `in_place` allows a result at the address of an input, as in memory plans of graphs."""

    bounds: bool = True
    uninitialized: bool = False
    overlaps: bool = False
    in_place: bool = False

    @staticmethod
    def current(*, in_place: bool = False) -> Checks | None:
        """Return the checks that the current `PassContext` enables; None if there are none."""
        get = PassContext.current().get
        within, written, apart = (
            bool(get(f"tir.instrument_{name}"))
            for name in ("bound_checkers", "uninitialized_reads", "overlapping_arguments"))
        return Checks(within, written, apart, in_place) if within or written or apart else None


def instrument_memory(func: PrimFunc, checks: Checks, first: int = 0) -> tuple[PrimFunc, tuple[Site, ...]]:
    """Check the accesses of `func`. Return the new function, and the sites of the checks, numbered from `first` on."""
    instrument = _Instrument(func, checks, first)
    return func.with_body(instrument.function()), tuple(instrument.sites)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The context of a statement: known ranges, the loops around it, and the node that it computes."""

    ranges: Ranges
    loops: tuple[Var, ...]
    origin: Origin | None
    holds: tuple[PrimExpr, ...] = ()
    """The enclosing conditions."""

    def where(self, condition: PrimExpr) -> _Scope:
        """Return the scope under a condition, without the parts that read memory, which may change."""
        known = [
            c for c in conjuncts(condition) if c.dtype.lanes == 1 and not any(isinstance(x, Load) for x in walk(c))]
        return replace(self, ranges=assume(all_of(*known), self.ranges), holds=(*self.holds, *known)) if known else self


class _Instrument:
    def __init__(self, func: PrimFunc, checks: Checks, first: int) -> None:
        self.func, self.checks, self.first = func, checks, first
        self.sites: list[Site] = []
        self.printed = PrintedFunc(func)
        self.written: dict[Buffer, Buffer] = {}
        """The shadow buffers of flags."""
        self.added = 0
        """Number of new statements; loops around them become serial."""

    def function(self) -> Stmt:
        scope = _Scope(Ranges(), (), self.func.origin)
        body = self.stmt(self.func.body, scope)
        return self.apart(body) if self.checks.overlaps else body

    # Statements.
    def stmt(self, s: Stmt, scope: _Scope) -> Stmt:
        if isinstance(s, Seq):
            return Seq(tuple(self.stmt(x, scope) for x in s.stmts))
        if isinstance(s, Allocate):
            return self.allocate(s, scope)
        checked = _RULES[type(s)](self, s, scope)
        return self.guarded(checked, s, accesses_of(s), scope)

    def loop(self, s: For, scope: _Scope) -> Stmt:
        within = _Scope(inside(s, scope.ranges), (*scope.loops, s.var), s.origin or scope.origin, scope.holds)
        before = self.added
        body = self.stmt(s.body, within)
        return replace(s, kind=s.kind if s.kind == PARALLEL or self.added == before else SERIAL, body=body)

    def branch(self, s: IfThenElse, scope: _Scope) -> Stmt:
        then = self.stmt(s.then_case, scope.where(s.condition))
        if s.else_case is None:
            return IfThenElse(s.condition, then)
        return IfThenElse(s.condition, then, self.stmt(s.else_case, scope.where(logical_not(s.condition))))

    def let(self, s: Let, scope: _Scope) -> Stmt:
        ranges = scope.ranges.bind(s.var, *bounds(s.value, scope.ranges)) if is_index(s.var.dtype) else scope.ranges
        return Let(s.var, s.value, self.stmt(s.body, replace(scope, ranges=ranges)))

    def store(self, s: Store, scope: _Scope) -> Stmt:
        shadow = self.written.get(s.buffer)
        if shadow is None:
            return s
        lanes, self.added = s.value.dtype.lanes, self.added + 1
        return seq(s, Store(shadow, const(1, BOOL.with_lanes(lanes)), s.indices, s.mask))

    def evaluate(self, s: Evaluate, scope: _Scope) -> Stmt:
        shadows = [self.written[b] for b in handed_out(s.value, writes=True) if b in self.written]
        self.added += len(shadows)
        return seq(s, *(_filled(b, 1) for b in dict.fromkeys(shadows)))

    def allocate(self, s: Allocate, scope: _Scope) -> Stmt:
        if not self.checks.uninitialized:
            return replace(s, body=self.stmt(s.body, scope))
        self.added += 1
        shadow = self.written[s.buffer] = Buffer(f"{s.buffer.name}_written", s.buffer.shape, BOOL, "global")
        return replace(s, body=Allocate(shadow, seq(_filled(shadow, 0), self.stmt(s.body, scope))))

    # Checks.
    def guarded(self, checked: Stmt, s: Stmt, accesses: Sequence[Access], scope: _Scope) -> Stmt:
        """Return `checked`, the new form of `s`, guarded by checks of the accesses of `s` itself; the first wrong
        access is reported."""
        for access in reversed(accesses):
            if self.checks.uninitialized and access.reads and access.buffer in self.written:
                bad = logical_not(Load(self.written[access.buffer], access.indices))
                checked = self.reported(checked, s, access, UNINITIALIZED, bad, scope)
            if self.checks.bounds:
                checked = self.reported(
                    checked, s, access, access.kind, _outside(access, scope.where(all_of(*access.path))), scope)
        return checked

    def reported(self, checked: Stmt, s: Stmt, access: Access, kind: str, bad: PrimExpr, scope: _Scope) -> Stmt:
        if isinstance(bad, IntImm) and not bad.value:
            return checked
        for condition in reversed(access.path):
            bad = if_then_else(condition, bad, const(0, BOOL))
        open_sizes = [d for d in access.buffer.shape if not isinstance(d, int)]
        loops = scope.loops[-(ARITIES[-1] - len(access.indices) - len(open_sizes)) :]
        values = [*access.indices, *open_sizes, *loops]
        site = Site(
            kind, self.func.name, access.buffer.name, str(access.buffer.dtype),
            tuple(d if isinstance(d, int) else self.printed.text(d) for d in access.buffer.shape),
            tuple(map(self.printed.name, loops)), str(scope.origin or ""),
            *self.seen(s, self.printed.text(access.seen)))
        return IfThenElse(bad, self.report(site, values), checked)

    def report(self, site: Site, values: Sequence[PrimExpr]) -> Stmt:
        number = self.first + len(self.sites)
        self.sites.append(site)
        self.added += 1
        count = next(n for n in ARITIES if n >= len(values))
        padded = [cast(INT64, v) for v in values] + [const(0, INT64)] * (count - len(values))
        return Evaluate(call_extern("void", f"{FAULT}{count}", const(number, INT64), *padded))

    def seen(self, s: Stmt, text: str) -> tuple[int, str, int, int]:
        """Return the position of an expression in the text of a statement: line number, line, column and width."""
        line = self.printed.line_of(s)
        shown = self.printed.lines[line - 1].strip() if line else ""
        found = re.search(rf"(?<![\w.]){re.escape(text)}", shown)
        column, width = (found.start(), len(text)) if found else (0, len(shown))
        if len(shown) > _LONGEST_LINE:
            begin = max(0, min(column - _LONGEST_LINE // 3, len(shown) - _LONGEST_LINE))
            shown, column = shown[begin : begin + _LONGEST_LINE], column - begin
            width = min(width, len(shown) - column)
        return line, shown, column, width

    def apart(self, body: Stmt) -> Stmt:
        """Report written parameters that share memory with another one; otherwise run `body`. Parameters with strides
        are not checked, since they may interleave."""
        dense = [b for b in self.func.buffers if not b.strides]
        stored = {*stored_buffers(self.func.body)}
        pairs = [(a, b) for k, a in enumerate(dense) for b in dense[k + 1 :] if a in stored or b in stored]
        for a, b in reversed(pairs):
            first, second = (a, b) if a in stored else (b, a)
            shape = tuple(d if isinstance(d, int) else self.printed.text(d) for d in first.shape)
            site = Site(
                OVERLAP, self.func.name, first.name, str(first.dtype), shape, (), str(self.func.origin or ""),
                *self.seen_head(first), other=second.name)
            shared = call_pure_extern(
                "int64", OVERLAPS, *_memory(a), *_memory(b), const(int(self.checks.in_place), INT64))
            body = IfThenElse(compare(NE, shared, const(0, INT64)), self.report(site, ()), body)
        return body

    def seen_head(self, b: Buffer) -> tuple[int, str, int, int]:
        """Return the position of a parameter in the header of the function, as `seen` does."""
        line = next(k for k, text in enumerate(self.printed.lines) if text.startswith("def "))
        text, name = self.printed.lines[line], self.printed.name(b)
        found = re.search(rf"\b{re.escape(name)}: T\.Buffer\([^\"]*\"[^\"]*\"\)?", text)
        column, width = (found.start(), found.end() - found.start()) if found else (0, len(text))
        begin = max(0, column - _LONGEST_LINE // 3) if len(text) > _LONGEST_LINE else 0
        return line + 1, text[begin : begin + _LONGEST_LINE], column - begin, min(width, _LONGEST_LINE - column + begin)


_RULES: Final[dict[type, Callable[[_Instrument, Any, _Scope], Stmt]]] = {
    For: _Instrument.loop, IfThenElse: _Instrument.branch, Let: _Instrument.let, Store: _Instrument.store,
    Evaluate: _Instrument.evaluate,
}


def _outside(access: Access, scope: _Scope) -> PrimExpr:
    """Return the condition that an index is out of bounds, without parts known to be false."""
    bad = []
    ranges, holds = scope.ranges, {simplify(c, scope.ranges) for c in scope.holds}
    for i, d in zip(access.indices, access.buffer.shape, strict=True):
        index = cast(INT64, i)
        for wrong in (compare(LT, index, const(0, INT64)), compare(GE, index, cast(INT64, as_expr(d)))):
            if prove(wrong, ranges) is not False and simplify(logical_not(wrong), ranges) not in holds:
                bad.append(wrong)
    return any_of(*bad)


def _filled(buffer: Buffer, value: int) -> Stmt:
    """Return loops that store one flag everywhere."""
    axes = [Var(f"w{k}", INT64) for k in range(len(buffer.shape))]
    body: Stmt = Store(buffer, const(value, BOOL), tuple(axes))
    for axis, extent in zip(reversed(axes), reversed(buffer.shape), strict=True):
        body = For(axis, const(0, INT64), cast(INT64, as_expr(extent)), SERIAL, body)
    return body


def _memory(b: Buffer) -> tuple[PrimExpr, PrimExpr]:
    """Return the address of a buffer, and its size in bytes."""
    begin = Call("handle", address_of, [Load(b, tuple(const(0, INT64) for _ in b.shape)), const(1, INT64)])
    size: PrimExpr = const(b.dtype.itemsize, INT64)
    for d in b.shape:
        size = mul(size, cast(INT64, as_expr(d)))
    return begin, size
