"""Differences between an expression and a pattern: a `Difference` for each place, and a `Way` for a whole comparison.

The cost of a difference is that of its edit, so the cheapest comparison has the smallest edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from tilewright.relay.dataflow_pattern.pattern import CallPattern, DFPattern, DominatorPattern
from tilewright.relay.expr import Call, Expr


class Kind(StrEnum):
    """The kinds of reasons why an operator stays on the CPU."""

    ATTRIBUTE = "attribute"  # an attribute has another value
    DTYPE = "dtype"
    SHAPE = "shape"
    TYPE = "type"
    CONSTANT = "constant"  # a constant was expected
    VARIABLE = "variable"  # a variable, or one of another name, was expected
    VALUE = "value"  # a structurally equal expression was expected
    EXTRA = "extra"  # an operator is between two that belong together
    MISSING = "missing"  # an operator of the pattern is missing
    OPERATOR = "operator"  # another operator is in its place
    INDEX = "index"  # another field of a tuple
    SAME = "same"  # one value was expected in two places
    OTHER = "other"  # a completely different expression
    CHECK = "check"  # the pattern fits, but the check of the row rejects it
    SUPPORT = "support"  # the function of the attribute `target.<name>` rejects it
    ESCAPE = "escape"  # a value inside is used outside
    TAKEN = "taken"  # an earlier row, an earlier target, or another match took an operator of it
    NAME = "name"  # the row is named after another target
    REGION = "region"  # everything fits, but the partition left it or returned it to the CPU
    FOLDED = "folded"  # computed from constants, so absent at run time
    UNKNOWN = "unknown"  # no row and no attribute covers the operator


NO_EDIT: Final = 4
"""The cost of a difference that no small edit removes."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where an expression differs from the pattern.

    `at` is the expression, and `user`, if known, the matched expression that uses it as operand `position`. `wanted`
    has the required attributes, or other data for the edit.
    """

    kind: Kind
    pattern: DFPattern
    at: Expr
    expected: str
    found: str
    cost: int = 1
    user: Expr | None = None
    position: int = -1
    wanted: Mapping[str, Any] = field(default_factory=dict)

    def used_by(self, user: Expr, position: int) -> Difference:
        """Return the difference with its user, unless one is known."""
        return self if self.user is not None else replace(self, user=user, position=position)


@dataclass(frozen=True, slots=True)
class Way:
    """A comparison of a pattern with an expression: the differences, and the expression of each subpattern. `matched`
    counts the operators that fit."""

    differences: tuple[Difference, ...] = ()
    pairs: tuple[tuple[DFPattern, Expr], ...] = ()
    matched: int = 0
    cost: int = 0

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Sort key, smallest for the nearest comparison: cost, then fitting operators, then length of the description.
        """
        return self.cost, -self.matched, len(self.differences), sum(d.kind is Kind.MISSING for d in self.differences)

    @property
    def effort(self) -> int:
        """The cost, with constants, types and attributes that one edit changes together counted once."""
        once = {d.kind for d in self.differences if d.kind in (Kind.CONSTANT, Kind.DTYPE, Kind.ATTRIBUTE)
                and d.cost == 1}
        return len(once) + sum(d.cost for d in self.differences if d.kind not in once or d.cost > 1)

    @property
    def calls(self) -> list[Call]:
        """The calls of the match, including calls between them that do not fit."""
        other = {(d.pattern, d.at) for d in self.differences if d.kind is Kind.OTHER}
        found = [e for p, e in self.pairs if isinstance(e, Call) and isinstance(p, (CallPattern, DominatorPattern))
                 and (p, e) not in other]
        return list(dict.fromkeys(
            [*found, *(d.at for d in self.differences if d.kind is Kind.EXTRA and isinstance(d.at, Call))]))

    def and_then(self, other: Way) -> Way:
        """Return the union of both comparisons."""
        if not self.pairs and not self.differences:
            return other
        if not other.pairs and not other.differences:
            return self
        return Way(self.differences + other.differences, self.pairs + other.pairs, self.matched + other.matched,
                   self.cost + other.cost)

    def differing(self, *more: Difference) -> Way:
        """Return the same comparison with more differences."""
        return Way(self.differences + more, self.pairs, self.matched,
                   self.cost + sum(d.cost for d in more)) if more else self
