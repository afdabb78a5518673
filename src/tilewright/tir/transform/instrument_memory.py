"""Check every access of a lowered program before it is made.

    for i in T.serial(n):                      for i in T.serial(n):
        B[i] = A[I[i]]                 ->          if I[i] < 0 or I[i] >= 64:
                                                       T.call_extern("void", "tw_fault_4", site, I[i], i, 0)
                                                   else:
                                                       B[i] = A[I[i]]

Needs a lowered program (no blocks); vectorized and unrolled loops around checks become serial. What the ranges of loops prove is not checked again.
With `uninitialized`, a buffer that the function allocates gets a second one of truth values, what of it is written. With `overlaps`, no
parameter that is written may share memory with another. A wrong access is left out, and the program goes on, so that checks work in
parallel loops: what it computes then is not to be used. Raises nothing; `tilewright.base.memory_faults` says what reports look like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeGuard

from tilewright.base.errors import CompileError, Origin
from tilewright.base.memory_faults import ARITIES, FAULT, OVERLAP, OVERLAPS, READ, UNINITIALIZED, WRITE, Site
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
    And,
    Broadcast,
    Buffer,
    Call,
    IntImm,
    Load,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Var,
    add,
    all_of,
    any_of,
    as_expr,
    cast,
    compare,
    const,
    if_then_else,
    logical_not,
    mul,
    sub,
)
from tilewright.scalar.intrinsics import address_of, call_extern, call_pure_extern, expect, prefetch, stride_of
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
    expressions,
    handed_out,
    seq,
    stored_buffers,
)
from tilewright.tir.transform.scope import inside

_LONGEST_LINE: Final = 140
_MOST_WAYS: Final = 256
"""The most combinations of conditions under which one expression is looked at."""
_NO_READS: Final = (prefetch, stride_of, expect)
"""Functions whose argument names an element without reading it."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What is checked; `in_place` allows a result to begin where an input begins, as the memory plan of a graph may have it."""

    bounds: bool = True
    uninitialized: bool = False
    overlaps: bool = False
    in_place: bool = False

    @staticmethod
    def current(*, in_place: bool = False) -> Checks | None:
        """What the configuration of the current `PassContext` asks for; None where it asks for nothing."""
        get = PassContext.current().get
        within, written, apart = (bool(get(f"tir.instrument_{name}")) for name in ("bound_checkers", "uninitialized_reads", "overlapping_arguments"))
        return Checks(within, written, apart, in_place) if within or written or apart else None


def instrument_memory(func: PrimFunc, checks: Checks, first: int = 0) -> tuple[PrimFunc, tuple[Site, ...]]:
    """`func` with its accesses checked, and the sites of the checks, numbered from `first` on."""
    instrument = _Instrument(func, checks, first)
    return func.with_body(instrument.function()), tuple(instrument.sites)


@dataclass(frozen=True, slots=True)
class _Access:
    """An element that is read or written where `path` holds; `seen` is how the text shows it. `reads` says that its value matters."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    path: tuple[PrimExpr, ...]
    kind: str
    seen: PrimExpr
    reads: bool = True


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: what is known of variables, the loops around, and the node that it computes."""

    ranges: Ranges
    loops: tuple[Var, ...]
    origin: Origin | None
    holds: tuple[PrimExpr, ...] = ()
    """The conditions around it."""

    def where(self, condition: PrimExpr) -> _Place:
        """The same place under a condition, without what it says of memory, which may change."""
        known = [c for c in conjuncts(condition) if c.dtype.lanes == 1 and not any(isinstance(x, Load) for x in walk(c))]
        return replace(self, ranges=assume(all_of(*known), self.ranges), holds=(*self.holds, *known)) if known else self


_Accesses: TypeAlias = dict[_Access, None]


class _Instrument:
    def __init__(self, func: PrimFunc, checks: Checks, first: int) -> None:
        self.func, self.checks, self.first = func, checks, first
        self.sites: list[Site] = []
        self.printed = PrintedFunc(func)
        self.written: dict[Buffer, Buffer] = {}
        """The buffers of truth values."""
        self.added = 0
        """How many statements are new: the loops around them run one trip after the other."""

    def function(self) -> Stmt:
        place = _Place(Ranges(), (), self.func.origin)
        body = self.stmt(self.func.body, place)
        return self.apart(body) if self.checks.overlaps else body

    # Statements.
    def stmt(self, s: Stmt, place: _Place) -> Stmt:
        if isinstance(s, Seq):
            return Seq(tuple(self.stmt(x, place) for x in s.stmts))
        if isinstance(s, Allocate):
            return self.allocate(s, place)
        checked = _RULES[type(s)](self, s, place)
        accesses: _Accesses = {}
        reads = _Reads(accesses)
        for e in expressions(s):
            reads.collect(e)
        if isinstance(s, Store):
            _collect_store(s, accesses)
        return self.guarded(checked, s, list(accesses), place)

    def loop(self, s: For, place: _Place) -> Stmt:
        within = _Place(inside(s, place.ranges), (*place.loops, s.var), s.origin or place.origin, place.holds)
        before = self.added
        body = self.stmt(s.body, within)
        return replace(s, kind=s.kind if s.kind == PARALLEL or self.added == before else SERIAL, body=body)

    def branch(self, s: IfThenElse, place: _Place) -> Stmt:
        then = self.stmt(s.then_case, place.where(s.condition))
        if s.else_case is None:
            return IfThenElse(s.condition, then)
        return IfThenElse(s.condition, then, self.stmt(s.else_case, place.where(logical_not(s.condition))))

    def let(self, s: Let, place: _Place) -> Stmt:
        ranges = place.ranges.bind(s.var, *bounds(s.value, place.ranges)) if is_index(s.var.dtype) else place.ranges
        return Let(s.var, s.value, self.stmt(s.body, replace(place, ranges=ranges)))

    def store(self, s: Store, place: _Place) -> Stmt:
        shadow = self.written.get(s.buffer)
        if shadow is None:
            return s
        lanes, self.added = s.value.dtype.lanes, self.added + 1
        return seq(s, Store(shadow, const(1, BOOL.with_lanes(lanes)), s.indices, s.mask))

    def evaluate(self, s: Evaluate, place: _Place) -> Stmt:
        shadows = [self.written[b] for b in handed_out(s.value, writes=True) if b in self.written]
        self.added += len(shadows)
        return seq(s, *(_filled(b, 1) for b in dict.fromkeys(shadows)))

    def allocate(self, s: Allocate, place: _Place) -> Stmt:
        if not self.checks.uninitialized:
            return replace(s, body=self.stmt(s.body, place))
        self.added += 1
        shadow = self.written[s.buffer] = Buffer(f"{s.buffer.name}_written", s.buffer.shape, BOOL, "global")
        return replace(s, body=Allocate(shadow, seq(_filled(shadow, 0), self.stmt(s.body, place))))

    # Checks.
    def guarded(self, checked: Stmt, s: Stmt, accesses: Sequence[_Access], place: _Place) -> Stmt:
        """`checked`, which `s` became, where all accesses of `s` itself are right; else the report of the first that is not."""
        for access in reversed(accesses):
            if self.checks.uninitialized and access.reads and access.buffer in self.written:
                bad = logical_not(Load(self.written[access.buffer], access.indices))
                checked = self.reported(checked, s, access, UNINITIALIZED, bad, place)
            if self.checks.bounds:
                checked = self.reported(checked, s, access, access.kind, _outside(access, place.where(all_of(*access.path))), place)
        return checked

    def reported(self, checked: Stmt, s: Stmt, access: _Access, kind: str, bad: PrimExpr, place: _Place) -> Stmt:
        if isinstance(bad, IntImm) and not bad.value:
            return checked
        for condition in reversed(access.path):
            bad = if_then_else(condition, bad, const(0, BOOL))
        open_sizes = [d for d in access.buffer.shape if not isinstance(d, int)]
        loops = place.loops[-(ARITIES[-1] - len(access.indices) - len(open_sizes)) :]
        values = [*access.indices, *open_sizes, *loops]
        site = Site(
            kind, self.func.name, access.buffer.name, str(access.buffer.dtype), tuple(d if isinstance(d, int) else self.printed.text(d) for d in access.buffer.shape),
            tuple(map(self.printed.name, loops)), str(place.origin or ""), *self.seen(s, self.printed.text(access.seen)),
        )
        return IfThenElse(bad, self.report(site, values), checked)

    def report(self, site: Site, values: Sequence[PrimExpr]) -> Stmt:
        number = self.first + len(self.sites)
        self.sites.append(site)
        self.added += 1
        count = next(n for n in ARITIES if n >= len(values))
        padded = [cast(INT64, v) for v in values] + [const(0, INT64)] * (count - len(values))
        return Evaluate(call_extern("void", f"{FAULT}{count}", const(number, INT64), *padded))

    def seen(self, s: Stmt, text: str) -> tuple[int, str, int, int]:
        """Where the text of a statement shows an expression: the number of the line, the line, the column and the width there."""
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
        """`body` where no parameter that is written shares memory with another. Those with strides are left out: they may interleave."""
        dense = [b for b in self.func.params if not b.strides]
        stored = {*stored_buffers(self.func.body)}
        pairs = [(a, b) for k, a in enumerate(dense) for b in dense[k + 1 :] if a in stored or b in stored]
        for a, b in reversed(pairs):
            first, second = (a, b) if a in stored else (b, a)
            shape = tuple(d if isinstance(d, int) else self.printed.text(d) for d in first.shape)
            site = Site(OVERLAP, self.func.name, first.name, str(first.dtype), shape, (), str(self.func.origin or ""), *self.seen_head(first), other=second.name)
            shared = call_pure_extern("int64", OVERLAPS, *_memory(a), *_memory(b), const(int(self.checks.in_place), INT64))
            body = IfThenElse(compare(NE, shared, const(0, INT64)), self.report(site, ()), body)
        return body

    def seen_head(self, b: Buffer) -> tuple[int, str, int, int]:
        """The same for a parameter, in the head of the function."""
        line = next(k for k, text in enumerate(self.printed.lines) if text.startswith("def "))
        text, name = self.printed.lines[line], self.printed.name(b)
        found = re.search(rf"\b{re.escape(name)}: T\.Buffer\([^\"]*\"[^\"]*\"\)?", text)
        column, width = (found.start(), found.end() - found.start()) if found else (0, len(text))
        begin = max(0, column - _LONGEST_LINE // 3) if len(text) > _LONGEST_LINE else 0
        return line + 1, text[begin : begin + _LONGEST_LINE], column - begin, min(width, _LONGEST_LINE - column + begin)


_RULES: Final[dict[type, Callable[[_Instrument, Stmt, _Place], Stmt]]] = {
    For: _Instrument.loop, IfThenElse: _Instrument.branch, Let: _Instrument.let, Store: _Instrument.store, Evaluate: _Instrument.evaluate,  # type: ignore[dict-item]
}


def _outside(access: _Access, place: _Place) -> PrimExpr:
    """Whether an index is out of bounds, as far as that is not known."""
    bad = []
    ranges, holds = place.ranges, {simplify(c, place.ranges) for c in place.holds}
    for i, d in zip(access.indices, access.buffer.shape, strict=True):
        index = cast(INT64, i)
        for wrong in (compare(LT, index, const(0, INT64)), compare(GE, index, cast(INT64, as_expr(d)))):
            if prove(wrong, ranges) is not False and simplify(logical_not(wrong), ranges) not in holds:
                bad.append(wrong)
    return any_of(*bad)


class _Reads:
    """The elements that expressions read, each after those that its indices and the conditions before it read.

    What several expressions share is looked at once for each way of conditions to it, and not where a shorter way leads there as well.
    """

    def __init__(self, found: _Accesses) -> None:
        self.found = found
        self.ways: dict[PrimExpr, list[tuple[PrimExpr, ...]]] = {}
        self.denied: dict[PrimExpr, PrimExpr] = {}

    def collect(self, e: PrimExpr, path: tuple[PrimExpr, ...] = ()) -> None:
        """Add what `e` reads where all of `path` hold. Raises `CompileError` for an expression that is reached in too many ways."""
        ways = self.ways.setdefault(e, [])
        if any(len(way) <= len(path) and all(a is b for a, b in zip(way, path, strict=False)) for way in ways):
            return
        if len(ways) == _MOST_WAYS:
            raise CompileError(f"an expression of {e.dtype} is reached under more than {_MOST_WAYS} combinations of conditions, and its accesses are not checked; "
                               "store what the branches share in a buffer, or leave out tir.instrument_*", code="TW0412")
        ways.append(path)
        if isinstance(e, Select):
            self.collect(e.condition, path)
            self._collect_shared(e.true_value, e.false_value, path)
            self.collect(e.true_value, (*path, e.condition))
            self.collect(e.false_value, (*path, self._not(e.condition)))
        elif _is_short(e):
            self.collect(e.a, path)
            self.collect(e.b, (*path, e.a if isinstance(e, And) else self._not(e.a)))
        elif isinstance(e, Call) and e.op in _NO_READS:
            return
        elif isinstance(e, Call) and e.op is address_of and isinstance(e.args[0], Load):
            self._collect_box(e, e.args[0], path)
        else:
            for operand in e.operands():
                self.collect(operand, path)
            if isinstance(e, Load):
                _collect_element(e.buffer, e.indices, path, READ, e, self.found)

    def _not(self, condition: PrimExpr) -> PrimExpr:
        if condition not in self.denied:
            self.denied[condition] = logical_not(condition)
        return self.denied[condition]

    def _collect_shared(self, a: PrimExpr, b: PrimExpr, path: tuple[PrimExpr, ...]) -> None:
        """What both sides of a choice read whatever is chosen within them."""
        first = _always(a)
        if len(first) > 1:
            for e in _always(b):
                if e in first:
                    self.collect(e, path)

    def _collect_box(self, e: Call, load: Load, path: tuple[PrimExpr, ...]) -> None:
        """The first and the last element of what a function from outside is given."""
        for i in load.indices:
            self.collect(i, path)
        kind = WRITE if as_expr(e.args[1]) is const(2, e.args[1].dtype) else READ
        sizes = e.args[2:] if len(e.args) - 2 == len(load.indices) else [as_expr(1)] * len(load.indices)
        last = tuple(add(i, sub(cast(i.dtype, n), 1)) for i, n in zip(load.indices, sizes, strict=True))
        for at in dict.fromkeys((load.indices, last)):
            self.found.setdefault(_Access(load.buffer, at, path, kind, load, False))


def _is_short(e: PrimExpr) -> TypeGuard[And | Or]:
    """Whether the second operand is only evaluated where the first does not decide."""
    return isinstance(e, And | Or) and e.dtype.lanes == 1


def _always(root: PrimExpr) -> dict[PrimExpr, None]:
    """What is evaluated with an expression whatever its conditions are, operands first."""
    found: dict[PrimExpr, None] = {}
    stack: list[tuple[PrimExpr, bool]] = [(root, False)]
    while stack:
        e, after = stack.pop()
        if after:
            found[e] = None
        elif e not in found and not (isinstance(e, Call) and e.op in (*_NO_READS, address_of)):
            stack.append((e, True))
            stack += [(o, False) for o in ((e.condition,) if isinstance(e, Select) else (e.a,) if _is_short(e) else reversed(e.operands()))]
    return found


def _collect_element(buffer: Buffer, indices: tuple[PrimExpr, ...], path: tuple[PrimExpr, ...], kind: str, seen: PrimExpr, found: _Accesses) -> None:
    """An element, or those of a vector: the first and the last where all between them are in a row."""
    lanes = max((i.dtype.lanes for i in indices), default=1)
    in_row = all(isinstance(i, Ramp | Broadcast) or i.dtype.lanes == 1 for i in indices) and all(c.dtype.lanes == 1 for c in path)
    for k in (0, lanes - 1) if in_row and lanes > 1 else range(lanes):
        at, conditions = tuple(_lane(i, k) for i in indices), tuple(_lane(c, k) for c in path)
        if kind == WRITE or _Access(buffer, at, (), kind, seen) not in found:
            found.setdefault(_Access(buffer, at, conditions, kind, seen, kind == READ))


def _collect_store(s: Store, found: _Accesses) -> None:
    _collect_element(s.buffer, s.indices, () if s.mask is None else (s.mask,), WRITE, Load(s.buffer, s.indices), found)


def _lane(e: PrimExpr, k: int) -> PrimExpr:
    """Lane `k` of a vector expression."""
    if e.dtype.lanes == 1:
        return e
    match e:
        case Ramp():
            return add(e.base, mul(e.stride, const(k, e.base.dtype)))
        case Broadcast():
            return e.value
        case Call():
            return Call(e.dtype.element, e.op, [_lane(a, k) for a in e.args])
        case _:
            return e.with_operands([_lane(x, k) for x in e.operands()])


def _filled(buffer: Buffer, value: int) -> Stmt:
    """Loops that store one truth value everywhere."""
    axes = [Var(f"w{k}", INT64) for k in range(len(buffer.shape))]
    body: Stmt = Store(buffer, const(value, BOOL), tuple(axes))
    for axis, extent in zip(reversed(axes), reversed(buffer.shape), strict=True):
        body = For(axis, const(0, INT64), cast(INT64, as_expr(extent)), SERIAL, body)
    return body


def _memory(b: Buffer) -> tuple[PrimExpr, PrimExpr]:
    """The address of a buffer, and its bytes."""
    begin = Call("handle", address_of, [Load(b, tuple(const(0, INT64) for _ in b.shape)), const(1, INT64)])
    size: PrimExpr = const(b.dtype.itemsize, INT64)
    for d in b.shape:
        size = mul(size, cast(INT64, as_expr(d)))
    return begin, size
