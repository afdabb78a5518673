"""Quantization: QuantizeLinear and DequantizeLinear, and products of quantized tensors.

Integers of at least 8 bits with one scale, or one per element of an axis, become operators of `relay.qnn`. Smaller
types and blocks become plain float32 arithmetic, which is fused into the surrounding kernels.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from tilewright.base.types import FLOAT32, INT32, MINIFLOATS, DataType
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.frontend.onnx.linear import matmul
from tilewright.relay.frontend.onnx.nn import conv, paddings
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.reading import element_type
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.rounding import converted
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, cast, reshape, slice_axis, transpose
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.qnn.numerics import QUANTIZED
from tilewright.relay.qnn.products import QnnConv2d, QnnDense
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.topi.elementwise import integer_range
from tilewright.topi.shapes import differ

_DEFAULT_AXIS: Final = 1
_INTEGERS: Final = ("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16")


def _is_plain(x: Expr, scale: Expr, dtype: DataType, block_size: int) -> bool:
    """Whether an operator of `relay.qnn` covers the case."""
    return dtype in QUANTIZED and not (block_size and rank(scale) > 1)


def _parameters(x: Expr, scale: Expr, zero_point: Expr | None, axis: int, node: Node) -> tuple[Expr, Expr, int]:
    """The scale as float32, the zero point as int32, and the quantization axis."""
    if rank(scale) > 1:
        node.refuse(f"the scale has {rank(scale)} dimensions; it must be one number, or one for each element of an "
                    "axis, unless block_size is set")
    many = rank(scale) == 1 and shape_of(scale) != (1,)
    found = cast(scale, FLOAT32)
    zero = Constant(np.zeros((), np.int32)) if zero_point is None else cast(zero_point, "int32")
    return _constant(found), _constant(zero), axis_of(axis, rank(x), node) if many else -1


def _constant(e: Expr) -> Expr:
    """Fold a cast of a constant."""
    args = getattr(e, "args", ())
    if args and isinstance(args[0], Constant):
        return Constant(args[0].value.astype(e.tensor_type.dtype.numpy()), e.span)
    return e


def _spread(p: Expr, x: Expr, axis: int, block_size: int, node: Node) -> Expr:
    """Reshape a scale or zero point to broadcast to `x`: a scalar, one per element of an axis, or one per block."""
    if rank(p) == 0 or shape_of(p) == (1,):
        return reshape(p, ())
    along = axis_of(axis, rank(x), node)
    if rank(p) == 1 and (rank(x) > 1 or not block_size):
        return reshape(p, [shape_of(p)[0] if k == along else 1 for k in range(rank(x))])
    if rank(p) != rank(x) or not block_size:
        node.refuse(f"the scale has {rank(p)} dimensions; it must be one number, one for each element of an axis, or, "
                    "with block_size, have the rank of the input")
    blocks, size = node.static(p, "scale")[along], node.static(x, "input")[along]
    if differ(blocks, -(-size // block_size)):
        node.refuse(f"the scale has {blocks} blocks along axis {along}; {size} elements in blocks of {block_size} need "
                    f"{-(-size // block_size)}")
    each = op.repeat(p, repeats=block_size, axis=along)
    return each if blocks * block_size == size else slice_axis(each, along, 0, size)


@converter("QuantizeLinear", since=10)
def quantize_per_tensor(x: Expr, y_scale: Expr, y_zero_point: Expr | None = None, *, node: Node) -> Expr:
    return quantize(x, y_scale, y_zero_point, node=node)


@converter("QuantizeLinear", since=13)
def quantize(
    x: Expr, y_scale: Expr, y_zero_point: Expr | None = None, *, axis: int = _DEFAULT_AXIS, saturate: int = 1,
    block_size: int = 0, output_dtype: int = TensorProto.UNDEFINED, precision: int = TensorProto.UNDEFINED, node: Node,
) -> Expr:
    given = DataType("uint8") if output_dtype == TensorProto.UNDEFINED else element_type(output_dtype,
        "attribute 'output_dtype'", node.origin)
    kind = dtype_of(y_zero_point) if y_zero_point is not None else given
    if kind not in _INTEGERS and kind not in QUANTIZED and kind.code not in MINIFLOATS:
        node.refuse(f"the quantized type {kind} is not supported; the types are {', '.join((*_INTEGERS, *MINIFLOATS))}")
    wide = (element_type(precision, "attribute 'precision'", node.origin) if precision != TensorProto.UNDEFINED
            else FLOAT32)
    if _is_plain(x, y_scale, kind, block_size) and wide is FLOAT32:
        scale, zero_point, along = _parameters(x, y_scale, y_zero_point, axis, node)
        return op.qnn.quantize(cast(x, FLOAT32), scale, zero_point, axis=along, out_dtype=kind)
    real = op.divide(cast(x, wide), _spread(cast(y_scale, wide), x, axis, block_size, node))
    return _stored(real, None if y_zero_point is None else _spread(y_zero_point, x, axis, block_size, node), kind,
                   bool(saturate), node)


@converter("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Quantize `x` to uint8 over its range extended to zero; return it with its scale and zero point.

    Each quotient is rounded once, as in ONNX Runtime, because an error of one ulp in the scale moves values across
    halves. The scale of an all-zero tensor is 1.
    """
    zero = scalar(0, x)
    none = any(isinstance(d, int) and not d for d in shape_of(x))
    least, most = (zero, zero) if none else (op.minimum(op.min(x), zero), op.maximum(op.max(x), zero))
    found = op.quotient(op.subtract(most, least), scalar(255, x))
    scale = op.where(op.equal(found, zero), scalar(1, x), found)
    point = op.round(op.clip(op.subtract(zero, op.quotient(least, scale)), a_min=0.0, a_max=255.0))
    whole = op.add(op.round(op.quotient(x, scale)), point)
    return cast(op.clip(whole, a_min=0.0, a_max=255.0), "uint8"), scale, cast(point, "uint8")


def _stored(real: Expr, zero_point: Expr | None, kind: DataType, saturate: bool, node: Node) -> Expr:
    """Round, add the zero point, and clip to the range of `kind`."""
    if kind.code in MINIFLOATS:
        moved = real if zero_point is None or kind.bits == 8 else op.add(real, cast(zero_point, dtype_of(real)))
        return converted(moved, kind, saturate, "up", node)
    whole = op.round(real)  # half to even
    if zero_point is not None:
        whole = op.add(whole, cast(zero_point, dtype_of(real)))
    low, high = integer_range(kind)
    return cast(op.clip(whole, a_min=float(low), a_max=float(high)), kind)


@converter("DequantizeLinear", since=10)
def dequantize_per_tensor(x: Expr, x_scale: Expr, x_zero_point: Expr | None = None, *, node: Node) -> Expr:
    return dequantize(x, x_scale, x_zero_point, node=node)


@converter("DequantizeLinear", since=13)
def dequantize(
    x: Expr, x_scale: Expr, x_zero_point: Expr | None = None, *, axis: int = _DEFAULT_AXIS, block_size: int = 0,
    output_dtype: int = TensorProto.UNDEFINED, node: Node,
) -> Expr:
    wanted = dtype_of(x_scale) if output_dtype == TensorProto.UNDEFINED else element_type(output_dtype,
        "attribute 'output_dtype'", node.origin)
    if _is_plain(x, x_scale, dtype_of(x), block_size):
        scale, zero_point, along = _parameters(x, x_scale, x_zero_point, axis, node)
        return cast(op.qnn.dequantize(x, scale, zero_point, axis=along), wanted)
    if dtype_of(x) not in _INTEGERS and dtype_of(x).code not in MINIFLOATS:
        node.refuse(f"the quantized type {dtype_of(x)} is not supported; the types are "
                    f"{', '.join((*_INTEGERS, *MINIFLOATS))}")
    real = cast(x, FLOAT32)
    if x_zero_point is not None and dtype_of(x) in _INTEGERS:
        real = op.subtract(real, cast(_spread(x_zero_point, x, axis, block_size, node), FLOAT32))
    return cast(op.multiply(real, _spread(cast(x_scale, FLOAT32), x, axis, block_size, node)), wanted)


def _one(zero_point: Expr | None) -> Expr | None:
    """A scalar zero point as int32: zero if it is omitted, None if it has several elements."""
    if zero_point is None:
        return Constant(np.zeros((), np.int32))
    return _constant(reshape(cast(zero_point, "int32"), ())) if all(d == 1 for d in shape_of(zero_point)) else None


def _exact(x: Expr, zero_point: Expr | None, axis: int) -> Expr:
    """`x - zero_point` as int32; a vector of zero points runs along `axis`."""
    if zero_point is None:
        return cast(x, INT32)
    zero = cast(zero_point, INT32)
    if rank(zero) == 1 and shape_of(zero) != (1,):
        zero = reshape(zero, [shape_of(zero)[0] if k == axis % rank(x) else 1 for k in range(rank(x))])
    return op.subtract(cast(x, INT32), zero if rank(zero) <= rank(x) else reshape(zero, ()))


@converter("MatMulInteger", since=10)
def matmul_integer(a: Expr, b: Expr, a_zero_point: Expr | None = None, b_zero_point: Expr | None = None, *,
                   node: Node) -> Expr:
    """The integer matrix product; vectors give a zero point per row of A, or per column of B."""
    za, zb, unit = _one(a_zero_point), _one(b_zero_point), Constant(np.ones((), np.float32))
    if zb is None and b_zero_point is not None and rank(b_zero_point) == 1:
        zb = _constant(cast(b_zero_point, INT32))
    if rank(b) == 2 and rank(a) >= 2 and za is not None and zb is not None:
        return op.qnn.dense(a, transpose(b, (1, 0)), za, zb, unit, unit, units=node.static(b, "B")[1])
    return matmul(_exact(a, a_zero_point, -2), _exact(b, b_zero_point, -1), node=node)


@converter("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Expr, a_scale: Expr, a_zero_point: Expr, b: Expr, b_scale: Expr, b_zero_point: Expr, y_scale: Expr,
    y_zero_point: Expr, *, node: Node,
) -> Expr:
    total = matmul_integer(a, b, a_zero_point, b_zero_point, node=node)
    whole = _requantized(total, a_scale, b_scale, y_scale, y_zero_point, -1)
    if whole is not None:
        return whole
    rows = _along(a_scale, total, -2)
    factor = op.divide(op.multiply(rows, _along(b_scale, total, -1)), _along(y_scale, total, -2))
    return _stored(op.multiply(cast(total, FLOAT32), factor), _along(y_zero_point, total, -2), dtype_of(y_zero_point),
                   True, node)


def _requantized(total: Expr, x_scale: Expr, w_scale: Expr, y_scale: Expr, y_zero_point: Expr,
                 axis: int) -> Expr | None:
    """Requantize int32 sums, if all scales are constants and those of data and result are scalars; else None."""
    scales = [p for p in (_constant(cast(p, FLOAT32)) for p in (x_scale, w_scale, y_scale)) if isinstance(p, Constant)]
    zero, product = (_one(y_zero_point), total.args[0] if isinstance(total, Call) and isinstance(total.op, BiasAdd)
                     else total)
    if (not (isinstance(product, Call) and isinstance(product.op, (QnnConv2d, QnnDense)))
            or not isinstance(zero, Constant) or dtype_of(y_zero_point) not in QUANTIZED):
        return None
    if len(scales) < 3 or scales[0].value.size != 1 or scales[2].value.size != 1:
        return None
    sx, sw, sy = (p.value.reshape(()) if p.value.size == 1 else p.value.reshape(-1) for p in scales)
    worth = Call(product.op, [*product.args[:4], Constant(sx), Constant(sw)], span=product.span)
    sums = worth
    if isinstance(total, Call) and total is not product:
        sums = Call(total.op, [worth, *total.args[1:]], span=total.span)
    return op.qnn.requantize(
        sums, Constant(np.asarray(sx * sw, np.float32)), Constant(np.zeros((), np.int32)), Constant(sy), zero,
        axis=axis % rank(total), rounding="TOEVEN", compute_dtype="float32", out_dtype=dtype_of(y_zero_point))


def _along(p: Expr, x: Expr, axis: int) -> Expr:
    """A parameter as float32; a vector is reshaped to run along `axis` of `x`."""
    real = _constant(cast(p, FLOAT32))
    if all(d == 1 for d in shape_of(p)):
        return reshape(real, ())
    return (reshape(real, [shape_of(p)[0] if k == axis % rank(x) else 1 for k in range(rank(x))]) if rank(p) == 1
            else real)


@converter("ConvInteger", since=10)
def conv_integer(
    x: Expr, w: Expr, x_zero_point: Expr | None = None, w_zero_point: Expr | None = None, *, auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None, group: int = 1, kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None, strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    """The integer convolution; the zero point of the weights may have one element per output channel."""
    if rank(x) != 4:
        return conv(_exact(x, x_zero_point, 1), _exact(w, w_zero_point, 0), auto_pad=auto_pad, dilations=dilations,
                    group=group, kernel_shape=kernel_shape,
                    pads=pads, strides=strides, node=node)
    kernel, steps, apart = kernel_shape or node.static(w, "W")[2:], strides or (1, 1), dilations or (1, 1)
    unit, zx, zw = Constant(np.ones((), np.float32)), _one(x_zero_point), _one(w_zero_point)
    if zx is None:
        node.refuse("the zero point of the data must be one number, but its shape is "
                    f"{shape_of(x_zero_point) if x_zero_point is not None else ()}")
    if zw is None and w_zero_point is not None:
        zw = _constant(cast(w_zero_point, INT32))
    return op.qnn.conv2d(
        x, w, zx, zw, unit, unit, strides=steps, padding=paddings(x, kernel, steps, apart, auto_pad, pads, node),
        dilation=apart, groups=group, channels=shape_of(w)[0], kernel_size=tuple(kernel))


@converter("QLinearConv", since=10)
def qlinear_conv(
    x: Expr, x_scale: Expr, x_zero_point: Expr, w: Expr, w_scale: Expr, w_zero_point: Expr, y_scale: Expr,
    y_zero_point: Expr, b: Expr | None = None, *, auto_pad: str = "NOTSET", dilations: tuple[int, ...] | None = None,
    group: int = 1, kernel_shape: tuple[int, ...] | None = None, pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None, node: Node,
) -> Expr:
    """The quantized convolution; the scale of the bias is the product of the scales of data and weights."""
    total = conv_integer(x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, dilations=dilations, group=group,
                         kernel_shape=kernel_shape, pads=pads,
                         strides=strides, node=node)
    if b is not None:
        total = op.nn.bias_add(total, b, axis=1)
    whole = _requantized(total, x_scale, w_scale, y_scale, y_zero_point, 1)
    if whole is not None:
        return whole
    factor = op.divide(op.multiply(_along(x_scale, total, 1), _along(w_scale, total, 1)), _along(y_scale, total, 1))
    return _stored(op.multiply(cast(total, FLOAT32), factor), _along(y_zero_point, total, 1), dtype_of(y_zero_point),
                   True, node)


def dynamically_quantized(a: Expr) -> Expr:
    """Quantize `a` by DynamicQuantizeLinear, and dequantize it."""
    q, scale, point = dynamic_quantize_linear(a)
    return op.multiply(cast(op.subtract(cast(q, "int32"), cast(point, "int32")), "float32"), scale)
