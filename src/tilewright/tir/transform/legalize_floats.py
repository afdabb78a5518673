"""Make programs over bfloat16, and over floats of 8 bits, programs over wider floats and integers.

    BF16ComputeLegalize     bfloat16 is computed in float32; it is rounded to the nearest value where it is stored
    BF16StorageLegalize     memory of bfloat16 becomes memory of uint16
    FP8ComputeLegalize      8-bit floats are computed in float16 or float32
    FP8StorageLegalize      memory of 8-bit floats becomes memory of uint8

The rewrites are in `narrow_floats.py`. Infinities and canonical NaNs are kept. A NaN whose fraction has only ones in
the upper half may become a zero, since rounding adds to its bits.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.scalar.expr import BITWISE_AND, SHIFT_LEFT, SHIFT_RIGHT, PrimExpr, add, bitwise, cast, const
from tilewright.tir.functions import reinterpret
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.transform.narrow_floats import Format, compute_legalized, storage_legalized


def _typed(name: str, like: PrimExpr) -> DataType:
    return DataType(name).with_lanes(like.dtype.lanes)


def _widened_bfloat16(x: PrimExpr) -> PrimExpr:
    """Return the float32 of a bfloat16, whose bits are the upper half."""
    bits = cast(_typed("uint32", x), reinterpret(_typed("uint16", x), x))
    return reinterpret(_typed("float32", x), bitwise(SHIFT_LEFT, bits, const(16, bits.dtype)))


def _upper_bits(x: PrimExpr, whole: str, part: str, dropped: int) -> PrimExpr:
    """Return the upper bits of a float, rounded to the nearest value, ties to even."""
    bits = reinterpret(_typed(whole, x), x)
    kind = bits.dtype
    odd = bitwise(BITWISE_AND, bitwise(SHIFT_RIGHT, bits, const(dropped, kind)), const(1, kind))
    rounded = add(bits, add(odd, const((1 << (dropped - 1)) - 1, kind)))
    return cast(_typed(part, x), bitwise(SHIFT_RIGHT, rounded, const(dropped, kind)))


def _narrowed_bfloat16(x: PrimExpr, dtype: DataType) -> PrimExpr:
    return reinterpret(dtype, _upper_bits(x, "uint32", "uint16", 16))


BFLOAT16: Final = Format(
    "BF16", lambda dtype: dtype.code == "bfloat", _widened_bfloat16, _narrowed_bfloat16, DataType("float32"))


def bf16_compute_legalize(func: PrimFunc) -> PrimFunc:
    """Compute bfloat16 in float32."""
    return compute_legalized(func, BFLOAT16)


def bf16_storage_legalize(func: PrimFunc) -> PrimFunc:
    """Store bfloat16 as uint16. Needs a program that computes in float32."""
    return storage_legalized(func, BFLOAT16)


def _widened_byte(x: PrimExpr, wide: DataType) -> PrimExpr:
    """Return the value of an 8-bit float. The bits of `float8_e5m2` are the upper half of those of float16."""
    if x.dtype.code == "float8_e5m2" and wide == "float16":
        bits = cast(_typed("uint16", x), reinterpret(_typed("uint8", x), x))
        return reinterpret(_typed("float16", x), bitwise(SHIFT_LEFT, bits, const(8, bits.dtype)))
    return cast(wide.with_lanes(x.dtype.lanes), x)


def _narrowed_byte(x: PrimExpr, dtype: DataType) -> PrimExpr:
    if dtype.code == "float8_e5m2" and x.dtype.element == "float16":
        return reinterpret(dtype, _upper_bits(x, "uint16", "uint8", 8))
    return cast(dtype, x)


def _bytes(wide: str) -> Format:
    kind = DataType(wide)
    return Format(
        "FP8", lambda dtype: dtype.code.startswith("float8"), lambda x: _widened_byte(x, kind), _narrowed_byte, kind,
        converts=True)


def fp8_compute_legalize(func: PrimFunc, wide: str) -> PrimFunc:
    """Compute 8-bit floats in `wide`, float16 or float32. Conversions round to the nearest value; all but those of
    float8_e5m2 in float16 stay casts. Raises `CompileError` for another type."""
    if wide not in ("float16", "float32"):
        raise CompileError(f"8-bit floats are computed in float16 or float32, not in {wide}", code="TW0611")
    return compute_legalized(func, _bytes(wide))


def fp8_storage_legalize(func: PrimFunc) -> PrimFunc:
    """Store 8-bit floats as uint8. Needs a program that only converts them."""
    return storage_legalized(func, _bytes("float32"))
