"""`Analyzer`: simplification, bounds and proofs over variables whose ranges are bound one by one, as in TVM.

    analyzer = Analyzer()
    analyzer.bind(i, Range(0, 8))
    analyzer.simplify((i * 4 + 3) // 4)     # i
    analyzer.const_int_bound(i * 2 + 1)     # ConstIntBound(1, 15)
    analyzer.can_prove(i < 8)               # True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tilewright.base.errors import CompileError
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.modular import ANY, ModularSet, modular_set
from tilewright.scalar.arith.polynomials import is_same
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import prove, simplify
from tilewright.scalar.arith.solve import assume, conjuncts
from tilewright.scalar.expr import EQ, FloorMod, IntImm, PrimExpr, TruncMod, Value, Var, as_expr, mul, sub
from tilewright.scalar.range import Range
from tilewright.scalar.walk import substitute

if TYPE_CHECKING:
    from tilewright.scalar.arith.int_set import IntervalSet, IntSet


@dataclass(frozen=True)
class ConstIntBound:
    """The least and the greatest value of an expression; `NEG_INF` and `POS_INF` for unlimited ends."""

    min_value: int
    max_value: int
    POS_INF: ClassVar[int] = (1 << 63) - 1
    NEG_INF: ClassVar[int] = -POS_INF


class ProofStrength:
    """How hard `can_prove` tries, as in TVM; here it always tries as hard as it can."""

    DEFAULT, SYMBOLIC_BOUND = 0, 1


class Analyzer:
    """Facts about variables, and questions about expressions over them."""

    def __init__(self) -> None:
        self._ranges, self._values = Ranges(), dict[Var, PrimExpr]()
        self._remainders: dict[Var, ModularSet] = {}

    def bind(self, var: Var, expr: Value | Range) -> None:
        """State the range of a variable, or its value."""
        if isinstance(expr, Range):
            low, count = self._resolved(expr.min), self._resolved(expr.extent)
            self._ranges = self._ranges.bind_loop(var, low, count)
        else:
            self._values[var] = self._resolved(expr)

    def update(self, var: Var, info: ConstIntBound | ModularSet, override: bool = False) -> None:
        """State the bounds or the remainders of a variable. Raises `CompileError` for a second, different statement
        without `override`."""
        known: object = self._bound_of(var) if isinstance(info, ConstIntBound) else self._remainders.get(var)
        if not override and known is not None and known != info:
            raise CompileError(
                f"'{var.name}' has {known} already, not {info}; pass override=True to replace it", code="TW0602")
        if isinstance(info, ModularSet):
            self._remainders[var] = ModularSet.of(info.coeff, info.base)
            return
        low = None if info.min_value <= ConstIntBound.NEG_INF else info.min_value
        high = None if info.max_value >= ConstIntBound.POS_INF else info.max_value
        self._ranges = self._ranges.bind(var, low, high)

    def _bound_of(self, var: Var) -> ConstIntBound | None:
        return _bound(*self._ranges.of(var)) if var in self._ranges else None

    @contextmanager
    def constraint_scope(self, constraint: Value) -> Iterator[None]:
        """Assume a condition until the end of a `with` block."""
        condition, ranges, remainders = self._resolved(constraint), self._ranges, dict(self._remainders)
        self._ranges = assume(condition, ranges)
        for c in conjuncts(condition):
            if isinstance(c, EQ) and isinstance(c.a, (FloorMod, TruncMod)) and isinstance(c.b, IntImm):
                var, by = c.a.a, c.a.b
                if isinstance(var, Var) and isinstance(by, IntImm) and by.value > 0:
                    self._learn(var, ModularSet.of(by.value, c.b.value))
        try:
            yield
        finally:
            self._ranges, self._remainders = ranges, remainders

    def _learn(self, var: Var, found: ModularSet) -> None:
        """Add remainders of a variable to the known ones; a contradiction leaves those."""
        with suppress(ValueError):
            self._remainders[var] = self._remainders.get(var, ANY).intersection(found)

    def simplify(self, expr: Value, steps: int = 2) -> PrimExpr:
        """Return an equal, simpler expression."""
        return simplify(self._resolved(expr), self._ranges)

    def canonical_simplify(self, expr: Value) -> PrimExpr:
        """Return an equal expression: sums in TVM's order, and conditions as by `rewrite_simplify`."""
        from tilewright.scalar.arith.canonical import canonical_simplify

        return canonical_simplify(self._resolved(expr), self._ranges)

    def rewrite_simplify(self, expr: Value) -> PrimExpr:
        """Return an equal expression to which no rule of rewriting applies; other parts keep their form."""
        from tilewright.scalar.arith.rewrite import rewrite_simplify

        return rewrite_simplify(self._resolved(expr), self._ranges)

    def const_int_bound(self, expr: Value) -> ConstIntBound:
        """Return the bounds of an expression."""
        return _bound(*bounds(self._resolved(expr), self._ranges))

    def modular_set(self, expr: Value) -> ModularSet:
        """Return `coeff` and `base` such that the value is always `coeff * k + base`."""
        return modular_set(self._resolved(expr), self._ranges, self._remainders)

    def int_set(self, expr: Value, dom_map: Mapping[Var, IntSet]) -> IntervalSet:
        """Return an interval that contains the values of an expression, given intervals of variables."""
        from tilewright.scalar.arith.int_set import SetEvaluator

        return SetEvaluator(self, dom_map).of(self._resolved(expr))

    def can_prove(self, expr: Value, strength: int = ProofStrength.DEFAULT) -> bool:
        """Return whether a condition is proved to hold; False means that it may hold or not."""
        return prove(self._resolved(expr), self._ranges) is True

    def can_prove_equal(self, lhs: Value, rhs: Value) -> bool:
        """Return whether two expressions are proved equal."""
        from tilewright.scalar.arith.polynomials import polynomial

        difference = self.simplify(sub(as_expr(lhs), as_expr(rhs)))
        if isinstance(difference, IntImm):
            return difference.value == 0
        return difference.dtype.is_integer and not polynomial(difference)

    def can_prove_greater_equal(self, expr: Value, lower_bound: int) -> bool:
        """Return whether an expression is proved to be at least a number."""
        return self.const_int_bound(expr).min_value >= lower_bound

    def can_prove_less(self, expr: Value, upper_bound: int) -> bool:
        """Return whether an expression is proved to be below a number."""
        return self.const_int_bound(expr).max_value < upper_bound

    def _resolved(self, expr: Value) -> PrimExpr:
        return substitute(as_expr(expr), self._values)


def _bound(low: int | None, high: int | None) -> ConstIntBound:
    return ConstIntBound(
        ConstIntBound.NEG_INF if low is None else low, ConstIntBound.POS_INF if high is None else high)


def detect_linear_equation(expr: Value, var_list: Sequence[Var]) -> list[PrimExpr]:
    """Return the coefficients of the variables, then the rest: `a * x + b * y + c` is `[a, b, c]`.

    The coefficients may contain other variables. Returns an empty list unless the form is proved.
    """
    e, ranges = as_expr(expr), Ranges()
    zeros: dict[Var, PrimExpr] = {v: as_expr(0, v.dtype) for v in var_list}
    rest = simplify(substitute(e, zeros), ranges)
    found = [
        simplify(sub(substitute(e, {**zeros, v: as_expr(1, v.dtype)}), rest), ranges) for v in var_list]
    total = rest
    for v, k in zip(var_list, found, strict=True):
        total = total + mul(v, k)
    return [*found, rest] if is_same(e, total) else []
