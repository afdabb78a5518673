"""Arithmetic and comparisons of two tensors. Quantized integers are rescaled in fixed point, like TFLite's kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import angle_of, cast, reshape
from tilewright.relay.frontend.tflite.node import (
    Node,
    Value,
    constant,
    is_quantized,
    parameters_of,
    scale_of,
    zero_point_of,
)
from tilewright.relay.frontend.tflite.quotients import quotient_table
from tilewright.relay.frontend.tflite.registry import converter
from tilewright.relay.frontend.tflite.rescale import activate, centred, limits, requantize, rescaled, saturated

_HEADROOM: Final = {"int8": 20, "uint8": 20, "int16": 15}
"""Left shift of the operands, in bits, before they are rescaled to a common scale."""


def _both_quantized(a: Value, b: Value, node: Node) -> bool:
    return a.is_quantized and b.is_quantized and is_quantized(node.output)


@converter("ADD")
def add(a: Value, b: Value, *, fused_activation_function: int = 0, pot_scale_int16: bool = True, node: Node) -> Expr:
    return activate(_sum(a, b, op.add, pot_scale_int16, node), fused_activation_function, node)


@converter("SUB")
def sub(a: Value, b: Value, *, fused_activation_function: int = 0, pot_scale_int16: bool = True, node: Node) -> Expr:
    return activate(_sum(a, b, op.subtract, pot_scale_int16, node), fused_activation_function, node)


def _sum(a: Value, b: Value, combine: Callable[..., Expr], powers_of_two: bool, node: Node) -> Expr:
    if not _both_quantized(a, b, node):
        return combine(a.expr, b.expr)
    t = node.output
    if a.dtype != "int16" and combine is op.add:
        return op.qnn.add(a.expr, b.expr, *(p for v in (a.tensor, b.tensor, t) for p in parameters_of(v)))
    if a.dtype == "int16" and powers_of_two:
        logs = [_log2(s) for s in (a.scale, b.scale, scale_of(t))]
        known = [n for n in logs if n is not None]
        if len(known) == len(logs) and not (a.zero_point or b.zero_point or zero_point_of(t)):
            return _sum_of_powers(a, b, combine, [int(n) - int(known[2]) for n in known[:2]], node)
    bits = _HEADROOM[a.dtype]
    largest = 2 * max(float(np.float32(a.scale)), float(np.float32(b.scale)))
    left, right = (_shifted(v, bits, float(np.float32(v.scale)) / largest) for v in (a, b))
    total = rescaled(combine(left, right), largest / ((1 << bits) * float(np.float32(scale_of(t)))))
    return saturated(total, zero_point_of(t), t.dtype)


def _log2(scale: float) -> int | None:
    """The exponent of a scale that is a power of two, else None."""
    log = math.log2(scale)
    return round(log) if abs(log - round(log)) < 1e-3 else None


def _shifted(v: Value, bits: int, factor: float) -> Expr:
    return rescaled(op.left_shift(centred(v.expr, v.zero_point), constant(bits, "int32")), factor)


def _sum_of_powers(a: Value, b: Value, combine: Callable[..., Expr], shifts: list[int], node: Node) -> Expr:
    """int16 addition or subtraction with power-of-two scales: the operand of the smaller scale is shifted right."""
    if any(s > 0 for s in shifts) or 0 not in shifts:
        node.refuse(f"its scales are {a.scale}, {b.scale} and {scale_of(node.output)}; if they are powers of two, the "
                    "larger scale of the inputs must equal that of the result")
    left, right = (rescaled(cast(v.expr, "int32"), 2.0**s) if s else cast(v.expr, "int32")
                   for v, s in zip((a, b), shifts, strict=True))
    return saturated(combine(left, right), 0, "int16")


@converter("MUL")
def mul(a: Value, b: Value, *, fused_activation_function: int = 0, node: Node) -> Expr:
    if not _both_quantized(a, b, node):
        return activate(op.multiply(a.expr, b.expr), fused_activation_function, node)
    t = node.output
    if a.dtype != "int16":
        product = op.qnn.mul(a.expr, b.expr, *(p for v in (a.tensor, b.tensor, t) for p in parameters_of(v)))
        return activate(product, fused_activation_function, node)
    factor = np.float32(np.float32(a.scale) * np.float32(b.scale)) / np.float32(scale_of(t))
    product = op.multiply(centred(a.expr, a.zero_point), centred(b.expr, b.zero_point))
    return activate(requantize(product, float(factor), 1.0, zero_point_of(t), t.dtype), fused_activation_function, node)


@converter("DIV")
def div(a: Value, b: Value, *, fused_activation_function: int = 0, node: Node) -> Expr:
    if _both_quantized(a, b, node):
        return activate(_quotient(a, b, node), fused_activation_function, node)
    if DataType(a.dtype).is_float:
        return activate(op.divide(a.expr, b.expr), fused_activation_function, node)
    return activate(_truncated(a.expr, b.expr), fused_activation_function, node)


def _quotient(a: Value, b: Value, node: Node) -> Expr:
    """The quotient of 8-bit numbers, from a table of all 65,536 pairs."""
    t = node.output
    if a.dtype not in ("int8", "uint8"):
        node.refuse(f"it divides {a.dtype}; only floats, integers without a scale, and int8 and uint8 with a scale are "
                    "supported")
    factor = np.float32(a.scale) / np.float32(np.float32(b.scale) * np.float32(scale_of(t)))
    table = quotient_table(a.dtype, a.zero_point, b.zero_point, float(factor), zero_point_of(t))
    low = limits(a.dtype)[0]
    row, column = (op.subtract(cast(v.expr, "int32"), constant(low, "int32")) for v in (a, b))
    return op.take(Constant(table.reshape(-1)), op.add(op.multiply(row, constant(256, "int32")), column), mode="fast")


def _truncated(x: Expr, y: Expr) -> Expr:
    """The quotient of integers, truncated toward zero."""
    zero = constant(0, str(x.tensor_type.dtype))
    size = op.floor_divide(op.abs(x), op.abs(y))
    return op.where(op.logical_xor(op.less(x, zero), op.less(y, zero)), op.negative(size), size)


@converter("SQUARED_DIFFERENCE")
def squared_difference(a: Value, b: Value, *, node: Node) -> Expr:
    if not _both_quantized(a, b, node):
        found = op.subtract(a.expr, b.expr)
        return op.multiply(found, found)
    t, bits = node.output, 7
    largest = 2.0 * max(float(np.float32(a.scale)), float(np.float32(b.scale)))
    left, right = (_shifted(v, bits, float(np.float32(v.scale)) / largest) for v in (a, b))
    difference = op.subtract(left, right)
    total = rescaled(op.multiply(difference, difference), (largest * largest)
                     / ((1 << bits * 2) * float(np.float32(scale_of(t)))))
    return saturated(total, zero_point_of(t), t.dtype)


@converter("ADD_N")
def add_n(*values: Value, node: Node) -> Expr:
    if not values:
        node.refuse("it has no inputs")
    if not values[0].is_quantized:
        total = values[0].expr
        for v in values[1:]:
            total = op.add(total, v.expr)
        return total
    t, bits = node.output, 20
    largest = 2 * max(float(np.float32(v.scale)) for v in values)
    total = _shifted(values[0], bits, float(np.float32(values[0].scale)) / largest)
    for v in values[1:]:
        total = op.add(total, _shifted(v, bits, float(np.float32(v.scale)) / largest))
    return saturated(rescaled(total, largest / ((1 << bits) * float(np.float32(scale_of(t))))), zero_point_of(t),
                     t.dtype)


def _compared(v: Value) -> Expr:
    """An operand of a comparison. Scales >= 1 overflow the shift in TFLite's kernels, which leaves only the sign."""
    if v.scale < 1:
        return _shifted(v, 8, float(np.float32(v.scale)))
    data = centred(v.expr, v.zero_point)
    return op.where(op.less(data, constant(0, "int32")), constant(-1, "int32"), constant(1, "int32"))


def _comparison(kind: str, compare: str) -> None:
    @converter(kind)
    def convert(a: Value, b: Value) -> Expr:
        build = getattr(op, compare)
        if not (a.is_quantized and b.is_quantized) or a.dtype == "int16":
            return build(a.expr, b.expr)  # type: ignore[no-any-return]
        return build(*map(_compared, (a, b)))  # type: ignore[no-any-return]


for _kind, _compare in (
    ("EQUAL", "equal"), ("NOT_EQUAL", "not_equal"), ("LESS", "less"), ("LESS_EQUAL", "less_equal"),
    ("GREATER", "greater"), ("GREATER_EQUAL", "greater_equal"),
):
    _comparison(_kind, _compare)


def _plain(kind: str, build: Callable[..., Expr]) -> None:
    @converter(kind)
    def convert(a: Value, b: Value) -> Expr:
        return build(a.expr, b.expr)


for _kind, _build in (
    ("FLOOR_DIV", op.floor_divide), ("FLOOR_MOD", op.floor_mod), ("POW", op.power), ("ATAN2", angle_of),
    ("MAXIMUM", op.maximum), ("MINIMUM", op.minimum), ("LOGICAL_AND", op.logical_and), ("LOGICAL_OR", op.logical_or),
    ("BITWISE_XOR", op.bitwise_xor),
):
    _plain(_kind, _build)


@converter("LOGICAL_NOT")
def logical_not(x: Value) -> Expr:
    return op.logical_not(x.expr)


@converter("RIGHT_SHIFT")
def right_shift(a: Value, b: Value) -> Expr:
    most = constant(DataType(a.dtype).bits - 1, b.dtype)
    return op.right_shift(a.expr, op.minimum(op.maximum(b.expr, constant(0, b.dtype)), most))


@converter("SELECT")
def select(condition: Value, a: Value, b: Value) -> Expr:
    """Elementwise selection; a one-dimensional condition selects whole rows."""
    c = condition.expr
    if condition.rank == 1 and a.rank > 1:
        c = reshape(c, (condition.shape[0], *[1] * (a.rank - 1)))
    elif condition.rank == 0 or condition.shape == (1,):
        c = reshape(c, ())
    return op.where(c, a.expr, b.expr)


@converter("SELECT_V2")
def select_v2(condition: Value, a: Value, b: Value) -> Expr:
    return op.where(condition.expr, a.expr, b.expr)
