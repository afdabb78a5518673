"""Operators on arrays of dimensions: shape arithmetic in which some numbers are symbolic sizes.

    [n, m] // [2, 2]      ->  [n // 2, m // 2]
    [n, m] == [n, 3]      ->  [True, UNDECIDED]       n == 3 for some sizes only
    where(False, x, y)    ->  y

An element is a number, an integer `PrimExpr`, or a size with a sample (`arith/open_sizes.py`). A condition is decided
where all sizes give the same answer.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.types import OpenSize, TensorType, Type
from tilewright.relay.op.registry import Op
from tilewright.scalar.arith.open_sizes import least_difference, open_size
from tilewright.scalar.expr import Add, FloorDiv, IntImm, Max, Min, Mul, PrimExpr, UnknownDim, Var, maximum, minimum
from tilewright.scalar.walk import free_vars

Array = np.ndarray[Any, Any]


class _Undecided:
    """The type of `UNDECIDED`, which is not a truth value."""

    def __bool__(self) -> bool:
        raise TypeError("a condition on symbolic sizes is undecided")

    def __repr__(self) -> str:
        return "UNDECIDED"


UNDECIDED: Final = _Undecided()
"""A condition that holds for some sizes only."""

_SELECTING: Final = frozenset({
    "take", "strided_slice", "concatenate", "reshape", "expand_dims", "squeeze", "split", "stack", "transpose",
    "gather", "tile", "copy",
})
"""Operators whose reference only moves elements, so that it also accepts arrays of dimensions."""


def applied(op: Op, kind: Type, args: list[Any]) -> Any:
    """Return the result of an operator, of the type `kind`: an array, a tuple of arrays, or None if it has none for
    these sizes."""
    symbolic = any(a.dtype == object for arg in args for a in (arg if isinstance(arg, tuple) else (arg,)))
    if not symbolic:
        result = op.reference(*args)
        return result if isinstance(result, tuple) else np.asarray(result)
    if op.name in _SELECTING:
        return _selected(op, args)
    if op.name in _REDUCTIONS:
        return _reduced(op, *args)
    rule = _ELEMENTWISE.get(op.name)
    if rule is None or not isinstance(kind, TensorType) or (op.name == "divide" and kind.dtype.is_float):
        return None
    if op.name == "cast" and str(kind.dtype) not in _SIZE_TYPES:
        if str(kind.dtype) != "bool":
            return None
        rule = _truth
    return _elementwise(rule, args)


def _selected(op: Op, args: list[Any]) -> Any:
    """Return the result of an operator that only moves elements. Numpy would make numbers of sizes with samples, so the
    operator moves their places in a list."""
    elements: list[Any] = []

    def places(a: Array) -> Array:
        first = len(elements)
        elements.extend(a.ravel().tolist())
        return np.arange(first, len(elements)).reshape(a.shape)

    def moved(result: Any) -> Array:
        at = np.asarray(result)
        return np.array([*(elements[k] for k in at.flat), None], object)[:-1].reshape(at.shape)

    result = op.reference(*(
        tuple(map(places, a)) if isinstance(a, tuple) else places(a) if a.dtype == object else a for a in args))
    return tuple(map(moved, result)) if isinstance(result, tuple) else moved(result)


def _elementwise(rule: Callable[..., Any], args: list[Array]) -> Array | None:
    """Return the results of `rule` for each element; None if it has none for one of them."""
    shape = np.broadcast_shapes(*(a.shape for a in args))
    flat = [[_plain(v) for v in np.broadcast_to(a, shape).ravel().tolist()] for a in args]
    if any(isinstance(v, float) for values in flat for v in values):
        return None
    found = [rule(*values) for values in zip(*flat, strict=True)]
    if any(v is None for v in found):
        return None
    if found and all(isinstance(v, bool) for v in found):
        return np.array(found, bool).reshape(shape)
    return np.array([*found, None], object)[:-1].reshape(shape)


def _reduced(op: Op, x: Array) -> Array | None:
    """Return the minimum, maximum, sum or product of all elements of a vector of dimensions."""
    out = op.infer(TensorType(x.shape, "int64"))
    if not isinstance(out, TensorType) or out.size != 1 or not x.size or any(v is UNDECIDED for v in x.flat):
        return None
    rule = _REDUCTIONS[op.name]
    return np.array([functools.reduce(rule, x.ravel().tolist()), None], object)[:1].reshape(out.shape)


def _plain(v: Any) -> Any:
    """Return an element as an element of Python; a float without a fraction as an int."""
    v = v.item() if isinstance(v, np.generic) else v
    return int(v) if isinstance(v, float) and v.is_integer() else v


def _is_symbolic(*sizes: Any) -> bool:
    return any(isinstance(d, (PrimExpr, OpenSize)) for d in sizes)


def _settled(size: Any) -> Any:
    """Return a size in canonical form, so that `n * 2 // n` is 2."""
    if not isinstance(size, PrimExpr) or any(isinstance(v, UnknownDim) for v in free_vars(size)):
        return size
    found = open_size(size)
    return size if found is None else found.expr if isinstance(found, OpenSize) else found


def _least(a: Any, b: Any) -> int | None:
    """Return a lower bound of `a - b` for all sizes; None if none is known."""
    x, y = (open_size(d) if isinstance(d, PrimExpr) else d for d in (a, b))
    if not isinstance(x, int) or not isinstance(y, int):  # noted sizes are no ints
        return None
    return least_difference(x, y)


def _quotient(a: Any, b: Any) -> Any:
    """Return `a / b` rounded toward zero; None for sizes of which one can be negative, or the divisor zero."""
    if not _is_symbolic(a, b):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None
    return _settled(a // b) if _is_at_least(a, 0) and _is_at_least(b, 1) else None


def _floored(rule: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Return a quotient rounded down, or its remainder; None if the divisor can be zero."""
    return _settled(rule(a, b)) if (b if not _is_symbolic(b) else _is_at_least(b, 1)) else None


def _is_at_least(a: Any, least: int) -> bool:
    """Whether a size is known to be at least `least`, which is 0 or 1."""
    if not _is_symbolic(a):
        return bool(a >= least)
    bound = _least(a, least)
    return bound >= 0 if bound is not None else _is_natural(a)


def _is_natural(a: Any) -> bool:
    """Whether a size is formed from dimensions without a difference, so that it is not negative."""
    if isinstance(a, (Add, Mul, FloorDiv, Min, Max)):
        return _is_natural(a.a) and _is_natural(a.b)
    return isinstance(a, Var) or (isinstance(a, IntImm) and a.value >= 0)


def _equal(a: Any, b: Any) -> Any:
    """Whether two numbers computed from dimensions are equal."""
    if not _is_symbolic(a, b):
        return bool(a == b)
    if a is b or (isinstance(a, OpenSize) and isinstance(b, OpenSize) and a == b):
        return True
    if any(not _is_symbolic(d) and d < 0 and _is_at_least(other, 0) for d, other in ((a, b), (b, a))):
        return False
    below, above = _least(a, b), _least(b, a)
    if below == above == 0:
        return True
    return False if (below or 0) > 0 or (above or 0) > 0 else UNDECIDED


def _below(a: Any, b: Any) -> Any:
    """Whether `a < b`."""
    if not _is_symbolic(a, b):
        return bool(a < b)
    below, above = _least(a, b), _least(b, a)
    return True if above is not None and above > 0 else False if below is not None and below >= 0 else UNDECIDED


def _chosen(least: bool, a: Any, b: Any) -> Any:
    """Return the smaller or the larger size."""
    if not _is_symbolic(a, b):
        return min(a, b) if least else max(a, b)
    answer = _below(a, b)
    if answer is UNDECIDED:
        return minimum(a, b) if least else maximum(a, b)
    return a if answer is least else b


def _not(a: Any) -> Any:
    return UNDECIDED if a is UNDECIDED else not a


def _and(a: Any, b: Any) -> Any:
    if (a is not UNDECIDED and not a) or (b is not UNDECIDED and not b):
        return False
    return UNDECIDED if a is UNDECIDED or b is UNDECIDED else True


def _where(cond: Any, a: Any, b: Any) -> Any:
    """Return the element that a condition chooses; if the condition is undecided, the elements must be equal."""
    if cond is UNDECIDED:
        return a if a is not UNDECIDED and b is not UNDECIDED and _equal(a, b) is True else None
    return a if cond else b


def _truth(a: Any) -> Any:
    """Whether a number is not zero; a condition stays itself."""
    return a if a is UNDECIDED or isinstance(a, bool) else _not(_equal(a, 0))


def _kept(a: Any) -> Any:
    """Return an integer or a size of a cast; None for a condition, whose numbers are not known."""
    return None if a is UNDECIDED else a


_SIZE_TYPES: Final = ("int64", "int32", "float64", "float32")
"""Element types that hold all sizes and their differences."""

_ELEMENTWISE: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: _settled(a - b), "multiply": lambda a, b: a * b,
    "negative": lambda a: _settled(0 - a),
    "divide": _quotient, "floor_divide": functools.partial(_floored, operator.floordiv),
    "floor_mod": functools.partial(_floored, operator.mod),
    "cast": _kept, "floor": _kept, "ceil": _kept, "round": _kept, "where": _where,
    "minimum": functools.partial(_chosen, True), "maximum": functools.partial(_chosen, False),
    "equal": _equal, "not_equal": lambda a, b: _not(_equal(a, b)),
    "less": _below, "greater": lambda a, b: _below(b, a),
    "less_equal": lambda a, b: _not(_below(b, a)), "greater_equal": lambda a, b: _not(_below(a, b)),
    "logical_not": _not, "logical_and": _and, "logical_or": lambda a, b: _not(_and(_not(a), _not(b))),
}
"""Arithmetic and comparisons of dimensions."""
_REDUCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "min": functools.partial(_chosen, True), "max": functools.partial(_chosen, False),
    "sum": lambda a, b: a + b, "prod": lambda a, b: a * b,
}
