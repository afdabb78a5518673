"""TVM's `topi.utils`: shapes as numbers, and walks over the computations of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright import te
from tilewright.base.errors import CompileError, ShapeError
from tilewright.scalar.arith import Ranges
from tilewright.scalar.arith import simplify as simplified
from tilewright.scalar.expr import (
    IntImm,
    PrimExpr,
    Var,
    as_expr,
    cast,
    const,
    floordiv,
    floormod,
    if_then_else,
    number_of,
)
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import Operation, producers_first
from tilewright.tir.data_layout import bijective_layout
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


InvalidShapeError: TypeAlias = ShapeError
"""The error for a shape that does not fit."""


def get_float_tuple(in_tuple: Iterable[Any]) -> tuple[float, ...]:
    """Return constants as floats. Raises `CompileError` for other expressions."""
    return tuple(map(get_const_float, in_tuple))


def get_shape(src_shape: Sequence[Any], src_layout: str, dst_layout: str) -> tuple[Any, ...]:
    """Return the shape in the layout `dst_layout` of a tensor that has `src_shape` in `src_layout`."""
    return get_const_tuple(bijective_layout(src_layout, dst_layout).forward_shape(get_const_tuple(src_shape)))


def _is_packed(layout_info: str, plain: str) -> bool:
    return layout_info.startswith(plain) and "c" in layout_info and "n" in layout_info


def _is_blocked(layout_info: str, plain: str) -> bool:
    return layout_info.startswith(plain) and layout_info.endswith("c") and layout_info[len(plain):-1].isnumeric()


def nchw_pack_layout(layout_info: str) -> bool:
    """Return whether the layout has blocks of batch and channels: NCHW4n16c."""
    return _is_packed(layout_info, "NCHW")


def nchw_xc_layout(layout_info: str) -> bool:
    """Return whether the layout has blocks of channels: NCHW16c."""
    return _is_blocked(layout_info, "NCHW")


def ncw_pack_layout(layout_info: str) -> bool:
    """Return whether the layout has blocks of batch and channels: NCW4n16c."""
    return _is_packed(layout_info, "NCW")


def ncw_xc_layout(layout_info: str) -> bool:
    """Return whether the layout has blocks of channels: NCW16c."""
    return _is_blocked(layout_info, "NCW")


def ravel_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Return the position of an element in row-major order."""
    position: Any = 0
    for i, n in zip(indices, shape, strict=True):
        position = position * n + i
    return position


def unravel_index(idx: Any, shape: Sequence[Any]) -> list[Any]:
    """Return the indices of the element at the position `idx` in row-major order."""
    indices = []
    for n in reversed(shape):
        indices.append(floormod(idx, n))
        idx = floordiv(idx, n)
    return indices[::-1]


def swap(arr: Sequence[Any], axis: int) -> list[Any]:
    """Return `arr` with its last element and the one at `axis` exchanged."""
    found = list(arr)
    found[axis], found[-1] = found[-1], found[axis]
    return found


def is_dynamic_shape(shape: Iterable[Any]) -> bool:
    """Return whether any size is symbolic."""
    return any(number_of(as_expr(n)) is None for n in shape)


def is_empty_shape(shape: Iterable[Any]) -> bool:
    """Return whether any size is 0."""
    return any(number_of(as_expr(n)) == 0 for n in shape)


def ceil_div(a: Any, b: Any) -> Any:
    """Return the quotient of integers, rounded up."""
    return floordiv(a + (b - 1), b)


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """Return the greatest power of two that divides `n`, and is not greater than `max_value`."""
    found = 1
    while n % (2 * found) == 0 and n > 0 and (max_value is None or 2 * found <= max_value):
        found *= 2
    return found


def const_vector(vector: Any, name: str = "const_vector") -> te.Tensor:
    """Return the numbers of a one-dimensional array as a tensor."""
    return _constant(np.asarray(vector), name, {})


def const_matrix(matrix: Any, name: str = "const_matrix", attrs: dict[str, Any] | None = None) -> te.Tensor:
    """Return the numbers of a two-dimensional array as a tensor."""
    return _constant(np.asarray(matrix), name, attrs or {})


def _constant(values: np.ndarray[Any, Any], name: str, attrs: dict[str, Any]) -> te.Tensor:
    """Return a tensor whose elements are selected among the numbers of a small array."""
    flat, dtype = values.ravel(), str(values.dtype)

    def element(*i: Var) -> PrimExpr:
        position = cast("int64", ravel_index(i, values.shape))
        found = const(flat[-1].item(), dtype)
        for k in reversed(range(len(flat) - 1)):
            found = if_then_else(position.equal(k), const(flat[k].item(), dtype), found)
        return found

    return te.compute(values.shape, element, name=name, attrs=attrs)


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
    "InvalidShapeError", "ceil_div", "const_matrix", "const_vector", "equal_const_int", "get_const_float",
    "get_const_int", "get_const_tuple", "get_float_tuple", "get_max_power2_factor", "get_shape", "is_dynamic_shape",
    "is_empty_shape", "nchw_pack_layout", "nchw_xc_layout", "ncw_pack_layout", "ncw_xc_layout", "prod",
    "ravel_index", "simplify", "swap", "traverse_inline", "unravel_index",
]
