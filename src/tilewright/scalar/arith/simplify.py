"""Simplification of index expressions and conditions under known ranges.

Scalar `int32` and `int64` expressions are converted to a canonical linear form with simplified atoms. Divisions and
remainders by constants follow these rules, where `q*c + r` is any split of the dividend:

    (q*c + r) // c              -> q + r // c                    (q*c + r) % c             -> r % c
    r // c                      -> k         if k*c <= r < (k+1)*c, and then   r % c       -> r - k*c
    (g*h + r) // (g*c)          -> h // c    if 0 <= r < g       (g*h + r) % (g*c)         -> g*(h % c) + r
    (x // a + k) // c           -> (x + k*a) // (a*c)            (x % (k*c)) % c           -> x % c
    (x % (k*c)) // c            -> (x // c) % k
    (x // c)*c*k + (x % c)*k    -> x*k                           (x // c) % b * c + x % c  -> x % (b*c)

Comparisons become `positive terms < negative terms` (or `>=`), or a constant when bounds decide them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import gcd
from typing import Final

from tilewright.base.types import BOOL, INT32, INT64, DataType
from tilewright.scalar.arith.bounds import bounds_of_form
from tilewright.scalar.arith.linear import LinearForm, expression, linear
from tilewright.scalar.arith.ranges import LANE, Ranges
from tilewright.scalar.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    Binary,
    Broadcast,
    Comparison,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Load,
    Max,
    Min,
    Mul,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
    const,
    integer,
    integer_range,
    maximum,
    minimum,
    number_of,
)
from tilewright.scalar.walk import free_vars, text_of, walk

_MOST_ENDS: Final = 4
_LEAVES: Final = (Var, IntImm, FloatImm)


def simplify(e: PrimExpr, ranges: Ranges) -> PrimExpr:
    """Return an equal expression in canonical form."""
    if type(e) in _LEAVES:
        known = ranges.known.get(e) if type(e) is Var else None
        return IntImm(e.dtype, known[0]) if known is not None and known[0] is not None and known[0] == known[1] else e
    found = ranges.simplified.get(e)
    if found is None:
        found = _simplify(e, ranges)
        ranges.simplified[e] = found
        ranges.simplified.setdefault(found, found)
    return found


def prove(condition: PrimExpr, ranges: Ranges) -> bool | None:
    """Return True or False when `condition` always has that value in every lane; None when it varies or cannot be
    decided."""
    value = number_of(simplify(condition, ranges))
    return None if value is None else bool(value)


def form_of(e: PrimExpr, ranges: Ranges) -> LinearForm:
    """Return the canonical linear form of a scalar index expression."""
    known = ranges.forms.get(e)
    if known is None:
        rule = _FORMS.get(type(e))
        if rule is not None:
            known = rule(e, ranges)
        else:
            x = simplify(e, ranges) if type(e) is Var else _over_operands(e, ranges)
            known = LinearForm({x: 1}) if not isinstance(x, IntImm) else LinearForm({}, x.value)
        ranges.forms[e] = known
    return known


def is_index(dtype: DataType) -> bool:
    """Return whether expressions of this type are simplified as mathematical integers."""
    return dtype is INT64 or dtype is INT32


def _simplify(e: PrimExpr, ranges: Ranges) -> PrimExpr:
    dtype = e.dtype
    if is_index(dtype):
        return expression(form_of(e, ranges), dtype)
    if dtype.lanes > 1 and (is_index(dtype.element) or isinstance(e, Comparison)):
        return _over_lanes(e, ranges)
    if isinstance(e, Comparison) and is_index(e.a.dtype):
        return _compare(e, ranges)
    return _over_operands(e, ranges)


def _over_operands(e: PrimExpr, ranges: Ranges) -> PrimExpr:
    old = e.operands()
    if not old:
        return e
    if isinstance(e, Select):
        decided = prove(e.condition, ranges)
        if decided is not None:
            return simplify(e.true_value if decided else e.false_value, ranges)
    new = [simplify(x, ranges) for x in old]
    return e if all(a is b for a, b in zip(old, new, strict=True)) else e.with_operands(new)


def _sum(e: PrimExpr, ranges: Ranges) -> LinearForm:
    flat = linear(e)
    total = LinearForm({}, flat.const)
    for atom, k in flat.coefs.items():
        total = total.plus(_product(atom, ranges) if type(atom) is Mul else form_of(atom, ranges), k)
    return _recombine(total, ranges)


def _product(e: Mul, ranges: Ranges) -> LinearForm:
    a, b = form_of(e.a, ranges), form_of(e.b, ranges)
    if not a.coefs:
        return b.times(a.const)
    if not b.coefs:
        return a.times(b.const)
    return LinearForm({Mul(expression(a, e.dtype), expression(b, e.dtype)): 1})


def _floordiv(e: FloorDiv, ranges: Ranges) -> LinearForm:
    divisor = form_of(e.b, ranges)
    if divisor.coefs or divisor.const <= 0:
        return LinearForm({FloorDiv(expression(form_of(e.a, ranges), e.dtype), expression(divisor, e.dtype)): 1})
    return _divide(form_of(e.a, ranges), divisor.const, e.dtype, ranges)


def _floormod(e: FloorMod, ranges: Ranges) -> LinearForm:
    divisor = form_of(e.b, ranges)
    if divisor.coefs or divisor.const <= 0:
        return LinearForm({FloorMod(expression(form_of(e.a, ranges), e.dtype), expression(divisor, e.dtype)): 1})
    return _remainder(form_of(e.a, ranges), divisor.const, e.dtype, ranges)


def _split(form: LinearForm, c: int) -> tuple[LinearForm, LinearForm]:
    """Return `(q, r)` with `form == q*c + r`, the coefficients of r smaller than c, and its constant in [0, c)."""
    q: dict[PrimExpr, int] = {}
    r: dict[PrimExpr, int] = {}
    for atom, k in form.coefs.items():
        whole = k // c if k >= 0 else -(-k // c)
        if whole:
            q[atom] = whole
        if k - whole * c:
            r[atom] = k - whole * c
    return LinearForm(q, form.const // c), LinearForm(r, form.const % c)


def _factor(rest: LinearForm, c: int, ranges: Ranges) -> tuple[int, LinearForm, LinearForm] | None:
    """Return `(g, h, r)` with `rest == g*h + r`, g a divisor of c, and `0 <= r < g`, or None."""
    for g in sorted({gcd(k, c) for k in rest.coefs.values()}, reverse=True):
        if g == 1:
            break
        low = LinearForm({a: k for a, k in rest.coefs.items() if k % g}, rest.const % g)
        lo, hi = bounds_of_form(low, ranges)
        if lo is not None and hi is not None and lo >= 0 and hi < g:
            return g, LinearForm({a: k // g for a, k in rest.coefs.items() if k % g == 0}, rest.const // g), low
    return None


def _only_atom(form: LinearForm) -> PrimExpr | None:
    if len(form.coefs) == 1:
        (atom, k), = form.coefs.items()
        return atom if k == 1 else None
    return None


def _divide(form: LinearForm, c: int, dtype: DataType, ranges: Ranges) -> LinearForm:
    """Return the form of `form // c`."""
    if c == 1:
        return form
    q, rest = _split(form, c)
    lo, hi = bounds_of_form(rest, ranges)
    if lo is not None and hi is not None and lo // c == hi // c:
        return LinearForm(q.coefs, q.const + lo // c)
    factored = _factor(rest, c, ranges)
    if factored is not None:
        g, high, _ = factored
        return q.plus(_divide(high, c // g, dtype, ranges))
    atom = _only_atom(rest)
    if isinstance(atom, FloorDiv) and isinstance(atom.b, IntImm) and 0 < atom.b.value <= integer_range(dtype)[1] // c:
        inner = form_of(atom.a, ranges).plus(LinearForm({}, rest.const * atom.b.value))
        return q.plus(_divide(inner, c * atom.b.value, dtype, ranges))
    if (
        isinstance(atom, FloorMod) and isinstance(atom.b, IntImm) and atom.b.value > 0 and atom.b.value % c == 0
        and rest.const == 0
    ):
        return q.plus(_remainder(_divide(form_of(atom.a, ranges), c, dtype, ranges), atom.b.value // c, dtype, ranges))
    return q.plus(LinearForm({FloorDiv(expression(rest, dtype), IntImm(dtype, c)): 1}))


def _remainder(form: LinearForm, c: int, dtype: DataType, ranges: Ranges) -> LinearForm:
    """Return the form of `form % c`."""
    if c == 1:
        return LinearForm({})
    for atom, k in form.coefs.items():
        if isinstance(atom, FloorMod) and isinstance(atom.b, IntImm) and atom.b.value > 0 and atom.b.value % c == 0:
            return _remainder(form.without(atom)[1].plus(form_of(atom.a, ranges), k), c, dtype, ranges)
    _, rest = _split(form, c)
    lo, hi = bounds_of_form(rest, ranges)
    if lo is not None and hi is not None and lo // c == hi // c:
        return LinearForm(rest.coefs, rest.const - c * (lo // c))
    factored = _factor(rest, c, ranges)
    if factored is not None:
        g, high, low = factored
        return _remainder(high, c // g, dtype, ranges).times(g).plus(low)
    return LinearForm({FloorMod(expression(rest, dtype), IntImm(dtype, c)): 1})


def _recombine(form: LinearForm, ranges: Ranges) -> LinearForm:
    """Recombine quotients and remainders of the same division."""
    changed = True
    while changed:
        changed = False
        for atom, k in form.coefs.items():
            if type(atom) is FloorMod:
                joined = (
                    _join_open(form, atom, k, ranges) if type(atom.b) is not IntImm else _join(form, atom, k, ranges)
                    if atom.b.value > 0 else None
                )
                if joined is not None:
                    form, changed = joined, True
                    break
    return form


def _join_open(form: LinearForm, mod: FloorMod, k: int, ranges: Ranges) -> LinearForm | None:
    """(x // n) * n + x % n -> x"""
    for other, m in form.coefs.items():
        if m == k and isinstance(other, Mul):
            for quotient, divisor in ((other.a, other.b), (other.b, other.a)):
                if divisor is mod.b and isinstance(quotient, FloorDiv) and quotient.b is mod.b and quotient.a is mod.a:
                    return form.without(mod)[1].without(other)[1].plus(form_of(mod.a, ranges), k)
    return None


def _join(form: LinearForm, mod: FloorMod, k: int, ranges: Ranges) -> LinearForm | None:
    c, dtype = integer(mod.b), mod.dtype
    whole = form_of(mod.a, ranges)
    quotient = _divide(whole, c, dtype, ranges)
    if quotient.coefs and all(form.coefs.get(a) == k * c * m for a, m in quotient.coefs.items()):
        return form.without(mod)[1].plus(quotient, -k * c).plus(whole, k)
    for other, m in form.coefs.items():
        if m == k * c and isinstance(other, FloorMod) and isinstance(other.b, IntImm) and other.b.value > 0:
            inner = form_of(other.a, ranges)
            if inner.coefs == quotient.coefs and inner.const == quotient.const:
                return form.without(mod)[1].without(other)[1].plus(
                    _remainder(whole, c * other.b.value, dtype, ranges), k)
    return None


def _least(e: Min | Max, ranges: Ranges) -> LinearForm:
    a, b = form_of(e.a, ranges), form_of(e.b, ranges)
    lo, hi = bounds_of_form(_recombine(a.plus(b, -1), ranges), ranges)
    if isinstance(e, Max):
        a, b = b, a
    if hi is not None and hi <= 0:
        return a
    if lo is not None and lo >= 0:
        return b
    if isinstance(e, Max):
        a, b = b, a
    x, y = expression(a, e.dtype), expression(b, e.dtype)
    return linear(minimum(x, y) if isinstance(e, Min) else maximum(x, y))


def _select(e: Select, ranges: Ranges) -> LinearForm:
    decided = prove(e.condition, ranges)
    if decided is not None:
        return form_of(e.true_value if decided else e.false_value, ranges)
    return linear(e.with_operands([simplify(x, ranges) for x in e.operands()]))


def difference(e: Comparison, ranges: Ranges) -> tuple[type[Comparison], LinearForm]:
    """Return `(kind, d)` such that `e` is equivalent to `d kind 0`; the kind is one of LT, GE, EQ, NE."""
    d = _recombine(form_of(e.a, ranges).plus(form_of(e.b, ranges), -1), ranges)
    kind = type(e)
    if kind is LE or kind is GT:
        d = LinearForm(d.coefs, d.const - 1)
        kind = LT if kind is LE else GE
    return kind, d


def _compare(e: Comparison, ranges: Ranges) -> PrimExpr:
    kind, d = difference(e, ranges)
    decided = decide(kind, bounds_of_form(d, ranges))
    if decided is None and (kind is LT or kind is GE):
        decided = _decide_open(kind, d, ranges)
    if decided is not None:
        return IntImm(BOOL, decided)
    if any(type(a) is not Var and any(isinstance(x, Load) for x in walk(a)) for a in d.coefs):
        # an element in memory may be the maximum of its type, so adding to it could overflow
        return _over_operands(e, ranges)
    g = gcd(*d.coefs.values())
    if g > 1:
        if kind in (EQ, NE) and d.const % g:
            return IntImm(BOOL, kind is NE)
        # g*x + k < 0  <=>  x < -k/g  <=>  x + floor(k/g) < 0, and the same for >=
        d = LinearForm({a: k // g for a, k in d.coefs.items()}, d.const // g)
    if not any(k > 0 for k in d.coefs.values()):
        d = d.times(-1)
        if kind is LT or kind is GE:  # -d < 0  <=>  d > 0  <=>  d - 1 >= 0
            d, kind = LinearForm(d.coefs, d.const - 1), GE if kind is LT else LT
    left = LinearForm({a: k for a, k in d.coefs.items() if k > 0})
    right = LinearForm({a: -k for a, k in d.coefs.items() if k < 0}, -d.const)
    dtype = e.a.dtype
    return kind(expression(left, dtype), expression(right, dtype))


def _decide_open(kind: type[Comparison], d: LinearForm, ranges: Ranges) -> bool | None:
    """Decide a comparison with variables that have a symbolic upper bound: `i*8 + j < n*8` for `i < n`, `j < 8`."""
    if kind is GE:
        return _decide_open(LT, d.times(-1).plus(LinearForm({}, -1)), ranges)  # d >= 0  <=>  -d - 1 < 0
    return True if _is_negative(_with_flat_products(d), ranges, _MOST_ENDS) else None


def _with_flat_products(form: LinearForm) -> LinearForm:
    """Return the form with its products written in one way, so that equal ones cancel: n*(h*2*(w*2)) -> n*h*w * 4."""
    if not any(type(atom) is Mul for atom in form.coefs):
        return form
    total = LinearForm({}, form.const)
    for atom, k in form.coefs.items():
        factors: list[PrimExpr] = []
        times = _take_factors(atom, factors)
        total = total.plus(LinearForm({_product_of(factors): 1}), k * times)
    return total


def _take_factors(e: PrimExpr, factors: list[PrimExpr]) -> int:
    """Append the factors of a product that are not constant to `factors`, and return the constant one."""
    if type(e) is IntImm:
        return e.value
    if type(e) is Mul:
        return _take_factors(e.a, factors) * _take_factors(e.b, factors)
    factors.append(e)
    return 1


def _product_of(factors: Sequence[PrimExpr]) -> PrimExpr:
    first, *others = sorted(factors, key=text_of)
    return reduce(Mul, others, first)


def _is_negative(d: LinearForm, ranges: Ranges, tries: int) -> bool:
    """Return whether a form is negative, after replacing up to `tries` atoms by their upper bounds."""
    for atom, k in d.coefs.items():
        whole = _whole(atom, k, ranges)
        for most, times in ((whole,) if whole else ((end, k) for end in _greatest(atom, ranges)) if k > 0 else ()):
            rest = _with_flat_products(d.without(atom)[1].plus(most, times))
            if (
                decide(LT, bounds_of_form(rest, ranges)) is True
                or (tries > 1 and _is_negative(rest, ranges, tries - 1))
            ):
                return True
    return False


def _whole(atom: PrimExpr, k: int, ranges: Ranges) -> tuple[LinearForm, int] | None:
    """Return an upper bound of `k` times a quotient whose divisor divides `k`: n//4 * 8 <= n*2, n//4 * -8 <= (n - 3) *
    -2."""
    if not isinstance(atom, FloorDiv) or not isinstance(atom.b, IntImm) or atom.b.value <= 0 or k % atom.b.value:
        return None
    dividend = form_of(atom.a, ranges)
    return (dividend if k > 0 else dividend.plus(LinearForm({}, 1 - atom.b.value))), k // atom.b.value


def _greatest(atom: PrimExpr, ranges: Ranges) -> list[LinearForm]:
    """Return upper bounds of an atom: from the end of a variable, the symbolic divisor of a remainder, or the operands
    of a minimum."""
    if isinstance(atom, Min):
        return [form_of(atom.b, ranges), form_of(atom.a, ranges)]
    end = _end(atom, ranges)
    return [] if end is None else [form_of(end, ranges).plus(LinearForm({}, -1))]


def _end(e: PrimExpr, ranges: Ranges) -> PrimExpr | None:
    """Return a strict upper bound of `e`: the end of a variable, the symbolic divisor of a remainder, or the quotient
    of an end."""
    if isinstance(e, Var):
        return ranges.ends.get(e)
    if isinstance(e, FloorMod):
        return None if isinstance(e.b, IntImm) else e.b
    if isinstance(e, FloorDiv) and (end := _end(e.a, ranges)) is not None:
        return _divided(simplify(end, ranges), e.b)
    return None


def _divided(e: PrimExpr, divisor: PrimExpr) -> PrimExpr | None:
    """Divide a product by one of its factors: (n * (m * 12)) by 12 or by m; None if the divisor is not a factor."""
    if e is divisor:
        return IntImm(e.dtype, 1)
    if not isinstance(e, Mul):
        return None
    for factor, other in ((e.a, e.b), (e.b, e.a)):
        left = _divided(factor, divisor)
        if left is not None:
            return Mul(left, other) if number_of(left) != 1 else other
    return None


def decide(kind: type[Comparison], interval: tuple[int | None, int | None]) -> bool | None:
    """Return whether `x kind 0` holds for all x of the interval (True), for none (False), or for some (None)."""
    lo, hi = interval
    if kind is LT or kind is GE:
        below = True if hi is not None and hi < 0 else False if lo is not None and lo >= 0 else None
        return below if below is None or kind is LT else not below
    if lo == hi == 0:
        return kind is EQ
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return kind is NE
    return None


def scalar_twin(e: PrimExpr, memo: dict[PrimExpr, PrimExpr | None] | None = None) -> PrimExpr | None:
    """Return lane `LANE` of a vector expression as a scalar expression; None if it has no such form."""
    memo = {} if memo is None else memo
    if e not in memo:
        memo[e] = _twin(e, memo)
    return memo[e]


def _twin(e: PrimExpr, memo: dict[PrimExpr, PrimExpr | None]) -> PrimExpr | None:
    if e.dtype.lanes == 1:
        return e
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, Ramp):
        return Add(e.base, Mul(LANE, e.stride))
    if isinstance(e, (Binary, Not)):
        operands = [scalar_twin(x, memo) for x in e.operands()]
        known = [x for x in operands if x is not None]
        if len(known) == len(operands):
            return type(e)(*known)
    return None


def _over_lanes(e: PrimExpr, ranges: Ranges) -> PrimExpr:
    lanes = e.dtype.lanes
    twin = scalar_twin(e)
    if twin is None or (isinstance(e, Comparison) and not is_index(e.a.dtype.element)):
        return _over_operands(e, ranges)
    within = ranges.in_lanes(lanes)
    if isinstance(e, Comparison):
        decided = prove(twin, within)
        return _over_operands(e, ranges) if decided is None else const(decided, e.dtype)
    ramp = as_ramp(form_of(twin, within), lanes, e.dtype.element)
    return _over_operands(e, ranges) if ramp is None else ramp


def as_ramp(form: LinearForm, lanes: int, dtype: DataType, lane: Var = LANE) -> PrimExpr | None:
    """Return a ramp or a broadcast with the lanes `form`; None if `form` is not linear in `lane`."""
    stride, rest = form.without(lane)
    if any(lane in free_vars(a) for a in rest.coefs if type(a) is not Var):
        return None
    base = expression(rest, dtype)
    return Ramp(base, stride, lanes) if stride else Broadcast(base, lanes)


_FORMS: Final[dict[type, Callable[..., LinearForm]]] = {
    IntImm: lambda e, r: LinearForm({}, e.value), Add: _sum, Sub: _sum,
    Mul: lambda e, r: _sum(e, r) if _by_constant(e) else _product(e, r),
    FloorDiv: _floordiv, FloorMod: _floormod, Min: _least, Max: _least, Select: _select,
}


def _by_constant(e: Mul) -> bool:
    return type(e.a) is IntImm or type(e.b) is IntImm


__all__ = ["as_ramp", "decide", "difference", "form_of", "is_index", "prove", "scalar_twin", "simplify"]
