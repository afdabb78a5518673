"""Types, constants and names in LLVM text.

In registers `bool` is `i1`, and floats of 16 bits or fewer are their bits in an integer (arithmetic widens them to
`float`). In memory types narrower than a byte take one byte.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Final

import ml_dtypes
import numpy as np

from tilewright.base.errors import InternalError
from tilewright.base.types import MINIFLOATS, DataType
from tilewright.scalar.expr import Broadcast, FloatImm, IntImm, PrimExpr

_REGISTER: Final[dict[DataType, str]] = {}
_MEMORY: Final[dict[DataType, str]] = {}
_ELEMENTS: Final = {"float64": "double", "float32": "float", "bool": "i1", "handle": "ptr"}
_PLAIN: Final = re.compile(r"[A-Za-z$._][A-Za-z0-9$._-]*")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")
LESS: Final = '"code-generation-level"="1"'
"""Attribute of functions that LLVM compiles at its first level of code generation. Kernels with several versions have
it: at the second level they take a third longer to compile, and run no faster."""
VECTORIZED: Final = '"scalar-loops"="vectorized"'
"""Attribute of functions that LLVM's passes optimize before its code generation, above all by vectorizing loops."""
FOREIGN: Final = "; calls functions of LLVM by their names"
"""Line of a module with such calls of a user."""


def vector(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def register_type(dtype: DataType) -> str:
    """Return the type of a value of `dtype` in a register."""
    known = _REGISTER.get(dtype)
    if known is None:
        element = _ELEMENTS.get(str(dtype.element)) or f"i{dtype.bits}"
        known = _REGISTER[dtype] = vector(element, dtype.lanes)
    return known


def memory_type(dtype: DataType) -> str:
    """Return the type of a value of `dtype` in memory."""
    known = _MEMORY.get(dtype)
    if known is None:
        element = "i8" if dtype.bits < 8 else register_type(dtype.element)
        known = _MEMORY[dtype] = vector(element, dtype.lanes)
    return known


def suffix(dtype: DataType) -> str:
    """Return the part of an intrinsic's name for a register of `dtype`: `v16f32`, `i64`."""
    element = {"float32": "f32", "float64": "f64"}.get(str(dtype.element)) or register_type(dtype.element)
    return element if dtype.lanes == 1 else f"v{dtype.lanes}{element}"


def constant(e: PrimExpr) -> str | None:
    """Return the text of a constant, or of a broadcast one; None for other expressions."""
    if isinstance(e, Broadcast):
        inner = constant(e.value)
        if inner is None:
            return None
        zero = inner in ("0", "false", "0x0000000000000000")
        return "zeroinitializer" if zero else f"splat ({register_type(e.value.dtype)} {inner})"
    if isinstance(e, IntImm):
        if e.dtype.code == "bool":
            return "true" if e.value else "false"
        return str(_signed(e.value, e.dtype.bits))
    return float_constant(e.value, e.dtype) if isinstance(e, FloatImm) else None


def float_constant(value: float, dtype: DataType) -> str:
    name = str(dtype.element)
    if name == "float16":
        return str(int(np.float16(value).view(np.int16)))
    if name == "bfloat16":
        return str(int(np.asarray(value, ml_dtypes.bfloat16).view(np.int16)))
    if dtype.code in MINIFLOATS:
        return str(int(np.asarray(value, dtype.element.numpy()).view(np.uint8)))
    if math.isnan(value):
        return "0x7FF8000000000000"
    exact = float(np.float32(value)) if name == "float32" else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"


def _signed(value: int, bits: int) -> int:
    wrapped = value & ((1 << bits) - 1)
    return wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped


def lanes_constant(dtype: DataType, values: range) -> str:
    """Return a constant vector of integers."""
    element = register_type(dtype.element)
    return f"<{', '.join(f'{element} {v}' for v in values)}>"


def truth_constant(values: Sequence[bool]) -> str:
    """Return a constant vector of booleans."""
    return f"<{', '.join('i1 true' if v else 'i1 false' for v in values)}>"


def shuffle_mask(lanes: list[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"


def local_name(name: str) -> str:
    """Return `name` with the characters replaced that are invalid in LLVM's plain identifiers."""
    clean = _UNSAFE.sub("_", name)
    return clean if clean and not clean[0].isdigit() else f"v{clean}"


def symbol(name: str) -> str:
    """Return a function's name as LLVM writes it, quoted where needed."""
    if not name:
        raise InternalError("a function without a name cannot be emitted")
    if _PLAIN.fullmatch(name):
        return f"@{name}"
    return '@"' + "".join(
        c if c.isprintable() and c not in '"\\' and c.isascii() else "".join(f"\\{b:02X}" for b in c.encode())
        for c in name
    ) + '"'


def c_string(value: str) -> str:
    """Return the type and the bytes of a string that ends with a null character."""
    data = value.encode() + b"\0"
    letters = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
    return f'[{len(data)} x i8] c"{letters}"'


def comment(said: object) -> str:
    """Return a comment line, such as the name of a node; line breaks and null characters are replaced."""
    return "; " + "".join(c if c.isprintable() else " " for c in str(said))
