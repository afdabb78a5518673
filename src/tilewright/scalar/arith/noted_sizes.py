"""Stand-ins for sizes that record the questions asked about them. A result computed from them is valid for all sizes
with the same answers.

    notes = Notes()
    n, m = notes.shape(0, (5, 4))        stand-ins for 5 and 4
    n + 1 == m, m == 4                   False, True, and both are recorded
    notes.hold([(9, 4)])                 True: 9 + 1 == 4 is False, 4 == 4 is True
    range(n)                             records n == 5: a use of the number itself fixes it

A conversion or inference that is given such shapes depends only on the recorded answers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tilewright.base.types import Size

Term: TypeAlias = "int | tuple[Any, ...]"
"""A number, `(k, axis)` for a size of shape k, or `(operation, *terms)`."""
Shapes: TypeAlias = Sequence[Sequence[int]]


class Notes:
    """The questions asked about the sizes of some shapes, in order, with their answers."""

    __slots__ = ("_line", "asked")

    def __init__(self) -> None:
        self.asked: dict[tuple[Callable[..., bool], Term, Term], bool] = {}
        self._line: _Line | None = None

    def shape(self, k: int, sizes: Sequence[int]) -> tuple[NotedSize, ...]:
        """Return stand-ins for the sizes of shape `k`."""
        return tuple(NotedSize(self, n, (k, axis)) for axis, n in enumerate(sizes))

    def hold(self, shapes: Shapes) -> bool:
        """Return whether all answers are the same for these shapes, whose ranks are those of the recorded shapes."""
        line = self._line
        if line is None or line.checks != len(self.asked):
            line = self._line = _Line(self.asked)
        return line.holds(shapes)


class _Line:
    """The questions as a straight-line program that computes each term once."""

    __slots__ = ("_asked", "_numbers", "_sizes", "_steps", "checks")

    def __init__(self, asked: Mapping[tuple[Callable[..., bool], Term, Term], bool]) -> None:
        self.checks = len(asked)
        terms: dict[Term, None] = {}
        for _, a, b in asked:
            _collect(a, terms)
            _collect(b, terms)
        self._numbers = [t for t in terms if isinstance(t, int)]
        self._sizes = [t for t in terms if isinstance(t, tuple) and isinstance(t[0], int)]
        made = [t for t in terms if isinstance(t, tuple) and not isinstance(t[0], int)]
        places = {t: k for k, t in enumerate([*self._numbers, *self._sizes, *made])}
        self._steps = [(t[0], [places[o] for o in t[1:]]) for t in made]
        self._asked = [(compare, places[a], places[b], answer) for (compare, a, b), answer in asked.items()]

    def holds(self, shapes: Shapes) -> bool:
        values = [*self._numbers, *[shapes[k][axis] for k, axis in self._sizes]]
        try:
            for operation, needed in self._steps:
                values.append(operation(*[values[k] for k in needed]))
        except ZeroDivisionError:
            return False
        return all(compare(values[a], values[b]) == answer for compare, a, b, answer in self._asked)


def _collect(term: Term, found: dict[Term, None]) -> None:
    """Collect a term after its subterms."""
    if term not in found:
        if isinstance(term, tuple) and not isinstance(term[0], int):
            for t in term[1:]:
                _collect(t, found)
        found[term] = None


class NotedSize:
    """A stand-in for a size. It is an int to `isinstance`, so Python code accepts it, but not to C code, which must
    convert it and so records its value."""

    __slots__ = ("_notes", "_number", "_term")

    def __init__(self, notes: Notes, number: int, term: Term) -> None:
        self._notes, self._number, self._term = notes, number, term

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return Size

    @property
    def value(self) -> NotedSize:
        """The stand-in itself, since the `value` of a size is its number."""
        return self

    def __index__(self) -> int:
        self._notes.asked.setdefault((operator.eq, self._term, self._number), True)
        return self._number

    __int__ = __trunc__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __bool__(self) -> bool:
        return self._compared(operator.ne, 0)

    def __repr__(self) -> str:
        return repr(self._number)

    def __format__(self, spec: str) -> str:
        return format(self._number, spec)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # a protocol that numbers do not implement
        return getattr(self.__index__(), name)

    def _compared(self, compare: Callable[..., bool], other: Any) -> bool:
        number, term = _read(other, self._notes)
        if term is None:
            return compare(self.__index__(), other)
        answer = bool(compare(self._number, number))
        self._notes.asked.setdefault((compare, self._term, term), answer)
        return answer

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, (int, float)) and self._compared(operator.eq, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self._compared(operator.lt, other)

    def __le__(self, other: Any) -> bool:
        return self._compared(operator.le, other)

    def __gt__(self, other: Any) -> bool:
        return self._compared(operator.gt, other)

    def __ge__(self, other: Any) -> bool:
        return self._compared(operator.ge, other)

    def __neg__(self) -> Any:
        return NotedSize(self._notes, -self._number, (operator.neg, self._term))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return NotedSize(self._notes, abs(self._number), (operator.abs, self._term))


def is_noted(x: Any) -> bool:
    """Return whether `x` is a stand-in for a size."""
    return type(x) is NotedSize


def _read(x: Any, notes: Notes) -> tuple[Any, Term | None]:
    """Return the number of an operand, and its term; None instead of a term for anything but integers. A stand-in of
    other notes counts as its number."""
    if type(x) is NotedSize:
        return (x._number, x._term) if x._notes is notes else (x.__index__(),) * 2
    try:
        number = operator.index(x)
    except TypeError:
        return x, None
    return number, number


def _calculating(operation: Callable[[Any, Any], Any], swapped: bool) -> Callable[[NotedSize, Any], Any]:
    """Return the method for an operation. It returns a stand-in for an integer result, otherwise the result itself."""

    def method(self: NotedSize, other: Any) -> Any:
        number, term = _read(other, self._notes)
        if term is None:
            return operation(other, self.__index__()) if swapped else operation(self.__index__(), other)
        numbers, terms = (
            ((number, self._number), (term, self._term)) if swapped else ((self._number, number), (self._term, term))
        )
        found = operation(*numbers)
        return NotedSize(self._notes, found, (operation, *terms))

    return method


_WHOLE: Final = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod
}
_OTHERS: Final = {
    "truediv": operator.truediv, "pow": operator.pow, "lshift": operator.lshift, "rshift": operator.rshift,
    "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "divmod": divmod,
}


def _plainly(operation: Callable[[Any, Any], Any], swapped: bool) -> Callable[[NotedSize, Any], Any]:
    """Return the method for an operation on the plain number."""

    def method(self: NotedSize, other: Any) -> Any:
        return operation(other, self.__index__()) if swapped else operation(self.__index__(), other)

    return method


for _made, _operations in ((_calculating, _WHOLE), (_plainly, _OTHERS)):
    for _name, _operation in _operations.items():
        setattr(NotedSize, f"__{_name}__", _made(_operation, False))
        setattr(NotedSize, f"__r{_name}__", _made(_operation, True))
