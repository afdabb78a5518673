"""Equations of symbolic sizes that a model requires, solved for a variable.

    (m, n)                  ->  {m: n}
    (n * 4, 12)             ->  {n: 3}
    (n // 4 * 4, n)         ->  {n: n_by_4 * 4}
    (n * m, 24)             ->  None: each call checks the equation
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tilewright.base.types import INT64
from tilewright.scalar.arith.open_sizes import made, open_size, samples, terms_of
from tilewright.scalar.arith.size_terms import Terms, expression, reduced
from tilewright.scalar.expr import FloorDiv, FloorMod, IntImm, Max, Min, PrimExpr, Var, as_expr, const, mul
from tilewright.scalar.walk import free_vars, substitute

_LARGE: Final = 1 << 20
"""Samples from here on, so that no divisor such as `n - 2` is zero."""


def equation(a: PrimExpr, b: PrimExpr) -> dict[Var, PrimExpr] | None:
    """Return variables and their values such that two sizes are equal: by a linear equation, by equal operands of a
    minimum, or by making variables multiples of the divisors in them; None if none of these is possible."""
    variables = {v: _LARGE + k for k, v in enumerate(dict.fromkeys([*free_vars(a), *free_vars(b)]))}
    with samples(variables, range(2 * _LARGE, 2 * _LARGE + len(variables))):
        first, second = open_size(a), open_size(b)
        if first is None or second is None:
            return None
        terms = reduced(terms_of(first - second))
        if (linear := _linear(terms, a, b, variables)) is not None:
            return linear
        operands = _equal_operands(terms)
        if operands is not None:
            return equation(*operands)
        found = _multiples(terms)
        left = open_size(substitute(expression(terms), {**found}))
    return found if found and left is not None and not terms_of(left) else None


def _linear(terms: Terms, a: PrimExpr, b: PrimExpr, variables: Mapping[Var, int]) -> dict[Var, PrimExpr] | None:
    """Solve a sum of zero for a variable that occurs in one term, with a coefficient of 1 or a number as its value."""
    inside = {v for atoms in terms for x in atoms if not isinstance(x, Var) or len(atoms) > 1 for v in free_vars(x)}
    for v in (*(v for v in (b, a) if isinstance(v, Var)), *(atoms[0] for atoms in terms if len(atoms) == 1)):
        k = terms.get((v,), 0)
        rest = {atoms: n for atoms, n in terms.items() if atoms != (v,)}
        if not isinstance(v, Var) or v in inside or not k or (any(rest) and abs(k) != 1):
            continue
        if any(rest):
            return {v: as_expr(made(variables[v], {atoms: -n * k for atoms, n in rest.items()}), INT64)}
        value, left = divmod(-rest.get((), 0), k)
        return {v: const(value, INT64)} if not left and value >= 0 else None
    return None


def _equal_operands(terms: Terms) -> tuple[PrimExpr, PrimExpr] | None:
    """Return the operands of the only minimum or maximum in `terms`, if the sum is zero where they are equal."""
    found = [x for atoms in terms for x in atoms if isinstance(x, (Min, Max))]
    if len(found) != 1:
        return None
    (choice,) = found
    for operand in choice.operands():
        size = open_size(substitute(expression(terms), {choice: operand}))
        if size is not None and not terms_of(size):
            return choice.a, choice.b
    return None


def _multiples(terms: Terms) -> dict[Var, PrimExpr]:
    """Return the variables of quotients and remainders as multiples of all their divisors; none if a dividend has
    several variables."""
    steps: dict[Var, int] = {}
    for x in (x for atoms in terms for x in atoms):
        if isinstance(x, (FloorDiv, FloorMod)):
            variables = set(free_vars(x))
            if len(variables) != 1 or not isinstance(x.b, IntImm):
                return {}
            (v,) = variables
            steps[v] = math.lcm(steps.get(v, 1), x.b.value)
    return {v: mul(Var(f"{v.name}_by_{step}"), const(step, INT64)) for v, step in steps.items()}
