"""Sizes of one run that note what is asked of them: what was made for them serves other sizes of which the same is
true.

    notes = Notes()
    n, m = notes.shape(0, (5, 4))        stand-ins for 5 and 4
    n + 1 == m, m == 4                   False, True, and both are noted
    notes.hold([(9, 4)])                 True: 9 + 1 == 4 is False, 4 == 4 is True
    range(n)                             notes n == 5: whoever takes the number itself asks for all of it

A conversion, or an inference, that is given such shapes is a function of the answers that it got, and of nothing else.
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
    """What was asked of the sizes of some shapes, in order, and the answers."""

    __slots__ = ("_line", "asked")

    def __init__(self) -> None:
        self.asked: dict[tuple[Callable[..., bool], Term, Term], bool] = {}
        self._line: _Line | None = None

    def shape(self, k: int, sizes: Sequence[int]) -> tuple[NotedSize, ...]:
        """Stand-ins for the sizes of shape `k`."""
        return tuple(NotedSize(self, n, (k, axis)) for axis, n in enumerate(sizes))

    def hold(self, shapes: Shapes) -> bool:
        """Whether all answers are the same for these shapes, whose ranks are those of the shapes that were noted."""
        line = self._line
        if line is None or line.checks != len(self.asked):
            line = self._line = _Line(self.asked)
        return line.holds(shapes)


class _Line:
    """Questions as a straight line: each term is worked out once for all of them."""

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
    """A term and those that it is made of, these first."""
    if term not in found:
        if isinstance(term, tuple) and not isinstance(term[0], int):
            for t in term[1:]:
                _collect(t, found)
        found[term] = None


class NotedSize:
    """A stand-in for a size: an int to `isinstance`, so that all that takes sizes takes it, and none to C code, which
    has to ask it for its number."""

    __slots__ = ("_notes", "_number", "_term")

    def __init__(self, notes: Notes, number: int, term: Term) -> None:
        self._notes, self._number, self._term = notes, number, term

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return Size

    @property
    def value(self) -> NotedSize:
        """Itself, as the `value` of a size is its number."""
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
            raise AttributeError(name)  # a protocol that is asked for and that no number has
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
    """Whether `x` stands for a size."""
    return type(x) is NotedSize


def _read(x: Any, notes: Notes) -> tuple[Any, Term | None]:
    """The number of an operand, and the term for it; no term for what is no whole number. One of other notes is its
    number."""
    if type(x) is NotedSize:
        return (x._number, x._term) if x._notes is notes else (x.__index__(),) * 2
    try:
        number = operator.index(x)
    except TypeError:
        return x, None
    return number, number


def _calculating(operation: Callable[[Any, Any], Any], swapped: bool) -> Callable[[NotedSize, Any], Any]:
    """The method for an operation: a stand-in for the result; of what is no whole number, or no whole result, the
    result."""

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
    """The method for an operation on the number itself."""

    def method(self: NotedSize, other: Any) -> Any:
        return operation(other, self.__index__()) if swapped else operation(self.__index__(), other)

    return method


for _made, _operations in ((_calculating, _WHOLE), (_plainly, _OTHERS)):
    for _name, _operation in _operations.items():
        setattr(NotedSize, f"__{_name}__", _made(_operation, False))
        setattr(NotedSize, f"__r{_name}__", _made(_operation, True))
