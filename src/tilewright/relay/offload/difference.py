"""What keeps an expression from looking like a pattern: one `Difference` for each place, and a `Way`, all those of one
comparison.

A difference costs as much as it takes to mend it, so that the way with the least cost is that of the smallest edit.
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
    CONSTANT = "constant"  # a constant was wanted
    VARIABLE = "variable"  # a variable was wanted, or one of another name
    VALUE = "value"  # an expression was wanted that is structurally equal
    EXTRA = "extra"  # an operator stands between two that belong together
    MISSING = "missing"  # an operator of the pattern is not there
    OPERATOR = "operator"  # another operator is in its place
    INDEX = "index"  # another field of a tuple
    SAME = "same"  # one value was wanted in two places
    OTHER = "other"  # something else altogether
    CHECK = "check"  # the pattern fits, and the check of the row says no
    SUPPORT = "support"  # the function of the attribute `target.<name>` says no
    ESCAPE = "escape"  # a value inside is used outside
    TAKEN = "taken"  # an earlier row, an earlier target, or another match took a part
    NAME = "name"  # the row is named after another target
    REGION = "region"  # all of it fits, and the partition left it, or gave it back
    FOLDED = "folded"  # computed from constants: nothing is left of it when the program runs
    UNKNOWN = "unknown"  # no row and no attribute speaks of the operator


NO_EDIT: Final = 4
"""The cost of what no small edit mends."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where an expression does not look like the pattern.

    `at` is the expression there, and `user`, when one is known, the expression of the match that uses it as its operand
    number `position`. `wanted` has attributes that were asked for, or whatever else the edit needs.
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
        """The same, where nobody said before who uses it."""
        return self if self.user is not None else replace(self, user=user, position=position)


@dataclass(frozen=True, slots=True)
class Way:
    """One comparison of a pattern with an expression: what differs, and what each part stands for; `matched` counts
    operators that fit."""

    differences: tuple[Difference, ...] = ()
    pairs: tuple[tuple[DFPattern, Expr], ...] = ()
    matched: int = 0
    cost: int = 0

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """The smaller the nearer: what costs the least, then what leaves the most as it is, then what is said in the
        fewest words."""
        return self.cost, -self.matched, len(self.differences), sum(d.kind is Kind.MISSING for d in self.differences)

    @property
    def effort(self) -> int:
        """The cost, where constants, types and attributes that are mended in one go count once."""
        once = {d.kind for d in self.differences if d.kind in (Kind.CONSTANT, Kind.DTYPE, Kind.ATTRIBUTE)
                and d.cost == 1}
        return len(once) + sum(d.cost for d in self.differences if d.kind not in once or d.cost > 1)

    @property
    def calls(self) -> list[Call]:
        """The calls that have a part in the match, those that stand between among them."""
        other = {(d.pattern, d.at) for d in self.differences if d.kind is Kind.OTHER}
        found = [e for p, e in self.pairs if isinstance(e, Call) and isinstance(p, (CallPattern, DominatorPattern))
                 and (p, e) not in other]
        return list(dict.fromkeys(
            [*found, *(d.at for d in self.differences if d.kind is Kind.EXTRA and isinstance(d.at, Call))]))

    def and_then(self, other: Way) -> Way:
        """Both together."""
        if not self.pairs and not self.differences:
            return other
        if not other.pairs and not other.differences:
            return self
        return Way(self.differences + other.differences, self.pairs + other.pairs, self.matched + other.matched,
                   self.cost + other.cost)

    def differing(self, *more: Difference) -> Way:
        """The same with more differences."""
        return Way(self.differences + more, self.pairs, self.matched,
                   self.cost + sum(d.cost for d in more)) if more else self
