"""Quantization: QuantizeLinear and DequantizeLinear become the operators of `relay.qnn`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.operators import op
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.shaping import axis_of, cast, dtype_of, rank, shape_of
from tilewright.relay.qnn.numerics import QUANTIZED
from tilewright.types import FLOAT32, DataType

_DEFAULT_AXIS: Final = 1


def _parameters(x: Expr, scale: Expr, zero_point: Expr | None, axis: int, block_size: int, node: Node) -> tuple[Expr, Expr, int]:
    """The scale as float32, the zero point as int32, and the axis along which they go."""
    if block_size:
        node.refuse("block_size is set: scales for blocks of an axis are not supported; quantize per tensor or per axis")
    if rank(scale) > 1:
        node.refuse(f"the scale has {rank(scale)} dimensions; it must be one number, or one for each element of an axis")
    many = rank(scale) == 1 and shape_of(scale) != (1,)
    found = cast(scale, FLOAT32)
    zero = Constant(np.zeros((), np.int32)) if zero_point is None else cast(zero_point, "int32")
    return _constant(found), _constant(zero), axis_of(axis, rank(x), node) if many else -1


def _constant(e: Expr) -> Expr:
    """A cast of a constant, as a constant."""
    args = getattr(e, "args", ())
    if args and isinstance(args[0], Constant):
        return Constant(args[0].value.astype(e.tensor_type.dtype.numpy()), e.span)
    return e


def _quantized_type(dtype: DataType, node: Node) -> str:
    if dtype not in QUANTIZED:
        node.refuse(f"the quantized type {dtype} is not supported; the types are {', '.join(QUANTIZED)}")
    return str(dtype)


@converter("QuantizeLinear", since=10)
def quantize_per_tensor(x: Expr, y_scale: Expr, y_zero_point: Expr | None = None, *, node: Node) -> Expr:
    return quantize(x, y_scale, y_zero_point, node=node)


@converter("QuantizeLinear", since=13)
def quantize(
    x: Expr, y_scale: Expr, y_zero_point: Expr | None = None, *, axis: int = _DEFAULT_AXIS, saturate: int = 1, block_size: int = 0,
    output_dtype: int = TensorProto.UNDEFINED, precision: int = TensorProto.UNDEFINED, node: Node,
) -> Expr:
    given: Any = np.uint8 if output_dtype == TensorProto.UNDEFINED else tensor_dtype_to_np_dtype(output_dtype)
    kind = _quantized_type(dtype_of(y_zero_point) if y_zero_point is not None else DataType(np.dtype(given)), node)
    scale, zero_point, along = _parameters(x, y_scale, y_zero_point, axis, block_size, node)
    return op.qnn.quantize(cast(x, FLOAT32), scale, zero_point, axis=along, out_dtype=kind)


@converter("DequantizeLinear", since=10)
def dequantize_per_tensor(x: Expr, x_scale: Expr, x_zero_point: Expr | None = None, *, node: Node) -> Expr:
    return dequantize(x, x_scale, x_zero_point, node=node)


@converter("DequantizeLinear", since=13)
def dequantize(
    x: Expr, x_scale: Expr, x_zero_point: Expr | None = None, *, axis: int = _DEFAULT_AXIS, block_size: int = 0,
    output_dtype: int = TensorProto.UNDEFINED, node: Node,
) -> Expr:
    _quantized_type(dtype_of(x), node)
    scale, zero_point, along = _parameters(x, x_scale, x_zero_point, axis, block_size, node)
    real = op.qnn.dequantize(x, scale, zero_point, axis=along)
    wanted = dtype_of(x_scale) if output_dtype == TensorProto.UNDEFINED else DataType(np.dtype(tensor_dtype_to_np_dtype(output_dtype)))
    return cast(real, wanted)
