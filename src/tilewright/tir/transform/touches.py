"""Effects of statements on elements of buffers, as conditions over the index of an element.

    for i in T.serial(16):
        if i < 12: A[i + 1] = i * 2      ->      A[a] = (a - 1) * 2 where 0 <= a - 1 < 16 and a - 1 < 12

A `Touch` is first written with the variables of the loops around a statement: equations `a == i + 1` between the axes
`a` of the buffer and indices, and conditions. `over_loop` replaces the variable of a loop by its solution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.scalar.arith.linear import LinearForm, expression, linear
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.rewrite import Rewriter
from tilewright.scalar.arith.simplify import prove
from tilewright.scalar.expr import (
    EQ,
    GE,
    LT,
    Broadcast,
    Buffer,
    Cast,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    Var,
    add,
    cast,
    compare,
    const,
    floordiv,
    floormod,
    mul,
    number_of,
    sub,
)
from tilewright.scalar.walk import free_vars, has_effect, substitute, walk
from tilewright.tir.stmt import Stmt, Store

Conditions = tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True)
class Touch:
    """A store to elements of `buffer`, or (not `writes`) knowledge about their values."""

    buffer: Buffer
    equations: tuple[tuple[PrimExpr, PrimExpr], ...]
    """Expressions of axes, and expressions of variables that equal them at each touched element."""
    must: Conditions | None
    """With the equations, these hold only for elements that are surely touched; None if no element surely is."""
    may: Conditions
    """With the equations, these hold for all elements that are touched."""
    value: PrimExpr | None
    """The value of a surely touched element, over axes and variables; None if it is unknown."""
    writes: bool = True
    source: Stmt | None = None
    """The store itself."""

    def under(self, condition: Conditions) -> Touch:
        """Return the touch in a branch. Conditions that read memory are not decidable later."""
        plain = tuple(c for c in condition if not reads(c))
        must = None if self.must is None or len(plain) < len(condition) else (*self.must, *plain)
        return replace(self, must=must, may=(*self.may, *plain))

    def with_values(self, values: Mapping[PrimExpr, PrimExpr]) -> Touch:
        """Return the touch with variables replaced."""
        return Touch(
            self.buffer, tuple((lhs, substitute(rhs, values)) for lhs, rhs in self.equations),
            None if self.must is None else tuple(substitute(c, values) for c in self.must),
            tuple(substitute(c, values) for c in self.may),
            None if self.value is None else substitute(self.value, values), self.writes, self.source)

    def at(self, axes: Mapping[PrimExpr, PrimExpr]) -> tuple[Conditions, Conditions | None, Conditions]:
        """Return the equations, and what surely and possibly holds, at an element with these indices."""
        equal = tuple(compare(EQ, substitute(lhs, axes), substitute(rhs, axes)) for lhs, rhs in self.equations)
        must = None if self.must is None else tuple(substitute(c, axes) for c in self.must)
        return equal, must, tuple(substitute(c, axes) for c in self.may)

    def mentions(self, var: Var) -> bool:
        parts = [rhs for _, rhs in self.equations] + [*(self.must or ()), *self.may]
        return any(var in free_vars(e) for e in (*parts, *([] if self.value is None else [self.value])))


def reads(e: PrimExpr) -> bool:
    """Return whether an expression reads memory or has an effect, so that its value may change."""
    return has_effect(e) or any(isinstance(x, Load) for x in walk(e))


def holds(condition: PrimExpr, context: Rewriter) -> bool | None:
    """Return the value of a condition if it is known, else None."""
    found = number_of(context.of(condition))
    return prove(condition, context.ranges) if found is None else bool(found)


def all_hold(conditions: Sequence[PrimExpr], context: Rewriter) -> bool:
    return all(holds(c, context) is True for c in conditions)


def none_holds(conditions: Sequence[PrimExpr], context: Rewriter) -> bool:
    """Return whether the conditions are known not to hold at once."""
    for c in conditions:
        if holds(c, context) is False:
            return True
        context = context.within(c)
    return False


def of_store(s: Store, axes: Sequence[Var], value: PrimExpr | None) -> Touch:
    """Return the touch of a store; `value` is the stored value without reads of memory, or None."""
    value = None if value is None or reads(value) else value
    lanes = next((i.dtype.lanes for i in s.indices if i.dtype.lanes > 1), 1)
    must = () if s.mask is None else None
    if lanes == 1:
        return Touch(s.buffer, tuple(zip(axes, s.indices, strict=True)), must, (), value, True, s)
    lane = Var("lane")
    scalar = None if value is None or value.dtype.lanes == 1 else _in_lane(value, lane)
    equations = [(a, _in_lane(i, lane)) for a, i in zip(axes, s.indices, strict=True)]
    known = tuple((a, i) for a, i in equations if i is not None)
    touch = Touch(s.buffer, known, must if len(known) == len(equations) else None, (), scalar, True, s)
    return over_loop([touch], lane, const(0, lane.dtype), const(lanes, lane.dtype))[0]


def _in_lane(e: PrimExpr, lane: Var) -> PrimExpr | None:
    """Return a lane of a vector, or None for an unknown form."""
    if e.dtype.lanes == 1:
        return e
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, Cast):
        inner = _in_lane(e.value, lane)
        return None if inner is None else cast(e.dtype.element, inner)
    return add(e.base, mul(lane, e.stride)) if isinstance(e, Ramp) else None


def over_loop(touches: Sequence[Touch], var: Var, low: PrimExpr, extent: PrimExpr | None) -> list[Touch]:
    """Return the touches of all trips of a loop; without `extent`, of one unknown value of `var`.

    Touches of one buffer keep their order and values only if each element is touched in one trip, the same for all.
    """
    solved = [_solution(t, var, low, extent) for t in touches]
    trips: dict[Buffer, list[PrimExpr | None]] = {}
    for t, s in zip(touches, solved, strict=True):
        trips.setdefault(t.buffer, []).append(None if s is None else s.value)
    found = []
    for t, s in zip(touches, solved, strict=True):
        own = trips[t.buffer]
        ordered = len(own) == 1 or (own[0] is not None and all(x is own[0] for x in own))
        done = _unsolved(t, var, extent) if s is None else s.applied(t, var, low, extent)
        if ordered:
            found.append(done)
        elif t.writes:
            found.append(replace(done, value=None))
    return found


@dataclass(frozen=True, slots=True)
class _Solution:
    """The value of a variable at a touched element, and the equation that replaces the solved one."""

    solved: int
    value: PrimExpr
    rest: tuple[PrimExpr, PrimExpr] | None

    def applied(self, t: Touch, var: Var, low: PrimExpr, extent: PrimExpr | None) -> Touch:
        others = replace(t, equations=tuple(e for k, e in enumerate(t.equations) if k != self.solved))
        done = others.with_values({var: self.value})
        if self.rest is not None:
            return replace(done, equations=(*done.equations, self.rest))
        if extent is None:
            return done
        within = (compare(GE, self.value, low), compare(LT, self.value, add(low, extent)))
        kept = tuple(c for c in within if number_of(c) != 1)
        return replace(
            done, must=None if done.must is None else (*done.must, *kept), may=(*done.may, *kept))


def _solution(t: Touch, var: Var, low: PrimExpr, extent: PrimExpr | None) -> _Solution | None:
    for k, (lhs, rhs) in enumerate(t.equations):
        c, rest = linear(rhs).without(var)
        if abs(c) != 1 or any(var in free_vars(a) for a in rest.coefs):
            continue
        n = extent.value if isinstance(extent, IntImm) and number_of(low) == 0 else 0
        if c == 1 and n > 1 and rest.coefs and all(x % n == 0 for x in (*rest.coefs.values(), rest.const)):
            part = LinearForm({a: x // n for a, x in rest.coefs.items()}, rest.const // n)
            return _Solution(k, floormod(lhs, n), (floordiv(lhs, n), expression(part, rhs.dtype)))
        other = expression(rest, rhs.dtype)
        return _Solution(k, sub(lhs, other) if c == 1 else sub(other, lhs), None)
    return None


def _unsolved(t: Touch, var: Var, extent: PrimExpr | None) -> Touch:
    """Return a touch over a variable that its element does not determine."""
    if extent is not None and not (isinstance(extent, IntImm) and extent.value > 0):
        t = replace(t, must=None if t.must is None else (*t.must, compare(LT, const(0, extent.dtype), extent)))
    if not t.mentions(var):
        return t
    kept = tuple((lhs, rhs) for lhs, rhs in t.equations if var not in free_vars(rhs))
    certain = t.must is not None and len(kept) == len(t.equations) and not any(var in free_vars(c) for c in t.must)
    value = None if t.value is None or var in free_vars(t.value) else t.value
    return replace(t, equations=kept, must=t.must if certain else None,
                   may=tuple(c for c in t.may if var not in free_vars(c)), value=value)


def covers(later: Touch, earlier: Touch, axes: Sequence[Var], context: Rewriter) -> bool:
    """Return whether one touch surely writes every element that another may touch."""
    if later.must is None or not later.writes:
        return False
    places: dict[PrimExpr, PrimExpr] = {lhs: rhs for lhs, rhs in earlier.equations if isinstance(lhs, Var)}
    ranges: Ranges = context.ranges
    for a, n in zip(axes, later.buffer.shape, strict=True):
        if a not in places:
            ranges = ranges.bind(a, 0, n - 1 if isinstance(n, int) else None)
    equal, _, may = earlier.at(places)
    within = context.over(ranges)
    for c in (*equal, *may):
        within = within.within(c)
    wanted, must, _ = later.at(places)
    return all_hold([*wanted, *(must or ())], within)


__all__ = ["Touch", "all_hold", "covers", "holds", "none_holds", "of_store", "over_loop", "reads"]
