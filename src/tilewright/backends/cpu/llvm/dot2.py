"""Sums of products of pairs as LLVM text: `pair`, which is one load where its halves are neighbors in memory, and
`dot2`.

`dot2` is one instruction on x86 with AVX512_BF16 and on Arm with BF16. Elsewhere both halves are widened to float32, by
a shift and by a mask, and multiplied and added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu.llvm.memory import as_ramp, linear, offset, pointer
from tilewright.backends.cpu.llvm.text import register_type, vector
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Load, PrimExpr

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText, Value

_X86: Final = {16: "512", 8: "256", 4: "128"}
_ARM: Final = (4, 2)


def pair(f: FunctionText, e: E.Call) -> Value:
    """Return two 16-bit values as the halves of a 32-bit value."""
    base = _neighbours(f, *e.args)
    n = e.dtype.lanes
    wide, half = vector("i32", n), vector("i16", n)
    if base is not None:
        buffer, index = base
        text, need, rest = pointer(f, buffer, index)
        level = f.place_load(need, buffer)
        return f.put(f"load {wide}, ptr {offset(f, text, rest, 'i16', level)}, align 2", level, "pair"), level
    (low, low_at), (high, high_at) = (f.value(a) for a in e.args)
    level = f.place(max(low_at, high_at))
    shift = "16" if n == 1 else "splat (i32 16)"
    raised = f.put(f"shl {wide} {f.put(f'zext {half} {high} to {wide}', level)}, {shift}", level)
    return f.put(f"or {wide} {f.put(f'zext {half} {low} to {wide}', level)}, {raised}", level), level


def _neighbours(f: FunctionText, low: PrimExpr, high: PrimExpr) -> tuple[E.Buffer, PrimExpr] | None:
    """Return the buffer and the first index if the pairs of both arguments are adjacent in memory, else None."""
    if not (
        isinstance(low, Load) and isinstance(high, Load)
    ) or low.buffer is not high.buffer or f.mask is not None or low.buffer in f.facts.tiles:
        return None
    first, second = low.indices[0], high.indices[0]
    if low.dtype.lanes > 1:
        one, two = as_ramp(first), as_ramp(second)
        if one is None or two is None or one[1] != 2 or two[1] != 2:
            return None
        first, second = one[0], two[0]
    terms, rest = linear(E.sub(second, first))
    return (low.buffer, first) if rest == 1 and not any(terms.values()) else None


def dot2(f: FunctionText, dtype: DataType, a: str, b: str, c: str, level: int) -> str:
    """Return `c` plus the products of the halves of `a` and `b`, which are 32-bit integers; all have the lanes of
    `dtype`."""
    n, real = dtype.lanes, register_type(dtype)
    name = _instruction(f, n)
    if name is None:
        low = _multiply_add(f, dtype, _low(f, a, n, level), _low(f, b, n, level), c, level)
        return _multiply_add(f, dtype, _high(f, a, n, level), _high(f, b, n, level), low, level)
    pairs = vector("bfloat", 2 * n)
    callee = f.declare(name, real, f"{real}, {pairs}, {pairs}")
    x, y = (f.put(f"bitcast {vector('i32', n)} {v} to {pairs}", level) for v in (a, b))
    return f.put(f"call {real} {callee}({real} {c}, {pairs} {x}, {pairs} {y})", level)


def _instruction(f: FunctionText, lanes: int) -> str | None:
    """Return the LLVM intrinsic for a number of lanes, if the target has one."""
    features = f.target.features
    if "avx512bf16" in features and lanes in _X86:
        return f"llvm.x86.avx512bf16.dpbf16ps.{_X86[lanes]}"
    if f.target.family == "aarch64" and "bf16" in features and lanes in _ARM:
        return f"llvm.aarch64.neon.bfdot.v{lanes}f32.v{2 * lanes}bf16"
    return None


def _multiply_add(f: FunctionText, dtype: DataType, x: str, y: str, c: str, level: int) -> str:
    real = register_type(dtype)
    if f.target.has_fma:
        suffix = "f32" if dtype.lanes == 1 else f"v{dtype.lanes}f32"
        return f.put(
            f"call {real} {f.declare(f'llvm.fma.{suffix}', real, f'{real}, {real}, {real}')}({real} {x}, {real} {y}, "
            f"{real} {c})",
            level)
    return f.put(f"fadd {real} {f.put(f'fmul {real} {x}, {y}', level)}, {c}", level)


def _low(f: FunctionText, text: str, n: int, level: int) -> str:
    wide, shift = vector("i32", n), "16" if n == 1 else "splat (i32 16)"
    return f.put(f"bitcast {wide} {f.put(f'shl {wide} {text}, {shift}', level)} to {vector('float', n)}", level)


def _high(f: FunctionText, text: str, n: int, level: int) -> str:
    wide, mask = vector("i32", n), "-65536" if n == 1 else "splat (i32 -65536)"
    return f.put(f"bitcast {wide} {f.put(f'and {wide} {text}, {mask}', level)} to {vector('float', n)}", level)
