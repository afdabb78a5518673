"""The operators of quantized tensors as functions: `relay.qnn.op.conv2d(data, kernel, …)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.errors import CompileError, Origin
from tilewright.relay.expr import Call, const
from tilewright.relay.op.hooks import register_qnn_legalize
from tilewright.relay.op.registry import operator_names, public_function
from tilewright.relay.qnn.functions import QnnLeakyRelu, SimulatedDequantize, SimulatedQuantize
from tilewright.relay.qnn.lookup_tables import (
    create_integer_lookup_op,
    create_integer_lookup_table,
    hardswish_func,
    run_const_expr,
)
from tilewright.relay.qnn.numerics import RequantizeConfig
from tilewright.relay.qnn.scaling import Quantize
from tilewright.topi.nn.quantization import SQNN_DTYPE_TO_CODE

__all__ = [
    "create_integer_lookup_op", "create_integer_lookup_table", "hardswish_func", "leaky_relu", "quantize",
    "register_qnn_legalize", "requantize_config", "run_const_expr", "simulated_dequantize", "simulated_quantize",
]

requantize_config = RequantizeConfig


def quantize(
    data: Any, output_scale: Any, output_zero_point: Any, axis: int = -1, out_dtype: str = "int8", span: Origin
    | None = None
) -> Call:
    """`data` quantized with a scale and zero point; the text form of `qnn.quantize` has the dtype first."""
    return Quantize(out_dtype, axis)(data, output_scale, output_zero_point, span=span)


def leaky_relu(x: Any, alpha: float, input_scale: Any, input_zero_point: Any, output_scale: Any,
               output_zero_point: Any) -> Call:
    """`nn.leaky_relu` of quantized data; see the operator `qnn.leaky_relu`."""
    return QnnLeakyRelu(alpha)(x, input_scale, input_zero_point, output_scale, output_zero_point)


def simulated_quantize(data: Any, output_scale: Any, output_zero_point: Any, axis: int = -1,
                       out_dtype: Any = "int8") -> Call:
    """`quantize` simulated in float32; `out_dtype` is int8, uint8, int32, "disable", or a scalar code."""
    return SimulatedQuantize(axis)(data, _code(out_dtype), output_scale, output_zero_point)


def simulated_dequantize(data: Any, input_scale: Any, input_zero_point: Any, axis: int = -1,
                         in_dtype: Any = "int8") -> Call:
    """`dequantize` simulated in float32; `in_dtype` is int8, uint8, int32, "disable", or a scalar code."""
    return SimulatedDequantize(axis)(data, _code(in_dtype), input_scale, input_zero_point)


def _code(dtype: Any) -> Any:
    if not isinstance(dtype, str):
        return dtype
    if dtype not in SQNN_DTYPE_TO_CODE:
        raise CompileError(f"qnn: '{dtype}' is not a quantized type; it must be one of "
                           f"{', '.join(SQNN_DTYPE_TO_CODE)}, or a scalar of its code", code="TW1004")
    return const(SQNN_DTYPE_TO_CODE[dtype], "int32")


def __getattr__(name: str) -> Callable[..., Call]:
    return public_function("qnn." + name, __name__)


def __dir__() -> list[str]:
    return sorted({*__all__, *operator_names("qnn.")})
