"""Functions of 8-bit and 16-bit numbers as lookup tables, which is how TensorFlow Lite computes most of them.

An 8-bit table has 256 entries. A 16-bit table has 513 entries over the whole range, with linear interpolation between
them. All steps are in float32, so that each entry is identical to the original.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.frontend.tflite.model import Tensor
from tilewright.relay.frontend.tflite.node import Value, constant, scale_of, zero_point_of
from tilewright.relay.frontend.tflite.rescale import limits

Array = np.ndarray[Any, Any]
Function = Callable[[Array], Array]

_STEPS: Final = 512


def away_from_zero(x: Array) -> Array:
    """Round to the nearest integer, half away from zero, in the type of `x`."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(np.ones_like(x), x), np.zeros_like(x))


def by_table(x: Value, table: Array) -> Expr:
    """`table[x - lowest]` for data of 8 or 16 bits."""
    low = limits(x.dtype)[0]
    index = cast(x.expr, "int32")
    return op.take(Constant(table), op.subtract(index, constant(low, "int32")) if low else index, mode="fast")


def numbers(x: Value) -> Array:
    """The float32 numbers for all values of 8-bit or 16-bit data, from the lowest on."""
    low, high = limits(x.dtype)
    return np.float32(x.scale) * (np.arange(low, high + 1) - x.zero_point).astype(np.float32)


def stored(values: Array, t: Tensor) -> Array:
    """Quantize float32 numbers to the scale of `t` by multiplying with its reciprocal."""
    scaled = values * (np.float32(1) / np.float32(scale_of(t)))
    low, high = limits(t.dtype)
    whole = away_from_zero(np.nan_to_num(scaled.astype(np.float32), nan=0.0, posinf=1e9, neginf=-1e9))
    found: Array = np.clip(whole.astype(np.float64) + zero_point_of(t), low, high).astype(t.dtype)
    return found


def truncated(values: Array, t: Tensor) -> Array:
    """Quantize float32 numbers to the scale of `t`, truncating before the zero point is added."""
    low, high = limits(t.dtype)
    found: Array = np.clip(np.trunc(values / np.float32(scale_of(t))) + zero_point_of(t), low, high).astype(t.dtype)
    return found


def function_of(x: Value, t: Tensor, function: Function) -> Expr:
    """A function of quantized 8- or 16-bit data. `function` maps float64 numbers that are exact in float32."""
    if x.dtype == "int16":
        return interpolated(cast(x.expr, "int32"), sampled(x, t, function))
    with np.errstate(all="ignore"):
        return by_table(x, stored(function(numbers(x).astype(np.float64)).astype(np.float32), t))


def sampled(x: Value, t: Tensor, function: Function) -> Array:
    """The 513-entry table for 16-bit data: entries are shifted by half the midpoint error of their interval."""
    low, high = limits("int16")
    scale, zero = np.float32(x.scale), x.zero_point
    least, most = scale * np.float32(low - zero), scale * np.float32(high - zero)
    out_scale, out_zero = np.float32(scale_of(t)), zero_point_of(t)
    out_least, out_most = out_scale * np.float32(low - out_zero), out_scale * np.float32(high - out_zero)
    return interpolation_table(function, least, most, out_least, out_most)


def interpolation_table(function: Function, least: Any, most: Any, out_least: Any, out_most: Any,
                        single: Any = np.float32) -> Array:
    """513 int16 values of a function between two numbers for linear interpolation, in the precision `single`."""
    step = (most - least) / single(_STEPS)
    half = step / single(2)
    inverse = single(65536) / (out_most - out_least)
    with np.errstate(all="ignore"):
        k = np.arange(_STEPS).astype(single)

        def at(x: Array) -> Array:
            return function(x.astype(np.float64)).astype(single)

        here = at(least + k * step)
        value = away_from_zero(here * inverse)
        middle = away_from_zero(at(least + k * step + half) * inverse)
        line = away_from_zero((at(least + (k + single(1)) * step) * inverse + value) / single(2))
        moved = away_from_zero((line - middle) / single(2))
        last = away_from_zero(at(np.asarray([most])) * inverse)
    return np.concatenate([np.clip(value - moved, -32768, 32767), np.clip(last, -32768, 32767)]).astype(np.int16)


def interpolated(x: Expr, table: Array) -> Expr:
    """Look up 16-bit numbers (as int32) in a 513-entry table with linear interpolation: int16."""
    place = op.add(x, constant(32768, "int32"))
    index = op.right_shift(place, constant(7, "int32"))
    offset = op.bitwise_and(place, constant(127, "int32"))
    wide = Constant(table.astype(np.int32))
    base = op.take(wide, index, mode="fast")
    slope = op.subtract(op.take(wide, op.add(index, constant(1, "int32")), mode="fast"), base)
    delta = op.right_shift(op.add(op.multiply(slope, offset), constant(64, "int32")), constant(7, "int32"))
    return cast(op.add(base, delta), "int16")
