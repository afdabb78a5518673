"""Dynamic sizes as sample numbers with a symbolic value.

    n = sample(Var("n"), 61)        an int, 61, with the value `n`
    n * 384 // 64                   366, with the value `n * 6`
    as_expr(n + 1)                  n + 1: the form stored in types, tensors and loops

All code that computes with sizes (inference, graph passes, memory plans, schedules) computes with a sample: a prime
that constants of a model are unlikely to equal or divide. The generated program contains the symbolic value. A decision
based only on the sample would be wrong for other sizes. So a program is compiled with two samples, and both results
must agree (`compiler/open_program.py`).

A size is a polynomial over variables and inexact quotients, in canonical form.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from tilewright.base.errors import CompileError
from tilewright.base.types import FLOAT32, INT64, OpenSize, Size
from tilewright.scalar.arith.evaluate import evaluate
from tilewright.scalar.arith.linear import linear
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import (
    Add,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Sub,
    Var,
    add,
    as_expr,
    cast,
    const,
    div,
    floordiv,
    floormod,
    mul,
    number_of,
    sub,
)
from tilewright.scalar.walk import free_vars, substitute, text_of

TYPICAL: Final = 64
"""The value of a dynamic dimension in estimates."""
_REMAINDERS: Final = 12
"""Number of consecutive sizes for which a comparison of a remainder with a number must have the same answer."""
_LARGE: Final = 1 << 20
"""A size so large that expressions that grow with it are far larger than remainders."""
Limit: TypeAlias = tuple[int, int | None]
Terms: TypeAlias = dict[tuple[PrimExpr, ...], int]



class Samples(dict[PrimExpr, int]):
    """The samples of variables, their `least` values by name, where these are known and not 1, and their `limits`: the
    least and the greatest values that the program assumes. With `nonempty`, comparisons need not hold for zero."""

    def __init__(
        self, known: Mapping[Var, int], spare: Sequence[int], least: Mapping[str, int], nonempty: bool
    ) -> None:
        super().__init__(known.items())
        self._spare = list(spare)
        self.least, self.nonempty = least, nonempty
        self.limits: dict[PrimExpr, Limit] = {}


    def of(self, v: Var) -> int | None:
        """Return the sample of a variable; a new variable gets a spare one, if any are left."""
        if v not in self and self._spare:
            self[v] = self._spare.pop(0)
        return self.get(v)

_SAMPLES: Final[ContextVar[Samples | None]] = ContextVar("samples", default=None)


_GRANTED: Final[ContextVar[bool]] = ContextVar("granted", default=False)


@contextmanager
def samples(
    known: Mapping[Var, int], spare: Sequence[int] = (), least: Mapping[str, int] | None = None, nonempty: bool = False,
) -> Iterator[Samples]:
    """Within this context, `open_size` uses these samples (and `spare` ones for other variables), and `limit` records
    limits.

    `least` has the least values of variables by name, by default those of the context around it. Others are at least 1.
    With `nonempty`, the order of two sizes is asked for tensors with elements only.
    """
    outer = _SAMPLES.get()
    if least is None:
        least = outer.least if outer is not None else {}
    found = Samples(known, spare, least, nonempty)
    token = _SAMPLES.set(found)
    try:
        yield found
    finally:
        _SAMPLES.reset(token)


@contextmanager
def granted() -> Iterator[None]:
    """Within this context, the caller guarantees all limits, and `limit` records nothing."""
    token = _GRANTED.set(True)
    try:
        yield
    finally:
        _GRANTED.reset(token)


def limit(size: int, least: int) -> None:
    """Require a size to be at least `least`. Raises `CompileError` if it is known to be smaller, or if the condition
    does not limit a single variable."""
    terms = _terms(size)
    found = _SAMPLES.get()
    if _GRANTED.get():
        return
    room, rest = least - terms.get((), 0), [(atoms, k) for atoms, k in terms.items() if atoms]
    if (bound := _bound(terms)) is not None and bound >= least:
        return
    if len(rest) == 1 and found is not None and len(rest[0][0]) == 1:
        (((atom,), k),) = rest
        bound = -(-room // k) if k > 0 else room // k
        if atom in found:
            low, high = found.limits.get(atom, (0, None))
            found.limits[atom] = (
                (max(low, bound), high) if k > 0 else (low, bound if high is None else min(high, bound)))
            return
        if isinstance(atom, FloorDiv) and isinstance(atom.b, IntImm) and (inner := open_size(atom.a)) is not None:
            by = atom.b.value
            limit(inner if k > 0 else -inner, bound * by if k > 0 else -(bound * by + by - 1))
            return
    raise CompileError(
        f"the size {size} must be at least {least}; this does not follow from the range of a single dimension",
        code="TW0304")


def open_size(e: PrimExpr) -> int | None:
    """Return the size `e` as an int or a sample; None if a variable in it has no sample."""
    if isinstance(e, IntImm):
        return e.value
    known = _SAMPLES.get()
    return None if known is None else _read(e, known)


def takes_open() -> bool:
    """Return whether a program with dynamic sizes is being compiled."""
    return _SAMPLES.get() is not None


def equation(a: PrimExpr, b: PrimExpr) -> dict[Var, PrimExpr] | None:
    """Return a variable and its value such that two sizes are equal: by a linear equation, by equal operands of a
    minimum, or by making a variable a multiple of the divisors in them; None if none of these is possible."""
    variables = {v: k + 2 for k, v in enumerate(dict.fromkeys([*free_vars(a), *free_vars(b)]))}
    with samples(variables):
        first, second = open_size(a), open_size(b)
        if first is None or second is None:
            return None
        terms = _terms(first - second)
        inside = {v for atoms in terms for x in atoms if not isinstance(x, Var) or len(atoms) > 1 for v in free_vars(x)}
        alone = [v for v in (b, a) if isinstance(v, Var) and v not in inside]
        solved = [*alone, *(atoms[0] for atoms, k in terms.items() if len(atoms) == 1 and abs(k) == 1)]
        for v in solved:
            if isinstance(v, Var) and v not in inside and (v,) in terms:
                value = _sum(sample(v, variables[v]), _product(first - second, terms[v,]), -1)
                return {v: as_expr(value, INT64)}
        operands = _equal_operands(terms)
        if operands is not None:
            return equation(*operands)
        steps = {
            x.b.value for atoms in terms for x in atoms
            if isinstance(x, (FloorDiv, FloorMod)) and isinstance(x.b, IntImm)}
        if len(inside) != 1 or not steps:
            return None
    (v,) = inside
    step = math.lcm(*steps)
    return {v: mul(Var(f"{v.name}_by_{step}"), const(step, INT64))}


def _equal_operands(terms: Terms) -> tuple[PrimExpr, PrimExpr] | None:
    """Return the operands of the only minimum or maximum in `terms`, if the sum is zero where they are equal."""
    found = [x for atoms in terms for x in atoms if isinstance(x, (Min, Max))]
    if len(found) != 1:
        return None
    (choice,) = found
    for operand in choice.operands():
        size = open_size(substitute(_expression(terms), {choice: operand}))
        if size is not None and not _terms(size):
            return choice.a, choice.b
    return None


def sampled() -> dict[PrimExpr, int]:
    """Return the variables that have samples, each with its lower bound."""
    known = _SAMPLES.get()
    return {v: _least_of(v) for v in known or ()}


def sample(v: Var, number: int) -> OpenSize:
    """Return a size with the value `v` and the sample `number`."""
    return _Open(number, {(v,): 1})


def _read(e: PrimExpr, known: Samples) -> int | None:
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, Var):
        number = known.of(e)
        return None if number is None else sample(e, number)
    if isinstance(e, Cast):
        return _read(e.value, known) if e.dtype.is_integer else None
    rule = _RULES.get(type(e))
    if rule is None:
        return None
    a, b = (_read(x, known) for x in e.operands())
    return None if a is None or b is None else rule(a, b)


class _Open(OpenSize):
    """A size as a sum of `coefficient * product of atoms`; the constant has no atoms."""

    terms: Terms

    def __new__(cls, number: int, terms: Terms) -> _Open:
        self = super().__new__(cls, number)
        self.terms = terms
        self.expr = _expression(terms)
        return self

    def __add__(self, other: Any) -> Any:
        return _sum(self, other, 1) if isinstance(other, int) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _sum(self, other, -1) if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return _sum(-self, other, 1) if isinstance(other, int) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return _product(self, other) if isinstance(other, int) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return _product(self, -1)

    def __pos__(self) -> Any:
        return self

    def __floordiv__(self, other: Any) -> Any:
        return _quotient(self, other) if isinstance(other, int) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(other, self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return _remainder(self, other) if isinstance(other, int) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return _remainder(other, self) if isinstance(other, int) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if isinstance(other, int) else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if isinstance(other, int) else NotImplemented

    def __float__(self) -> float:
        raise CompileError(
            f"the size {self} is known only at run time, but a number is needed at compile time", code="TW0304")

    def __truediv__(self, other: Any) -> Any:
        return float(self)

    def __lt__(self, other: Any) -> bool:
        return _below(self, other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return _below(self, other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return _below(self, other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return _below(self, other, operator.ge)

    def __eq__(self, other: object) -> bool:
        """Whether two sizes are equal for all values of their variables. A symbolic size never equals a number."""
        return isinstance(other, _Open) and (self is other or self.terms == other.terms)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return True

    __hash__ = OpenSize.__hash__

    def __rtruediv__(self, other: Any) -> Any:
        """Return the reciprocal times `other` as an expression: the factor of a mean."""
        return (
            div(const(other, FLOAT32), cast(FLOAT32, self.expr)) if isinstance(other, (int, float)) else NotImplemented
        )

    def __repr__(self) -> str:
        return text_of(self.expr)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def _below(a: _Open, b: Any, compare: Callable[[int, int], bool]) -> bool:
    """The answer of `compare` for the samples. Raises `CompileError` where other sizes can have another answer: neither
    of two sizes contains the other, or the answer depends on a remainder.

    Other comparisons with numbers ask how large sizes usually are.
    """
    answer = compare(int(a), int(b))
    if isinstance(b, _Open):
        terms = _terms(a - b)
        known = _SAMPLES.get()
        nonempty = known is not None and known.nonempty
        below = _bound(terms, nonempty)
        above = _bound({atoms: -k for atoms, k in terms.items()}, nonempty)
        if (below is None or below < 0) and (above is None or above < 0):
            raise CompileError(f"the sizes {a} and {b} cannot be compared at compile time: the order "
                               "depends on their values", code="TW0304")
    elif any(not isinstance(atom, Var) for atoms in a.terms for atom in atoms):
        variables = list(free_vars(a.expr))
        found = [
            int(evaluate(a.expr, {v: _LARGE + step * (k + 1) for k, v in enumerate(variables)}))
            for step in range(_REMAINDERS)]
        if max(map(abs, found)) < _LARGE // 1024 and len({compare(n, int(b)) for n in found}) > 1:
            raise CompileError(f"how {a} compares with {b} depends on a remainder", code="TW0304")
    return answer


def may_be_zero(size: int) -> bool:
    """Return whether a dynamic size can be zero; False for a number."""
    least = _bound(_terms(size)) if isinstance(size, _Open) else 1
    return least is None or least < 1


def typical(size: int) -> int:
    """Return a number for estimates: `size` if it is static, else its value with every variable set to `TYPICAL`."""
    if not isinstance(size, _Open):
        return size
    total = 0
    for atoms, k in size.terms.items():
        product = k
        for a in atoms:
            number = (
                TYPICAL if isinstance(a, Var)
                else number_of(simplify(substitute(a, dict.fromkeys(free_vars(a), const(TYPICAL, INT64))), Ranges()))
            )
            product *= int(number) if number is not None else TYPICAL
        total += product
    return total


def least_difference(a: int, b: int) -> int | None:
    """Return a lower bound of `a - b` for all values of their variables; None if none is known."""
    return _bound(_terms(a - b))


def _bound(terms: Terms, nonempty: bool = False) -> int | None:
    """Return a lower bound of a sum for all values of its variables; None if it can decrease. With `nonempty`, no
    variable is zero.

    Every atom is written as its own lower bound plus a rest: (n - 1)*m is (n' + 0)*(m' + 1) with n', m' >= 0.
    """
    shifted: Terms = {}
    for atoms, k in terms.items():
        parts: Terms = {(): k}
        for atom in atoms:
            least = max(_least_of(atom), int(nonempty and isinstance(atom, Var)))
            longer = {(*rest, atom): factor for rest, factor in parts.items()}
            for rest, factor in parts.items() if least else ():
                longer[rest] = longer.get(rest, 0) + factor * least
            parts = longer
        for rest, factor in parts.items():
            shifted[rest] = shifted.get(rest, 0) + factor
    return shifted.get((), 0) if all(factor >= 0 for rest, factor in shifted.items() if rest) else None


def _is_less(a: Terms, b: Terms) -> bool:
    """Return whether 0 <= a < b for all values of their variables."""
    least, room = _bound(a), _bound({atoms: b.get(atoms, 0) - a.get(atoms, 0) for atoms in {**a, **b}})
    return least is not None and least >= 0 and room is not None and room > 0


def _least_of(atom: PrimExpr) -> int:
    """Return a lower bound of an atom. Quotients and remainders of sizes are not negative."""
    if not isinstance(atom, Var):
        return 0
    known = _SAMPLES.get()
    if known is None:
        return 1
    low, _ = known.limits.get(atom, (0, None))
    return max(low, known.least.get(atom.name, 1))


def _terms(x: int) -> Terms:
    return x.terms if isinstance(x, _Open) else {(): int(x)} if x else {}


def _made(number: int, terms: Terms) -> int:
    """Return the size with these terms; a plain number if it has no variables."""
    terms = {atoms: k for atoms, k in terms.items() if k}
    return _Open(number, terms) if any(terms) else Size(terms.get((), 0))


def _sum(a: int, b: int, sign: int) -> int:
    total = dict(_terms(a))
    for atoms, k in _terms(b).items():
        total[atoms] = total.get(atoms, 0) + sign * k
    return _made(int(a) + sign * int(b), total)


def _product(a: int, b: int) -> int:
    total: Terms = {}
    for x, k in _terms(a).items():
        for y, n in _terms(b).items():
            atoms = tuple(sorted((*x, *y), key=text_of))
            total[atoms] = total.get(atoms, 0) + k * n
    return _made(int(a) * int(b), total)


def _quotient(a: int, b: int) -> int:
    """Return the quotient, exact where possible: (8*n*m) // (4*n) -> 2*m, (8*n + 3) // 4 -> 2*n, and -((-n) // 4) -> (n
    + 3) // 4."""
    number, top, bottom = int(a) // int(b), _terms(a), _terms(b)
    if _is_less(top, bottom):
        return Size(0)
    if len(bottom) == 1:
        ((atoms, k),) = bottom.items()
        if k > 0:
            whole, rest = _divided(top, atoms, k)
            if not rest:
                return _made(number, whole)
            if atoms and set(top) == {atoms}:
                return Size(top[atoms] // k)
            if not atoms:
                if all(n < 0 for n in top.values()):
                    return -(((-a) + (k - 1)) // b)
                return _made(number, _with_quotient(whole, rest, k))
    elif (exact := _exact(top, bottom)) is not None:
        return _made(number, exact)
    return _made(number, {(floordiv(_expression(top), _expression(bottom)),): 1})


def _with_quotient(whole: Terms, rest: Terms, k: int) -> Terms:
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
        atom = (floordiv(_expression({**left, (): known % k}), const(k, INT64)),)
        whole[atom] = whole.get(atom, 0) + 1
    whole[()] = whole.get((), 0) + known // k
    return whole


def _atom(e: PrimExpr, number: int) -> int:
    return e.value if isinstance(e, IntImm) else _made(number, {(e,): 1})


def _remainder(a: int, b: int) -> int:
    number, top, bottom = int(a) % int(b), _terms(a), _terms(b)
    if _is_less(top, bottom):
        return a
    if len(bottom) == 1:
        ((atoms, k),) = bottom.items()
        if k > 0:
            _, rest = _divided(top, atoms, k)
            if not atoms and not any(rest):
                return rest.get((), 0) % k
            if not rest:
                return 0
            if atoms and set(top) == {atoms}:
                return _made(number, {atoms: top[atoms] % k})
            if not atoms:
                top = rest
    elif _exact(top, bottom) is not None:
        return 0
    return _made(number, {(floormod(_expression(top), _expression(bottom)),): 1})


def _exact(top: Terms, bottom: Terms) -> Terms | None:
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
        ((factor, k),) = _divided({last: rest[last]}, first, bottom[first])[0].items() or (((), 0),)
        if not k:
            return None
        quotient[factor] = k
        for term, n in bottom.items():
            product = tuple(sorted((*factor, *term), key=text_of))
            rest[product] = rest.get(product, 0) - k * n
            if not rest[product]:
                del rest[product]
    return quotient


def _divided(top: Terms, atoms: tuple[PrimExpr, ...], k: int) -> tuple[Terms, Terms]:
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


def _expression(terms: Terms) -> PrimExpr:
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


def _least(a: int, b: int, kind: type) -> int:
    """Return the minimum or maximum. Between a dynamic size and a number, the dynamic size is chosen, and limited
    accordingly."""
    if isinstance(a, _Open) != isinstance(b, _Open):
        chosen, other = (a, b) if isinstance(a, _Open) else (b, a)
        limit(other - chosen if kind is Min else chosen - other, 0)
        return chosen
    return _atom(
        kind(_expression(_terms(a)), _expression(_terms(b))),
        min(int(a), int(b)) if kind is Min else max(int(a), int(b)))


_RULES: Final[dict[type, Any]] = {
    Add: lambda a, b: a + b, Sub: lambda a, b: a - b, Mul: lambda a, b: a * b, FloorDiv: lambda a, b: a // b,
    FloorMod: lambda a, b: a % b,
    Min: lambda a, b: _least(a, b, Min), Max: lambda a, b: _least(a, b, Max),
}
