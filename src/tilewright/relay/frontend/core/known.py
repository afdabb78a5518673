"""Values known during an import: constants, and shapes as arrays of dimensions.

Shape arithmetic (`Shape`, `Gather`, `Concat`, …) is evaluated during the import, which gives `Reshape` and similar
operators static attributes. A shape with symbolic dimensions is an object array of ints and integer `PrimExpr`s, or of
sizes once these have samples (`arith/open_sizes.py`). Only the few operators that occur in shape arithmetic
(`shape_arithmetic.py`) accept such arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.limits import MOST_KNOWN_FLOATS, MOST_KNOWN_INTEGERS
from tilewright.base.types import OpenSize, TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.frontend.core.shape_arithmetic import UNDECIDED, applied
from tilewright.relay.op.create import NdarraySize, ShapeOf
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands
from tilewright.scalar.arith.noted_sizes import is_noted
from tilewright.scalar.expr import UnknownDim
from tilewright.topi.shapes import product

if TYPE_CHECKING:
    from tilewright.relay.frontend.core.size_choices import SizeChoices

Array = np.ndarray[Any, Any]

_MOST_STEPS: Final = 8
_MOST_ELEMENTS: Final = 16
"""Largest number of integers in a value of shape arithmetic that operators ask for."""
_LONGEST: Final = 64
"""Largest number of expressions in shape arithmetic that operators ask for."""
_OF_ONE: Final = frozenset({"reshape", "squeeze", "expand_dims", "copy", "cast"})
"""Operators that keep the meaning of a condition of one element."""


class KnownValues:
    """The known values of expressions: those of constants, and recorded results of shape arithmetic."""

    def __init__(self, ask: Callable[[Expr], Array | None] = lambda e: None) -> None:
        """`ask` computes values that a conversion requires."""
        self._dims: dict[Expr, Array] = {}
        self._same: dict[Expr, Expr] = {}
        self._undecided: dict[Expr, Array] = {}
        """Conditions on sizes, of which some are undecided."""
        self._ask = ask
        self.choices: SizeChoices | None = None
        """In a branch: the answers to conditions on sizes that decide types."""

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

    def is_evaluated(self, e: Expr) -> bool:
        """Whether the value of `e` is known, or a condition on sizes that need not be decided."""
        return self.of(e) is not None or e in self._undecided

    def is_undecided(self, e: Expr) -> bool:
        """Whether `e` is one condition on sizes that holds for some of them only."""
        value = self._evaluate(e) if _is_small(e) else None
        return isinstance(value, np.ndarray) and value.size == 1 and value.reshape(-1)[0] is UNDECIDED

    def equated(self, e: Expr) -> tuple[Any, Any] | None:
        """The two numbers or sizes whose equality is the condition `e`; None for another condition."""
        while isinstance(e, Call) and isinstance(e.op, Op) and e.op.name in _OF_ONE:
            e = e.args[0]
        if not isinstance(e, Call) or not isinstance(e.op, Op) or e.op.name != "equal":
            return None
        values = [self._evaluate(a) for a in e.args]
        if not all(isinstance(v, np.ndarray) and v.size == 1 for v in values):
            return None
        first, second = (v.reshape(-1).tolist()[0] for v in values)
        return first, second

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
            if any(d is UNDECIDED for d in value.flat):
                self._undecided[e] = value
                return e
            if value.ndim > 1:
                return e
            if any(is_noted(d) or isinstance(d, OpenSize) or not isinstance(d, (int, np.integer)) for d in value.flat):
                self._dims[e] = value
                return e
        return Constant(value.astype(e.tensor_type.dtype.numpy(), copy=False), getattr(e, "span", None))

    def _evaluate(self, e: Expr) -> Any:
        """The value of a short expression over known values: an array, a tuple of arrays, or None."""
        known = self.of(e)
        known = self._undecided.get(e) if known is None else known
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
        if e.op.name in ("shape_of", "ndarray_size"):
            return _shape_value(e)
        if isinstance(e.checked_type, TensorType) and not _is_bounded(e.checked_type):
            return None
        args = [self._evaluate(a) for a in e.args]
        if any(a is None for a in args):
            return None
        return applied(e.op, e.checked_type, args)


def _shape_value(e: Call) -> Array | None:
    """The value of `shape_of` or `ndarray_size`; None for an argument of unknown rank."""
    t = e.args[0].known_type()
    if not isinstance(t, TensorType):
        return None
    shape = np.array([*t.shape, None], dtype=object)[:-1]
    if isinstance(e.op, Op) and e.op.name == "shape_of":
        return shape
    return np.array([product(t.shape), None], dtype=object)[:1].reshape(())


class ShapeValues(KnownValues):
    """Evaluates what operators ask for, where it is computed from a few integers and the shapes of tensors."""

    def __call__(self, e: Expr) -> Array | None:
        value = self._evaluate(e) if is_shape_arithmetic(e) else None
        return value if isinstance(value, np.ndarray) and not any(v is UNDECIDED for v in value.flat) else None


def is_shape_arithmetic(e: Expr) -> bool:
    """Whether `e` is computed from a few integers and shapes in a few operators."""
    seen: dict[Expr, None] = {e: None}
    stack = [e]
    while stack:
        now = stack.pop()
        t = now.known_type()
        if not isinstance(t, TupleType) and (
            not isinstance(t, TensorType) or not t.is_static or t.is_open or t.size > _MOST_ELEMENTS
        ):
            return False
        below = () if isinstance(now, Call) and isinstance(now.op, (ShapeOf, NdarraySize)) else operands(now)
        new = [o for o in below if o not in seen]
        seen.update((o, None) for o in new)
        stack += new
        if len(seen) > _LONGEST:
            return False
    return True


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
