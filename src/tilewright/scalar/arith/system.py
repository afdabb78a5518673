"""Solves systems of integer equations for unknowns, with free parameters where the solution is not unique.

    2*i + r == x, 0 <= i < 4, 0 <= r < 2        i := x // 2, r := x % 2
    i + r == x,   0 <= i < 8, 0 <= r < 3        i := x - r where 0 <= x - r < 8, and r is a parameter
    i // 4 == x, i % 4 == y, 0 <= i < 12        i := 4*x + y

Each solution corresponds to exactly one choice of the parameters that satisfies the condition. Nonlinear equations
become conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.base.types import INT64
from tilewright.scalar.arith.bounds import bounds, bounds_of_form
from tilewright.scalar.arith.linear import LinearForm, expression
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import form_of, prove, simplify
from tilewright.scalar.expr import FloorDiv, FloorMod, IntImm, PrimExpr, Var, all_of, const, floordiv, floormod, integer
from tilewright.scalar.walk import substitute, walk


@dataclass(slots=True)
class Solution:
    """The unknowns as expressions of known variables and the parameters `left`, valid where `condition` holds. `left`
    lists `(variable, first, extent)`."""

    values: dict[PrimExpr, PrimExpr]
    condition: PrimExpr
    left: list[tuple[Var, PrimExpr, PrimExpr]]


def solve_system(
    equations: Sequence[tuple[PrimExpr, PrimExpr]], unknowns: Mapping[Var, PrimExpr], ranges: Ranges
) -> Solution:
    """Solve the equations for the unknowns, each in `[0, extent)`.

    `ranges` are those of the known variables.
    """
    system = _System(ranges, dict(unknowns))
    for a, b in equations:
        system.add(a - b)
    for v, extent in unknowns.items():
        if isinstance(extent, IntImm) and extent.value == 1:
            system.define(v, const(0, INT64))
    system.name_quotients()
    while system.step():
        pass
    return system.solution()


@dataclass(slots=True)
class _System:
    known: Ranges
    unknowns: dict[Var, PrimExpr]
    firsts: dict[Var, PrimExpr] = field(default_factory=dict)  # of quotients, which may begin at another number than 0
    free: set[Var] = field(default_factory=set)  # quotients: their limits follow from those of the dividend
    equations: list[LinearForm] = field(default_factory=list)  # each is 0
    conditions: list[PrimExpr] = field(default_factory=list)
    values: dict[Var, PrimExpr] = field(default_factory=dict)

    def ranges(self) -> Ranges:
        """Return the ranges of the known variables and the unknowns."""
        found = self.known
        for v, extent in self.unknowns.items():
            found = found.bind_loop(v, self.firsts.get(v, const(0, INT64)), extent)
        return found

    def open(self) -> set[Var]:
        return {v for v in self.unknowns if v not in self.values}

    def add(self, e: PrimExpr) -> None:
        self.equations.append(form_of(e, self.ranges()))

    def name_quotients(self) -> None:
        """Introduce unknowns `q` and `t` for `a // c` and `a % c`, with `a == c * q + t`."""
        while (found := next(self._divisions(), None)) is not None:
            a = found.a
            same = [e for e in self._divisions() if e.a is a]
            c = min(integer(e.b) for e in same)
            q, t = Var("q"), Var("t")
            low, high = bounds(a, self.ranges())
            if low is None or high is None:
                return
            new: dict[PrimExpr, PrimExpr] = {}
            for e in same:
                n, part = divmod(integer(e.b), c)
                if not part:
                    new[e] = floordiv(q, n) if isinstance(e, FloorDiv) else floormod(q, n) * c + t
            self.unknowns[q], self.firsts[q] = const(high // c - low // c + 1, INT64), const(low // c, INT64)
            self.free.add(q)
            self.unknowns[t] = const(c, INT64)
            self._replace(new)
            self.add(a - (q * c + t))

    def _divisions(self) -> Iterator[FloorDiv | FloorMod]:
        """Yield divisions by constants of sums of unknowns without nested divisions of this kind."""
        open_now = self.open()
        for form in self.equations:
            for atom in form.coefs:
                inside = [
                    x for x in walk(atom)
                    if isinstance(x, (FloorDiv, FloorMod)) and isinstance(x.b, IntImm) and x.b.value > 0]
                for x in inside:
                    parts = list(walk(x.a))
                    linear_in = all(isinstance(p, Var) for p in form_of(x.a, self.known).coefs)
                    if linear_in and any(p in open_now for p in parts if isinstance(p, Var)):
                        yield x

    def step(self) -> bool:
        """Solve one equation for one unknown, or make it a condition; return False when no equation is left."""
        if not self.equations:
            return False
        for solve in (self._exact, self._digits, self._eliminate):
            for form in self.equations:
                if solve(form):
                    return True
        self._demand(self.equations.pop())
        return True

    def _exact(self, form: LinearForm) -> bool:
        """Solve an equation with at most one unknown: k * v + rest == 0."""
        found = self._linear_in(form)
        if (
            any(x in self.open() for atom in form.coefs if not isinstance(atom, Var) for x in walk(atom))
            or len(found) > 1
        ):
            return False
        self.equations.remove(form)
        if found:
            self._divide(found[0], form)
        else:
            self._demand(form)
        return True

    def _digits(self, form: LinearForm) -> bool:
        """Solve k * v + rest + known == 0 if `rest` has fewer than |k| values: v is a quotient, `rest` the remainder.
        """
        found = self._linear_in(form)
        if (
            len(found) < 2
            or any(x in self.open() for atom in form.coefs if not isinstance(atom, Var) for x in walk(atom))
        ):
            return False
        v = max(found, key=lambda x: abs(form.coefs[x]))
        sign = 1 if form.coefs[v] > 0 else -1
        k, rest = form.times(sign).without(v)
        inner = LinearForm({u: rest.coefs[u] for u in found if u is not v})
        low, high = bounds_of_form(inner, self.ranges())
        if low is None or high is None or high - low >= k:
            return False
        self.equations.remove(form)
        outer = expression(inner.plus(rest, -1).plus(LinearForm({}, low), -1))  # k * v + (inner - low) == outer
        self.define(v, floordiv(outer, k))
        self.add(expression(inner) - low - floormod(outer, k))
        return True

    def _eliminate(self, form: LinearForm) -> bool:
        """Solve for one of several unknowns, the one with the most values; the others become parameters."""
        opaque = {x for atom in form.coefs if not isinstance(atom, Var) for x in walk(atom)}
        found = [v for v in self._linear_in(form) if v not in opaque]
        if not found:
            return False
        self.equations.remove(form)
        self._divide(max(found, key=lambda v: (self._values(v), -abs(form.coefs[v]))), form)
        return True

    def _linear_in(self, form: LinearForm) -> list[Var]:
        open_now = self.open()
        return [a for a in form.coefs if isinstance(a, Var) and a in open_now]

    def _values(self, v: Var) -> float:
        extent = self.unknowns[v]
        return extent.value if isinstance(extent, IntImm) else float("inf")

    def _divide(self, v: Var, form: LinearForm) -> None:
        """Solve an equation for `v`, on the condition that the rest is divisible by its coefficient."""
        k, rest = form.without(v)
        outer = expression(rest.times(-1 if k > 0 else 1))  # |k| * v == outer
        if abs(k) != 1:
            self._condition(floormod(outer, abs(k)).equal(0))
        self.define(v, floordiv(outer, abs(k)))

    def define(self, v: Var, value: PrimExpr) -> None:
        self.values[v] = value
        self._replace({v: value})

    def _replace(self, mapping: dict[PrimExpr, PrimExpr]) -> None:
        ranges = self.ranges()
        memo: dict[PrimExpr, PrimExpr] = {}
        self.equations = [form_of(substitute(expression(f), mapping, memo), ranges) for f in self.equations]
        self.conditions = [substitute(c, mapping, memo) for c in self.conditions]
        self.values = {v: substitute(e, mapping, memo) for v, e in self.values.items()}

    def _demand(self, form: LinearForm) -> None:
        if form.coefs or form.const:
            self._condition(expression(form).equal(0))

    def _condition(self, condition: PrimExpr) -> None:
        self.conditions.append(condition)

    def solution(self) -> Solution:
        """Return the solution; the limits of the solved unknowns are among its conditions."""
        kept = self.open()
        ranges = Ranges({v: i for v, i in self.ranges().known.items() if v not in self.unknowns or v in kept})
        for v, value in self.values.items():
            if v not in self.free:
                self.conditions += [value >= 0, value < self.unknowns[v]]
        values: dict[PrimExpr, PrimExpr] = {v: simplify(e, ranges) for v, e in self.values.items()}
        needed = [c for c in self.conditions if prove(c, ranges) is not True]
        condition = all_of(*dict.fromkeys(simplify(c, ranges) for c in needed))
        left = [(v, self.firsts.get(v, const(0, INT64)), e) for v, e in self.unknowns.items() if v in kept]
        return Solution(values, condition, left)
