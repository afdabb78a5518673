"""Conversions of ONNX's Cast: small float types saturate, and exponents have three rounding modes."""

from __future__ import annotations

from typing import Final

import ml_dtypes

from tilewright.base.types import FLOAT32, INT32, MINIFLOATS, DataType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.types_of import dtype_of, scalar

_SATURATING: Final = frozenset({"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})
"""Types with an infinity or NaN, for which saturation is optional."""
EXPONENTS: Final = DataType("float8_e8m0fnu")
_BIAS, _SPECIAL, _LAST = 23, 0xFF, 0xFE
_NIBBLES: Final = {"int4": (-8.0, 7.0), "uint4": (0.0, 15.0)}
_NIBBLES_WRAP_SINCE: Final = 24
"""First opset in which ONNX's reference drops the high bits in conversions to 4 bits, instead of saturating."""


def converted(x: Expr, to: DataType, saturate: bool, round_mode: str, node: Node) -> Expr:
    """Convert `x` like Cast, CastLike and QuantizeLinear do."""
    if dtype_of(x) is to:
        return x
    if to is EXPONENTS:
        return _exponent(x, saturate, round_mode, node)
    if saturate and to in _SATURATING and not (dtype_of(x).code in MINIFLOATS and dtype_of(x).bits < 8):
        real = x if dtype_of(x).bits >= 32 and dtype_of(x).is_float else cast(x, FLOAT32)
        most = float(ml_dtypes.finfo(to.numpy()).max)  # type: ignore[no-untyped-call]
        return cast(op.clip(real, a_min=-most, a_max=most), to)
    if to in _NIBBLES and dtype_of(x).is_float and node.opset < _NIBBLES_WRAP_SINCE:
        least, most = _NIBBLES[str(to)]
        return cast(op.clip(x, a_min=least, a_max=most), to)
    return cast(x, to)


def _exponent(x: Expr, saturate: bool, round_mode: str, node: Node) -> Expr:
    """The exponent of a float32, plus one if its fraction rounds up; the sign is ignored."""
    if round_mode not in ("up", "down", "nearest"):
        node.refuse(f"round_mode is {round_mode!r}; it must be up, down or nearest")
    bits = op.reinterpret(cast(x, FLOAT32), dtype=INT32)
    exponent = op.bitwise_and(op.right_shift(bits, scalar(_BIAS, bits)), scalar(0xFF, bits))
    if round_mode != "down":
        fraction = op.bitwise_and(bits, scalar((1 << _BIAS) - 1, bits))
        half = 1 << (_BIAS - 1)
        rises = op.greater(fraction, scalar(0 if round_mode == "up" else half, bits))
        if round_mode == "nearest":  # the least number is subnormal, so half-way values stay
            rises = op.logical_or(rises, op.logical_and(op.equal(fraction, scalar(half, bits)),
                op.greater(exponent, scalar(0, bits))))
        last = _LAST if saturate else _SPECIAL
        exponent = op.where(op.logical_and(rises, op.less(exponent, scalar(last, bits))),
                            op.add(exponent, scalar(1, bits)), exponent)
    return op.reinterpret(cast(exponent, "uint8"), dtype=EXPONENTS)
