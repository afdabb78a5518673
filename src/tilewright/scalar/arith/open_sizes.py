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

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from tilewright.base.errors import CompileError, UnfitSamplesError
from tilewright.base.types import FLOAT32, INT64, OpenSize, Size
from tilewright.scalar.arith.branches import Branches
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.remainders import depends_on_remainder
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.arith.size_terms import (
    Key,
    Terms,
    divided,
    divisor,
    exact,
    expression,
    has_one_variable,
    is_reversed,
    key_of,
    least_by_bounds,
    least_by_cases,
    preference,
    replaced,
    with_quotient,
    without_common,
)
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
    cast,
    const,
    div,
    floordiv,
    floormod,
    number_of,
)
from tilewright.scalar.walk import free_vars, substitute, text_of

TYPICAL: Final = 64
"""The value of a dynamic dimension in estimates."""
Limit: TypeAlias = tuple[int, int | None]


class Samples(dict[PrimExpr, int]):
    """The samples of variables, their `least` values by name, where these are known and not 1, and their `limits`: the
    least and the greatest values that the program assumes. With `nonempty`, comparisons need not hold for zero.

    `bounds` are limits of sums of several variables: the least value of each sum without its constant.

    `remainders` has the values of sizes at consecutive large values of their variables.
    """

    def __init__(
        self, known: Mapping[Var, int], spare: Sequence[int], least: Mapping[str, int], nonempty: bool,
        most: Mapping[str, int], clamps: bool,
    ) -> None:
        super().__init__(known.items())
        self.spare = list(spare)
        self.least, self.nonempty, self.most, self.clamps = least, nonempty, most, clamps
        self.limits: dict[PrimExpr, Limit] = {}
        self.remainders: dict[PrimExpr, Sequence[int]] = {}
        self.bounds: dict[Key, int] = {}
        self.branches = Branches()
        self.equal: set[Key] = set()
        """Sums that are zero in every call, divided by common factors."""

    def equations(self, pairs: Iterable[tuple[PrimExpr, PrimExpr]]) -> None:
        """Take the two sizes of each pair as equal."""
        for a, b in pairs:
            first, second = _read(a, self), _read(b, self)
            if first is not None and second is not None:
                self.equal.add(key_of(terms_of(first - second)))

    def requirements(self) -> list[tuple[PrimExpr, int]]:
        """Return the sums that `bounds` limits, and the least value of each, which is not negative."""
        return [
            (expression(dict(key) if least >= 0 else {**dict(key), (): -least}), max(least, 0))
            for key, least in self.bounds.items()]

    def of(self, v: Var) -> int | None:
        """Return the sample of a variable; a new variable gets a spare one, if any are left."""
        if v not in self and self.spare:
            self[v] = self.spare.pop(0)
        return self.get(v)

_SAMPLES: Final[ContextVar[Samples | None]] = ContextVar("samples", default=None)
_GRANTED: Final[ContextVar[bool]] = ContextVar("granted", default=False)


@contextmanager
def samples(
    known: Mapping[Var, int], spare: Sequence[int] = (), least: Mapping[str, int] | None = None, nonempty: bool = False,
    most: Mapping[str, int] | None = None, clamps: bool | None = None,
) -> Iterator[Samples]:
    """Within this context, `open_size` uses these samples (and `spare` ones for other variables), and `limit` records
    limits.

    `least` has the least values of variables by name, by default those of the context around it. Others are at least 1.
    `most` has known greatest values. With `nonempty`, the order of two sizes is asked for tensors with elements only.
    With `clamps`, by default that of the context around it, the minimum of a size and a number is a size of its own.
    """
    outer = _SAMPLES.get()
    if least is None:
        least = outer.least if outer is not None else {}
    if most is None:
        most = outer.most if outer is not None else {}
    if clamps is None:
        clamps = outer is not None and outer.clamps
    found = Samples(known, spare, least, nonempty, most, clamps)
    if outer is not None:
        found.equal, found.branches = found.equal | outer.equal, outer.branches
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
    """Require a size to be at least `least`. Raises `CompileError` if it is smaller for all values of its variables."""
    terms = terms_of(size)
    found = _SAMPLES.get()
    if _GRANTED.get():
        return
    room, rest = least - terms.get((), 0), {atoms: k for atoms, k in terms.items() if atoms}
    if (bound := _bound(terms)) is not None and bound >= least:
        return
    above = _bound({atoms: -k for atoms, k in terms.items()})
    if found is None or not rest or (above is not None and -above < least):
        raise CompileError(f"the size {size} must be at least {least}, but is smaller for all inputs", code="TW0304")
    if not _limit_variable(rest, room, found):
        key = frozenset(rest.items())
        found.bounds[key] = max(room, found.bounds.get(key, room))
        if int(size) < least and not found.spare:
            error = UnfitSamplesError(f"the size {size} must be at least {least}, unlike its samples")
            error.bound = expression(rest), room
            raise error


def _limit_variable(terms: Terms, least: int, found: Samples) -> bool:
    """Require a sum to be at least `least` by a limit of its only variable; return whether this is possible."""
    if len(terms) != 1 or len(atoms := next(iter(terms))) != 1:
        return False
    (atom,), k = atoms, terms[atoms]
    bound = -(-least // k) if k > 0 else least // k
    if atom in found:
        low, high = found.limits.get(atom, (0, None))
        found.limits[atom] = (
            (max(low, bound), high) if k > 0 else (low, bound if high is None else min(high, bound)))
        return True
    if isinstance(atom, FloorDiv) and isinstance(atom.b, IntImm) and (inner := open_size(atom.a)) is not None:
        by = atom.b.value
        limit(inner if k > 0 else -inner, bound * by if k > 0 else -(bound * by + by - 1))
        return True
    return False


def open_size(e: PrimExpr) -> int | None:
    """Return the size `e` as an int or a sample; None if a variable in it has no sample."""
    if isinstance(e, IntImm):
        return e.value
    known = _SAMPLES.get()
    return None if known is None else _read(e, known)


def current() -> Samples | None:
    """Return the samples of this context."""
    return _SAMPLES.get()


def takes_open() -> bool:
    """Return whether a program with dynamic sizes is being compiled."""
    return _SAMPLES.get() is not None


def sampled() -> dict[PrimExpr, int]:
    """Return the variables that have samples, each with its lower bound."""
    known = _SAMPLES.get()
    return {v: _least_of(v) or 0 for v in known or ()}


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
        return self

    @functools.cached_property
    def expr(self) -> PrimExpr:
        return expression(self.terms)

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
        """Whether two sizes are equal for all values of their variables, or by an equation that each call checks.

        Without an equation, a symbolic size never equals a number.
        """
        if isinstance(other, _Open) and (self is other or self.terms == other.terms):
            return True
        known = _SAMPLES.get()
        if known is None or not known.equal or not isinstance(other, int):
            return False
        return key_of(terms_of(self - other)) in known.equal

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
        terms = terms_of(a - b)
        known = _SAMPLES.get()
        nonempty = known is not None and known.nonempty
        below = _bound(terms, nonempty)
        above = _bound({atoms: -k for atoms, k in terms.items()}, nonempty)
        if (below is None or below < 0) and (above is None or above < 0):
            raise CompileError(f"the sizes {a} and {b} cannot be compared at compile time: the order "
                               "depends on their values", code="TW0304")
        if below is not None and below >= 0 > int(a) - int(b):  # a requirement that the samples do not satisfy
            return compare(1, 0)
        if above is not None and above >= 0 > int(b) - int(a):
            return compare(0, 1)
    elif any(not isinstance(atom, Var) for atoms in a.terms for atom in atoms):
        context = _SAMPLES.get()
        kept = {} if context is None else context.remainders
        if depends_on_remainder(a.expr, lambda n: compare(n, int(b)), kept):
            raise CompileError(f"how {a} compares with {b} depends on a remainder", code="TW0304")
    return answer


def is_below(a: int, b: int) -> bool | None:
    """Return whether a size is smaller than another; None if that depends on their values."""
    try:
        return a < b
    except CompileError:
        return None


def may_be_zero(size: int) -> bool:
    """Return whether a dynamic size can be zero; False for a number."""
    least = _bound(terms_of(size)) if isinstance(size, _Open) else 1
    return least is None or least < 1


def greatest(size: int) -> int | None:
    """Return an upper bound of a size; None if the program does not limit it."""
    if not isinstance(size, _Open):
        return size
    least = _bound({atoms: -k for atoms, k in size.terms.items()})
    return _greatest(size.terms) if least is None else -least


def memory_for(size: int) -> int:
    """Return a number of elements of memory for `size` of them: its least upper bound, or the size itself."""
    most = greatest(size)
    return size if most is None else max(1, most)


def room_for(size: Any) -> Any:
    """Return the least number that is at least a size, so that arrays of it have a known shape; `size` if it has no
    limit, or is no sample."""
    most = greatest(size) if isinstance(size, _Open) else None
    return size if most is None else most


def clamps() -> bool:
    """Return whether the minimum of a size and a number is a size of its own."""
    known = _SAMPLES.get()
    return known is not None and known.clamps


def _greatest(terms: Terms) -> int | None:
    """Return an upper bound of a sum by the limits of its variables."""
    total = 0
    for atoms, k in terms.items():
        product = k
        for atom in atoms:
            most = _most_of(atom) if k > 0 else _least_of(atom)
            if most is None:
                return None
            product *= most
        total += product
    return total


def _most_of(atom: PrimExpr) -> int | None:
    """Return an upper bound of an atom."""
    known = _SAMPLES.get()
    if isinstance(atom, Var):
        if known is None:
            return None
        found = known.limits.get(atom, (0, None))[1], known.most.get(atom.name)
        return min((most for most in found if most is not None), default=None)
    if isinstance(atom, FloorMod) and isinstance(atom.b, IntImm):
        return atom.b.value - 1
    sizes = [open_size(x) for x in atom.operands()]
    bounds = [None if size is None else greatest(size) for size in sizes]
    if isinstance(atom, Min):
        return min((b for b in bounds if b is not None), default=None)
    if isinstance(atom, FloorDiv) and isinstance(atom.b, IntImm):
        return None if bounds[0] is None else bounds[0] // atom.b.value
    return max(filter(None, bounds)) if isinstance(atom, Max) and None not in bounds else None


def typical(size: int) -> int:
    """Return a number for estimates: `size` if it is static, else its value with every variable set to `TYPICAL`."""
    if not isinstance(size, _Open):
        return size
    total = 0
    for atoms, k in size.terms.items():
        product = k
        for a in atoms:
            number = number_of(simplify(substitute(a, dict.fromkeys(free_vars(a), const(TYPICAL, INT64))), Ranges()))
            product *= int(number) if number is not None else TYPICAL
        total += product
    return total


def least_size(size: int) -> int:
    """Return a lower bound of a size: the number itself, or for a dynamic size what its limits guarantee."""
    return max(_bound(size.terms) or 0, 0) if isinstance(size, _Open) else size


def least_difference(a: int, b: int) -> int | None:
    """Return a lower bound of `a - b` for all values of their variables; None if none is known."""
    return _bound(terms_of(a - b))


def _bound(terms: Terms, nonempty: bool = False) -> int | None:
    """Return a lower bound of a sum for all values of its variables; None if it can decrease. With `nonempty`, no
    variable is zero."""
    known = _SAMPLES.get()
    found = [_shifted(terms, nonempty)]
    if known is not None and known.bounds:
        found.append(least_by_bounds(terms, known.bounds))
    if any(len(atoms) == 1 and isinstance(atoms[0], (FloorDiv, FloorMod)) for atoms in terms):
        found.append(_without_quotients(terms, nonempty))
    if (found[0] is None or found[0] < 0) and any(isinstance(x, (Min, Max)) for atoms in terms for x in atoms):
        found.append(least_by_cases(terms, _operand, lambda case: _bound(case, nonempty)))
    return max((n for n in found if n is not None), default=None)


def _shifted(terms: Terms, nonempty: bool) -> int | None:
    """Return a lower bound of a sum: every atom is written as its own lower bound plus a rest.

    (n - 1)*m is (n' + 0)*(m' + 1) with n', m' >= 0.
    """
    shifted: Terms = {}
    for atoms, k in _without_choices(terms).items():
        parts: Terms = {(): k}
        for atom in atoms:
            least = _least_of(atom, nonempty)
            if least is None:
                return None
            longer = {(*rest, atom): factor for rest, factor in parts.items()}
            for rest, factor in parts.items() if least else ():
                longer[rest] = longer.get(rest, 0) + factor * least
            parts = longer
        for rest, factor in parts.items():
            shifted[rest] = shifted.get(rest, 0) + factor
    return shifted.get((), 0) if all(factor >= 0 for rest, factor in shifted.items() if rest) else None


def _without_quotients(terms: Terms, nonempty: bool) -> int | None:
    """Return a lower bound of a sum by (e - k + 1) / k <= e // k <= e / k and 0 <= e % k < k."""
    divisors = [
        x.b.value for atoms in terms for x in atoms[:1]
        if len(atoms) == 1 and isinstance(x, FloorDiv) and isinstance(x.b, IntImm)]
    scale, total = math.lcm(*divisors), 0
    for atoms, k in terms.items():
        x = atoms[0] if len(atoms) == 1 else None
        if isinstance(x, FloorDiv) and isinstance(x.b, IntImm) and (inner := open_size(x.a)) is not None:
            by = x.b.value
            total += (inner - (by - 1 if k > 0 else 0)) * (scale // by * k)
        elif isinstance(x, FloorMod) and isinstance(x.b, IntImm):
            total += min(scale * k * (x.b.value - 1), 0)
        else:
            total += made(0, {atoms: scale * k})
    least = _shifted(terms_of(total), nonempty)
    return None if least is None else -(-least // scale)


def _without_choices(terms: Terms) -> Terms:
    """Return a sum that is at most `terms`, with an operand in the place of minima that are subtracted, and of maxima
    that are added: n - min(n, 300) >= n - n. An operand with variables of other terms is preferred."""
    for choice in dict.fromkeys(x for atoms in terms for x in atoms if isinstance(x, (Min, Max))):
        inside = {atoms: k for atoms, k in terms.items() if choice in atoms}
        if any((k < 0) != isinstance(choice, Min) for k in inside.values()):
            continue
        shared = {v for atoms in terms if atoms not in inside for x in atoms for v in free_vars(x)}
        operand = _operand(min(choice.operands(), key=lambda e: preference(e, shared)))
        if operand is None:
            continue
        terms = replaced(terms, choice, operand)
    return terms


def _operand(e: PrimExpr) -> Terms | None:
    """Return the terms of an operand of a minimum or maximum; None if a variable in it has no sample."""
    size = open_size(e)
    return None if size is None else terms_of(size)


def _is_less(a: Terms, b: Terms) -> bool:
    """Return whether 0 <= a < b for all values of their variables."""
    least, room = _bound(a), _bound({atoms: b.get(atoms, 0) - a.get(atoms, 0) for atoms in {**a, **b}})
    return least is not None and least >= 0 and room is not None and room > 0


def _least_of(atom: PrimExpr, nonempty: bool = False) -> int | None:
    """Return a lower bound of an atom; None if there is no simple one. With `nonempty`, no variable is zero."""
    known = _SAMPLES.get()
    if isinstance(atom, Var):
        if known is None:
            return 1
        low, _ = known.limits.get(atom, (0, None))
        return max(low, known.least.get(atom.name, 1), int(nonempty))
    if isinstance(atom, FloorMod):
        return 0
    if known is None or not isinstance(atom, (FloorDiv, Min, Max)):
        return 0
    sizes = [_read(e, known) for e in atom.operands()]
    bounds = [None if n is None else _bound(terms_of(n), nonempty) for n in sizes]
    if isinstance(atom, Max):
        return max((n for n in bounds if n is not None), default=None)
    first, second = bounds
    if isinstance(atom, Min):
        return None if first is None or second is None else min(first, second)
    if isinstance(atom.b, IntImm):
        return None if first is None else first // atom.b.value
    return 0 if first is not None and first >= 0 else None


def terms_of(x: int) -> Terms:
    """Return the terms of a size or a number."""
    return x.terms if isinstance(x, _Open) else {(): int(x)} if x else {}


def made(number: int, terms: Terms) -> int:
    """Return the size with these terms and a sample; a plain number if it has no variables."""
    terms = {atoms: k for atoms, k in terms.items() if k}
    return _Open(number, terms) if any(terms) else Size(terms.get((), 0))


def _sum(a: int, b: int, sign: int) -> int:
    total = dict(terms_of(a))
    for atoms, k in terms_of(b).items():
        total[atoms] = total.get(atoms, 0) + sign * k
    return made(int(a) + sign * int(b), total)


def _product(a: int, b: int) -> int:
    total: Terms = {}
    for x, k in terms_of(a).items():
        for y, n in terms_of(b).items():
            atoms = tuple(sorted((*x, *y), key=text_of))
            total[atoms] = total.get(atoms, 0) + k * n
    return made(int(a) * int(b), total)


def _quotient(a: int, b: int) -> int:
    """Return the quotient, exact where possible: (8*n*m) // (4*n) -> 2*m, (8*n + 3) // 4 -> 2*n, and -((-n) // 4) -> (n
    + 3) // 4."""
    number, top, bottom = int(a) // divisor(b), *without_common(terms_of(a), terms_of(b))
    if _is_less(top, bottom):
        return Size(0)
    if len(bottom) == 1:
        ((atoms, k),) = bottom.items()
        if k > 0:
            whole, rest = divided(top, atoms, k)
            if not rest or (whole and _is_less(rest, bottom)):
                return made(number, whole)
            if atoms and set(top) == {atoms}:
                return Size(top[atoms] // k)
            if not atoms:
                if any(top) and all(n < 0 for t, n in top.items() if t):
                    return -(((-a) + (k - 1)) // b)
                return made(number, with_quotient(whole, rest, k))
    elif (product := exact(top, bottom)) is not None:
        return made(number, product)
    return made(number, {(floordiv(expression(top), expression(bottom)),): 1})


def _atom(e: PrimExpr, number: int) -> int:
    return e.value if isinstance(e, IntImm) else made(number, {(e,): 1})


def _remainder(a: int, b: int) -> int:
    number, top, bottom = int(a) % divisor(b), terms_of(a), terms_of(b)
    if _is_less(top, bottom):
        return a
    if len(bottom) == 1:
        ((atoms, k),) = bottom.items()
        if k > 0:
            _, rest = divided(top, atoms, k)
            if not atoms and not any(rest):
                return rest.get((), 0) % k
            if not rest:
                return 0
            if atoms and set(top) == {atoms}:
                return made(number, {atoms: top[atoms] % k})
            if not atoms:
                if _is_less(rest, bottom):
                    return made(number, rest)
                top = rest
    elif exact(top, bottom) is not None:
        return 0
    return made(number, {(floormod(expression(top), expression(bottom)),): 1})


def greater(a: int, b: int) -> int:
    """Return the maximum of two sizes: an expression, unless one of them is larger for all inputs. Of max(n - m, 0) and
    max(m - n, 0), one is written as the other plus a difference."""
    terms = terms_of(a - b)
    if (bound := _bound(terms)) is not None and bound >= 0:
        return a
    if (bound := _bound({atoms: -k for atoms, k in terms.items()})) is not None and bound >= 0:
        return b
    if not isinstance(b, _Open) and int(b) == 0 and is_reversed(terms):
        return greater(-a, 0) + a
    return _choice(Max, a, b)


def smaller(a: int, b: int) -> int:
    """Return the minimum of two sizes: an expression, unless one of them is smaller for all inputs."""
    found = greater(-a, -b)
    return -found if found in (-a, -b) else _choice(Min, a, b)


def _choice(kind: type[Min] | type[Max], a: int, b: int) -> int:
    """Return a minimum or maximum in canonical form: a number comes last, and there is one: min(min(n, 300), 400)."""
    x, y = sorted((expression(terms_of(a)), expression(terms_of(b))), key=lambda e: (isinstance(e, IntImm), text_of(e)))
    if isinstance(y, IntImm) and isinstance(x, kind) and isinstance(x.b, IntImm):
        ends = x.b.value, y.value
        x, y = x.a, const(min(ends) if kind is Min else max(ends), INT64)
    return _atom(kind(x, y), min(int(a), int(b)) if kind is Min else max(int(a), int(b)))


def least_within(a: int, b: int) -> int:
    """Return the minimum of two sizes, one of which is the end of a dimension. Between a multiple of a variable and a
    number, the multiple is chosen, and the variable limited accordingly."""
    found = smaller(a, b)
    chosen, other = (a, b) if isinstance(a, _Open) else (b, a)
    if found in (a, b) or isinstance(other, _Open) or not has_one_variable(terms_of(chosen)) or clamps():
        return found
    limit(other - chosen, 0)
    return chosen


_RULES: Final[dict[type, Any]] = {
    Add: lambda a, b: a + b, Sub: lambda a, b: a - b, Mul: lambda a, b: a * b, FloorDiv: lambda a, b: a // b,
    FloorMod: lambda a, b: a % b, Min: smaller, Max: greater,
}
