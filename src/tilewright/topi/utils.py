"""TVM's `topi.utils`: shapes as numbers, and walks over the computations of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilewright import te
from tilewright.base.errors import CompileError
from tilewright.scalar.arith import Ranges
from tilewright.scalar.arith import simplify as simplified
from tilewright.scalar.expr import IntImm, PrimExpr
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import Operation, producers_first
from tilewright.topi.shapes import product as prod
from tilewright.topi.tag import is_broadcast


def get_const_int(expr: Any) -> int:
    """Return a size as an int. Raises `CompileError` if it is symbolic."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, int):
        return expr
    raise CompileError(f"{expr!r} is not a constant; give the tensor a static shape", code="TW0303")


def get_const_float(expr: Any) -> float:
    """Return a constant as a float. Raises `CompileError` for other expressions."""
    value = getattr(expr, "value", expr)
    if not isinstance(value, (int, float)):
        raise CompileError(f"{expr!r} is not a constant", code="TW0303")
    return float(value)


def get_const_tuple(in_tuple: Iterable[Any]) -> tuple[Any, ...]:
    """Return a shape with its constants as ints; symbolic sizes are unchanged."""
    return tuple(n.value if isinstance(n, IntImm) else n for n in in_tuple)


def equal_const_int(expr: Any, value: int) -> bool:
    """Return whether `expr` is the constant `value`."""
    return isinstance(expr, (int, IntImm)) and get_const_int(expr) == value


def simplify(expr: Any) -> Any:
    """Return a simplified expression; constants as ints."""
    return get_const_tuple([simplified(expr, Ranges())])[0] if isinstance(expr, PrimExpr) else expr


def traverse_inline(s: Schedule, final_op: Operation, callback: Callable[[Operation], Any]) -> None:
    """Inline the broadcasting stages between `final_op` and its anchors, and call `callback` on each operation,
    producers first."""
    order = producers_first(
        [final_op], lambda op: [t for t in op.inputs if t.op.inputs] if is_broadcast(op.tag) else ()
    )
    for op in order:
        if is_broadcast(op.tag) and op is not final_op and not s[op].is_output and isinstance(op, te.ComputeOp):
            s[op].compute_inline()
    for op in order:
        callback(op)


__all__ = [
    "equal_const_int", "get_const_float", "get_const_int", "get_const_tuple", "prod", "simplify", "traverse_inline"
]
