"""`Ranges`: known intervals of variables, and a cache of results derived from them.

A `Ranges` never changes; `bind` makes a new one. The functions of `arith` cache their result for an expression in the
`Ranges` that they are given.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, TypeAlias

from tilewright.scalar.expr import IntImm, PrimExpr, Var

if TYPE_CHECKING:
    from tilewright.scalar.arith.linear import LinearForm

Interval: TypeAlias = tuple[int | None, int | None]
"""Least and greatest value, inclusive; None for an unlimited end."""

UNKNOWN: Final[Interval] = (None, None)
LANE: Final = Var("lane")
"""The lane number in the scalar form of a vector expression."""


class Ranges:
    """A mapping from variables to inclusive integer intervals.

    `ends` maps variables without a numeric bound to expressions that exceed them.

    `facts` maps expressions to intervals that are assumed.
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
        """Return the ranges with `lo <= var <= hi`, or `var < end` if `hi` is unknown."""
        ends = self.ends
        if end is not None and hi is None:
            ends = {**ends, var: end}
        elif var in ends:
            ends = {v: e for v, e in ends.items() if v is not var}
        return Ranges({**self.known, var: (lo, hi)}, ends, self.facts)

    def bind_loop(self, var: Var, first: PrimExpr, extent: PrimExpr) -> Ranges:
        """Return the ranges with `first <= var < first + extent`."""
        if type(first) is IntImm and type(extent) is IntImm:
            return self.bind(var, first.value, first.value + extent.value - 1)
        from tilewright.scalar.arith.bounds import bounds

        lo, _ = bounds(first, self)
        _, hi = bounds(first + extent - 1, self)
        return self.bind(var, lo, hi, first + extent)

    def without(self, variables: Collection[Var]) -> Ranges:
        """Return the ranges of the other variables."""
        return Ranges(
            {v: n for v, n in self.known.items() if v not in variables},
            {v: e for v, e in self.ends.items() if v not in variables}, self.facts)

    def __contains__(self, var: object) -> bool:
        return var in self.known

    def of(self, var: Var) -> Interval:
        return self.known.get(var, UNKNOWN)

    def in_lanes(self, lanes: int) -> Ranges:
        """Return the ranges with `0 <= LANE < lanes`."""
        found = self._lanes.get(lanes)
        if found is None:
            found = self._lanes[lanes] = self.bind(LANE, 0, lanes - 1)
        return found

    def __repr__(self) -> str:
        return "Ranges(" + ", ".join(f"{lo} <= {v.name} <= {hi}" for v, (lo, hi) in self.known.items()) + ")"
