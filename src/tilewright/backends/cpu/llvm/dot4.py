"""`dot4`, four products of bytes added to an int32, by the best instruction that the target has for it.

| target | unsigned bytes a, signed bytes b |
|---|---|
| x86 with VNNI | `vpdpbusd`, one instruction |
| other x86 | even and odd bytes widened to 16 bits, `pmaddwd` of each: `pmaddubsw` would saturate |
| aarch64 with i8mm | `usdot` |
| aarch64 with dotprod | `sdot` of a - 128, and of the constant -128 to take the difference back |
| anything else | shifts, multiplications and additions of 32 bits |

Values that depend on one operand only are computed once for all its products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tilewright.backends.cpu.llvm.text import vector

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText
    from tilewright.scalar.expr import Call, PrimExpr

_EVEN_BYTES = 0x00FF00FF
_SIGN_BITS = 0x80808080 - (1 << 32)
_PMADDWD = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
_NEEDS = {4: "sse2", 8: "avx2", 16: "avx512bw"}


def dot4(f: FunctionText, e: Call, texts: list[str], level: int) -> str:
    """Return `dot4(a, b, total)` of `e`, given the texts of its operands at `level`; the result has the lanes of `e`.
    """
    lanes, features = e.dtype.lanes, f.target.features
    if f.target.family == "x86" and lanes in _PMADDWD:
        if "avx512vnni" in features or (lanes < 16 and "avxvnni" in features):
            return _by_bytes(f, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", texts, lanes, level)
        if _NEEDS[lanes] in features:
            return _by_halves(f, e, texts, level)
    if f.target.family == "aarch64" and lanes == 4:
        if "i8mm" in features:
            return _by_bytes(f, "llvm.aarch64.neon.usdot.v4i32.v16i8", texts, lanes, level)
        if "dotprod" in features:
            return _signed(f, e, texts, level)
    return _by_shifts(f, e, texts[2], level)


def _by_bytes(f: FunctionText, name: str, texts: list[str], lanes: int, level: int) -> str:
    """Write one instruction on two vectors of bytes and one of sums."""
    wide, bytes_ = vector("i32", lanes), vector("i8", 4 * lanes)
    callee = f.declare(name, wide, f"{wide}, {bytes_}, {bytes_}")
    a, b = (f.put(f"bitcast {wide} {t} to {bytes_}", level) for t in texts[:2])
    return f.put(f"call {wide} {callee}({wide} {texts[2]}, {bytes_} {a}, {bytes_} {b})", level)


def _by_halves(f: FunctionText, e: Call, texts: list[str], level: int) -> str:
    """Write total + (a0*b0 + a2*b2) + (a1*b1 + a3*b3), with the bytes as 16-bit integers."""
    lanes = e.dtype.lanes
    wide, half = vector("i32", lanes), vector("i16", 2 * lanes)
    callee = f.declare(f"llvm.x86.{_PMADDWD[lanes]}", wide, f"{half}, {half}")
    total = texts[2]
    for odd in (False, True):
        a = once(f, e.args[0], ("unsigned", odd), partial(_unsigned_half, f, lanes, odd))
        b = once(f, e.args[1], ("signed", odd), partial(_signed_half, f, lanes, odd))
        products = f.put(f"call {wide} {callee}({half} {a}, {half} {b})", level)
        total = f.put(f"add {wide} {total}, {products}", level)
    return total


def _unsigned_half(f: FunctionText, lanes: int, odd: bool, text: str, level: int) -> str:
    wide, half = vector("i32", lanes), vector("i16", 2 * lanes)
    if odd:
        text = f.put(f"lshr {wide} {text}, splat (i32 8)", level)
    kept = f.put(f"and {wide} {text}, splat (i32 {_EVEN_BYTES})", level)
    return f.put(f"bitcast {wide} {kept} to {half}", level)


def _signed_half(f: FunctionText, lanes: int, odd: bool, text: str, level: int) -> str:
    half = vector("i16", 2 * lanes)
    moved = f.put(f"bitcast {vector('i32', lanes)} {text} to {half}", level)
    if not odd:
        moved = f.put(f"shl {half} {moved}, splat (i16 8)", level)
    return f.put(f"ashr {half} {moved}, splat (i16 8)", level)


def _signed(f: FunctionText, e: Call, texts: list[str], level: int) -> str:
    """Write sdot(total, a - 128, b) - sdot(0, -128, b)."""
    callee = f.declare("llvm.aarch64.neon.sdot.v4i32.v16i8", "<4 x i32>", "<4 x i32>, <16 x i8>, <16 x i8>")

    def moved(text: str, at: int) -> str:
        return f.put(f"xor <4 x i32> {text}, splat (i32 {_SIGN_BITS})", at)

    def excess(text: str, at: int) -> str:
        b = f.put(f"bitcast <4 x i32> {text} to <16 x i8>", at)
        return f.put(
            f"call <4 x i32> {callee}(<4 x i32> zeroinitializer, <16 x i8> splat (i8 -128), <16 x i8> {b})", at)

    a = once(f, e.args[0], "moved", moved)
    more = once(f, e.args[1], "excess", excess)
    products = _by_bytes(f, "llvm.aarch64.neon.sdot.v4i32.v16i8", [a, texts[1], texts[2]], 4, level)
    return f.put(f"sub <4 x i32> {products}, {more}", level)


def _by_shifts(f: FunctionText, e: Call, total: str, level: int) -> str:
    lanes = e.dtype.lanes
    wide = vector("i32", lanes)

    def number(value: int) -> str:
        return str(value) if lanes == 1 else f"splat (i32 {value})"

    def unsigned(k: int, text: str, at: int) -> str:
        return f.put(f"and {wide} {f.put(f'lshr {wide} {text}, {number(8 * k)}', at)}, {number(255)}", at)

    def signed(k: int, text: str, at: int) -> str:
        return f.put(f"ashr {wide} {f.put(f'shl {wide} {text}, {number(24 - 8 * k)}', at)}, {number(24)}", at)

    for k in range(4):
        a = once(f, e.args[0], ("unsigned", k), partial(unsigned, k))
        b = once(f, e.args[1], ("signed", k), partial(signed, k))
        total = f.put(f"add {wide} {total}, {f.put(f'mul {wide} {a}, {b}', level)}", level)
    return total


def once(f: FunctionText, operand: PrimExpr, what: object, make: Callable[[str, int], str]) -> str:
    """Return the name of the value that `make` writes for the text of an operand at a level; it is written once."""
    key = (dot4, operand, what)
    known = f.known(key, operand)
    if known is None:
        text, need = f.value(operand)
        level = f.place(need)
        known = make(text, level), level
        f.remember(key, known, operand)
    return known[0]
