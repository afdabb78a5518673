"""The text of loop programs, in Python syntax.

    @T.prim_func
    def add(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in T.parallel(8):
            B[i] = A[i] + 1.0

Different variables or buffers of one name are told apart by a number: `i`, `i_1`. A loop that does not start at 0 prints
both ends: `T.serial(1, n)`. A masked store is `if`-ed by lanes: `T.masked(mask, …)`.
"""

from __future__ import annotations

from typing import Any

from tilewright.arith.linear import expression, linear
from tilewright.expr import (
    Add,
    And,
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
    Or,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
    add,
)
from tilewright.expr_walk import text_of
from tilewright.tir.stmt import Allocate, Block, Evaluate, For, IfThenElse, Let, PrimFunc, Seq, Stmt, Store

_STRENGTH = {"or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7}
_ATOM = 9


def text_of_stmt(stmt: Stmt) -> str:
    """The text of a statement."""
    printer = _Printer()
    printer.stmt(stmt, 0)
    return "\n".join(printer.lines)


def text_of_func(func: PrimFunc) -> str:
    """The text of a function."""
    printer = _Printer()
    params = ", ".join(f"{printer.name(b)}: T.Buffer({printer.shape(b)}, \"{b.dtype}\")" for b in func.params)
    printer.lines += ["@T.prim_func", f"def {func.name}({params}):"]
    printer.stmt(func.body, 1)
    return "\n".join(printer.lines)


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set()

    def name(self, thing: Var | Buffer) -> str:
        known = self.names.get(thing)
        if known is None:
            known, number = thing.name or "v", 0
            while known in self.taken:
                number += 1
                known = f"{thing.name or 'v'}_{number}"
            self.taken.add(known)
            self.names[thing] = known
        return known

    def shape(self, buffer: Buffer) -> str:
        dims = [self.expr(d) if isinstance(d, PrimExpr) else str(d) for d in buffer.shape]
        return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # Statements.
    def stmt(self, s: Stmt, depth: int) -> None:
        match s:
            case For():
                low, end = self.expr(s.min), self.expr(expression(linear(add(s.min, s.extent)), s.var.dtype))
                notes = "".join(f", {k}={v!r}" for k, v in s.annotations.items())
                self.put(depth, f"for {self.name(s.var)} in T.{s.kind}({'' if low == '0' else f'{low}, '}{end}{notes}):")
                self.stmt(s.body, depth + 1)
            case Seq():
                for x in s.stmts:
                    self.stmt(x, depth)
                if not s.stmts:
                    self.put(depth, "pass")
            case Store():
                self.store(s, depth)
            case IfThenElse():
                self.put(depth, f"if {self.expr(s.condition)}:")
                self.stmt(s.then_case, depth + 1)
                if s.else_case is not None:
                    self.put(depth, "else:")
                    self.stmt(s.else_case, depth + 1)
            case _:
                self.rare_stmt(s, depth)

    def rare_stmt(self, s: Stmt, depth: int) -> None:
        match s:
            case Allocate():
                name = self.name(s.buffer)
                self.put(depth, f"{name} = T.allocate({self.shape(s.buffer)}, \"{s.buffer.dtype}\", \"{s.buffer.scope}\")")
                self.stmt(s.body, depth)
            case Let():
                value = self.expr(s.value)
                self.put(depth, f"{self.name(s.var)} = {value}")
                self.stmt(s.body, depth)
            case Evaluate():
                self.put(depth, self.expr(s.value))
            case Block():
                self.block(s, depth)
            case _:
                self.put(depth, f"{type(s).__name__}")

    def store(self, s: Store, depth: int) -> None:
        target = f"{self.name(s.buffer)}[{', '.join(map(self.expr, s.indices)) or '()'}]"
        value = self.expr(s.value)
        self.put(depth, f"{target} = {value}" if s.mask is None else f"{target} = T.masked({self.expr(s.mask)}, {value})")

    def block(self, s: Block, depth: int) -> None:
        bindings = [self.expr(b) for b in s.bindings]
        self.put(depth, f'with T.block("{s.name}"):')
        for axis, bound in zip(s.iters, bindings, strict=True):
            self.put(depth + 1, f"{self.name(axis.var)} = T.axis.{axis.kind}({self.expr(axis.extent)}, {bound})")
        if not isinstance(s.predicate, IntImm):
            self.put(depth + 1, f"T.where({self.expr(s.predicate)})")
        if s.init is not None:
            self.put(depth + 1, "with T.init():")
            self.stmt(s.init, depth + 2)
        self.stmt(s.body, depth + 1)

    # Expressions.
    def expr(self, e: PrimExpr) -> str:
        return self.strong(e)[0]

    def strong(self, e: PrimExpr) -> tuple[str, int]:
        """The text of `e`, and how strongly its outermost operator binds."""
        match e:
            case Var():
                return self.name(e), _ATOM
            case IntImm() if e.dtype.code == "bool":
                return str(bool(e.value)), _ATOM
            case IntImm():
                return (str(e.value), _ATOM if e.value >= 0 else 8) if e.dtype == "int64" else (f"T.{e.dtype}({e.value})", _ATOM)
            case FloatImm():
                text = text_of(e)
                return (text, _ATOM if e.value >= 0 else 8) if e.dtype == "float32" else (f"T.{e.dtype}({text})", _ATOM)
            case Binary() if not isinstance(e, (Min, Max)) and e.symbol in _STRENGTH:
                return self.binary(e)
            case _:
                return self.applied(e), _ATOM

    def binary(self, e: Binary) -> tuple[str, int]:
        strength = _STRENGTH[e.symbol]
        if isinstance(e, Add) and isinstance(e.b, IntImm) and e.b.value < 0:
            return self.binary(Sub(e.a, IntImm(e.dtype, -e.b.value)))
        (a, left), (b, right) = self.strong(e.a), self.strong(e.b)
        associative = isinstance(e, (And, Or))
        if left < strength or (left == strength == 4):
            a = f"({a})"
        if right < strength or (right == strength and not associative):
            b = f"({b})"
        return f"{a} {e.symbol} {b}", strength

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
            case Call():
                typed = f", dtype=\"{e.dtype}\"" if e.args and e.dtype is not e.args[0].dtype else ""
                return f"T.{e.op.name}({inner}{typed})"
            case Binary():
                return f"T.{e.symbol}({inner})"
            case _:
                return text_of(e)
