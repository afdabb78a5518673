"""Prints TIR functions in Python syntax, which `tir/parser.py` parses to an equal program.

    @T.prim_func
    def add(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in T.parallel(8):
            B[i] = A[i] + 1.0

A name denotes one variable or buffer in the whole text; different ones of one name get a number: `i`, `i_1`. Numbers
are int64 and float32 unless written with a type: `T.int8(3)`. A loop that does not start at 0 prints both ends:
`T.serial(1, n)`. A scope that ends before the following statements is opened by `with`. `docs/tir.md` has the grammar.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from tilewright.ir.structural import structural_equal
from tilewright.scalar.arith.linear import expression, linear
from tilewright.scalar.expr import (
    Add,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Load,
    Max,
    Min,
    Not,
    PlacedBuffer,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
    add,
    integer_range,
    sub,
)
from tilewright.scalar.intrinsics import Extern, Opaque, Packed, Subroutine
from tilewright.scalar.walk import LONGEST_TEXT, text_of
from tilewright.tir.free_names import free_names
from tilewright.tir.stmt import (
    CALLBACKS,
    INNER,
    NUMBERS,
    OWN_READS,
    RESULT,
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Reducer,
    Seq,
    Stmt,
    Store,
    While,
    walk_stmt,
)

_STRENGTH: Final = {
    "or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7,
    "%": 7
}
_ATOM: Final = 9
_RESERVED: Final = frozenset({"T", "min", "max", "float", "range"})


def text_of_stmt(stmt: Stmt) -> str:
    """Return the text of a statement."""
    printer = _Printer()
    printer.body(stmt, 0)
    return "\n".join(printer.lines)


def text_of_func(func: PrimFunc) -> str:
    """Return the text of a function."""
    printer = _Printer()
    _print_func(printer, func)
    return "\n".join(printer.lines)


def _print_func(printer: _Printer, func: PrimFunc) -> None:
    for p in func.params:
        printer.name(p)
    name, note = (func.name, "") if _is_name(func.name) else (_as_name(func.name), f"(name={value_text(func.name)})")
    kinds = [f"T.{p.dtype}" if isinstance(p, Var) else printer.buffer("Buffer", p) for p in func.params]
    params = [f"{printer.name(p)}: {kind}" for p, kind in zip(func.params, kinds, strict=True)]
    printer.lines += [f"@T.prim_func{note}", f"def {name}({', '.join(params)}):"]
    printer.preamble(func)
    printer.body(func.body, 1)


def text_marking(s: Stmt, at: Stmt) -> str:
    """Return the text of a statement, with the first line of the inner statement `at` marked."""
    printer = _Printer()
    printer.marked = at
    printer.body(s, 0)
    return "\n".join(printer.lines)


class PrintedFunc:
    """The text of a function, with the positions of its statements and their expressions. Lines count from 1."""

    def __init__(self, func: PrimFunc) -> None:
        self._printer = _Printer()
        _print_func(self._printer, func)
        self.lines = self._printer.lines

    def line_of(self, s: Stmt) -> int:
        """Return the first line of a statement; 0 if it is not in the function, or has no separate line."""
        return self._printer.at.get(s, -1) + 1

    def name(self, thing: Var | Buffer) -> str:
        """Return the name of a variable or buffer in the text."""
        return self._printer.name(thing)

    def text(self, e: PrimExpr) -> str:
        """Return the text of an expression, with the names used in the function's text."""
        return self._printer.expr(e)


def extent_between(low: PrimExpr, end: PrimExpr) -> PrimExpr:
    """Return the number of trips of a loop written with both its ends."""
    return expression(linear(sub(end, low)), end.dtype)


class _Name(str):
    """A name in an annotation, which is written without quotes."""

    __slots__ = ()


def value_text(value: Any) -> str:
    """Return the text of an annotation or attribute: numbers, strings and containers of them."""
    match value:
        case _Name():
            return str(value)
        case str():
            plain = value.isprintable() and '"' not in value and "\\" not in value
            return f'"{value}"' if plain else repr(str(value))
        case float():
            return repr(value) if math.isfinite(value) else f"float('{value}')"
        case tuple():
            return f"({', '.join(map(value_text, value))}{',' if len(value) == 1 else ''})"
        case list():
            return f"[{', '.join(map(value_text, value))}]"
        case dict():
            return "{" + ", ".join(f"{value_text(k)}: {value_text(v)}" for k, v in value.items()) + "}"
        case _ if hasattr(value, "export"):  # a target
            return f"T.target({value_text(value.export())})"
        case _:
            return repr(value)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text) and text not in _RESERVED


def _as_name(text: str) -> str:
    """Return an identifier similar to `text`."""
    name = re.sub(r"\W", "_", text) or "v"
    return name if _is_name(name) else f"v{name}" if name[0].isdigit() else f"{name}_"


def new_name(text: str, taken: set[str]) -> str:
    """Return an identifier similar to `text` that is not taken yet, and add it to those."""
    wanted, number = _as_name(text), 0
    name = wanted
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def _is_number(e: PrimExpr) -> bool:
    """Return whether a constant prints as a bare number."""
    return isinstance(e, (IntImm, FloatImm)) and e.dtype in ("int64", "float32", "bool")


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.marked: Stmt | None = None
        self.at: dict[Stmt, int] = {}
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set()
        self.texts: dict[PrimExpr, tuple[str, int]] = {}
        self.placed: list[PlacedBuffer] = []

    def name(self, thing: Var | Buffer) -> str:
        known = self.names.get(thing)
        if known is None:
            known = self.names[thing] = new_name(thing.name, self.taken)
        return known

    def shape(self, buffer: Buffer) -> str:
        return self.sizes(buffer.shape)

    def sizes(self, sizes: Sequence[Any]) -> str:
        dims = [self.expr(d) if isinstance(d, PrimExpr) else str(d) for d in sizes]
        return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"

    def buffer(self, word: str, b: Buffer) -> str:
        """Return the declaration of a buffer."""
        scope = "" if b.scope == "global" else f", scope={value_text(b.scope)}"
        strides = f", strides={self.sizes(b.strides)}" if b.strides else ""
        strides += f", axis_separators={list(b.axis_separators)}" if b.axis_separators else ""
        strides += f", data={self.name(b.pointer)}" if isinstance(b, PlacedBuffer) else ""
        return f'T.{word}({self.shape(b)}, "{b.dtype}"{strides}{scope})'

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # Functions.
    def preamble(self, func: PrimFunc) -> None:
        """Print the declarations before the first statement of a function."""
        variables, buffers = free_names(func)
        for v in variables:
            self.put(1, f"{self.name(v)} = T.{v.dtype}()")
        self.placed = [b for b in buffers if isinstance(b, PlacedBuffer)]
        inside = {s.var for s in walk_stmt(func.body) if isinstance(s, Let)}
        for b in buffers:
            if not isinstance(b, PlacedBuffer) or b.pointer not in inside:
                self.put(1, f"{self.name(b)} = {self.buffer('Buffer', b)}")
        named = {k: v for k, v in func.attrs.items() if k not in (CALLBACKS, NUMBERS, RESULT)}
        inner = named.pop(INNER, None)  # its absence is printed if a function has blocks
        blocks = any(isinstance(s, Block) for s in walk_stmt(func.body))
        if (inner is None and blocks) or (inner == () and not blocks):
            named[INNER] = inner
        if named:
            self.put(1, f"T.func_attr({value_text(named)})")
        for b in inner or ():
            self.put(1, f"{self.name(b)} = {self.buffer('alloc_buffer', b)}")

    # Statements.
    def body(self, s: Stmt, depth: int) -> None:
        """Print `s` as the last statement at this depth."""
        while True:
            if isinstance(s, Seq) and len(s.stmts) > 1:
                for x in s.stmts[:-1]:
                    self.inner(x, depth)
                s = s.stmts[-1]
                if isinstance(s, Seq):
                    self.inner(s, depth)
                    return
            if not isinstance(s, (Let, Allocate, AttrStmt, AssertStmt)):
                break
            self.at.setdefault(s, len(self.lines))
            self.put(depth, self.first_line(s))
            self.declare_placed(s, depth)
            s = s.body
        if isinstance(s, Seq):
            self.inner(s, depth)
        else:
            self.stmt(s, depth)

    def inner(self, s: Stmt, depth: int) -> None:
        """Print `s` as a statement that others follow."""
        if isinstance(s, Seq) and not s.stmts:
            self.put(depth, "pass")
        elif isinstance(s, Seq):
            self.put(depth, "with T.seq():")
            self.body(s, depth + 1) if len(s.stmts) > 1 else self.inner(s.stmts[0], depth + 1)
        elif isinstance(s, (AttrStmt, AssertStmt)):
            self.at.setdefault(s, len(self.lines))
            self.put(depth, f"with {self.attribute(s) if isinstance(s, AttrStmt) else self.assertion(s)}:")
            self.body(s.body, depth + 1)
        elif isinstance(s, (Let, Allocate)):
            self.at.setdefault(s, len(self.lines))
            value, name = self.opening(s, "T.let({})")
            self.put(depth, f"with {value} as {name}:")
            self.declare_placed(s, depth + 1)
            self.body(s.body, depth + 1)
        else:
            self.stmt(s, depth)

    def first_line(self, s: Let | Allocate | AttrStmt | AssertStmt) -> str:
        """Return the line of a statement that holds for the statements after it."""
        if isinstance(s, AssertStmt):
            return f"assert {self.expr(s.condition)}, {value_text(s.message)}"
        return self.attribute(s) if isinstance(s, AttrStmt) else "{1} = {0}".format(*self.opening(s))

    def assertion(self, s: AssertStmt) -> str:
        return f"T.Assert({self.expr(s.condition)}, {value_text(s.message)})"

    def opening(self, s: Let | Allocate, form: str = "{}") -> tuple[str, str]:
        """Return the name that a statement binds for the statements after it, and its value."""
        if isinstance(s, Let):
            return form.format(self.expr(s.value)), self.name(s.var)
        notes = f", annotations={value_text(s.annotations)}" if s.annotations else ""
        if isinstance(s, AllocateConst):
            values = value_text(s.values.tolist())
            text = f'T.allocate_const({values}, "{s.buffer.dtype}", {self.shape(s.buffer)}{notes})'
        else:
            text = f'T.allocate({self.shape(s.buffer)}, "{s.buffer.dtype}", "{s.buffer.scope}"{notes})'
        return text, self.name(s.buffer)

    def declare_placed(self, s: Stmt, depth: int) -> None:
        """Print the declarations of the memory at an address after the statement that binds the address."""
        for b in self.placed:
            if isinstance(s, Let) and b.pointer is s.var:
                self.put(depth, f"{self.name(b)} = {self.buffer('Buffer', b)}")

    def attribute(self, s: AttrStmt) -> str:
        """Return the text of an attribute without the statement that has it."""
        if isinstance(s.node, Reducer):
            body = ", ".join(map(self.expr, s.node.body))
            neutral = ", ".join(  # bare numbers are int32 there
                f"T.int64({e})" if isinstance(e, IntImm) and e.dtype == "int64" else self.expr(e)
                for e in s.node.neutral)
            node = f"T.comm_reducer(lambda {', '.join(map(self.name, s.node.params))}: ({body},), [{neutral}])"
        elif isinstance(s.node, PrimExpr):
            node = self.expr(s.node)
        else:
            node = self.name(s.node) if isinstance(s.node, Buffer) else value_text(s.node)
        value = self.expr(s.value) if isinstance(s.value, PrimExpr) else value_text(s.value)
        return f"T.attr({node}, {value_text(s.attr_key)}, {value})"

    def stmt(self, s: Stmt, depth: int) -> None:
        line = len(self.lines)
        self.at.setdefault(s, line)
        self._stmt(s, depth)
        if s is self.marked:
            self.lines[line] += "    # <-- here"

    def _stmt(self, s: Stmt, depth: int) -> None:
        match s:
            case For():
                self.put(depth, f"for {self.name(s.var)} in T.{s.kind}({self.trips(s)}):")
                self.body(s.body, depth + 1)
            case Store():
                self.store(s, depth)
            case IfThenElse():
                self.put(depth, f"if {self.expr(s.condition)}:")
                self.body(s.then_case, depth + 1)
                if s.else_case is not None:
                    self.put(depth, "else:")
                    self.body(s.else_case, depth + 1)
            case While():
                self.put(depth, f"while {self.expr(s.condition)}:")
                self.body(s.body, depth + 1)
            case Evaluate():
                self.put(
                    depth, self.expr(s.value) if isinstance(s.value, Call) else f"T.evaluate({self.expr(s.value)})")
            case Block():
                self.block(s, depth)
            case _:
                self.put(depth, f"{type(s).__name__}")

    def trips(self, s: For) -> str:
        """Return the bounds of a loop, and its other properties."""
        if isinstance(s.min, IntImm) and s.min.value == 0 and s.min.dtype is s.extent.dtype:
            text = self.expr(s.extent)
        else:
            end = expression(linear(add(s.min, s.extent)), s.extent.dtype)
            exact = s.min.dtype is s.extent.dtype and structural_equal(extent_between(s.min, end), s.extent)
            text = f"{self.expr(s.min)}, {self.expr(end) if exact else f'extent={self.expr(s.extent)}'}"
        if s.var.dtype is not s.extent.dtype:
            text += f', dtype="{s.var.dtype}"'
        return f"{text}, annotations={value_text(s.annotations)}" if s.annotations else text

    def store(self, s: Store, depth: int) -> None:
        target = f"{self.name(s.buffer)}[{', '.join(map(self.expr, s.indices)) or '()'}]"
        value = self.expr(s.value)
        self.put(
            depth, f"{target} = {value}" if s.mask is None else f"{target} = T.masked({self.expr(s.mask)}, {value})")

    def block(self, s: Block, depth: int) -> None:
        bindings = [f", {self.expr(b)}" for b in s.bindings] or [""] * len(s.iters)
        self.put(depth, f"with T.block({value_text(s.name)}):")
        for axis, bound in zip(s.iters, bindings, strict=True):
            kind = "" if axis.var.dtype is axis.extent.dtype else f', dtype="{axis.var.dtype}"'
            self.put(depth + 1, f"{self.name(axis.var)} = T.axis.{axis.kind}({self.expr(axis.extent)}{bound}{kind})")
        if not (isinstance(s.predicate, IntImm) and s.predicate.value):
            self.put(depth + 1, f"T.where({self.expr(s.predicate)})")
        notes = dict(s.annotations)
        reducer = notes.pop("combiner", None)
        if notes.pop(OWN_READS, False):
            self.put(depth + 1, f"T.reads({', '.join(map(self.region, s.reads))})")
        if reducer is not None:
            self.put(depth + 1, self.reducer(reducer) if isinstance(reducer, Reducer) else f"T.reducer({reducer!r})")
        if notes:
            self.put(depth + 1, f"T.block_attr({value_text({k: self.with_names(v) for k, v in notes.items()})})")
        if s.init is not None:
            self.put(depth + 1, "with T.init():")
            self.body(s.init, depth + 2)
        self.body(s.body, depth + 1)

    def region(self, r: Any) -> str:
        """Return the text of a part of a buffer."""
        ends = [f"{self.expr(d.min)} : {self.expr(add(d.min, d.extent))}" for d in r.region]
        return f"{self.name(r.buffer)}[{', '.join(ends) or '()'}]"

    def reducer(self, r: Reducer) -> str:
        body, neutral = (", ".join(map(self.expr, es)) for es in (r.body, r.neutral))
        params = ", ".join(map(self.name, r.params))
        return f"T.reducer({value_text(r.name)}, lambda {params}: ({body},), ({neutral},))"

    # Expressions.
    def expr(self, e: PrimExpr) -> str:
        return self.strong(e)[0]

    def strong(self, e: PrimExpr) -> tuple[str, int]:
        """Return the text of `e`, or `...` if it is longer than `LONGEST_TEXT`, and the precedence of its outermost
        operator."""
        known = self.texts.get(e)
        if known is None:
            known = self._strong(e)
            if len(known[0]) > LONGEST_TEXT:
                known = "...", _ATOM
            self.texts[e] = known
        return known

    def _strong(self, e: PrimExpr) -> tuple[str, int]:
        match e:
            case Var():
                return self.name(e), _ATOM
            case IntImm() if e.dtype.code == "bool":
                return str(bool(e.value)), _ATOM
            case IntImm():
                return (str(e.value), _ATOM if e.value >= 0 else 8) if e.dtype == "int64" else (self.typed(e), _ATOM)
            case FloatImm():
                return (text_of(e), 8) if e.dtype == "float32" else (self.typed(e), _ATOM)
            case Binary() if not isinstance(e, (Min, Max)) and e.symbol in _STRENGTH:
                return self.binary(e)
            case _:
                return self.applied(e), _ATOM

    def binary(self, e: Binary) -> tuple[str, int]:
        strength, symbol, second = _STRENGTH[e.symbol], e.symbol, e.b
        if isinstance(second, IntImm) and isinstance(e, Sub):  # `a - 1` is a sum with -1 when parsed
            return f"T.Sub({self.expr(e.a)}, {self.expr(second)})", _ATOM
        if isinstance(second, IntImm) and isinstance(e, Add) and integer_range(e.dtype)[0] < second.value < 0:
            symbol, second = "-", IntImm(e.dtype, -second.value)
        (a, left), (b, right) = self.strong(e.a), self.strong(second)
        if _is_number(e.a) and _is_number(second):  # two bare numbers would be folded
            a, left = self.typed(e.a), _ATOM
        if left < strength or (left == strength == 4):
            a = f"({a})"
        if right <= strength:
            b = f"({b})"
        return f"{a} {symbol} {b}", strength

    def typed(self, e: PrimExpr) -> str:
        """Return a constant with its type."""
        return f"T.{e.dtype}({text_of(e)})"

    def applied(self, e: PrimExpr) -> str:
        inner = ", ".join(map(self.expr, e.operands()))
        match e:
            case Load():
                return f"{self.name(e.buffer)}[{inner or '()'}]"
            case Min() | Max():
                return f"{e.symbol}({inner})"
            case Not():
                return f"T.logical_not({inner})"
            case Cast():
                return f"T.cast({inner}, \"{e.dtype}\")"
            case Select():
                return f"T.if_then_else({inner})"
            case Ramp() | Broadcast():
                return f"T.{type(e).__name__.lower()}({inner}, {e.dtype.lanes})"
            case Call() if isinstance(e.op, Extern):
                word = e.op.name.removeprefix("tir.")
                return f'T.{word}({value_text(e.dtype)}, {value_text(e.op.spelling)}{", " if inner else ""}{inner})'
            case Call() if isinstance(e.op, Packed):
                return self.packed(e, e.op)
            case Call() if isinstance(e.op, Subroutine):
                return f"Module.{e.op.spelling}({inner})"
            case Call() if isinstance(e.op, Opaque):
                words = [self.expr(a) for a in e.args]
                for place, text in e.op.texts:
                    words.insert(place, value_text(text))
                return f'T.{e.op.spelling}({", ".join([*words, f"dtype={value_text(str(e.dtype))}"])})'
            case Call():
                typed = "" if e.args and e.dtype is e.args[0].dtype else f', dtype="{e.dtype}"'
                return f"T.{e.op.spelling}({inner}{typed})".replace("(, ", "(")
            case Binary():
                return f"T.{e.symbol}({inner})"
            case _:
                return text_of(e)

    def with_names(self, value: Any) -> Any:
        """Return an annotation with names in place of buffers."""
        if isinstance(value, Buffer):
            return _Name(self.name(value))
        return type(value)(map(self.with_names, value)) if isinstance(value, (list, tuple)) else value

    def packed(self, e: Call, op: Packed) -> str:
        """Return a call of a registered function; whole buffers are given by their names."""
        texts, arrays, values = dict(op.texts), dict(op.arrays), iter(e.args)
        words = [value_text(op.function)]
        for place in range(len(e.args) + len(texts)):
            a = None if place in texts else next(values)
            load = a.args[0] if isinstance(a, Call) and place in arrays else None
            words.append(
                value_text(texts[place]) if a is None else self.name(load.buffer) if isinstance(load, Load)
                else self.expr(a))
        return f'T.call_packed({", ".join(words)}, dtype={value_text(str(e.dtype))})'
