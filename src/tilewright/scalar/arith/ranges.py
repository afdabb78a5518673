"""`Ranges`: what is known about variables, and the memory of what was derived from it.

A `Ranges` never changes; `bind` makes a new one. Every function of `arith` keeps its results for an expression in the
`Ranges` that it was asked under, so that asking again costs a dictionary look-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from tilewright.scalar.expr import IntImm, PrimExpr, Var

if TYPE_CHECKING:
    from tilewright.scalar.arith.linear import LinearForm

Interval: TypeAlias = tuple[int | None, int | None]
"""Least and greatest value, inclusive; None where there is no limit."""

UNKNOWN: Final[Interval] = (None, None)
LANE: Final = Var("lane")
"""Stands for the lane number where a vector expression is looked at as a scalar one."""


class Ranges:
    """A mapping from variables to inclusive integer intervals.

    `ends` are expressions that variables are less than, where no number says it.

    `facts` are intervals of expressions that are taken for granted.
    """

    __slots__ = ("_lanes", "bounds", "ends", "facts", "forms", "known", "simplified")

    def __init__(
        self, known: dict[Var, Interval] | None = None, ends: dict[Var, PrimExpr] | None = None,
        facts: dict[PrimExpr, Interval] | None = None,
    ) -> None:
        self.known: dict[Var, Interval] = known or {}
        self.ends: dict[Var, PrimExpr] = ends or {}
        self.facts: dict[PrimExpr, Interval] = facts or {}
        self.bounds: dict[PrimExpr, Interval] = dict(self.facts)
        self.forms: dict[PrimExpr, LinearForm] = {}
        self.simplified: dict[PrimExpr, PrimExpr] = {}
        self._lanes: dict[int, Ranges] = {}

    def bind(self, var: Var, lo: int | None, hi: int | None, end: PrimExpr | None = None) -> Ranges:
        """The same with `lo <= var <= hi`, or `var < end` where `hi` is not known."""
        ends = self.ends
        if end is not None and hi is None:
            ends = {**ends, var: end}
        elif var in ends:
            ends = {v: e for v, e in ends.items() if v is not var}
        return Ranges({**self.known, var: (lo, hi)}, ends, self.facts)

    def bind_loop(self, var: Var, first: PrimExpr, extent: PrimExpr) -> Ranges:
        """The same with `first <= var < first + extent`."""
        if type(first) is IntImm and type(extent) is IntImm:
            return self.bind(var, first.value, first.value + extent.value - 1)
        from tilewright.scalar.arith.bounds import bounds

        lo, _ = bounds(first, self)
        _, hi = bounds(first + extent - 1, self)
        return self.bind(var, lo, hi, first + extent)

    def __contains__(self, var: object) -> bool:
        return var in self.known

    def of(self, var: Var) -> Interval:
        return self.known.get(var, UNKNOWN)

    def in_lanes(self, lanes: int) -> Ranges:
        """The same with `0 <= LANE < lanes`."""
        found = self._lanes.get(lanes)
        if found is None:
            found = self._lanes[lanes] = self.bind(LANE, 0, lanes - 1)
        return found

    def __repr__(self) -> str:
        return "Ranges(" + ", ".join(f"{lo} <= {v.name} <= {hi}" for v, (lo, hi) in self.known.items()) + ")"
