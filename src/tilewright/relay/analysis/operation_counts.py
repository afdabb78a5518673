"""Number of arithmetic operations of a function, independent of the kernel, and the type of its products."""

from __future__ import annotations

import math
from typing import Final

from tilewright.base.types import DataType, TensorType, TupleType, Type, tensors_of
from tilewright.relay.analysis.features import known_mac_number
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.registry import Fusion
from tilewright.relay.visitor import calls

_NORMALISING: Final = 5
"""Operations per element of a softmax or norm: a sum, a square or exponential, a difference, a product and a maximum.
"""
_MOVES: Final = frozenset({"copy", "cast", "reshape", "identity"})


def operations(function: Function) -> int:
    """Return the number of additions, multiplications, comparisons and functions in one run of a primitive function.

    A multiply-add counts as two, as in TVM, and moves and conversions as zero. Elementwise operators count one per
    element, windows one per element of a window, softmax and norms five per element. Winograd convolutions perform
    fewer operations than counted, padded tiles more.
    """
    return sum(map(_of_call, calls(function.body)))


def operator_names(function: Function) -> tuple[str, ...]:
    """Return the names of the operators of a primitive function, operands before users."""
    return tuple(e.op.name for e in calls(function.body) if not isinstance(e.op, Expr))


def product_type(function: Function) -> DataType:
    """Return the element type of the first argument of the first product; without a product, that of the first result.
    """
    found = [e for e in calls(function.body) if not isinstance(e.op, Expr)]
    for e in found:
        if known_mac_number(e):
            return e.args[0].tensor_type.dtype
    return _first(found[0].checked_type if found else function.body.checked_type).dtype


def only_moves(function: Function) -> bool:
    """Return whether each result element depends on at most one element of each argument, so that a large argument can
    be read in part."""
    return all(isinstance(e.op, Expr) or e.op.kind <= Fusion.INJECTIVE for e in calls(function.body))


def _of_call(e: Call) -> int:
    if isinstance(e.op, Expr):
        return 0
    macs = known_mac_number(e)
    if macs:
        return 2 * macs
    made = elements_of(e.checked_type)
    if e.op.kind is Fusion.INJECTIVE or e.op.name in _MOVES:
        return 0
    if e.op.kind is Fusion.REDUCE:
        return _read(e)
    if e.op.kind is Fusion.OUT_FUSABLE:
        window = getattr(e.op, "pool_size", None)
        return (made * math.prod(window) if isinstance(window, tuple) else _NORMALISING * _read(e)
                if e.op.name.endswith(("norm", "softmax", "normalize")) else _read(e))
    return made


def _read(e: Call) -> int:
    """Return the number of elements of the first argument."""
    return elements_of(e.args[0].checked_type) if e.args else 0


def elements_of(t: Type | None) -> int:
    """Return the number of elements of the tensors of a type."""
    return sum(math.prod(x.shape) for x in tensors_of(t) if x.is_static)


def _first(t: Type | None) -> TensorType:
    while isinstance(t, TupleType) and t.fields:
        t = t.fields[0]
    return t if isinstance(t, TensorType) else TensorType((), DataType("float32"))
