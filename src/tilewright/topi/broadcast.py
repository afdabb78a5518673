"""Functions of tensors and numbers that broadcast by numpy's rules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr
from tilewright.topi import elementwise as of
from tilewright.topi.math import cast, identity
from tilewright.topi.shapes import broadcast_shapes, require_broadcast
from tilewright.topi.transform import dims

Operand = te.Tensor | PrimExpr | int | float
Binary = Callable[[Operand, Operand], Any]


def _function(name: str, f: Callable[[PrimExpr, PrimExpr], PrimExpr], doc: str) -> Binary:
    def apply(lhs: Operand, rhs: Operand) -> Any:
        return _met(name, f, lhs, rhs)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = (
        f"{doc} Tensors broadcast; numbers take the type of the other operand. Two expressions give an expression."
    )
    return apply


def _met(name: str, f: Callable[[PrimExpr, PrimExpr], PrimExpr], lhs: Operand, rhs: Operand) -> Any:
    if isinstance(lhs, te.Tensor) and isinstance(rhs, te.Tensor):
        return of.broadcast(broadcast_shapes(dims(lhs), dims(rhs)), lambda x, y: f(*E.match(x, y)), lhs, rhs, name=name)
    if isinstance(lhs, te.Tensor):
        return of.elementwise(lhs, lambda x: f(*E.match(x, rhs)), name)  # type: ignore[arg-type]
    if isinstance(rhs, te.Tensor):
        return of.elementwise(rhs, lambda y: f(*E.match(lhs, y)), name)
    return f(*E.match(lhs, rhs))


def _compare(name: str, node: type[E.Comparison], sign: str) -> Binary:
    return _function(name, lambda x, y: E.compare(node, x, y), f"x {sign} y, a boolean.")


add = _function("add", E.add, "x + y; integers wrap around.")
subtract = _function("subtract", E.sub, "x - y; integers wrap around.")
multiply = _function("multiply", E.mul, "x * y; integers wrap around.")
divide = _function("divide", E.div, "x / y; integers are divided toward zero, as in C.")
floor_divide = _function("floor_divide", E.floordiv, "floor(x / y).")
mod = _function("mod", E.truncmod, "The remainder with the sign of x, as in C.")
floor_mod = _function("floor_mod", E.floormod, "The remainder with the sign of y, as in Python.")
power = _function("power", of.power, "x to the y.")
maximum = _function("maximum", of.greater_of, "The greater one; not a number when either is not.")
minimum = _function("minimum", of.lesser_of, "The lesser one; not a number when either is not.")
left_shift = _function("left_shift", I.shift_left, "x moved up by y bits.")
right_shift = _function("right_shift", I.shift_right, "x moved down by y bits; the sign is kept.")
greater = _compare("greater", E.GT, ">")
less = _compare("less", E.LT, "<")
equal = _compare("equal", E.EQ, "==")
not_equal = _compare("not_equal", E.NE, "!=")
greater_equal = _compare("greater_equal", E.GE, ">=")
less_equal = _compare("less_equal", E.LE, "<=")
logical_and = _function("logical_and", E.logical_and, "True where both booleans are.")
logical_or = _function("logical_or", E.logical_or, "True where one boolean is, or both.")
logical_xor = _function("logical_xor", of.exclusive_or, "True where exactly one boolean is.")
bitwise_and = _function("bitwise_and", of.bits_and, "The bits set in both.")
bitwise_or = _function("bitwise_or", of.bits_or, "The bits set in one or both.")
bitwise_xor = _function("bitwise_xor", of.bits_xor, "The bits set in exactly one.")


@te.tensor.whole_tensor.provide
def _by_name(name: str, lhs: Any, rhs: Any) -> te.Tensor:
    operations: dict[str, Callable[[Any, Any], te.Tensor]] = {
        "add": add, "subtract": subtract, "multiply": multiply, "divide": divide, "cast": cast}
    return operations[name](lhs, rhs)


def broadcast_to(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """Broadcast `data` to `shape`. Raises `ShapeError` if that is impossible."""
    return of.broadcast(require_broadcast(dims(data), tuple(shape)), lambda x: x, data, name="broadcast_to")


def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """Return x where the condition (booleans or numbers) is nonzero, and y elsewhere. The three broadcast."""
    return of.broadcast(broadcast_shapes(*map(dims, (condition, x, y))), of.selected, condition, x, y, name="where")


def elemwise_sum(xs: Sequence[te.Tensor]) -> te.Tensor:
    """Return the sum of one or more tensors of one shape; of one, a copy."""
    total: te.Tensor = functools.reduce(add, xs[1:], xs[0] if len(xs) > 1 else identity(xs[0]))
    return total


__all__ = [
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast_to", "divide", "elemwise_sum", "equal",
    "floor_divide", "floor_mod", "greater", "greater_equal",
    "left_shift", "less", "less_equal", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "mod",
    "multiply", "not_equal", "power", "right_shift",
    "subtract", "where",
]
