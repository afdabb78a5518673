"""Types, constants, names and comments in C.

`float16` and `bfloat16` are their bits in `uint16_t`: they are widened where they are read and rounded where they are
written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container
from typing import Final

import ml_dtypes
import numpy as np

from tilewright.backends.cpu.c.helpers import is_helper
from tilewright.base.errors import CompileError
from tilewright.base.types import DataType

_TYPES: Final = {"float32": "float", "float64": "double", "bool": "bool", "float16": "uint16_t", "bfloat16": "uint16_t"}
SUFFIX: Final = {"float": "f32", "double": "f64", "bool": "bool"}
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]+")
_RESERVED: Final = """
    auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    _Bool _Complex _Imaginary bool true false main alignas alignof and and_eq asm bitand bitor catch char16_t
    char32_t class compl const_cast constexpr decltype delete dynamic_cast explicit export friend mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast
    static_assert static_cast template this thread_local throw try typeid typename using virtual wchar_t xor
    xor_eq
"""
_NAMED: Final = """
    acos asin atan cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 expm1 log log10 log1p log2 logb pow
    sqrt cbrt hypot erf erfc tgamma lgamma ceil floor nearbyint rint lrint round lround trunc fmod remainder
    copysign nan nextafter fdim fmax fmin fma fabs frexp ldexp modf scalbn ilogb y0 y1 yn j0 j1 jn gamma signgam
    memcpy memset memcmp memmove malloc free strlen index NAN INFINITY HUGE_VAL isnan isinf signbit linux unix
"""
_KEYWORDS: Final = frozenset(_RESERVED.split())
"""Keywords of C, and of C++, whose programs include the header of a model."""
MATHEMATICS: Final = frozenset(name + end for name in _NAMED.split() for end in ("", "f"))
"""Names in `math.h` and `string.h`, with the functions of floats."""


def c_type(dtype: DataType) -> str:
    """Return the C type of a scalar. Raises `CompileError` for types without a C form: 4 bits, or 8-bit floats."""
    known = _TYPES.get(str(dtype))
    if known is None and dtype.lanes == 1 and dtype.code in ("int", "uint") and dtype.bits in (8, 16, 32, 64):
        known = f"{dtype.code}{dtype.bits}_t"
    if known is None:
        raise CompileError(f"the C back end has no type for {dtype}: it has bool, integers of 8 to 64 bits, float16, "
        "bfloat16, float32 and float64; convert the value, or build for 'llvm'", code="TW0510")
    return known


def suffix(dtype: DataType) -> str:
    """Return the end of the names of functions of a type: `f32`, `i64`, `u8`."""
    kind = c_type(dtype)
    return SUFFIX.get(kind) or kind.replace("uint", "u").replace("int", "i").removesuffix("_t")


def constant(value: int | float, dtype: DataType) -> str:
    """Return a constant, exactly."""
    name = str(dtype)
    if name == "float16":
        return f"0x{int(np.float16(value).view(np.uint16)):04X}"
    if name == "bfloat16":
        return f"0x{int(np.asarray(value, ml_dtypes.bfloat16).view(np.uint16)):04X}"
    if dtype.is_float:
        return real(float(value), name)
    return whole(int(value), dtype)


def real(value: float, name: str) -> str:
    """Return a float or double in the fewest decimal digits that round-trip."""
    if math.isnan(value):
        return "NAN" if name == "float32" else "(double)NAN"
    if math.isinf(value):
        text = "INFINITY" if name == "float32" else "(double)INFINITY"
        return text if value > 0 else f"-{text}"
    text = str(np.float32(value)) if name == "float32" else repr(value)
    if "e" not in text and "." not in text:
        text += ".0"
    return f"{text}f" if name == "float32" else text


def hexadecimal(value: float, name: str) -> str:
    """Return a float in hexadecimal, which is exact, for arrays of constants."""
    if not math.isfinite(value):
        return real(value, name)
    if value == 0:
        text = "-0.0" if math.copysign(1, value) < 0 else "0.0"
    else:
        mantissa, _, exponent = float(value).hex().partition("p")
        text = f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"
    return f"{text}f" if name == "float32" else text


def whole(value: int, dtype: DataType) -> str:
    """Return an integer or boolean constant of its type."""
    if dtype.code == "bool":
        return "true" if value else "false"
    value &= (1 << dtype.bits) - 1
    if dtype.code == "uint":
        return f"UINT64_C({value})" if dtype.bits == 64 else f"{value}u"
    value -= (1 << dtype.bits) if value >> (dtype.bits - 1) else 0
    if value == -(1 << (dtype.bits - 1)) and dtype.bits >= 32:
        return f"INT{dtype.bits}_MIN"
    return str(value) if -(1 << 31) < value < 1 << 31 else f"INT64_C({value})"


def identifier(name: str, taken: Container[str] = ()) -> str:
    """Return `name` as a C identifier that is not in `taken`, not a keyword, and not a name of the included headers."""
    clean = _UNSAFE.sub("_", name).strip("_") or "x"
    if clean[0].isdigit():
        clean = f"x{clean}"
    if clean in _KEYWORDS or clean in MATHEMATICS or is_helper(clean) or clean.startswith((
        "int8", "int16", "int32", "int64", "uint", "INT", "UINT"
    )):
        clean += "_"
    found, k = clean, 1
    while found in taken:
        k += 1
        found = f"{clean.rstrip('_')}_{k}"
    return found


def comment(said: object) -> str:
    """Return a comment line, such as the name of a node, in printable letters."""
    plain = "".join(c if c.isprintable() else " " for c in str(said))
    return f"/* {plain.replace('*/', '* /').replace('/*', '/ *').replace('??', '? ?')} */"
