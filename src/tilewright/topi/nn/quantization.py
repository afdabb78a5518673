"""Simulated quantization in floating point: values are rounded and clamped like integers."""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType
from tilewright.scalar.arith.open_sizes import open_size
from tilewright.scalar.expr import (
    EQ,
    PrimExpr,
    Value,
    Var,
    add,
    cast,
    compare,
    const,
    div,
    floormod,
    if_then_else,
    maximum,
    minimum,
    mul,
    number_of,
    sub,
)
from tilewright.scalar.intrinsics import nearbyint
from tilewright.topi.elementwise import integer_range
from tilewright.topi.shapes import axis_of
from tilewright.topi.tag import BROADCAST, tagged

SQNN_DISABLE, SQNN_INT8, SQNN_UINT8, SQNN_INT32 = range(4)
SQNN_DTYPE_TO_CODE = {"disable": SQNN_DISABLE, "int8": SQNN_INT8, "uint8": SQNN_UINT8, "int32": SQNN_INT32}
SQNN_CODE_TO_DTYPE = {code: name for name, code in SQNN_DTYPE_TO_CODE.items()}


def _per_channel(value: Any, i: tuple[Var, ...], axis: int, dtype: DataType, default: float) -> PrimExpr:
    """Return the scale or zero point at an index, from a common value or one per channel. The channel is taken modulo a
    symbolic number of values, so that one value serves all channels."""
    if value is None:
        return const(default, dtype)
    if isinstance(value, te.Tensor):
        if value.ndim == 0:
            return cast(dtype, value())
        count = value.shape[0]
        at = floormod(i[axis], count) if open_size(count) is None and number_of(count) is None else i[axis]
        return cast(dtype, value(0 if number_of(count) == 1 else at))
    return cast(dtype, value) if isinstance(value, PrimExpr) else const(value, dtype)


def _coded(code: Any, choices: dict[str, PrimExpr]) -> PrimExpr:
    """Return the choice for a dtype name, its code, or a scalar tensor with the code."""
    if isinstance(code, te.Tensor):
        code = code(*(0,) * code.ndim)
    if isinstance(code, PrimExpr):
        result = choices["disable"]
        for name, value in choices.items():
            result = if_then_else(
                compare(EQ, cast("int32", code), const(SQNN_DTYPE_TO_CODE[name], "int32")), value, result
            )
        return result
    name = SQNN_CODE_TO_DTYPE.get(code, "") if isinstance(code, int) else str(code)
    if name not in choices:
        raise ShapeError(
            f"'{code}' is not a quantized type; it must be one of {', '.join(SQNN_DTYPE_TO_CODE)}, or its code"
        )
    return choices[name]


@tagged(BROADCAST)
def simulated_quantize(
    data: te.Tensor, out_dtype: Any, output_scale: Any = None, output_zero_point: Any = None, axis: int = -1
) -> te.Tensor:
    """Return round(data / scale) + zero_point, clamped to the range of `out_dtype`, in the type of the data; unchanged
    for "disable".

    `out_dtype` is a name, a code of `SQNN_DTYPE_TO_CODE`, or a scalar tensor with the code. Scales and zero points are
    common, or one for each element of `axis`. Raises `ShapeError`.
    """
    at = axis_of(axis, data.ndim)

    def element(*i: Var) -> PrimExpr:
        x = data(*i)
        scale, zero = (_per_channel(v, i, at, x.dtype, d) for v, d in ((output_scale, 1), (output_zero_point, 0)))
        level = add(nearbyint(div(x, scale)), zero)

        def held(name: str) -> PrimExpr:
            low, high = integer_range(DataType(name))
            return maximum(minimum(level, const(high, x.dtype)), const(low, x.dtype))

        return _coded(out_dtype, {"disable": x} | {name: held(name) for name in ("int8", "uint8", "int32")})

    return te.compute(data.shape, element, name="simulated_quantize")


@tagged(BROADCAST)
def simulated_dequantize(
    data: te.Tensor, in_dtype: Any, input_scale: Any = None, input_zero_point: Any = None, axis: int = -1
) -> te.Tensor:
    """Return (data - zero_point) * scale; unchanged for "disable"."""
    at = axis_of(axis, data.ndim)

    def element(*i: Var) -> PrimExpr:
        x = data(*i)
        scale, zero = (_per_channel(v, i, at, x.dtype, d) for v, d in ((input_scale, 1), (input_zero_point, 0)))
        value: Value = mul(sub(x, zero), scale)
        return _coded(in_dtype, {"disable": x} | dict.fromkeys(("int8", "uint8", "int32"), cast(x.dtype, value)))

    return te.compute(data.shape, element, name="simulated_dequantize")


__all__ = [
    "SQNN_CODE_TO_DTYPE", "SQNN_DISABLE", "SQNN_DTYPE_TO_CODE", "SQNN_INT8", "SQNN_INT32", "SQNN_UINT8",
    "simulated_dequantize", "simulated_quantize",
]
