"""Polynomials over variables and inexact quotients: the terms of dynamic sizes (`open_sizes.py`).

    {(n, m): 2, (n,): 1, (): -3}        2*n*m + n - 3
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, TypeAlias

from tilewright.base.errors import CompileError
from tilewright.base.types import INT64
from tilewright.scalar.arith.linear import linear
from tilewright.scalar.expr import FloorDiv, IntImm, Max, Min, PrimExpr, Var, add, const, floordiv, mul, sub
from tilewright.scalar.walk import free_vars, text_of

Terms: TypeAlias = dict[tuple[PrimExpr, ...], int]
Key: TypeAlias = frozenset[tuple[tuple[PrimExpr, ...], int]]
"""The terms of a sum."""
_MOST_CHOICES: Final = 3
"""Number of minima and maxima in a sum up to which their operands are compared one by one."""


def reduced(terms: Terms) -> Terms:
    """Return the terms of a sum divided by their common factors, with a first term that is positive in text order."""
    if not terms:
        return terms
    by, _ = divided(terms, _shared(terms), math.gcd(*terms.values()))
    first = min(by, key=lambda atoms: [text_of(x) for x in atoms])
    return by if by[first] > 0 else {atoms: -k for atoms, k in by.items()}


def key_of(terms: Terms) -> Key:
    return frozenset(reduced(terms).items())


def least_by_bounds(terms: Terms, bounds: Mapping[Key, int]) -> int | None:
    """Return the lower bound of a sum that follows from the `bounds` of sums without a constant: of its own terms, or
    of these divided by a number: 3*n - 3*m + 1 >= 1 for n - m >= 0."""
    rest = {atoms: k for atoms, k in terms.items() if atoms}
    steps = {1, math.gcd(*rest.values()) or 1}
    known = {step: bounds.get(frozenset((atoms, k // step) for atoms, k in rest.items())) for step in steps}
    return max((step * least + terms.get((), 0) for step, least in known.items() if least is not None), default=None)


def without_common(top: Terms, bottom: Terms) -> tuple[Terms, Terms]:
    """Return a dividend and a divisor without the variables that occur in all terms: (n*m) // (4*n) -> m // 4."""
    shared = _shared((*top, *bottom)) if top and any(top) else ()
    return (divided(top, shared, 1)[0], divided(bottom, shared, 1)[0]) if shared else (top, bottom)


def _shared(terms: Iterable[tuple[PrimExpr, ...]]) -> tuple[PrimExpr, ...]:
    """Return the atoms that all terms contain."""
    first, *others = sorted(terms, key=len)
    shared = list(first)
    for atoms in others:
        shared = [x for k, x in enumerate(shared) if shared[:k].count(x) < atoms.count(x)]
    return tuple(shared)


def with_quotient(whole: Terms, rest: Terms, k: int) -> Terms:
    """Return `whole + rest // k` in canonical form: (n - 1)//2 -> (n + 1)//2 - 1, so that terms cancel; ((n + 1)//2 +
    1)//2 -> (n + 3)//4."""
    left, known = {atoms: n for atoms, n in rest.items() if atoms}, rest.get((), 0)
    if left:
        ((atoms, n), *others) = left.items()
        inner = atoms[0]
        if not others and n == 1 and len(atoms) == 1 and isinstance(inner, FloorDiv) and isinstance(inner.b, IntImm):
            dividend = linear(inner.a)
            left, known, k = (
                {(a,): c for a, c in dividend.coefs.items()}, dividend.const + known * inner.b.value, k * inner.b.value
            )
        atom = (floordiv(expression({**left, (): known % k}), const(k, INT64)),)
        whole[atom] = whole.get(atom, 0) + 1
    whole[()] = whole.get((), 0) + known // k
    return whole


def exact(top: Terms, bottom: Terms) -> Terms | None:
    """Return the quotient of two polynomials with a remainder of zero, by long division; None for another remainder:
    (n*m + n*k) / (m + k) -> n."""
    atoms = sorted({x for term in (*top, *bottom) for x in term}, key=text_of)

    def order(term: tuple[PrimExpr, ...]) -> tuple[int, ...]:
        return len(term), *(term.count(x) for x in atoms)

    first = max(bottom, key=order)
    quotient: Terms = {}
    rest = dict(top)
    while rest:
        last = max(rest, key=order)
        ((factor, k),) = divided({last: rest[last]}, first, bottom[first])[0].items() or (((), 0),)
        if not k:
            return None
        quotient[factor] = k
        for term, n in bottom.items():
            product = tuple(sorted((*factor, *term), key=text_of))
            rest[product] = rest.get(product, 0) - k * n
            if not rest[product]:
                del rest[product]
    return quotient


def divisor(size: int) -> int:
    """Return the number of a divisor. Raises `CompileError` for a size that is zero for its samples."""
    if not int(size):
        raise CompileError(f"the size {size} is a divisor, and must not be 0", code="TW0304")
    return int(size)


def divided(top: Terms, atoms: tuple[PrimExpr, ...], k: int) -> tuple[Terms, Terms]:
    """Return the terms divisible by `k * atoms`, divided, and the other terms."""
    whole: Terms = {}
    rest: Terms = {}
    for t, n in top.items():
        left = list(t)
        fits = n % k == 0
        for a in atoms:
            if a in left:
                left.remove(a)
            else:
                fits = False
        if fits:
            whole[tuple(left)] = n // k
        else:
            rest[t] = n
    return whole, rest


def expression(terms: Terms) -> PrimExpr:
    """Return the sum as an expression in a fixed order: longer products first, the constant last."""
    total: PrimExpr | None = None
    for atoms, k in sorted(terms.items(), key=lambda t: (-len(t[0]), t[1] < 0, [text_of(a) for a in t[0]])):
        product: PrimExpr | None = None
        for a in atoms:
            product = a if product is None else mul(product, a)
        size = abs(k) if total is not None else k
        term = const(size, INT64) if product is None else product if size == 1 else mul(product, size)
        total = term if total is None else add(total, term) if k > 0 else sub(total, term)
    return const(0, INT64) if total is None else total


def preference(e: PrimExpr, shared: Container[PrimExpr]) -> int:
    """Return 0 for an expression over variables that are `shared`, 1 for a number, 2 for others."""
    variables = list(free_vars(e))
    return 1 if not variables else 0 if all(v in shared for v in variables) else 2


def has_one_variable(terms: Terms) -> bool:
    """Return whether a sum is a number plus a multiple of one variable."""
    atoms = [x for term in terms for x in term]
    return len(atoms) == 1 and isinstance(atoms[0], Var)


def is_reversed(terms: Terms) -> bool:
    """Return whether a sum is a difference of products of sizes of which the first in text order is subtracted."""
    signs = [k > 0 for atoms, k in sorted(terms.items(), key=lambda t: [text_of(x) for x in t[0]]) if atoms]
    return True in signs and not signs[0]


def replaced(terms: Terms, atom: PrimExpr, by: Terms) -> Terms:
    """Return a sum with another sum in the place of an atom."""
    made = {atoms: k for atoms, k in terms.items() if atom not in atoms}
    for atoms, k in terms.items():
        if atom not in atoms:
            continue
        rest = [*atoms]
        rest.remove(atom)
        for other, factor in by.items():
            term = tuple(sorted((*rest, *other), key=text_of))
            made[term] = made.get(term, 0) + k * factor
    return {atoms: k for atoms, k in made.items() if k}


def least_by_cases(
    terms: Terms, operand: Callable[[PrimExpr], Terms | None], bound: Callable[[Terms], int | None]
) -> int | None:
    """Return a lower bound of a sum with a minimum or maximum, which equals one of its operands: n - max(n - m, 0) >=
    min(m, n). Where a minimum is only subtracted, or a maximum only added, either operand gives a bound. `bound`
    returns the lower bound of a sum, and `operand` the terms of an operand."""
    choices = [x for atoms in terms for x in atoms if isinstance(x, (Min, Max))]
    if not 0 < len(choices) <= _MOST_CHOICES:
        return None

    def is_free(choice: Min | Max) -> bool:
        return all((k < 0) is isinstance(choice, Min) for atoms, k in terms.items() if choice in atoms)

    choice = min(choices, key=is_free)
    cases = [operand(e) for e in choice.operands()]
    bounds = [None if case is None else bound(replaced(terms, choice, case)) for case in cases]
    found = [n for n in bounds if n is not None]
    if is_free(choice):
        return max(found, default=None)
    return min(found) if len(found) == len(bounds) else None
