"""Functions of 8-bit numbers as tables of 256 entries: TVM's `qnn.op.canonicalizations`.

    take(const(table), cast(reinterpret(%x, "uint8"), "int32"))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.elementwise import Cast, Reinterpret
from tilewright.relay.op.indexing import Take
from tilewright.relay.qnn.scaling import Dequantize, Quantize

__all__ = ["create_integer_lookup_op", "create_integer_lookup_table", "hardswish_func", "run_const_expr"]
Array = np.ndarray[Any, Any]


def run_const_expr(expr: Expr) -> Array:
    """Return the value of an expression without variables."""
    return np.asarray(evaluate(expr))


def create_integer_lookup_table(
    floating_point_func: Callable[[Array], Array], input_scale: Expr, input_zero_point: Expr, output_scale: Expr,
    output_zero_point: Expr, in_axis: int = -1, out_axis: int = -1, in_dtype: str = "uint8", out_dtype: str = "uint8",
) -> Array:
    """Return the table of a function between quantized numbers: entry k is the result for the input of the bits k.

    The function takes and returns float32 arrays. Scales and zero points are constants of one element. Raises
    `CompileError` for other types than int8 and uint8, and for parameters by channel.
    """
    if in_dtype not in ("int8", "uint8") or out_dtype not in ("int8", "uint8"):
        raise CompileError(f"a table maps int8 or uint8 to either, not {in_dtype} to {out_dtype}", code="TW1004")
    parameters = [run_const_expr(p) for p in (input_scale, input_zero_point, output_scale, output_zero_point)]
    if any(p.size != 1 for p in parameters):
        raise CompileError("a table needs one scale and one zero point, not one for each channel", code="TW1004")
    scale, zero, out_scale, out_zero = (p.reshape(()) for p in parameters)
    inputs = np.arange(256, dtype=np.uint8).view(in_dtype)
    real = Dequantize(axis=in_axis).reference(inputs, scale, zero)
    result = np.asarray(floating_point_func(real), np.float32)
    table: Array = np.asarray(Quantize(out_dtype, out_axis).reference(result, out_scale, out_zero))
    return table


def create_integer_lookup_op(
    input_arg: Expr, floating_point_func: Callable[[Array], Array], in_scale: Expr, in_zero_point: Expr,
    out_scale: Expr, out_zero_point: Expr, in_axis: int = -1, out_axis: int = -1, in_dtype: str = "uint8",
    out_dtype: str = "uint8",
) -> Call:
    """Return the function of a quantized tensor as a read of its table; see `create_integer_lookup_table`."""
    table = create_integer_lookup_table(
        floating_point_func, in_scale, in_zero_point, out_scale, out_zero_point, in_axis, out_axis, in_dtype, out_dtype)
    bits = Call(Cast("int32"), [Call(Reinterpret("uint8"), [input_arg])])
    return Call(Take(), [Constant(table), bits])


def hardswish_func(x: Array) -> Array:
    """Return x * clip(x + 3, 0, 6) / 6."""
    result: Array = x * np.clip(x + 3, 0, 6) / 6
    return result
