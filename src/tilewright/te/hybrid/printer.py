"""Prints lowered loops as a function in hybrid script, which `reader.py` reads back.

    for i in T.parallel(8): B[i] = A[i] + 1.0
      ->
    def f(A):
        B = output_tensor((8,), "float32")
        for i in parallel(8):
            B[i] = A[i] + 1.0
        return B

A multiply-add is written as a product and a sum.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import (
    And,
    Binary,
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
    Select,
    TruncDiv,
    TruncMod,
    Var,
    add,
)
from tilewright.te.hybrid.reader import FUNCTIONS, LOOPS
from tilewright.te.hybrid.runtime import HYBRID_GLOBALS
from tilewright.tir.stmt import THREAD, Allocate, Evaluate, For, IfThenElse, Let, Seq, Stmt, Store

_INDENT: Final = "    "
_LOOPS: Final = {
    "serial": "range", "parallel": "parallel", "vectorized": "vectorize", "unrolled": "unroll"}
_WORDS: Final = frozenset({*FUNCTIONS, *LOOPS, *HYBRID_GLOBALS, "output_tensor", "allocate", "const_range", "T"})
"""Names that no variable may have."""


def function_text(name: str, params: Sequence[Var | Buffer], results: Sequence[Buffer], body: Stmt) -> str:
    """Return the text of a function of `params`. Raises `CompileError` for statements that are not part of hybrid
    script."""
    printer = _Printer()
    names = [printer.name(p) for p in params]
    lines = [f"def {name}({', '.join(names)}):"]
    for b in results:
        lines.append(f'{_INDENT}{printer.name(b)} = output_tensor({printer.tuple(b.shape)}, "{b.dtype}")')
    printer.stmt(body, 1)
    lines += printer.lines
    lines.append(f"{_INDENT}return {', '.join(map(printer.name, results))}")
    return "\n".join(lines) + "\n"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}

    def name(self, thing: Var | Buffer) -> str:
        """Return the name of a variable or buffer, which is different from all others."""
        known = self.names.get(thing)
        if known is None:
            plain = re.sub(r"\W", "_", thing.name) or "v"
            plain = f"v{plain}" if plain[0].isdigit() else plain
            known, number, taken = plain, 0, set(self.names.values())
            while known in taken or known in _WORDS or keyword.iskeyword(known):
                number += 1
                known = f"{plain}_{number}"
            self.names[thing] = known
        return known

    def put(self, depth: int, text: str) -> None:
        self.lines.append(_INDENT * depth + text)

    def tuple(self, sizes: Sequence[Any]) -> str:
        words = [self.expr(n) if isinstance(n, PrimExpr) else str(n) for n in sizes]
        return f"({', '.join(words)}{',' if len(words) == 1 else ''})"

    # Statements.
    def stmt(self, s: Stmt, depth: int) -> None:
        match s:
            case Seq():
                for x in s.stmts:
                    self.stmt(x, depth)
                if not s.stmts:
                    self.put(depth, "pass")
            case For() if THREAD not in s.annotations:
                self.loop(s, depth)
            case IfThenElse():
                self.put(depth, f"if {self.expr(s.condition)}:")
                self.stmt(s.then_case, depth + 1)
                if s.else_case is not None:
                    self.put(depth, "else:")
                    self.stmt(s.else_case, depth + 1)
            case Store() if s.mask is None:
                self.put(depth, f"{self.element(s.buffer, s.indices)} = {self.expr(s.value)}")
            case Allocate():
                b = s.buffer
                self.put(depth, f'{self.name(b)} = allocate({self.tuple(b.shape)}, "{b.dtype}", "{b.scope}")')
                self.stmt(s.body, depth)
            case Let():
                self.put(depth, f"{self.name(s.var)} = {self.expr(s.value)}")
                self.stmt(s.body, depth)
            case Evaluate() if isinstance(s.value, (IntImm, FloatImm)):
                self.put(depth, "pass")
            case _:
                raise _refused(type(s).__name__, s)

    def loop(self, s: For, depth: int) -> None:
        start = isinstance(s.min, IntImm) and s.min.value == 0
        ends = [self.expr(s.extent)] if start else [self.expr(s.min), self.expr(add(s.min, s.extent))]
        self.put(depth, f"for {self.name(s.var)} in {_LOOPS[s.kind]}({', '.join(ends)}):")
        self.stmt(s.body, depth + 1)

    def element(self, b: Buffer, indices: Sequence[PrimExpr]) -> str:
        return f"{self.name(b)}[{', '.join(map(self.expr, indices)) or '()'}]"

    # Expressions.
    def expr(self, e: PrimExpr) -> str:
        match e:
            case Var():
                return self.name(e)
            case IntImm() if e.dtype.code == "bool":
                return str(bool(e.value))
            case IntImm():
                return str(e.value) if e.dtype == "int64" else f"{self.word(e)}({e.value})"
            case FloatImm():
                return self.number(e)
            case Load():
                return self.element(e.buffer, e.indices)
            case Cast():
                return f"{self.word(e)}({self.expr(e.value)})"
            case Select():
                condition, a, b = map(self.expr, e.operands())
                return f"({a} if {condition} else {b})"
            case Not():
                return f"(not {self.expr(e.a)})"
            case Min() | Max():
                return f"{'min' if isinstance(e, Min) else 'max'}({self.expr(e.a)}, {self.expr(e.b)})"
            case Binary() if e.dtype.lanes == 1 and not isinstance(e, (TruncDiv, TruncMod)):
                symbol = "and" if isinstance(e, And) else "or" if isinstance(e, Or) else e.symbol
                return f"({self.expr(e.a)} {symbol} {self.expr(e.b)})"
            case Call():
                return self.call(e)
            case _:
                raise _refused(type(e).__name__, e)

    def number(self, e: FloatImm) -> str:
        if math.isfinite(e.value):
            text = repr(e.value)
        elif math.isinf(e.value):
            text = "inf" if e.value > 0 else "ninf"
        else:
            raise _refused("NaN", e)
        return text if e.dtype == "float32" and math.isfinite(e.value) else f"{self.word(e)}({text})"

    def word(self, e: PrimExpr) -> str:
        """Return the name of a type, which is the function that converts to it."""
        if str(e.dtype) not in FUNCTIONS:
            raise _refused(f"the type {e.dtype}", e)
        return str(e.dtype)

    def call(self, e: Call) -> str:
        words = [self.expr(a) for a in e.args]
        if e.op is I.fma:
            return f"({words[2]} + {words[0]} * {words[1]})"
        name = {"pow": "power", "nearbyint": "round"}.get(e.op.spelling, e.op.spelling)
        if name not in FUNCTIONS:
            raise _refused(f"the function '{e.op.spelling}'", e)
        return f"{name}({', '.join(words)})"


def _refused(what: str, at: Stmt | PrimExpr) -> CompileError:
    text = str(at).split("\n", 1)[0]
    return CompileError(
        f"{what} is not part of hybrid script: '{text[:80]}'; build the schedule with tvm.build instead", code="TW0606")


__all__ = ["function_text"]
