"""Intrinsics as LLVM text: an instruction, an LLVM intrinsic, or calls of the C mathematics library for each lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tilewright.backends.cpu.llvm import dot2
from tilewright.backends.cpu.llvm.conversion import convert, is_short, narrow, widen
from tilewright.backends.cpu.llvm.dot4 import dot4
from tilewright.backends.cpu.llvm.extern import call_extern
from tilewright.backends.cpu.llvm.high_product import high_product
from tilewright.backends.cpu.llvm.integer_power import integer_power
from tilewright.backends.cpu.llvm.remainder import remainder
from tilewright.backends.cpu.llvm.text import float_constant, register_type, suffix
from tilewright.base.errors import InternalError
from tilewright.base.types import BOOL, FLOAT32, DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText, Value

Rule = Callable[["FunctionText", DataType, list[str], int], str]
"""`(function, float type, operands, level) -> result` of a function of floats."""


def call(f: FunctionText, e: E.Call) -> Value:
    if e.op is I.pair:
        return dot2.pair(f, e)
    if isinstance(e.op, I.Extern):
        return call_extern(f, e)
    operands = [f.value(a) for a in e.args]
    level = f.place(max((at for _, at in operands), default=0))
    texts, dtype = [text for text, _ in operands], e.args[0].dtype
    if e.op is I.dot2:
        return dot2.dot2(f, e.dtype, texts[0], texts[1], texts[2], level), level
    if e.op in _BITS:
        return _bits(f, e, texts, level), level
    if e.op in _ACROSS:
        return _across(f, e.op, texts[0], dtype, level), level
    if e.op is I.reinterpret:
        return _reinterpret(f, texts[0], dtype, e.dtype, level), level
    if e.op is I.dot4:
        return dot4(f, e, texts, level), level
    if e.op in (I.high_product, I.doubled_high_product):
        return high_product(f, e, texts, level), level
    if e.op in I.PREDICATES:
        truth = BOOL.with_lanes(e.dtype.lanes)
        return convert(f, _predicate(f, e, texts[0], level), level, truth, e.dtype), level
    if not dtype.is_float:
        return _of_integers(f, e, texts, level), level
    if e.op is I.fmod and dtype.bits <= 32:
        return remainder(f, dtype, texts, _library("fmod"))
    rule = _FLOATS.get(e.op)
    if rule is None:
        raise InternalError(f"the intrinsic '{e.op}' has no LLVM text; lower it before generating code")
    if is_short(dtype):
        wide = FLOAT32.with_lanes(dtype.lanes)
        return narrow(f, rule(f, wide, [widen(f, t, level, dtype) for t in texts], level), level, dtype), level
    return rule(f, dtype, texts, level), level


def _across(f: FunctionText, op: E.Intrinsic, text: str, dtype: DataType, level: int) -> str:
    """Reduce all lanes to one, pairwise; the maximum and minimum propagate NaN."""
    if is_short(dtype):
        wide = FLOAT32.with_lanes(dtype.lanes)
        return narrow(f, _across(f, op, widen(f, text, level, dtype), wide, level), level, dtype.element)
    if dtype.lanes == 1:
        return text
    name = _ACROSS[op]
    if dtype.is_float:
        start = {"add": "-0.0", "mul": "1.0"}.get(name)
        reduce, flags = f"f{name}imum" if start is None else f"f{name}", "reassoc "
    else:
        start, flags = None, ""
        name = _OF_TRUTHS.get(name, name) if dtype.code == "bool" else name
        reduce = name if name in ("add", "mul", "and", "or") else f"{'s' if dtype.code == 'int' else 'u'}{name}"
    kind, element = register_type(dtype), register_type(dtype.element)
    arguments = kind if start is None else f"{element}, {kind}"
    callee = f.declare(f"llvm.vector.reduce.{reduce}.{suffix(dtype)}", element, arguments)
    given = f"{kind} {text}" if start is None else f"{element} {start}, {kind} {text}"
    return f.put(f"call {flags}{element} {callee}({given})", level)


def _bits(f: FunctionText, e: E.Call, texts: list[str], level: int) -> str:
    kind, dtype = register_type(e.dtype), e.dtype
    if e.op is I.bitwise_not:
        ones = "-1" if dtype.code != "bool" else "true"
        return f.put(
            f"xor {kind} {texts[0]}, {ones if dtype.lanes == 1 else f'splat ({register_type(dtype.element)} {ones})'}",
            level)
    operation = ("ashr" if dtype.code == "int" else "lshr") if e.op is I.shift_right else _BITS[e.op]
    return f.put(f"{operation} {kind} {texts[0]}, {texts[1]}", level)


def _reinterpret(f: FunctionText, text: str, source: DataType, to: DataType, level: int) -> str:
    before, after = register_type(source), register_type(to)
    return text if before == after else f.put(f"bitcast {before} {text} to {after}", level)


def _predicate(f: FunctionText, e: E.Call, text: str, level: int) -> str:
    dtype = e.args[0].dtype
    if not dtype.is_float:
        return "false" if dtype.lanes == 1 else "zeroinitializer"
    if is_short(dtype):
        text, dtype = widen(f, text, level, dtype), FLOAT32.with_lanes(dtype.lanes)
    kind = register_type(dtype)
    if e.op is I.isnan:
        return f.put(f"fcmp uno {kind} {text}, {text}", level)
    return f.put(f"fcmp oeq {kind} {_native('fabs')(f, dtype, [text], level)}, {_splat(float('inf'), dtype)}", level)


def _of_integers(f: FunctionText, e: E.Call, texts: list[str], level: int) -> str:
    """Return a call of an integer function; functions without an integer form are computed as float64."""
    dtype, kind = e.args[0].dtype, register_type(e.args[0].dtype)
    if e.op is I.pow:
        return _lane_by_lane(f, dtype, integer_power(f, dtype), texts, level)
    if e.op is I.fma:
        times, plus = ("and", "or") if dtype.code == "bool" else ("mul", "add")
        return f.put(f"{plus} {kind} {f.put(f'{times} {kind} {texts[0]}, {texts[1]}', level)}, {texts[2]}", level)
    if e.op in (I.floor, I.ceil, I.trunc, I.nearbyint) or (e.op is I.fabs and dtype.code != "int"):
        return texts[0]
    if e.op is I.fabs:
        name = f.declare(f"llvm.abs.{suffix(dtype)}", kind, f"{kind}, i1 immarg")
        return f.put(f"call {kind} {name}({kind} {texts[0]}, i1 false)", level)
    rule = _FLOATS.get(e.op)
    if rule is None:
        raise InternalError(f"the intrinsic '{e.op}' has no LLVM text; lower it before generating code")
    wide = DataType("float64").with_lanes(dtype.lanes)
    return convert(f, rule(f, wide, [convert(f, t, level, dtype, wide) for t in texts], level), level, wide, e.dtype)


def _native(name: str) -> Rule:
    """Return an LLVM intrinsic over whole vectors."""

    def rule(f: FunctionText, dtype: DataType, texts: list[str], level: int) -> str:
        kind = register_type(dtype)
        target = f.declare(f"llvm.{name}.{suffix(dtype)}", kind, ", ".join([kind] * len(texts)))
        return f.put(f"call {kind} {target}({', '.join(f'{kind} {t}' for t in texts)})", level)

    return rule


def _library(name: str) -> Rule:
    """Return a rule that calls a function of the C library for each lane."""

    def rule(f: FunctionText, dtype: DataType, texts: list[str], level: int) -> str:
        element = register_type(dtype.element)
        target = f.declare(name if element == "double" else f"{name}f", element, ", ".join([element] * len(texts)))
        return _lane_by_lane(f, dtype, target, texts, level)

    return rule


def _lane_by_lane(f: FunctionText, dtype: DataType, target: str, texts: list[str], level: int) -> str:
    """Return a scalar function called for each lane."""
    element, kind = register_type(dtype.element), register_type(dtype)
    if dtype.lanes == 1:
        return f.put(f"call {element} {target}({', '.join(f'{element} {t}' for t in texts)})", level)
    whole = "poison"
    for lane in range(dtype.lanes):
        ones = [f.put(f"extractelement {kind} {t}, i32 {lane}", level) for t in texts]
        one = f.put(f"call {element} {target}({', '.join(f'{element} {t}' for t in ones)})", level)
        whole = f.put(f"insertelement {kind} {whole}, {element} {one}, i32 {lane}", level)
    return whole


def _fma(f: FunctionText, dtype: DataType, texts: list[str], level: int) -> str:
    """Return a fused multiply-add if the target has the instruction, else a product and a sum."""
    if f.target.has_fma:
        return _native("fma")(f, dtype, texts, level)
    kind = register_type(dtype)
    return f.put(f"fadd {kind} {f.put(f'fmul {kind} {texts[0]}, {texts[1]}', level)}, {texts[2]}", level)


def _multiply_add(f: FunctionText, dtype: DataType, texts: list[str], level: int) -> str:
    """Return a product and sum rounded once: by the instruction, or in float64, which represents the product and,
    except for one case in 2^29, the sum.

    Adding minus zero changes no number.
    """
    kind = register_type(dtype)
    if texts[2] == _splat(-0.0, dtype):
        return f.put(f"fmul {kind} {texts[0]}, {texts[1]}", level)
    if f.target.has_fma:
        return _native("fma")(f, dtype, texts, level)
    wide = DataType("float64").with_lanes(dtype.lanes)
    x, y, z = (convert(f, t, level, dtype, wide) for t in texts)
    kind = register_type(wide)
    return convert(f, f.put(f"fadd {kind} {f.put(f'fmul {kind} {x}, {y}', level)}, {z}", level), level, wide, dtype)


def _rsqrt(f: FunctionText, dtype: DataType, texts: list[str], level: int) -> str:
    return f.put(f"fdiv {register_type(dtype)} {_splat(1.0, dtype)}, {_native('sqrt')(f, dtype, texts, level)}", level)


def _sigmoid(f: FunctionText, dtype: DataType, texts: list[str], level: int) -> str:
    kind = register_type(dtype)
    grown = _library("exp")(f, dtype, [f.put(f"fneg {kind} {texts[0]}", level)], level)
    return f.put(
        f"fdiv {kind} {_splat(1.0, dtype)}, {f.put(f'fadd {kind} {grown}, {_splat(1.0, dtype)}', level)}", level)


def _splat(value: float, dtype: DataType) -> str:
    text = float_constant(value, dtype)
    return text if dtype.lanes == 1 else f"splat ({register_type(dtype.element)} {text})"


_BITS: Final = {
    I.bitwise_and: "and", I.bitwise_or: "or", I.bitwise_xor: "xor", I.bitwise_not: "xor", I.shift_left: "shl",
    I.shift_right: "ashr",
}
_FLOATS: Final[dict[E.Intrinsic, Rule]] = {
    I.sqrt: _native("sqrt"), I.floor: _native("floor"), I.ceil: _native("ceil"), I.trunc: _native("trunc"),
    I.nearbyint: _native("nearbyint"), I.fabs: _native("fabs"), I.fma: _fma, I.multiply_add: _multiply_add,
    I.rsqrt: _rsqrt, I.sigmoid: _sigmoid,
    **{op: _library(op.spelling) for op in (
        I.exp, I.log, I.log2, I.exp2, I.tanh, I.erf, I.sin, I.cos, I.tan, I.asin, I.acos, I.atan, I.sinh, I.cosh,
        I.asinh, I.acosh, I.atanh, I.pow, I.fmod)},
}
_OF_TRUTHS: Final = {"add": "or", "mul": "and"}
"""Sums and products of booleans; LLVM's sum of single bits is their parity."""
_ACROSS: Final = {I.horizontal_sum: "add", I.horizontal_prod: "mul", I.horizontal_max: "max", I.horizontal_min: "min"}
