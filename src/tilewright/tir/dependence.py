"""Determines whether two accesses can conflict at one element, and in which trips of their loops.

    for i: for j: A[i * 8 + j + 1] = A[i * 8 + j]    the store of iteration (i, j) and the load of (i, j + 1) conflict

`Meeting` considers two accesses: `b` in some trips of the common loops, and `a` in trips that are `delta` later.
Equality of the indices and the guards are linear constraints over the trips of `b`, the deltas, and the loops of one
access alone. Quotients and remainders by constants are unknowns with separate equations. Intervals are narrowed until
they are empty (the accesses never conflict) or stable (they may). A nonlinear index can be any number within its
bounds. So "never" is proved, and "may" is conservative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import TypeAlias

from tilewright.scalar.arith import Interval, Ranges, bounds, linear
from tilewright.scalar.arith.simplify import is_index
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Buffer,
    Comparison,
    FloorDiv,
    FloorMod,
    IntImm,
    Load,
    Mul,
    PrimExpr,
    TruncDiv,
    TruncMod,
    Var,
    sub,
)
from tilewright.scalar.walk import free_vars, walk
from tilewright.tir.accesses import Access
from tilewright.tir.stmt import For

Key: TypeAlias = tuple[str, PrimExpr | int]
"""An unknown: the value of an expression for `b`, its `delta`, or its value for `a` alone; or the `slack` of an
inequality."""
Limits: TypeAlias = dict[Key, Interval]
ROUNDS = 24
"""Maximum number of rounds of narrowing, since intervals may shrink in steps of one."""


@dataclass(slots=True)
class Equation:
    """`sum(coefs[key] * key) + const == 0`."""

    coefs: dict[Key, int]
    const: int

    def add(self, key: Key, k: int) -> None:
        total = self.coefs.get(key, 0) + k
        if total:
            self.coefs[key] = total
        else:
            self.coefs.pop(key, None)


@dataclass(slots=True)
class Meeting:
    """The conflict of `a` and `b` at one element. `outer` are the ranges of variables with a common value for both;
    `written` are the buffers that change in between."""

    a: Access
    b: Access
    outer: Ranges
    written: frozenset[Buffer] = frozenset()
    ranges: Ranges = field(init=False)
    shared: set[Var] = field(init=False)
    known: set[Var] = field(init=False)
    limits: Limits = field(init=False, default_factory=dict)
    equations: list[Equation] = field(init=False, default_factory=list)
    opaque: dict[Key, list[Key]] = field(init=False, default_factory=dict)
    """Deltas of nonlinear expressions, with the deltas that they depend on."""
    divided: dict[tuple[PrimExpr, PrimExpr], dict[type, Key]] = field(init=False, default_factory=dict)
    products: dict[Key, tuple[Var, PrimExpr]] = field(init=False, default_factory=dict)
    extents: dict[Var, PrimExpr] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        own = {f.var for f in self.a.loops}, {f.var for f in self.b.loops}
        self.shared, self.known = own[0] & own[1], own[0] | own[1]
        self.ranges = self._bound()
        for x, y in zip(self.a.indices, self.b.indices, strict=True):
            self._equal(x, y)
        self._boxes()
        for access, second in ((self.a, False), (self.b, True)):
            for f in access.loops:
                self._trips(f, second)
            for guard in access.guards:
                for c in conjuncts(guard):
                    self._condition(c, second)

    def possible(self, deltas: Mapping[Var, Interval]) -> bool:
        """Return whether they may conflict if the trips of loops differ (`a` minus `b`) by amounts within `deltas`."""
        limits = dict(self.limits)
        for v, interval in deltas.items():
            found = _meet(limits.get(("delta", v), self._spread(v)), interval)
            if found is None:
                return False
            limits["delta", v] = found
        return self._narrow(limits)

    def apart(self, iters: Sequence[PrimExpr]) -> bool:
        """Return whether they can conflict only if all of `iters` have equal values for both."""
        for e in iters:
            for first, sign in ((e, 1), (e, -1)):
                equation = self._form(first, False, sign)
                for key, k in self._form(first, True, -sign).coefs.items():
                    equation.add(key, k)
                self.limits["slack", -1] = (0, None)
                equation.const = -1
                equation.add(("slack", -1), -1)
                self.equations.append(equation)
                met = self._narrow(dict(self.limits))
                self.equations.pop()
                if met:
                    return False
        return True

    # The equations.
    def _bound(self) -> Ranges:
        ranges = self.outer
        for f in (*self.a.loops, *self.b.loops):
            before = ranges.of(f.var) if f.var in ranges else None
            ranges = ranges.bind_loop(f.var, f.min, f.extent)
            self.extents[f.var] = f.extent
            if before is not None:  # a variable of two loops
                (lo, hi), (low, high) = before, ranges.of(f.var)
                ranges = ranges.bind(
                    f.var, None if lo is None or low is None else min(lo, low),
                    None if hi is None or high is None else max(hi, high))
        return ranges

    def _equal(self, x: PrimExpr, y: PrimExpr) -> None:
        equation = self._form(x, False)
        for key, k in (other := self._form(y, True, -1)).coefs.items():
            equation.add(key, k)
        equation.const += other.const
        self.equations.append(equation)

    def _boxes(self) -> None:
        """Treat an access to a box as accesses to each of its elements."""
        for access, sign in ((self.a, 1), (self.b, -1)):
            for k, size in enumerate(access.sizes):
                high = bounds(size, self.ranges)[1]
                key = ("slack", len(self.limits))
                self.limits[key] = 0, None if high is None else high - 1
                self.equations[k].add(key, sign)

    def _trips(self, f: For, second: bool) -> None:
        """Add the symbolic limits of a loop."""
        if not isinstance(f.min, IntImm) or not isinstance(f.extent, IntImm):
            self._at_most(sub(f.min, f.var), second)
            self._at_most(sub(sub(f.var, f.min), f.extent) + 1, second)

    def _condition(self, c: PrimExpr, second: bool) -> None:
        if not isinstance(c, Comparison) or not is_index(c.a.dtype):
            return
        if isinstance(c, EQ):
            self.equations.append(self._form(sub(c.a, c.b), second))
        elif isinstance(c, (LT, LE)):
            self._at_most(sub(c.a, c.b) + int(isinstance(c, LT)), second)
        elif isinstance(c, (GT, GE)):
            self._at_most(sub(c.b, c.a) + int(isinstance(c, GT)), second)

    def _at_most(self, e: PrimExpr, second: bool) -> None:
        """Add the inequality `e <= 0`."""
        equation = self._form(e, second)
        key = ("slack", len(self.limits))
        self.limits[key] = 0, None
        equation.add(key, 1)
        self.equations.append(equation)

    def _form(self, e: PrimExpr, second: bool, sign: int = 1) -> Equation:
        """Return the form of `sign * e` for `b` (`second`) or for `a`."""
        form = linear(e)
        made = Equation({}, sign * form.const)
        for atom, k in form.coefs.items():
            for key in self._keys(atom, second):
                made.add(key, sign * k)
        return made

    def _keys(self, atom: PrimExpr, second: bool) -> list[Key]:
        """Return the unknowns whose sum is the value of `atom`."""
        inside = {v for v in free_vars(atom) if v in self.known}
        changing = any(isinstance(x, Load) and x.buffer in self.written for x in walk(atom))
        alike = inside <= self.shared and not changing
        if second or alike:
            keys: list[Key] = [("value", atom)] if second or not inside else [("value", atom), ("delta", atom)]
        else:
            keys = [("first", atom)]
        if changing and second:
            keys = [("second", atom)]
        for key in keys:
            if key not in self.limits:
                self.limits[key] = self._spread(atom) if key[0] == "delta" else bounds(atom, self.ranges)
                self._define(atom, key)
        return keys

    def _spread(self, e: PrimExpr) -> Interval:
        low, high = bounds(e, self.ranges)
        return (None, None) if low is None or high is None else (low - high, high - low)

    def _define(self, atom: PrimExpr, key: Key) -> None:
        """Add the relations between an unknown that is not a variable and the variables."""
        kind = key[0]
        if isinstance(atom, Var):
            return
        if kind == "delta":
            self._follows(atom, key)
        if isinstance(atom, (FloorDiv, FloorMod, TruncDiv, TruncMod)):
            self._divide(atom, kind)

    def _follows(self, atom: PrimExpr, key: Key) -> None:
        sources: list[Key] = []
        for v in free_vars(atom):
            if v in self.known:
                self._keys(v, False)
                sources.append(("delta", v))
        self.opaque[key] = sources
        if isinstance(atom, Mul) and isinstance(atom.a, Var) and not any(v in self.known for v in free_vars(atom.b)):
            self.products[key] = atom.a, atom.b

    def _divide(self, atom: FloorDiv | FloorMod | TruncDiv | TruncMod, kind: str) -> None:
        """Add a == c * (a // c) + a % c, for the values and for the deltas."""
        a, c = atom.a, atom.b
        if (
            isinstance(atom, (TruncDiv, TruncMod))
            and (bounds(a, self.ranges)[0] is None or (bounds(a, self.ranges)[0] or 0) < 0)
        ):
            return
        if not isinstance(c, IntImm):
            if (
                kind == "delta" and isinstance(atom, (FloorDiv, FloorMod))
                and not any(v in self.known for v in free_vars(c))
            ):
                self.divided.setdefault((a, c), {})[type(atom)] = ("delta", atom)
            return
        if c.value <= 0:
            return
        quotient, rest = FloorDiv(a, c), FloorMod(a, c)
        second = kind in ("value", "second")
        equation = self._form(a, second)
        if kind == "delta":
            equation = Equation({k: n for k, n in equation.coefs.items() if k[0] == "delta"}, 0)
        for part, k in ((quotient, c.value), (rest, 1)):
            own: Key = (kind, part)
            if own not in self.limits:
                self.limits[own] = self._spread(part) if kind == "delta" else bounds(part, self.ranges)
                if kind == "delta":
                    self._follows(part, own)
            equation.add(own, -k)
        if not any(e.coefs == equation.coefs and e.const == equation.const for e in self.equations):
            self.equations.append(equation)

    # Narrowing.
    def _narrow(self, limits: Limits) -> bool:
        """Narrow `limits`; return whether the equations may have a solution within them."""
        equations = list(self.equations)
        joined: set[tuple[PrimExpr, PrimExpr]] = set()
        for _ in range(ROUNDS):
            before = dict(limits)
            for e in equations:
                if not _tighten(e, limits):
                    return False
            if not self._zeros(limits, equations, joined):
                return False
            if limits == before:
                break
        return True

    def _zeros(self, limits: Limits, equations: list[Equation], joined: set[tuple[PrimExpr, PrimExpr]]) -> bool:
        """Apply the consequences of zero deltas for nonlinear expressions; return False for a contradiction."""
        for key, sources in self.opaque.items():
            if all(limits.get(s) == (0, 0) for s in sources):
                found = _meet(limits[key], (0, 0))
                if found is None:
                    return False
                limits[key] = found
        for (a, c), parts in self.divided.items():
            if (a, c) not in joined and len(parts) == 2 and all(limits.get(k) == (0, 0) for k in parts.values()):
                joined.add((a, c))
                whole = self._form(a, False)
                for key in whole.coefs:  # unknowns that this form is the first to contain
                    limits.setdefault(key, self.limits[key])
                equations.append(Equation({k: n for k, n in whole.coefs.items() if k[0] == "delta"}, 0))
        return all(self._digits(e, limits) for e in equations)

    def _digits(self, e: Equation, limits: Limits) -> bool:
        """Apply the rule that the delta of `v * n + u` with `0 <= u < n` is 0 only if both deltas are 0."""
        if e.const or len(e.coefs) != 2 or len(set(e.coefs.values())) != 1:
            return True
        for key, other in (tuple(e.coefs), tuple(reversed(tuple(e.coefs)))):
            if key in self.products and other[0] == "delta" and isinstance(other[1], Var):
                v, n = self.products[key]
                if self.extents.get(other[1]) is n:
                    for k in (("delta", v), key, other):
                        found = _meet(limits.get(k, (None, None)), (0, 0))
                        if found is None:
                            return False
                        limits[k] = found
        return True


def _meet(a: Interval, b: Interval) -> Interval | None:
    """Return the intersection of both; None if it is empty."""
    low = b[0] if a[0] is None else a[0] if b[0] is None else max(a[0], b[0])
    high = b[1] if a[1] is None else a[1] if b[1] is None else min(a[1], b[1])
    return None if low is not None and high is not None and low > high else (low, high)


def _tighten(e: Equation, limits: Limits) -> bool:
    """Narrow the limits of each unknown of an equation by those of the others; return False if it has no solution."""
    fixed, step = e.const, 0
    for key, k in e.coefs.items():
        low, high = limits[key]
        if low is not None and low == high:
            fixed += k * low
        else:
            step = gcd(step, k)
    if fixed % step if step else fixed:
        return False
    for key, k in e.coefs.items():
        low, high = _rest(e, key, limits)  # of -(k * key)
        most = None if low is None else -low
        least = None if high is None else -high
        if k < 0:
            least, most = (None if most is None else -most), (None if least is None else -least)
        own: Interval = (None if least is None else -(-least // abs(k))), (None if most is None else most // abs(k))
        found = _meet(limits[key], own)
        if found is None:
            return False
        limits[key] = found
    return True


def _rest(e: Equation, but: Key, limits: Limits) -> Interval:
    low: int | None = e.const
    high: int | None = e.const
    for key, k in e.coefs.items():
        if key == but:
            continue
        lo, hi = limits[key]
        if k < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + k * lo
        high = None if high is None or hi is None else high + k * hi
    return low, high


# Queries.
Pair: TypeAlias = tuple[Access, Access]


def pairs(found: Sequence[Access]) -> list[Pair]:
    """Return the pairs of accesses to one buffer of which at least one writes, including each write paired with itself.
    """
    by_buffer: dict[Buffer, list[Access]] = {}
    for a in found:
        by_buffer.setdefault(a.buffer, []).append(a)
    made = []
    for group in by_buffer.values():
        made += [(a, b) for k, a in enumerate(group) for b in group[k:] if a.writes or b.writes]
    return made


def written_in(found: Sequence[Access]) -> frozenset[Buffer]:
    return frozenset(a.buffer for a in found if a.writes)


def across_trips(loop: Var, a: Access, b: Access, outer: Ranges, written: frozenset[Buffer]) -> bool:
    """Return whether `a` and `b` may conflict in two different trips of a common loop."""
    meeting = Meeting(a, b, outer, written)
    return meeting.possible({loop: (1, None)}) or (a is not b and meeting.possible({loop: (None, -1)}))


def turned(
    chain: Sequence[Var], order: Sequence[Var], a: Access, b: Access, outer: Ranges, written: frozenset[Buffer]
) -> bool:
    """Return whether `a` and `b` may conflict in trips that `order` (outermost loop first) runs in the opposite order
    to `chain`."""
    meeting: Meeting | None = None
    for p, first in enumerate(chain):
        for q, now in enumerate(order):
            if first in order[: q + 1] or now in chain[: p + 1]:
                continue
            meeting = meeting or Meeting(a, b, outer, written)
            same: dict[Var, Interval] = dict.fromkeys([*chain[:p], *order[:q]], (0, 0))
            for sign in (1,) if a is b else (1, -1):
                up, down = ((1, None), (None, -1)) if sign == 1 else ((None, -1), (1, None))
                if meeting.possible({**same, first: up, now: down}):
                    return True
    return False
