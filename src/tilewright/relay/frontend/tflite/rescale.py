"""Rescaling with the rounding of TensorFlow Lite's reference kernels, shared by the converters of integer operators.

Scales are products and quotients of float32 numbers in float64, as the kernels compute them. `qnn.requantize` with
rounding TFLITE converts them to fixed-point multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.base.types import DataType
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.model import Tensor
from tilewright.relay.frontend.tflite.node import Node, constant, scale_of, zero_point_of
from tilewright.relay.frontend.tflite.schema import ACTIVATIONS
from tilewright.relay.qnn.numerics import twice_rounded_graph
from tilewright.relay.types_of import dtype_of

Array = np.ndarray[Any, Any]

_BOUNDS: Final[dict[str, tuple[float | None, float | None]]] = {
    "NONE": (None, None), "RELU": (0.0, None), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
"""Lower and upper bounds of fused activations."""
_INTEGERS: Final = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_LARGEST: Final = float(1 << 31)
"""Upper bound of a fixed-point multiplier."""


def requantize(x: Expr, scale: float | Sequence[float] | Array, to: float, zero_point: int, dtype: str, axis: int = -1,
               rounding: str = "TFLITE") -> Expr:
    """Requantize int32 or int64 numbers of `scale` to `to`, add `zero_point`, and clip to the range of `dtype`.

    Raises `ModelError` if the quotient of the scales is not a valid fixed-point multiplier.
    """
    scales = np.asarray(scale, np.float64)
    if not (np.abs(scales) < to * _LARGEST).all():
        raise ModelError(f"a scale of {scales.flat[np.argmax(np.abs(scales))]:g} cannot be converted to the scale "
                         f"{to:g} in fixed point; the file is damaged: convert it again", code="TW0107")
    return op.qnn.requantize(
        x, Constant(scales.reshape(()) if scales.size == 1 else scales), constant(0, "int32"), constant(to, "float64"),
        constant(zero_point, "int32"), axis=axis, rounding=rounding, out_dtype=dtype)


def open_requantize(x: Expr, scale: Array, t: Tensor, axis: int) -> Expr:
    """Requantize int32 sums of `scale` to a tensor's type; the attribute `numerics` of `main` selects the rounding."""
    scales = np.asarray(scale, np.float32)
    return op.qnn.requantize(
        x, Constant(scales.reshape(()) if scales.size == 1 else scales), constant(0, "int32"),
        constant(scale_of(t), "float32"), constant(zero_point_of(t), "int32"), axis=axis, out_dtype=DataType(t.dtype))


def to_output(x: Expr, scale: float | Sequence[float] | Array, t: Tensor, axis: int = -1,
              rounding: str = "TFLITE") -> Expr:
    """Requantize to the type, scale and zero point of a tensor."""
    return requantize(x, scale, scale_of(t), zero_point_of(t), t.dtype, axis, rounding)


def rescaled(x: Expr, factor: float) -> Expr:
    """int32 `x` times a real factor in fixed point: int32."""
    return requantize(x, factor, 1.0, 0, "int32")


def by_fixed_point(x: Expr, multiplier: int, exponent: int) -> Expr:
    """int32 `x` times `multiplier * 2^(exponent - 31)`, rounded twice: int32."""
    one = np.asarray(multiplier, np.int64)
    return twice_rounded_graph(x, one, np.asarray(max(exponent, 0)), np.asarray(31 + max(-exponent, 0)), None)


def centred(x: Expr, zero_point: int, dtype: str = "int32") -> Expr:
    """`x - zero_point`."""
    wide = cast(x, dtype)
    return op.subtract(wide, constant(zero_point, dtype)) if zero_point else wide


def limits(dtype: str) -> tuple[int, int]:
    """Smallest and largest integer of a type; raises `ModelError` if a quantized result cannot have it."""
    if dtype not in _INTEGERS:
        raise ModelError(f"its result has the type {dtype}, but a quantized result must be integers; the file is "
                         "damaged: convert it again", code="TW0103")
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def place(number: float, scale: float, zero_point: int) -> int:
    """Quantize a number: divide in float32, round half away from zero."""
    quotient = float(np.float32(number) / np.float32(scale))
    return zero_point + round_away(quotient)


def round_away(x: float) -> int:
    """Round to the nearest integer, half away from zero."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x)) if abs(x) < 1 << 52 else int(x)


def saturated(x: Expr, zero_point: int, dtype: str) -> Expr:
    """int32 numbers plus a zero point, clipped to the range of `dtype`."""
    low, high = limits(dtype)
    moved = op.add(x, constant(zero_point, "int32")) if zero_point else x
    return cast(op.clip(moved, a_min=low, a_max=high), dtype)


def activate(x: Expr, code: int, node: Node) -> Expr:
    """Apply the fused activation of an operator to its result."""
    name = ACTIVATIONS[code] if 0 <= code < len(ACTIVATIONS) else str(code)
    if name == "TANH" and dtype_of(x).is_float:
        return op.tanh(x)
    if name not in _BOUNDS:
        node.refuse(f"its activation {name} is not supported; the activations are {', '.join(_BOUNDS)}, and TANH for "
                    "floats")
    return bounded(x, name, node.output)


def bounded(x: Expr, name: str, t: Tensor) -> Expr:
    """Clip to the bounds of an activation, quantized if `t` has a scale."""
    low, high = _BOUNDS[name]
    kind = dtype_of(x)
    if low is None:
        return x
    if name == "RELU" and kind.is_float:
        return op.nn.relu(x)
    least: Any
    most: Any
    if kind.is_float:
        least, most = low, high
    elif t.quantization is not None and any(t.quantization.scales) and str(kind) == t.dtype:
        scale, zero_point = scale_of(t), zero_point_of(t)
        first, last = limits(t.dtype)
        least = max(first, place(low, scale, zero_point))
        most = last if high is None else min(last, place(high, scale, zero_point))
        if (least, most) == (first, last):
            return x
    else:
        least, most = int(low), limits(str(kind))[1] if high is None else int(high)
    return op.clip(x, a_min=least, a_max=most)
