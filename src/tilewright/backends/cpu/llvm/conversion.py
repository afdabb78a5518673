"""Conversions between types, and floats of 16 bits or fewer, which most processors compute in 32 bits.

`float16`, `bfloat16` and the smaller floats are kept as bits. `widen` and `narrow` (round to nearest, ties to even) are
one instruction where the target has it, and integer arithmetic elsewhere. Doubles become bfloat16 through `float`, as
in numpy, and are rounded once for the other types. A float outside the range of an integer type converts to an
unspecified value, as in C; a conversion to 2 or 4 bits passes through int32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu.llvm.small_floats import narrow_double, narrow_small, widen_small
from tilewright.backends.cpu.llvm.text import float_constant, register_type, shuffle_mask, vector
from tilewright.base.types import BOOL, FLOAT32, MINIFLOATS, DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr, number_of

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText, Value

INT16: Final = DataType("int16")
INT32: Final = DataType("int32")


def is_short(dtype: DataType) -> bool:
    """Return whether values of the type are kept as bits and computed in `float32`."""
    return dtype.is_float and dtype.bits <= 16


def cast(f: FunctionText, e: E.Cast) -> Value:
    if e.value.dtype.element is FLOAT32 and (
        e.dtype.element is INT32 or (e.dtype.code in ("int", "uint") and e.dtype.bits < 32)
    ):
        whole = _rounded(f, e.value)
        if whole is not None:
            return convert(f, whole[0], whole[1], INT32.with_lanes(e.dtype.lanes), e.dtype), whole[1]
    text, need = f.value(e.value)
    level = f.place(need)
    return convert(f, text, level, e.value.dtype, e.dtype), level


def _rounded(f: FunctionText, x: PrimExpr) -> Value | None:
    """Return a float that was rounded to the nearest integer, and possibly clamped between two literals, as an int32;
    None for other values.

    Integer bounds can be applied before rounding, and rounding while converting is one instruction.
    """
    bounds: list[tuple[type[E.Min] | type[E.Max], str]] = []
    while isinstance(x, (E.Min, E.Max)):
        bound = number_of(x.b)
        if bound is None or bound != int(bound) or abs(bound) >= 1 << 24:
            return None
        bounds.append((type(x), float_constant(float(bound), FLOAT32)))
        x = x.a
    if not isinstance(x, E.Call) or x.op is not I.nearbyint:
        return None
    text, need = f.value(x.args[0])
    level, lanes = f.place(need), x.dtype.lanes
    real, wide = register_type(x.dtype), register_type(INT32.with_lanes(lanes))
    for kind, number in reversed(bounds):
        bound_text = number if lanes == 1 else f"splat (float {number})"
        better = f.put(f"fcmp {'olt' if kind is E.Min else 'ogt'} {real} {bound_text}, {text}", level)
        text = _select(f, better, bound_text, text, level, real, lanes)
    name = "llvm.lrint.i32.f32" if lanes == 1 else f"llvm.lrint.v{lanes}i32.v{lanes}f32"
    return f.put(f"call {wide} {f.declare(name, wide, real)}({real} {text})", level), level


def convert(f: FunctionText, text: str, level: int, source: DataType, to: DataType) -> str:
    """Convert a value between two types with the same number of lanes."""
    if source is to:
        return text
    if is_short(source):
        return convert(f, widen(f, text, level, source), level, FLOAT32.with_lanes(source.lanes), to)
    if is_short(to) and to.code != "bfloat" and source.is_float and source.bits == 64:
        return narrow(f, narrow_double(f, text, level, source.lanes), level, to)
    if source.is_float and to.is_integer and to.bits < 8:
        whole = INT32.with_lanes(to.lanes)
        return convert(f, convert(f, text, level, source, whole), level, whole, to)
    if is_short(to):
        wide = FLOAT32.with_lanes(to.lanes)
        return narrow(f, convert(f, text, level, source, wide), level, to)
    before, after = register_type(source), register_type(to)
    if to.code == "bool":
        zero = "zeroinitializer" if to.lanes > 1 else float_constant(0.0, source) if source.is_float else "0"
        return f.put(f"{'fcmp une' if source.is_float else 'icmp ne'} {before} {text}, {zero}", level)
    if source.is_float and to.is_float:
        return f.put(f"{'fpext' if to.bits > source.bits else 'fptrunc'} {before} {text} to {after}", level)
    if source.is_float:
        return f.put(f"{'fptosi' if to.code == 'int' else 'fptoui'} {before} {text} to {after}", level)
    if to.is_float:
        return f.put(f"{'sitofp' if source.code == 'int' else 'uitofp'} {before} {text} to {after}", level)
    if to.bits == source.bits:
        return text
    if to.bits < source.bits and to.lanes & (to.lanes - 1):
        return _truncate_padded(f, text, level, source, to)
    operation = "trunc" if to.bits < source.bits else "sext" if source.code == "int" else "zext"
    return f.put(f"{operation} {before} {text} to {after}", level)


def _truncate_padded(f: FunctionText, text: str, level: int, source: DataType, to: DataType) -> str:
    """Truncate lanes whose number is not a power of two in a vector of the next power of two.

    LLVM 22 fails to truncate 3 lanes from 64 to 8 bits on AArch64.
    """
    n, m = to.lanes, 1 << (to.lanes - 1).bit_length()
    kinds = [register_type(t.with_lanes(m)) for t in (source, to)]
    more = f.put(
        f"shufflevector {register_type(source)} {text}, {register_type(source)} poison, "
        f"{shuffle_mask([min(k, n - 1) for k in range(m)])}",
        level)
    cut = f.put(f"trunc {kinds[0]} {more} to {kinds[1]}", level)
    return f.put(f"shufflevector {kinds[1]} {cut}, {kinds[1]} poison, {shuffle_mask(list(range(n)))}", level)


def widen(f: FunctionText, text: str, level: int, dtype: DataType) -> str:
    """Return the bits of a float of 16 bits or fewer as a `float`."""
    if dtype.code in MINIFLOATS:
        return widen_small(f, text, level, dtype)
    n = dtype.lanes
    half, wide, real = register_type(INT16.with_lanes(n)), register_type(INT32.with_lanes(n)), register_type(
        FLOAT32.with_lanes(n))
    if dtype.code == "float" and has_half_conversion(f):
        bits = f.put(f"bitcast {half} {text} to {vector('half', n)}", level)
        return f.put(f"fpext {vector('half', n)} {bits} to {real}", level)
    extended = f.put(f"zext {half} {text} to {wide}", level)
    if dtype.code == "bfloat":
        high = f.put(f"shl {wide} {extended}, {_splat(16, n)}", level)
        return f.put(f"bitcast {wide} {high} to {real}", level)
    return _widen_by_arithmetic(f, extended, level, n)


def _widen_by_arithmetic(f: FunctionText, bits: str, level: int, n: int) -> str:
    """Convert float16 bits in an i32 to a float: move exponent and mantissa, rescale by 2^112, restore infinities and
    NaN."""
    wide, real = register_type(INT32.with_lanes(n)), register_type(FLOAT32.with_lanes(n))
    magnitude = f.put(f"and {wide} {bits}, {_splat(0x7FFF, n)}", level)
    moved = f.put(f"shl {wide} {magnitude}, {_splat(13, n)}", level)
    small = f.put(f"bitcast {wide} {moved} to {real}", level)
    scaled = f.put(f"fmul {real} {small}, {_splat_float(2.0**112, n)}", level)
    rescaled = f.put(f"bitcast {real} {scaled} to {wide}", level)
    special = f.put(f"icmp uge {wide} {magnitude}, {_splat(0x7C00, n)}", level)
    infinite = f.put(f"or {wide} {rescaled}, {_splat(0x7F800000, n)}", level)
    chosen = _select(f, special, infinite, rescaled, level, wide, n)
    sign = f.put(f"and {wide} {bits}, {_splat(0x8000, n)}", level)
    high = f.put(f"shl {wide} {sign}, {_splat(16, n)}", level)
    return f.put(f"bitcast {wide} {f.put(f'or {wide} {chosen}, {high}', level)} to {real}", level)


def narrow(f: FunctionText, text: str, level: int, dtype: DataType) -> str:
    """Return a `float` as the bits of a float of 16 bits or fewer."""
    if dtype.code in MINIFLOATS:
        return narrow_small(f, text, level, dtype)
    n = dtype.lanes
    half, wide, real = register_type(INT16.with_lanes(n)), register_type(INT32.with_lanes(n)), register_type(
        FLOAT32.with_lanes(n))
    if dtype.code == "float" and has_half_conversion(f):
        rounded = f.put(f"fptrunc {real} {text} to {vector('half', n)}", level)
        return f.put(f"bitcast {vector('half', n)} {rounded} to {half}", level)
    if dtype.code == "bfloat" and has_brain_conversion(f):
        rounded = f.put(f"fptrunc {real} {text} to {vector('bfloat', n)}", level)
        return f.put(f"bitcast {vector('bfloat', n)} {rounded} to {half}", level)
    bits = f.put(f"bitcast {real} {text} to {wide}", level)
    result = _brain_bits(f, text, bits, level, n) if dtype.code == "bfloat" else _half_bits(f, bits, level, n)
    return f.put(f"trunc {wide} {result} to {half}", level)


def _brain_bits(f: FunctionText, text: str, bits: str, level: int, n: int) -> str:
    wide, real = register_type(INT32.with_lanes(n)), register_type(FLOAT32.with_lanes(n))
    high = f.put(f"lshr {wide} {bits}, {_splat(16, n)}", level)
    odd = f.put(f"and {wide} {high}, {_splat(1, n)}", level)
    raised = f.put(f"add {wide} {f.put(f'add {wide} {bits}, {odd}', level)}, {_splat(0x7FFF, n)}", level)
    rounded = f.put(f"lshr {wide} {raised}, {_splat(16, n)}", level)
    nan = f.put(f"fcmp uno {real} {text}, {text}", level)
    quiet = f.put(f"or {wide} {high}, {_splat(0x40, n)}", level)
    return _select(f, nan, quiet, rounded, level, wide, n)


def _half_bits(f: FunctionText, bits: str, level: int, n: int) -> str:
    """Convert float bits to float16 bits, both in an i32; too large, subnormal and normal magnitudes are computed side
    by side."""
    wide, real = register_type(INT32.with_lanes(n)), register_type(FLOAT32.with_lanes(n))
    magnitude = f.put(f"and {wide} {bits}, {_splat(0x7FFFFFFF, n)}", level)
    nan = f.put(f"icmp ugt {wide} {magnitude}, {_splat(0x7F800000, n)}", level)
    large = _select(f, nan, _splat(0x7E00, n), _splat(0x7C00, n), level, wide, n)
    # Adding 0.5 makes the float unit round a subnormal at the right bit.
    as_real = f.put(f"bitcast {wide} {magnitude} to {real}", level)
    shifted = f.put(f"fadd {real} {as_real}, {_splat_float(0.5, n)}", level)
    small = f.put(f"sub {wide} {f.put(f'bitcast {real} {shifted} to {wide}', level)}, {_splat(0x3F000000, n)}", level)
    odd = f.put(f"and {wide} {f.put(f'lshr {wide} {magnitude}, {_splat(13, n)}', level)}, {_splat(1, n)}", level)
    rebased = f.put(f"add {wide} {magnitude}, {_splat(((15 - 127) << 23) + 0xFFF, n)}", level)
    normal = f.put(f"lshr {wide} {f.put(f'add {wide} {rebased}, {odd}', level)}, {_splat(13, n)}", level)
    is_small = f.put(f"icmp ult {wide} {magnitude}, {_splat(113 << 23, n)}", level)
    is_large = f.put(f"icmp uge {wide} {magnitude}, {_splat(143 << 23, n)}", level)
    finite = _select(f, is_small, small, normal, level, wide, n)
    chosen = _select(f, is_large, large, finite, level, wide, n)
    sign = f.put(f"and {wide} {f.put(f'lshr {wide} {bits}, {_splat(16, n)}', level)}, {_splat(0x8000, n)}", level)
    return f.put(f"or {wide} {chosen}, {sign}", level)


def has_half_conversion(f: FunctionText) -> bool:
    """Return whether the target converts between float16 and float32 in hardware."""
    features = f.target.features
    return f.target.family == "aarch64" or "f16c" in features or "avx512f" in features


def has_brain_conversion(f: FunctionText) -> bool:
    """Return whether the target rounds float32 to bfloat16 in hardware; x86 flushes subnormal numbers to zero there."""
    return "avx512bf16" in f.target.features or (f.target.family == "aarch64" and "bf16" in f.target.features)


def _select(f: FunctionText, condition: str, yes: str, no: str, level: int, kind: str, n: int) -> str:
    return f.put(f"select {register_type(BOOL.with_lanes(n))} {condition}, {kind} {yes}, {kind} {no}", level)


def _splat(value: int, lanes: int) -> str:
    return str(value) if lanes == 1 else f"splat (i32 {value})"


def _splat_float(value: float, lanes: int) -> str:
    text = float_constant(value, FLOAT32)
    return text if lanes == 1 else f"splat (float {text})"
