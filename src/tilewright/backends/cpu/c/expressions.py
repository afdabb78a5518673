"""Scalar expressions as C text.

A rule returns text and its precedence, so that parentheses are written only where C or readability needs them. Integers
wrap around in the loop language: unless its bounds prove that a sum or product fits its type, a helper function
computes it. Memory indices are assumed to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.backends.cpu.c.text import MATHEMATICS, c_type, constant, suffix
from tilewright.base.errors import CompileError, InternalError
from tilewright.base.memory_faults import OVERLAPS
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Interval, Ranges
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var, number_of

PRIMARY, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUALITY, BITS, AND, OR, CHOICE = 16, 14, 13, 12, 11, 10, 9, 8, 5, 4, 3
Text = tuple[str, int]
"""C text, and the precedence of its operator."""


class Writer:
    """The names of variables, buffers and values computed before, and the helper functions that the file needs."""

    def __init__(self, needs: set[str], prototypes: dict[str, str]) -> None:
        self.needs, self.prototypes = needs, prototypes
        self.variables: dict[Var, str] = {}
        self.buffers: dict[Buffer, str] = {}
        self.names: dict[PrimExpr, str] = {}
        """Values that a statement has computed before."""
        self.ranges = Ranges()
        self.index = False
        """Whether an index is being written, whose arithmetic does not overflow."""

    def text(self, e: PrimExpr, least: int = 0) -> str:
        """Return `e`, in parentheses unless its operator binds at least as strongly."""
        found, strength = self.bound_text(e)
        return found if strength >= least else f"({found})"

    def bound_text(self, e: PrimExpr) -> Text:
        name = self.names.get(e)
        if name is not None:
            return name, PRIMARY
        if e.dtype.lanes != 1:
            raise CompileError(
                f"the C back end supports only scalars, but '{e}' is {e.dtype}; write a loop over its elements, or "
                "build for 'llvm'", code="TW0510")
        return _RULES[type(e)](self, e)

    def subscript(self, index: PrimExpr) -> str:
        outer, self.index = self.index, True
        found = self.text(index)
        self.index = outer
        return found

    def buffer(self, b: Buffer) -> str:
        name = self.buffers.get(b)
        if name is None:
            raise InternalError(f"buffer '{b.name}' is used outside of the allocation that defines it")
        return name

    def call(self, name: str, *arguments: str) -> Text:
        """Return a call of a helper function."""
        self.needs.add(name)
        return f"{name}({', '.join(arguments)})", PRIMARY

    def converted(self, text: str, source: DataType, to: DataType) -> Text:
        """Return a value of another type, whose text is a primary expression."""
        if source is to:
            return text, PRIMARY
        if _is_short(source):
            return self.converted(self.call(f"f32_of_{_short(source)}", text)[0], DataType("float32"), to)
        if to.code == "float" and to.bits == 16 and source.is_float and source.bits == 64:
            return self.call("f16_of_f32", self.call("odd_f32_of_f64", text)[0])
        if _is_short(to):
            wide = self.converted(text, source, DataType("float32"))[0]
            return self.call(f"{_short(to)}_of_f32", wide)
        if to.code == "bool":
            return f"{text} != {constant(0, source)}", EQUALITY
        if source.is_float and to.is_integer and to.code == "uint" and to.bits < 32:
            return f"({c_type(to)})(int32_t){text}", UNARY
        return f"({c_type(to)}){text}", UNARY


def _is_short(dtype: DataType) -> bool:
    return dtype.is_float and dtype.bits == 16


def _short(dtype: DataType) -> str:
    c_type(dtype)
    return "f16" if dtype.code == "float" else "bf16"


def _variable(w: Writer, e: Var) -> Text:
    name = w.variables.get(e)
    if name is None:
        raise InternalError(f"variable '{e.name}' is used outside of the loop or let that defines it")
    return name, PRIMARY


def _constant(w: Writer, e: Any) -> Text:
    text = constant(e.value, e.dtype)
    return text, UNARY if text.startswith(("-", "(")) else PRIMARY


def _load(w: Writer, e: Load) -> Text:
    return f"{w.buffer(e.buffer)}[{w.subscript(e.indices[0])}]", PRIMARY


def _narrow(dtype: DataType) -> bool:
    """Return whether C computes in a wider type, from which the result is truncated."""
    return dtype.code in ("int", "uint") and dtype.bits < 32


def _arithmetic(sign: str, name: str, strength: int, boolean: str) -> Callable[[Writer, Any], Text]:
    def rule(w: Writer, e: E.Binary) -> Text:
        dtype = e.dtype
        if dtype.code == "bool":
            return f"({w.text(e.a, BITS + 1)} {boolean} {w.text(e.b, BITS + 1)}) != 0", EQUALITY
        if not w.index and dtype.code == "int" and dtype.bits >= 32 and not _fits(e, w.ranges):
            return w.call(f"{name}_{suffix(dtype)}", w.text(e.a), w.text(e.b))
        right = strength + 1 if sign != "+" or dtype.is_float else strength
        joined = f"{w.text(e.a, strength)} {sign} {w.text(e.b, right)}"
        if not _narrow(dtype):
            return joined, strength
        if name == "mul" and dtype.bits == 16 and dtype.code == "uint":
            return f"(uint16_t)((uint32_t){w.text(e.a, UNARY)} * {w.text(e.b, UNARY)})", UNARY
        return f"({c_type(dtype)})({joined})", UNARY

    return rule


def _fits(e: E.Binary, ranges: Ranges) -> bool:
    """Return whether bounds prove that an addition, subtraction or multiplication does not wrap around."""
    a, b = _interval(e.a, ranges), _interval(e.b, ranges)
    if a[0] is None or a[1] is None or b[0] is None or b[1] is None:
        return False
    operation: Callable[[int, int], int] = type(e).fold
    ends = [operation(x, y) for x in a for y in b if x is not None and y is not None]
    limit = 1 << (e.dtype.bits - 1)
    return -limit <= min(ends) and max(ends) < limit


def _interval(e: PrimExpr, ranges: Ranges) -> Interval:
    """Return the bounds of an integer; None for an operand that might wrap around."""
    if isinstance(e, (E.Add, E.Sub, E.Mul)) and not _fits(e, ranges):
        return None, None
    return bounds(e, ranges)


def _real_division(w: Writer, e: E.Div) -> Text:
    if not e.dtype.is_float:
        return _division("truncdiv", "/")(w, e)
    return f"{w.text(e.a, PRODUCT)} / {w.text(e.b, UNARY)}", PRODUCT


def _division(name: str, sign: str) -> Callable[[Writer, Any], Text]:
    """Return a rule for integer division, which uses C's operator where it has the same meaning."""

    def rule(w: Writer, e: E.Binary) -> Text:
        divisor, dtype = number_of(e.b), e.dtype
        if dtype.code == "bool":
            return (
                f"({w.text(e.a, BITS + 1)} & {w.text(e.b, BITS + 1)}) != 0", EQUALITY
            ) if sign == "/" else (constant(0, dtype), PRIMARY)
        if isinstance(divisor, int) and divisor > 0:
            low = bounds(e.a, w.ranges)[0]
            if dtype.code != "int" or name.startswith("trunc") or (low is not None and low >= 0):
                joined = f"{w.text(e.a, PRODUCT)} {sign} {w.text(e.b, UNARY)}"
                return (f"({c_type(dtype)})({joined})", UNARY) if _narrow(dtype) else (joined, PRODUCT)
        return w.call(f"{name}_{suffix(dtype)}", w.text(e.a), w.text(e.b))

    return rule


def _extremum(name: str, boolean: str) -> Callable[[Writer, Any], Text]:
    def rule(w: Writer, e: E.Binary) -> Text:
        if e.dtype.code == "bool":
            return f"({w.text(e.a, BITS + 1)} {boolean} {w.text(e.b, BITS + 1)}) != 0", EQUALITY
        if _is_short(e.dtype):
            raise InternalError(f"'{e}' of {e.dtype} reached the C back end; widen it first")
        return w.call(f"{name}_{suffix(e.dtype)}", w.text(e.a), w.text(e.b))

    return rule


def _comparison(sign: str) -> Callable[[Writer, Any], Text]:
    strength = EQUALITY if sign in ("==", "!=") else ORDER

    def rule(w: Writer, e: E.Comparison) -> Text:
        # compilers warn of conditions that are always true
        if sign in (">=", "<") and e.a.dtype.code == "uint" and number_of(e.b) == 0:
            return constant(int(sign == ">="), DataType("bool")), PRIMARY
        return f"{w.text(e.a, SHIFT)} {sign} {w.text(e.b, SHIFT)}", strength

    return rule


def _logical(sign: str, strength: int) -> Callable[[Writer, Any], Text]:
    def rule(w: Writer, e: E.Binary) -> Text:
        def side(x: PrimExpr) -> str:
            found, s = w.bound_text(x)
            return found if s == strength or s > EQUALITY - 1 else f"({found})"

        return f"{side(e.a)} {sign} {side(e.b)}", strength

    return rule


def _not(w: Writer, e: E.Not) -> Text:
    return f"!{w.text(e.a, UNARY)}", UNARY


def _cast(w: Writer, e: E.Cast) -> Text:
    number = number_of(e.value)
    if number is not None and e.dtype.code in ("int", "uint") and isinstance(number, int) and e.dtype.bits >= 32:
        return _constant(w, E.const(number, e.dtype))
    return w.converted(w.text(e.value, UNARY), e.value.dtype, e.dtype)


def _select(w: Writer, e: E.Select) -> Text:
    joined = f"{w.text(e.condition, OR)} ? {w.text(e.true_value, OR)} : {w.text(e.false_value, CHOICE)}"
    return (f"({c_type(e.dtype)})({joined})", UNARY) if _narrow(e.dtype) or _is_short(e.dtype) else (joined, CHOICE)


def _call(w: Writer, e: E.Call) -> Text:
    if isinstance(e.op, I.LLVMIntrinsic):
        raise CompileError(
            f"'{e.op.spelling}' is a function of LLVM, which C does not have; build for 'llvm'", code="TW0602")
    if isinstance(e.op, I.Extern):
        return _extern(w, e)
    if e.op is I.reinterpret:
        return _reinterpret(w, e)
    if e.op in _BITWISE:
        return _bitwise(w, e)
    if isinstance(e.op, I.Opaque):
        raise I.without_meaning(e.op)
    dtype, arguments = e.args[0].dtype, [w.text(a) for a in e.args]
    if e.op in I.PREDICATES:
        truth = w.call(f"{e.op.spelling}_{suffix(dtype)}", *arguments)[0] if dtype.is_float else "false"
        return w.converted(truth, DataType("bool"), e.dtype)
    if e.op in _WORDS:
        return w.call(e.op.spelling, *arguments)
    if not dtype.is_float:
        return _of_integers(w, e, arguments)
    if e.op is I.fma:
        return w.call(f"fma_{suffix(dtype)}", *arguments)
    if e.op in (I.sigmoid, I.rsqrt):
        return w.call(f"{e.op.spelling}_{suffix(dtype)}", *arguments)
    name = _NAMES.get(e.op, e.op.spelling)
    if name not in MATHEMATICS:
        raise InternalError(f"the intrinsic '{e.op}' has no C text; lower it before generating code")
    return f"{name}{'f' if dtype == 'float32' else ''}({', '.join(arguments)})", PRIMARY


def _of_integers(w: Writer, e: E.Call, arguments: list[str]) -> Text:
    """Return a call of an integer function; functions without an integer form are computed as float64."""
    dtype = e.args[0].dtype
    if e.op is I.fma:
        return w.text(E.add(E.mul(e.args[0], e.args[1]), e.args[2]), PRIMARY), PRIMARY
    if e.op is I.pow:
        return w.call(f"power_{suffix(dtype)}", *arguments)
    if e.op in (I.floor, I.ceil, I.trunc, I.nearbyint) or (e.op is I.fabs and dtype.code != "int"):
        return w.bound_text(e.args[0])
    if e.op is I.fabs:
        return w.call(f"abs_{suffix(dtype)}", *arguments)
    wide = DataType("float64")
    return w.bound_text(E.cast(e.dtype, E.Call(wide, e.op, [E.cast(wide, a) for a in e.args])))


def _bitwise(w: Writer, e: E.Call) -> Text:
    sign, dtype = _BITWISE[e.op], e.dtype
    if e.op is I.bitwise_not:
        if dtype.code == "bool":
            return f"!{w.text(e.args[0], UNARY)}", UNARY
        text = f"~{w.text(e.args[0], UNARY)}"
        return (f"({c_type(dtype)}){text}" if _narrow(dtype) else text), UNARY
    if e.op is I.shift_left:
        return w.call(f"shl_{suffix(dtype)}", *(w.text(a) for a in e.args))
    joined = f"{w.text(e.args[0], UNARY)} {sign} {w.text(e.args[1], UNARY)}"
    if dtype.code == "bool":
        return f"({joined}) != 0", EQUALITY
    return (f"({c_type(dtype)})({joined})", UNARY) if _narrow(dtype) else (joined, BITS)


def _reinterpret(w: Writer, e: E.Call) -> Text:
    (value,) = e.args
    source, to = value.dtype, e.dtype
    if isinstance(value, Load) and source == DataType("uint8x4") and to == "uint32" and isinstance(
        value.indices[0], E.Ramp
    ) and number_of(value.indices[0].stride) == 1:
        return w.call("word", f"{w.buffer(value.buffer)} + {w.subscript(value.indices[0].base)}")
    if source.lanes != 1:
        raise CompileError(
            f"the C back end cannot reinterpret {source} as {to}; convert the elements one by one, or build for 'llvm'",
            code="TW0510")
    text = w.text(value, UNARY)
    if c_type(source) == c_type(to):
        return text, UNARY
    if to.is_float and to.bits >= 32:
        return w.call(
            "float_of_bits" if to.bits == 32 else "double_of_bits",
            f"(uint{to.bits}_t){text}" if source.code == "int" else text)
    if source.is_float and source.bits >= 32:
        bits = w.call("bits_of_float" if source.bits == 32 else "bits_of_double", text)[0]
        return (f"(int{to.bits}_t){bits}", UNARY) if to.code == "int" else (bits, PRIMARY)
    return f"({c_type(to)}){text}", UNARY


def _extern(w: Writer, e: E.Call) -> Text:
    """Return a call of a linked function: numbers by value, memory by its address."""
    kinds, arguments = [], []
    for a in e.args:
        if isinstance(a, E.Call) and a.op is I.address_of and isinstance(load := a.args[0], Load):
            (index,) = load.indices
            place = index.base if isinstance(index, E.Ramp) else index
            constancy = "const " if number_of(a.args[1]) == 1 else ""
            kinds.append("const void *" if e.op.spelling == OVERLAPS else f"{constancy}{c_type(load.buffer.dtype)} *")
            arguments.append(f"&{w.buffer(load.buffer)}[{w.subscript(place)}]")
        else:
            kinds.append(c_type(a.dtype))
            arguments.append(w.text(a))
    result = "void" if e.dtype == "void" else c_type(e.dtype)
    if e.op is I.call_address:
        called = f"(({result} (*)({', '.join(kinds[1:]) or 'void'}))(intptr_t){w.text(e.args[0], UNARY)})"
        return f"{called}({', '.join(arguments[1:])})", PRIMARY
    if e.op.spelling not in MATHEMATICS:
        w.prototypes.setdefault(e.op.spelling, f"{result} {e.op.spelling}({', '.join(kinds) or 'void'});")
    return f"{e.op.spelling}({', '.join(arguments)})", PRIMARY


_WORDS: Final = (I.pair, I.dot2, I.dot4, I.high_product, I.doubled_high_product, I.multiply_add)
_NAMES: Final = {I.nearbyint: "rint"}
_BITWISE: Final = {
    I.bitwise_and: "&", I.bitwise_or: "|", I.bitwise_xor: "^", I.bitwise_not: "~", I.shift_left: "<<",
    I.shift_right: ">>"
}
_RULES: Final[dict[type, Callable[[Writer, Any], Text]]] = {
    Var: _variable, E.IntImm: _constant, E.FloatImm: _constant, Load: _load, E.Cast: _cast, E.Select: _select,
    E.Call: _call, E.Not: _not,
    E.Add: _arithmetic("+", "add", SUM, "|"), E.Sub: _arithmetic("-", "sub", SUM, "^"),
    E.Mul: _arithmetic("*", "mul", PRODUCT, "&"),
    E.Div: _real_division, E.TruncDiv: _division("truncdiv", "/"), E.TruncMod: _division("truncmod", "%"),
    E.FloorDiv: _division("floordiv", "/"), E.FloorMod: _division("floormod", "%"),
    E.Max: _extremum("max", "|"), E.Min: _extremum("min", "&"),
    E.EQ: _comparison("=="), E.NE: _comparison("!="), E.LT: _comparison("<"), E.LE: _comparison("<="),
    E.GT: _comparison(">"),
    E.GE: _comparison(">="), E.And: _logical("&&", AND), E.Or: _logical("||", OR),
}
