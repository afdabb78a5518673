"""Conversions between floats of a byte or less and `float`, in integer arithmetic, exactly as the formats define them.

A format is a sign, `exponent` bits with a bias, and `mantissa` bits; the largest codes may be infinity and NaN.
Rounding is to nearest, ties to even. Overflow gives infinity, NaN where the format has no infinity, and the largest
number where it has neither. `float8_e8m0fnu` is only an exponent.

Formats: OCP 8-bit Floating Point (E4M3, E5M2), OCP Microscaling Formats (E2M1, E2M3, E3M2, E8M0), and the FNUZ variants
of arXiv:2206.02915.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu.llvm.text import register_type
from tilewright.base.types import BOOL, FLOAT32, DataType

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText

INT32: Final = DataType("int32")
_EXPONENT: Final = 0x7F800000
_NAN: Final = 0x7FC00000
_MINUS_NAN: Final = 0xFFC00000


@dataclass(frozen=True, slots=True)
class _Format:
    """A format. Codes have no sign bit: `largest` is the largest number, `overflow` the code above it, `nan` NaN or -1.

    In a `single_zero` format the code of minus zero is NaN.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    single_zero: bool = False

    @property
    def width(self) -> int:
        """Bits without the sign."""
        return self.exponent + self.mantissa


FORMATS: Final = {
    "float8_e4m3fn": _Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": _Format(4, 3, 8, 0x7F, 0x80, 0x80, True),
    "float8_e5m2": _Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": _Format(5, 2, 16, 0x7F, 0x80, 0x80, True),
    "float6_e2m3fn": _Format(2, 3, 1, 0x1F, 0x1F, -1),
    "float6_e3m2fn": _Format(3, 2, 3, 0x1F, 0x1F, -1),
    "float4_e2m1fn": _Format(2, 1, 1, 7, 7, -1),
}


class _Integers:
    """Arithmetic on 32-bit integers of some lanes at one place of a function."""

    def __init__(self, f: FunctionText, level: int, lanes: int) -> None:
        self.f, self.level, self.lanes = f, level, lanes
        self.kind, self.real = register_type(INT32.with_lanes(lanes)), register_type(FLOAT32.with_lanes(lanes))

    def __call__(self, operation: str, a: str, b: str | int) -> str:
        other = b if isinstance(b, str) else self.number(b)
        return self.f.put(f"{operation} {self.kind} {a}, {other}", self.level)

    def number(self, value: int) -> str:
        return str(value) if self.lanes == 1 else f"splat (i32 {value})"

    def select(self, condition: str, yes: str | int, no: str | int) -> str:
        a, b = (x if isinstance(x, str) else self.number(x) for x in (yes, no))
        return self.f.put(
            f"select {register_type(BOOL.with_lanes(self.lanes))} {condition}, {self.kind} {a}, {self.kind} {b}",
            self.level)

    def as_real(self, bits: str) -> str:
        return self.f.put(f"bitcast {self.kind} {bits} to {self.real}", self.level)

    def as_bits(self, real: str) -> str:
        return self.f.put(f"bitcast {self.real} {real} to {self.kind}", self.level)

    def of_reals(self, operation: str, a: str, bits: int) -> str:
        """Combine a float and a constant, given as bits."""
        return self.f.put(f"{operation} {self.real} {a}, {self.as_real(self.number(bits))}", self.level)


def widen_small(f: FunctionText, text: str, level: int, dtype: DataType) -> str:
    """Return the bits of a small float as a `float`, which represents all of them."""
    i = _Integers(f, level, dtype.lanes)
    bits = f.put(f"zext {register_type(dtype)} {text} to {i.kind}", level)
    if dtype.code == "float8_e8m0fnu":
        least = i.select(i("icmp eq", bits, 0), 0x00400000, i("shl", bits, 23))
        return i.as_real(i.select(i("icmp eq", bits, 0xFF), _NAN, least))
    form = FORMATS[dtype.code]
    magnitude = i("and", bits, (1 << form.width) - 1)
    moved = i.as_real(i("shl", magnitude, 23 - form.mantissa))
    result = i.as_bits(i.of_reals("fmul", moved, (254 - form.bias) << 23))
    if dtype.code == "float8_e5m2":
        result = i.select(i("icmp ugt", magnitude, form.largest), i("or", result, _EXPONENT), result)
    elif form.nan >= 0 and not form.single_zero:
        result = i.select(i("icmp eq", magnitude, form.nan), _NAN, result)
    signed = i("or", result, i("shl", i("lshr", bits, form.width), 31))
    return i.as_real(i.select(i("icmp eq", bits, form.nan), _MINUS_NAN, signed) if form.single_zero else signed)


def narrow_small(f: FunctionText, text: str, level: int, dtype: DataType) -> str:
    """Return a `float` rounded to a small float, as its bits."""
    i = _Integers(f, level, dtype.lanes)
    bits = i.as_bits(text)
    magnitude = i("and", bits, 0x7FFFFFFF)
    result = (
        _exponent_code(i, bits) if dtype.code == "float8_e8m0fnu"
        else _signed_code(i, FORMATS[dtype.code], bits, magnitude)
    )
    return f.put(f"trunc {i.kind} {result} to {register_type(dtype)}", level)


def _signed_code(i: _Integers, form: _Format, bits: str, magnitude: str) -> str:
    cut = 23 - form.mantissa
    odd = i("and", i("lshr", magnitude, cut), 1)
    rebased = i("add", magnitude, ((form.bias - 127) << 23) + (1 << (cut - 1)) - 1)
    normal = i("lshr", i("add", rebased, odd), cut)
    # Adding a number whose last bit is that of the smallest subnormal makes the float unit round there.
    magic = (151 - form.bias - form.mantissa) << 23
    small = i("sub", i.as_bits(i.of_reals("fadd", i.as_real(magnitude), magic)), magic)
    code = i.select(i("icmp ult", magnitude, (128 - form.bias) << 23), small, normal)
    code = i.select(i("icmp ugt", code, form.largest), form.overflow, code)
    nan = i("icmp ugt", magnitude, _EXPONENT)
    sign = i("shl", i("lshr", bits, 31), form.width)
    if form.single_zero:
        code = i.select(nan, form.nan, code)
        return i.select(i("icmp eq", i("and", code, form.largest), 0), code, i("or", code, sign))
    if form.nan < 0:  # formats without NaN encode it as zero of the other sign
        return i.select(nan, i("xor", sign, 1 << form.width), i("or", code, sign))
    return i("or", i.select(nan, form.nan, code), sign)


def _exponent_code(i: _Integers, bits: str) -> str:
    """Return the nearest power of two, the larger one in ties; NaN for zero, negative numbers, infinity and NaN."""
    normal = i("lshr", i("add", bits, 0x400000), 23)
    code = i.select(i("icmp ult", bits, 0x00800000), i.select(i("icmp ugt", bits, 0x00400000), 1, 0), normal)
    has = i("icmp ult", i("sub", bits, 1), _EXPONENT - 1)
    return i.select(has, code, 0xFF)


def narrow_double(f: FunctionText, text: str, level: int, lanes: int) -> str:
    """Return a double as a `float` that rounds as the double does: its last bit tells whether bits were cut off."""
    i = _Integers(f, level, lanes)
    double, wide = register_type(
        DataType("float64").with_lanes(lanes)
    ), register_type(DataType("int64").with_lanes(lanes))
    near = f.put(f"fptrunc {double} {text} to {i.real}", level)
    back = f.put(f"fpext {i.real} {near} to {double}", level)
    truth = register_type(BOOL.with_lanes(lanes))
    mask = "9223372036854775807" if lanes == 1 else "splat (i64 9223372036854775807)"
    sizes = [
        f.put(f"and {wide} {f.put(f'bitcast {double} {x} to {wide}', level)}, {mask}", level) for x in (text, back)]
    larger = f.put(f"icmp ugt {wide} {sizes[1]}, {sizes[0]}", level)
    differs = f.put(f"icmp ne {wide} {sizes[1]}, {sizes[0]}", level)
    bits = i.as_bits(near)
    odd = i("or", i("sub", bits, f.put(f"zext {truth} {larger} to {i.kind}", level)), 1)
    exact = f.put(
        f"or {truth} {f.put(f'fcmp uno {double} {text}, {text}', level)}, "
        f"{f.put(f'xor {truth} {differs}, {_true(lanes)}', level)}",
        level)
    return i.as_real(i.select(exact, bits, odd))


def _true(lanes: int) -> str:
    return "true" if lanes == 1 else "splat (i1 true)"
