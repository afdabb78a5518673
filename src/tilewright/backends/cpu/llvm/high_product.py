"""`high_product`: half of the bits of a product of 32-bit numbers plus a 64-bit number.

x86 multiplies the even 32-bit lanes of two vectors to 64-bit products (`vpmuldq`). So even and odd lanes are multiplied
separately, without moving lanes first. Elsewhere lanes are widened, multiplied and narrowed, for which AArch64 has
instructions (`smull`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tilewright.backends.cpu.llvm.dot4 import once
from tilewright.backends.cpu.llvm.text import vector
from tilewright.scalar import intrinsics as I

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText
    from tilewright.scalar.expr import Call

_HALVED = (4, 8, 16)


def high_product(f: FunctionText, e: Call, texts: list[str], level: int) -> str:
    """Return the call `e`, given the texts of its operands, at `level`."""
    shift = 31 if e.op is I.doubled_high_product else 32
    if f.target.family == "x86" and e.dtype.lanes in _HALVED:
        return _by_halves(f, e, texts, shift, level)
    return _widened(f, e.dtype.lanes, texts, shift, level)


def _widened(f: FunctionText, lanes: int, texts: list[str], shift: int, level: int) -> str:
    narrow, wide = vector("i32", lanes), vector("i64", lanes)
    a, b = (f.put(f"sext {narrow} {t} to {wide}", level) for t in texts[:2])
    total = f.put(f"add {wide} {f.put(f'mul {wide} {a}, {b}', level)}, {texts[2]}", level)
    moved = f.put(f"lshr {wide} {total}, {shift if lanes == 1 else f'splat (i64 {shift})'}", level)
    return f.put(f"trunc {wide} {moved} to {narrow}", level)


def _by_halves(f: FunctionText, e: Call, texts: list[str], shift: int, level: int) -> str:
    lanes = e.dtype.lanes
    narrow, wide = vector("i32", lanes), vector("i64", lanes // 2)
    totals = []
    for odd in (False, True):
        a, b = (_signed_half(f, lanes, odd, t, level) for t in texts[:2])
        addend = once(f, e.args[2], ("addend", odd), functools.partial(_addend_half, f, lanes, odd))
        totals.append(f.put(f"add {wide} {f.put(f'mul {wide} {a}, {b}', level)}, {addend}", level))
    if shift == 31:
        totals = [
            f.put(f"{how} {wide} {t}, splat (i64 {by})", level)
            for t, how, by in zip(totals, ("lshr", "shl"), (31, 1), strict=True)]
    even, other = (f.put(f"bitcast {wide} {t} to {narrow}", level) for t in totals)
    places = ", ".join(f"i32 {lane + (shift == 32) if lane % 2 == 0 else lane + lanes}" for lane in range(lanes))
    return f.put(f"shufflevector {narrow} {even}, {narrow} {other}, <{lanes} x i32> <{places}>", level)


def _signed_half(f: FunctionText, lanes: int, odd: bool, text: str, level: int) -> str:
    """Return the even or odd lanes as 64-bit numbers.

    LLVM recognizes the instruction by the shifts down to the sign, which cost nothing and must be next to it.
    """
    wide = vector("i64", lanes // 2)
    moved = f.put(f"bitcast {vector('i32', lanes)} {text} to {wide}", level)
    if not odd:
        moved = f.put(f"shl {wide} {moved}, splat (i64 32)", level)
    return f.put(f"ashr {wide} {moved}, splat (i64 32)", level)


def _addend_half(f: FunctionText, lanes: int, odd: bool, text: str, level: int) -> str:
    whole = vector("i64", lanes)
    places = ", ".join(f"i32 {lane}" for lane in range(int(odd), lanes, 2))
    return f.put(f"shufflevector {whole} {text}, {whole} poison, <{lanes // 2} x i32> <{places}>", level)
