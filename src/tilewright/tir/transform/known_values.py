"""Follow the values of memory through a function, and use them.

    for i in T.serial(16): A[i] = i              for i in T.serial(16): A[i] = i
    for j in T.serial(16):                ->     for j in T.serial(16):
        if A[j] == j: B[j] = 42                      B[j] = 42
        else: B[j] = 100

Values are known from stores, from `T.assume`, and from the conditions around a statement. Statements of schedulable
programs (blocks) are left out: the memory that they write is unknown afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.rewrite import Rewriter
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    EQ,
    Buffer,
    Call,
    Cast,
    IntImm,
    Load,
    Or,
    PrimExpr,
    Var,
    cast,
    integer_range,
    logical_not,
    number_of,
    sub,
)
from tilewright.scalar.walk import has_effect, rewrite, substitute
from tilewright.tir.stmt import (
    Allocate,
    AttrStmt,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    loaded_buffers,
    map_bodies,
    seq,
    stored_buffers,
)
from tilewright.tir.transform.loop_facts import inside, lasting
from tilewright.tir.transform.touches import Touch, all_hold, covers, holds, none_holds, of_store, over_loop, reads

State = tuple[Touch, ...]
"""Touches in the order in which they happen: the last one that surely touches an element determines its value."""


def use_known_values(func: PrimFunc, *, conditions: bool, expressions: bool) -> PrimFunc:
    """Decide the conditions of statements (`conditions`), and replace reads in stored values (`expressions`), by known
    values of memory."""
    flow = Flow(conditions=conditions, expressions=expressions)
    return func.with_body(flow.stmt(func.body, (), Rewriter(Ranges()))[0] or Evaluate(IntImm("int32", 0)))


def remove_redundant_stores(body: Stmt, marked: str = "") -> Stmt | None:
    """Remove stores that later ones surely overwrite before a read, and stores of values that memory has already.

    With `marked`, only those inside an attribute of that key. Returns None if nothing is left.
    """
    left = _Overwritten(marked).stmt(body, Rewriter(Ranges()), not marked)
    return None if left is None else Flow(stores=True, marked=marked).stmt(left, (), Rewriter(Ranges()))[0]


@dataclass
class Flow:
    """Walks a function forwards and returns each statement, changed as requested, with its touches."""

    conditions: bool = False
    expressions: bool = False
    stores: bool = False
    """Whether stores are removed whose value the memory has already."""
    marked: str = ""
    """If not empty, stores are removed only inside an attribute of this key."""
    axes: dict[Buffer, tuple[Var, ...]] = field(default_factory=dict)
    inside_mark: bool = False

    def axes_of(self, buffer: Buffer) -> tuple[Var, ...]:
        return self.axes.setdefault(buffer, tuple(Var(f"axis{k}") for k in range(len(buffer.shape))))

    def stmt(self, s: Stmt, state: State, context: Rewriter) -> tuple[Stmt | None, list[Touch]]:
        match s:
            case Store():
                return self.store(s, state, context)
            case IfThenElse():
                return self.branch(s, state, context)
            case For():
                return self.loop(s, state, context)
            case Seq():
                return self.sequence(s, state, context)
            case Let():
                return self.binding(s, state, context)
            case Allocate():
                body, touches = self.stmt(s.body, (*state, self.unknown(s.buffer)), context)
                touches = [t for t in touches if t.buffer is not s.buffer]
                return None if body is None else map_bodies(s, lambda _: body), touches
            case AttrStmt():
                before = self.inside_mark
                self.inside_mark = before or s.attr_key == self.marked
                body, touches = self.stmt(s.body, state, context)
                self.inside_mark = before
                return None if body is None else map_bodies(s, lambda _: body), touches
            case Evaluate() if _assumed(s.value) is not None:
                return s, self.learned(s.value.args[0], context)  # type: ignore[attr-defined]
            case _:
                return s, [self.unknown(b) for b in stored_buffers(s)]

    def unknown(self, buffer: Buffer) -> Touch:
        """Return the touch of all elements, with unknown values."""
        return Touch(buffer, (), None, (), None)

    def store(self, s: Store, state: State, context: Rewriter) -> tuple[Stmt | None, list[Touch]]:
        value = self.resolved(s.value, state, context)
        touch = of_store(s, self.axes_of(s.buffer), value)
        if self.stores and (not self.marked or self.inside_mark) and self.has_already(s, value, state, context):
            return None, [touch]
        if self.expressions and value is not s.value:
            s = Store(s.buffer, context.of(value), s.indices, s.mask)
        return s, [touch]

    def has_already(self, s: Store, value: PrimExpr, state: State, context: Rewriter) -> bool:
        if has_effect(s.value) or s.value.dtype.lanes > 1 or any(i.dtype.lanes > 1 for i in s.indices):
            return False
        place = Load(s.buffer, s.indices)
        known = self.known(place, state, context)
        given = without_casts(simplify(value, context.ranges), context.ranges)
        wanted = place if known is None else known
        if simplify(wanted, context.ranges) is given:
            return True
        own = given if isinstance(given, Load) and given.buffer is s.buffer and known is None else None
        return own is not None and all(
            number_of(simplify(sub(a, b), context.ranges)) == 0 for a, b in zip(own.indices, s.indices, strict=True))

    def branch(self, s: IfThenElse, state: State, context: Rewriter) -> tuple[Stmt | None, list[Touch]]:
        value = holds(self.resolved(s.condition, state, context), context) if self.conditions else None
        if value is not None:
            chosen = s.then_case if value else s.else_case
            return (None, []) if chosen is None else self.stmt(chosen, state, context)
        then, touches = self.under(s.condition, s.then_case, state, context)
        if s.else_case is None:
            return None if then is None else replace(s, then_case=then), touches
        other, more = self.under(logical_not(s.condition), s.else_case, state, context)
        if then is None:
            return None if other is None else IfThenElse(logical_not(s.condition), other), [*touches, *more]
        return replace(s, then_case=then, else_case=other), [*touches, *more]

    def under(
        self, condition: PrimExpr, s: Stmt, state: State, context: Rewriter
    ) -> tuple[Stmt | None, list[Touch]]:
        within = context.within(lasting(condition, s))
        body, touches = self.stmt(s, (*state, *self.learned(condition, context)), within)
        return body, [t.under((*conjuncts(condition),)) for t in touches]

    def loop(self, s: For, state: State, context: Rewriter) -> tuple[Stmt | None, list[Touch]]:
        within = context.over(inside(s, context.ranges))
        unknown = [self.unknown(b) for b in stored_buffers(s.body)]
        edits = self.conditions, self.expressions, self.stores
        self.conditions = self.expressions = self.stores = False
        _, touches = self.stmt(s.body, (*state, *unknown), within)
        self.conditions, self.expressions, self.stores = edits
        before = Var(s.var.name, s.var.dtype)
        earlier = over_loop([t.with_values({s.var: before}) for t in touches], before, s.min, sub(s.var, s.min))
        body, touches = self.stmt(s.body, (*state, *earlier), within)
        found = over_loop(touches, s.var, s.min, s.extent)
        return None if body is None else map_bodies(s, lambda _: body), found

    def sequence(self, s: Seq, state: State, context: Rewriter) -> tuple[Stmt | None, list[Touch]]:
        found, parts = list[Touch](), list[Stmt | None]()
        for x in s.stmts:
            part, touches = self.stmt(x, (*state, *found), context)
            found += touches
            parts.append(part)
            condition = _assumed(x.value) if isinstance(x, Evaluate) else None
            if condition is not None and not reads(condition):
                context = context.within(condition)
        if all(a is b for a, b in zip(parts, s.stmts, strict=True)):
            return s, found
        return seq(*parts) if any(p is not None for p in parts) else None, found

    def binding(self, s: Let, state: State, context: Rewriter) -> tuple[Stmt | None, list[Touch]]:
        body, touches = self.stmt(s.body, state, context)
        if reads(s.value):
            touches = over_loop(touches, s.var, s.value, None)
        else:
            touches = [t.with_values({s.var: s.value}) for t in touches]
        return None if body is None else map_bodies(s, lambda _: body), touches

    def learned(self, condition: PrimExpr, context: Rewriter) -> list[Touch]:
        """Return what a true condition tells about memory: `A[i] == 0`, or this where other conditions are false."""
        found = []
        for c in conjuncts(condition):
            *others, last = _disjuncts(c)
            for k, one in enumerate((last, *others)):
                rest = [x for j, x in enumerate((last, *others)) if j != k]
                touch = self.equality(one)
                if touch is not None and not any(map(reads, rest)):
                    found.append(touch.under(tuple(map(logical_not, rest))))
        return found

    def equality(self, c: PrimExpr) -> Touch | None:
        if not isinstance(c, EQ):
            return None
        sides: tuple[tuple[PrimExpr, PrimExpr], ...] = ((c.a, c.b), (c.b, c.a))
        for place, value in sides:
            if isinstance(place, Cast) and isinstance(inner := place.value, Load) and _widens(place):
                place, value = inner, cast(inner.dtype, value)
            if isinstance(place, Load) and not reads(value) and not any(map(reads, place.indices)):
                equations = tuple(zip(self.axes_of(place.buffer), place.indices, strict=True))
                return Touch(place.buffer, equations, (), (), value, False)
        return None

    def resolved(self, e: PrimExpr, state: State, context: Rewriter) -> PrimExpr:
        """Return an expression with known values instead of reads."""
        return rewrite(e, lambda x: self.known(x, state, context) if isinstance(x, Load) else _without_cast(
            x, context.ranges))

    def known(self, e: Load, state: State, context: Rewriter) -> PrimExpr | None:
        """Return the value of an element at this point; None if it is unknown."""
        if e.dtype.lanes > 1 or any(map(reads, e.indices)):
            return None
        places: dict[PrimExpr, PrimExpr] = dict(zip(self.axes_of(e.buffer), e.indices, strict=True))
        for t in reversed(state):
            if t.buffer is not e.buffer:
                continue
            equal, must, may = t.at(places)
            if must is not None and all_hold([*equal, *must], context):
                return None if t.value is None else substitute(t.value, places)
            if t.writes and not none_holds([*equal, *may], context):
                return None
        return None


def _widens(e: Cast) -> bool:
    """Return whether an integer is converted to a wider type, which keeps its value."""
    old, new = e.value.dtype, e.dtype
    return old.code == new.code == "int" and old.bits <= new.bits


def _without_cast(e: PrimExpr, ranges: Ranges) -> PrimExpr | None:
    """Return the value of two conversions, there and back, that do not change it; None for other expressions."""
    if not isinstance(e, Cast) or not isinstance(e.value, Cast):
        return None
    inner, value = e.value, e.value.value
    if value.dtype is not e.dtype or value.dtype.code != "int" or inner.dtype.code != "int":
        return None
    (low, high), (least, most) = bounds(value, ranges), integer_range(inner.dtype)
    fits = low is not None and high is not None and least <= low and high <= most
    return value if fits or _widens(inner) else None


def without_casts(e: PrimExpr, ranges: Ranges) -> PrimExpr:
    """Return an expression without conversions of integers there and back."""
    return rewrite(e, lambda x: _without_cast(x, ranges))


def _assumed(e: PrimExpr) -> PrimExpr | None:
    """Return the condition of `T.assume`, or None for other expressions."""
    return e.args[0] if isinstance(e, Call) and e.op.spelling == "assume" else None


def _disjuncts(e: PrimExpr) -> list[PrimExpr]:
    return [*_disjuncts(e.a), *_disjuncts(e.b)] if isinstance(e, Or) else [e]


@dataclass
class _Overwritten:
    """Removes stores that later statements of the same sequence overwrite."""

    marked: str
    flow: Flow = field(default_factory=Flow)

    def stmt(self, s: Stmt, context: Rewriter, removes: bool) -> Stmt | None:
        match s:
            case For():
                context = context.over(inside(s, context.ranges))
            case AttrStmt():
                removes = removes or s.attr_key == self.marked
            case Seq():
                return self.sequence(s, context, removes)
            case IfThenElse():
                then = self.stmt(s.then_case, context.within(lasting(s.condition, s.then_case)), removes)
                opposite = logical_not(s.condition)
                other = None if s.else_case is None else self.stmt(
                    s.else_case, context.within(lasting(opposite, s.else_case)), removes)
                if then is None:
                    return None if other is None else IfThenElse(opposite, other)
                return s if then is s.then_case and other is s.else_case else replace(
                    s, then_case=then, else_case=other)
            case _:
                pass
        return map_bodies(s, lambda b: self.stmt(b, context, removes))

    def sequence(self, s: Seq, context: Rewriter, removes: bool) -> Stmt | None:
        stmts: list[Stmt | None] = [self.stmt(x, context, removes) for x in s.stmts]
        for k, x in enumerate(stmts):
            if x is None:
                continue
            dead = {t.source for t in self.touches(x, context) if t.source is not None and self.is_dead(
                t, x, [y for y in stmts[k + 1 :] if y is not None], context)}
            if dead:
                stmts[k] = _without(x, dead, removes, self.marked)
        return seq(*stmts) if any(x is not None for x in stmts) else None

    def touches(self, s: Stmt, context: Rewriter) -> list[Touch]:
        return self.flow.stmt(s, (), context)[1]

    def is_dead(self, t: Touch, own: Stmt, following: Sequence[Stmt], context: Rewriter) -> bool:
        if t.buffer in _read_buffers(own):
            return False
        for s in following:
            if t.buffer in _read_buffers(s):
                return False
            axes = self.flow.axes_of(t.buffer)
            if any(u.buffer is t.buffer and covers(u, t, axes, context) for u in self.touches(s, context)):
                return True
        return False


def _read_buffers(s: Stmt) -> set[Buffer]:
    return {*loaded_buffers(s)}


def _without(s: Stmt, dead: set[Stmt], removes: bool, marked: str) -> Stmt | None:
    """Return `s` without some stores; values with effects are still computed."""
    if s in dead and removes and isinstance(s, Store):
        return Evaluate(s.value) if has_effect(s.value) else None
    inner = removes or (isinstance(s, AttrStmt) and s.attr_key == marked)
    if isinstance(s, IfThenElse):
        then = _without(s.then_case, dead, inner, marked)
        other = None if s.else_case is None else _without(s.else_case, dead, inner, marked)
        if then is None:
            return None if other is None else IfThenElse(logical_not(s.condition), other)
        return replace(s, then_case=then, else_case=other)
    return map_bodies(s, lambda b: _without(b, dead, inner, marked))
