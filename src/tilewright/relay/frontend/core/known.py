"""Values known during an import: constants, and shapes as arrays of dimensions.

Shape arithmetic (`Shape`, `Gather`, `Concat`, …) is evaluated during the import, which gives `Reshape` and similar
operators static attributes. A shape with symbolic dimensions is an object array of ints and integer `PrimExpr`s. Only
the few operators that occur in shape arithmetic accept such arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.limits import MOST_KNOWN_FLOATS, MOST_KNOWN_INTEGERS
from tilewright.base.types import OpenSize, TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.op.registry import Op
from tilewright.scalar.arith.noted_sizes import is_noted
from tilewright.scalar.arith.open_sizes import open_size, surely_differ
from tilewright.scalar.expr import PrimExpr, UnknownDim, maximum, minimum

Array = np.ndarray[Any, Any]

_MOST_STEPS: Final = 8

_SELECTING: Final = frozenset({
    "take", "strided_slice", "concatenate", "reshape", "expand_dims", "squeeze", "split", "stack", "transpose",
    "gather", "tile", "copy", "where",
})
"""Operators whose reference only moves elements, so that it also accepts arrays of dimensions."""
_ARITHMETIC: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a // b, "floor_divide": lambda a, b: a // b, "floor_mod": lambda a, b: a % b,
    "cast": lambda a: a, "minimum": np.frompyfunc(minimum, 2, 1), "maximum": np.frompyfunc(maximum, 2, 1),
}
"""Arithmetic on dimensions. They are never negative, so division is floor division."""
_REDUCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "min": minimum, "max": maximum, "sum": lambda a, b: a + b, "prod": lambda a, b: a * b,
}


class KnownValues:
    """The known values of expressions: those of constants, and recorded results of shape arithmetic."""

    def __init__(self, ask: Callable[[Expr], Array | None] = lambda e: None) -> None:
        """`ask` computes values that a conversion requires."""
        self._dims: dict[Expr, Array] = {}
        self._same: dict[Expr, Expr] = {}
        self._ask = ask

    def demand(self, e: Expr) -> Array | None:
        """The value of `e`; if it is not known during the import, the result of `ask`."""
        e = self._same.get(e, e)
        found = self.of(e)
        return self._ask(e) if found is None else found

    def same(self, e: Expr, other: Expr) -> Expr:
        """Record that `e` has the value of `other`, such as a loop's variable that of an outer value. Returns `e`."""
        if e is not other:
            self._same[e] = other
        return e

    def of(self, e: Expr | None) -> Array | None:
        """The value of `e`, an object array if dimensions in it are symbolic; None if it is not known."""
        return e.value if isinstance(e, Constant) else None if e is None else self._dims.get(e)

    def settle_near(self, e: Expr) -> Expr:
        """Settle `e` if all its operands within a few steps are known; return it unchanged otherwise."""
        return self.settle(e) if self._is_near(e, _MOST_STEPS) else e

    def _is_near(self, e: Expr, steps: int) -> bool:
        """Whether `e` is computed from known values in at most `steps` operators."""
        if self.of(e) is not None:
            return True
        if not steps:
            return False
        if isinstance(e, Call):
            return all(self._is_near(a, steps - 1) for a in e.args)
        parts = e.fields if isinstance(e, Tuple) else (e.tuple_value,) if isinstance(e, TupleGetItem) else None
        return parts is not None and all(self._is_near(p, steps - 1) for p in parts)

    def settle(self, e: Expr) -> Expr:
        """The constant that `e` evaluates to, or `e` if it is not known."""
        if (isinstance(e, Constant) or e in self._dims or not _is_small(e)
                or (isinstance(e, Call) and isinstance(e.op, Op) and e.op.telling)):
            return e
        with np.errstate(all="ignore"):
            value = self._evaluate(e)
        if not isinstance(value, np.ndarray):
            return e
        if value.dtype == object:
            if value.ndim > 1:
                return e
            if any(is_noted(d) or isinstance(d, OpenSize) or not isinstance(d, (int, np.integer)) for d in value.flat):
                self._dims[e] = value
                return e
        return Constant(value.astype(e.tensor_type.dtype.numpy(), copy=False), getattr(e, "span", None))

    def _evaluate(self, e: Expr) -> Any:
        """The value of a short expression over known values: an array, a tuple of arrays, or None."""
        known = self.of(e)
        if known is not None:
            return known
        if isinstance(e, Tuple):
            fields = tuple(self._evaluate(f) for f in e.fields)
            return None if any(f is None for f in fields) else fields
        if isinstance(e, TupleGetItem):
            whole = self._evaluate(e.tuple_value)
            return None if whole is None else whole[e.index]
        if not isinstance(e, Call) or not isinstance(e.op, Op):
            return None
        if e.op.name == "shape_of":
            return np.array(e.args[0].tensor_type.shape, dtype=object)
        if isinstance(e.checked_type, TensorType) and not _is_bounded(e.checked_type):
            return None
        args = [self._evaluate(a) for a in e.args]
        if any(a is None for a in args):
            return None
        return _apply(e.op, args)


def _equal(x: Array, y: Array) -> Array | None:
    """Elementwise equality of dimensions; None if one is undecided. Negative numbers never equal a dimension."""
    found = []
    for a, b in np.broadcast(x, y):
        if any(isinstance(d, (PrimExpr, OpenSize)) for d in (a, b)):
            if a is not b and not _differ(a, b):
                return None
            found.append(a is b)
        else:
            found.append(bool(a == b))
    return np.array(found, bool).reshape(np.broadcast_shapes(x.shape, y.shape))


def _differ(a: Any, b: Any) -> bool:
    """Return whether two dimensions, or a dimension and a number, differ for all sizes."""
    if any(not isinstance(d, (PrimExpr, OpenSize)) and d < 0 for d in (a, b)):
        return True
    x, y = (open_size(d) if isinstance(d, PrimExpr) else int(d) if isinstance(d, np.integer) else d for d in (a, b))
    return x is not None and y is not None and surely_differ(x, y)


def _reduced(op: Op, x: Array) -> Array | None:
    """Return the minimum, maximum, sum or product of all elements of a vector of dimensions."""
    out = op.infer(TensorType(x.shape, "int64"))
    if not isinstance(out, TensorType) or out.size != 1 or not x.size:
        return None
    rule = _REDUCTIONS[op.name]
    return np.array([functools.reduce(rule, x.ravel().tolist()), None], object)[:1].reshape(out.shape)


def _apply(op: Op, args: list[Any]) -> Any:
    symbolic = any(a.dtype == object for arg in args for a in (arg if isinstance(arg, tuple) else (arg,)))
    if symbolic and op.name not in _SELECTING:
        rule = _ARITHMETIC.get(op.name)
        if op.name == "equal":
            return _equal(*args)
        if op.name in _REDUCTIONS:
            return _reduced(op, *args)
        return None if rule is None else np.array(rule(*(a.astype(object) for a in args)), dtype=object)
    result = op.reference(*args)
    return result if isinstance(result, tuple) else np.asarray(result)


def _is_bounded(t: TensorType) -> bool:
    """Whether a value of this type is small enough to fold; sizes known only at run time are bounded by the inputs."""
    return t.size <= MOST_KNOWN_INTEGERS if t.is_static else any(isinstance(d, UnknownDim) for d in t.shape)


def _is_small(e: Expr) -> bool:
    t = e.known_type()
    if not isinstance(t, TensorType) or not _is_bounded(t):
        return False
    return not t.dtype.is_object and (not t.is_static or t.size <= (MOST_KNOWN_FLOATS if t.dtype.is_float
        else MOST_KNOWN_INTEGERS))


def has_unknown_sizes(e: Expr) -> bool:
    """Whether the type of `e` is unknown, or has sizes that are known only at run time."""
    return _has_unknown_sizes(e.known_type())


def _has_unknown_sizes(t: Type | None) -> bool:
    if isinstance(t, TensorType):
        return any(isinstance(d, UnknownDim) for d in t.shape)
    return t is None or (isinstance(t, TupleType) and any(map(_has_unknown_sizes, t.fields)))
