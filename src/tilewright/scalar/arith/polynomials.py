"""Polynomials of integer expressions: exact division and equality where sizes are symbolic.

    exact_quotient(n * m * 4, n * 2)     # m * 2
    is_same(n * (m + 1), m * n + n)      # True
"""

from __future__ import annotations

from functools import reduce

from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import Add, IntImm, Max, Min, Mul, PrimExpr, Sub, Value, add, cast, const, literal, mul
from tilewright.scalar.walk import text_of

Terms = dict[tuple[PrimExpr, ...], int]
"""Coefficients by the factors of a product, which are sorted by their text."""


def polynomial(e: PrimExpr) -> Terms:
    """Return an expression as a sum of products."""
    if isinstance(e, IntImm):
        return {(): e.value} if e.value else {}
    if isinstance(e, (Add, Sub)):
        total = dict(polynomial(e.a))
        for factors, k in polynomial(e.b).items():
            _put(total, factors, k if isinstance(e, Add) else -k)
        return total
    if isinstance(e, Mul):
        found: Terms = {}
        for fa, ka in polynomial(e.a).items():
            for fb, kb in polynomial(e.b).items():
                _put(found, tuple(sorted((*fa, *fb), key=_order)), ka * kb)
        return found
    if isinstance(e, (Min, Max)):
        return _shifted(e)
    return {(e,): 1}


def _shifted(e: Min | Max) -> Terms:
    """min(a, b) -> a + min(0, b - a); the first term of the difference has a positive coefficient."""
    a, b = polynomial(e.a), polynomial(e.b)
    difference = dict(b)
    for factors, k in a.items():
        _put(difference, factors, -k)
    first = min((f for f in difference if f), key=lambda f: [_order(x) for x in f], default=())
    if difference.get(first, 0) < 0:
        a, difference = b, {f: -k for f, k in difference.items()}
    zero = const(0, e.dtype)
    found = dict(a)
    _put(found, (type(e)(zero, _expression(difference, zero)),), 1)
    return found


def _expression(terms: Terms, zero: PrimExpr) -> PrimExpr:
    """Return a sum of products, with its terms in the order of their texts."""
    total = zero
    for factors, k in sorted(terms.items(), key=lambda item: [_order(f) for f in item[0]]):
        number = const(k, zero.dtype)
        total = add(total, mul(reduce(mul, factors), number) if factors else number)
    return total


def _order(e: PrimExpr) -> tuple[str, int]:
    return text_of(e), id(e)


def _put(terms: Terms, factors: tuple[PrimExpr, ...], k: int) -> None:
    total = terms.get(factors, 0) + k
    if total:
        terms[factors] = total
    else:
        terms.pop(factors, None)


def is_same(a: Value, b: Value) -> bool:
    """Return whether two expressions are proved equal."""
    x, y = (simplify(literal(e), Ranges()) for e in (a, b))
    return x is y or polynomial(x) == polynomial(y)


def is_number(e: PrimExpr, number: int) -> bool:
    """Return whether an expression is this constant."""
    return isinstance(e, IntImm) and e.value == number


def holds(condition: PrimExpr) -> bool:
    """Return whether a condition is proved for all values of its variables."""
    found = simplify(condition, Ranges())
    return isinstance(found, IntImm) and bool(found.value)


def exact_quotient(e: PrimExpr, by: PrimExpr) -> PrimExpr | None:
    """Return `e / by` if `by` is one product that divides each term, else None."""
    terms, divisor = polynomial(simplify(e, Ranges())), polynomial(simplify(by, Ranges()))
    if len(divisor) != 1:
        return const(1, e.dtype) if divisor and terms == divisor else None
    ((factors, k),) = divisor.items()
    found: PrimExpr = const(0, e.dtype)
    for atoms, times in terms.items():
        left = list(atoms)
        for f in factors:
            at = next((i for i, a in enumerate(left) if a is f), None)
            if at is None:
                return None
            left.pop(at)
        if times % k:
            return None
        product: PrimExpr = const(times // k, e.dtype)
        if left:
            product = mul(reduce(mul, left), product)
        found = add(found, product)
    return simplify(cast(e.dtype, found), Ranges())


def whole_quotient(e: PrimExpr, by: PrimExpr) -> PrimExpr | None:
    """Return the quotient of an extent by a divisor that is not 0, if there is no remainder."""
    return None if isinstance(by, IntImm) and by.value == 0 else exact_quotient(e, by)


__all__ = ["exact_quotient", "holds", "is_number", "is_same", "polynomial", "whole_quotient"]
