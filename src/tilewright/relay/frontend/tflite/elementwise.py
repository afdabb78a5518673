"""Elementwise functions of one tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape
from tilewright.relay.frontend.tflite.node import Node, Value, constant, scale_of, zero_point_of
from tilewright.relay.frontend.tflite.quotients import inverse_root_table
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import centred, limits, requantize, saturated
from tilewright.relay.frontend.tflite.tables import by_table, function_of, numbers, truncated

Array = np.ndarray[Any, Any]


def _plain(kind: str, name: str) -> None:
    @converter(kind)
    def convert(x: Value, *, node: Node) -> Expr:
        if x.is_quantized:
            node.refuse(f"it is of {x.dtype} with a scale; only floats and integers without a scale are supported")
        return getattr(op, name)(x.expr)  # type: ignore[no-any-return]


for _kind, _name in (("FLOOR", "floor"), ("CEIL", "ceil"), ("ROUND", "round"), ("SIN", "sin"), ("COS", "cos"),
                     ("SIGN", "sign"), ("NEG", "negative")):
    _plain(_kind, _name)


@converter("SQRT")
def sqrt(x: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        return op.sqrt(x.expr)
    if x.dtype in ("int8", "int16"):
        return by_table(x, truncated(np.sqrt(np.maximum(numbers(x), 0)), node.output))
    return function_of(x, node.output, lambda v: np.sqrt(np.maximum(v, 0)))


@converter("EXP")
def exp(x: Value, *, node: Node) -> Expr:
    return function_of(x, node.output, np.exp) if x.is_quantized else op.exp(x.expr)


@converter("LOG")
def log(x: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        return op.log(x.expr)
    t = node.output
    least = (limits(t.dtype)[0] - zero_point_of(t)) * scale_of(t)
    return function_of(x, t, lambda v: np.where(v > 0, np.log(v), least))  # otherwise the least result


@converter("RSQRT")
def rsqrt(x: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        return op.rsqrt(x.expr)
    if x.dtype == "int8":
        return by_table(x, inverse_root_table(x.scale, x.zero_point, scale_of(node.output), zero_point_of(node.output)))
    return function_of(x, node.output, lambda v: 1 / np.sqrt(v))


@converter("SQUARE")
def square(x: Value, *, node: Node) -> Expr:
    if x.is_quantized:
        node.refuse(f"it is of {x.dtype} with a scale; only floats and integers without a scale are supported")
    return op.multiply(x.expr, x.expr)


@converter("ABS")
def absolute(x: Value, *, node: Node) -> Expr:
    if not x.is_quantized:
        return op.abs(x.expr)
    t = node.output
    size = op.abs(centred(x.expr, x.zero_point))
    factor = float(np.float32(x.scale) / np.float32(scale_of(t)))
    return saturated(size, zero_point_of(t), t.dtype) if factor == 1 else requantize(size, factor, 1.0,
        zero_point_of(t), t.dtype)


@converter("CAST")
def cast_to(x: Value, *, out_data_type: int = 0, node: Node) -> Expr:
    if x.dtype.startswith("complex") and not node.output.dtype.startswith("complex"):
        return cast(op.real(x.expr), node.output.dtype)
    return cast(x.expr, node.output.dtype)


@converter("BITCAST")
def bitcast(x: Value, *, node: Node) -> Expr:
    before, after = DataType(x.dtype).bits, DataType(node.output.dtype).bits
    known = node.known(x)
    if known is not None and before != after:
        return Constant(_bits_as(known, node.output.dtype))
    if before == after:
        return op.reinterpret(x.expr, dtype=node.output.dtype)
    wide, narrow = (x.dtype, node.output.dtype) if before > after else (node.output.dtype, x.dtype)
    return _split(x, wide, narrow) if before > after else _joined(x, wide, narrow, node)


def _bits_as(x: Array, dtype: str) -> Array:
    """Reinterpret the bytes: narrower elements add a last dimension, wider ones consume it."""
    before, after = x.dtype.itemsize, np.dtype(dtype).itemsize
    flat = np.ascontiguousarray(x).view(np.uint8).view(dtype)
    return flat.reshape((*x.shape, before // after) if before > after else x.shape[:-1])


def _split(x: Value, wide: str, narrow: str) -> Expr:
    """Split each element into narrower parts along a new last dimension, lowest first."""
    bits, count = DataType(narrow).bits, DataType(wide).bits // DataType(narrow).bits
    whole = op.reinterpret(x.expr, dtype=f"uint{DataType(wide).bits}")
    shifts = Constant((np.arange(count) * bits).astype(f"uint{DataType(wide).bits}"))
    parts = op.right_shift(reshape(whole, (*x.shape, 1)), shifts)
    masked = op.bitwise_and(parts, constant((1 << bits) - 1, f"uint{DataType(wide).bits}"))
    return op.reinterpret(cast(masked, f"uint{bits}"), dtype=narrow)


def _joined(x: Value, wide: str, narrow: str, node: Node) -> Expr:
    """Join the last dimension's parts, lowest first, to one wider element."""
    bits, count = DataType(narrow).bits, DataType(wide).bits // DataType(narrow).bits
    if not x.rank or x.shape[-1] != count:
        node.refuse(f"its last dimension must be the {count} parts of a {wide}, but its input has the shape {x.shape}")
    kind = f"uint{DataType(wide).bits}"
    parts = cast(op.reinterpret(x.expr, dtype=f"uint{bits}"), kind)
    shifts = Constant((np.arange(count) * bits).astype(kind))
    return op.reinterpret(op.sum(op.left_shift(parts, shifts), axis=(-1,)), dtype=wide)


@converter("BUCKETIZE")
def bucketize(x: Value, *, boundaries: tuple[float, ...] = ()) -> Expr:
    edges = Constant(np.asarray(boundaries, np.float32))
    return op.searchsorted(edges, cast(x.expr, "float32"), right=True, dtype="int32")


