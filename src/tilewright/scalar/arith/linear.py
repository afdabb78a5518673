"""Linear forms: an integer expression as `sum(coefficient * atom) + constant`.

An atom is any expression that is not a sum or a constant multiple: a variable, a load, a floor division, …
"""

from __future__ import annotations

from tilewright.base.types import INT64, DataType
from tilewright.scalar.expr import Add, IntImm, Mul, PrimExpr, Sub, Var
from tilewright.scalar.expr import const as number


class LinearForm:
    """`sum(coefs[atom] * atom) + const`; coefficients are never 0. Treat as read-only."""

    __slots__ = ("coefs", "const")

    def __init__(self, coefs: dict[PrimExpr, int], const: int = 0) -> None:
        self.coefs, self.const = coefs, const

    def plus(self, other: LinearForm, scale: int = 1) -> LinearForm:
        """Return `self + scale * other`."""
        coefs = dict(self.coefs)
        for atom, k in other.coefs.items():
            total = coefs.get(atom, 0) + scale * k
            if total:
                coefs[atom] = total
            else:
                coefs.pop(atom, None)
        return LinearForm(coefs, self.const + scale * other.const)

    def times(self, k: int) -> LinearForm:
        return LinearForm({a: c * k for a, c in self.coefs.items()} if k else {}, self.const * k)

    def without(self, atom: PrimExpr) -> tuple[int, LinearForm]:
        """Return the coefficient of `atom`, and the form without it."""
        k = self.coefs.get(atom, 0)
        return k, LinearForm({a: c for a, c in self.coefs.items() if a is not atom}, self.const) if k else self

    def __repr__(self) -> str:
        return " + ".join([*(f"{c}*{a}" for a, c in self.coefs.items()), str(self.const)])


def linear(e: PrimExpr) -> LinearForm:
    """Return the linear form of `e` as written: only sums and constant multiples are expanded."""
    coefs: dict[PrimExpr, int] = {}
    const = 0
    stack = [(e, 1)]
    while stack:
        x, k = stack.pop()
        if isinstance(x, Var):
            coefs[x] = coefs.get(x, 0) + k
        elif isinstance(x, IntImm):
            const += k * x.value
        elif isinstance(x, Add):
            stack += ((x.b, k), (x.a, k))
        elif isinstance(x, Sub):
            stack += ((x.b, -k), (x.a, k))
        elif isinstance(x, Mul) and isinstance(x.b, IntImm):
            stack.append((x.a, k * x.b.value))
        elif isinstance(x, Mul) and isinstance(x.a, IntImm):
            stack.append((x.b, k * x.a.value))
        else:
            coefs[x] = coefs.get(x, 0) + k
    if not all(coefs.values()):
        coefs = {a: c for a, c in coefs.items() if c}
    return LinearForm(coefs, const)


def expression(form: LinearForm, dtype: DataType = INT64) -> PrimExpr:
    """Return the form as an expression: positive terms first, then by descending coefficient. The constant is last,
    except in `1 - i`."""
    total: PrimExpr | None = None
    items = list(form.coefs.items())
    if len(items) > 1:
        items.sort(key=lambda item: (item[1] < 0, -abs(item[1])))
    const = form.const
    if items and const > 0 and items[0][1] < 0:
        total, const = number(const, dtype), 0
    for atom, k in items:
        if k < 0 and total is not None:
            total = Sub(total, atom if k == -1 else Mul(atom, number(-k, dtype)))
        else:
            term = atom if k == 1 else Mul(atom, number(k, dtype))
            total = term if total is None else Add(total, term)
    if total is None:
        return number(form.const, dtype)
    return Add(total, number(const, dtype)) if const else total
