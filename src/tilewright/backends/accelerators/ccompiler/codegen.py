"""Writes a Relay function of sums, differences and products as a C function, and compiles it.

    fn (%x: Tensor[(8), float32]) { add(%x, 1f) }   ->   for (…) v2[i0] = v0[i0] + v1[0];

Operands are broadcast as in numpy. Values between calls lie in the workspace.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.accelerators.ccompiler.module import CompiledCModule
from tilewright.backends.cpu.c.compile import compile_c
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, InternalError
from tilewright.base.types import TensorType, TupleType
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import post_order

OPERATORS: Final = {"add": "+", "subtract": "-", "multiply": "*"}
"""The operators that can be written, and their signs in C."""
C_TYPES: Final = {
    "float32": "float", "float64": "double",
    **{f"{u}int{n}": f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)},
}
_ALIGNMENT: Final = 64


def c_module(function: Function) -> CompiledCModule:
    """Return the module of a function. Raises `CompileError` for other operators, dtypes and unknown sizes, and with
    the message of the C compiler for a header that is not C."""
    writer = _Writer(function)
    text = writer.text()
    try:
        image = compile_c(text, Target("llvm -mcpu=generic"), options=("-fwrapv",))
    except InternalError as error:
        raise CompileError(
            f"the C compiler refused the functions for 'ccompiler'; check the header of its target: {error}",
            function.span, code="TW0508") from error
    return CompiledCModule(writer.symbol, writer.entry, text, image, writer.constants, writer.workspace)


class _Writer:
    """The text of one function; each tensor is a C variable."""

    def __init__(self, function: Function) -> None:
        self.function, self.symbol = function, str(function.attrs["global_symbol"])
        self.entry = re.sub(r"\W", "_", self.symbol)
        self.constants: list[np.ndarray[Any, Any]] = []
        self.workspace = 0
        self.lines: list[str] = []
        self._names: dict[Expr, list[str]] = {}
        self._count = 0

    def text(self) -> str:
        for place, p in enumerate(self.function.params):
            self._names[p] = [self._variable(p, f"args[{place}]", "const ")]
        for e in post_order(self.function.body):
            if e not in self._names and not isinstance(e, Op):
                self._names[e] = self._value(e)
        body = self.function.body
        kinds = body.checked_type.fields if isinstance(body.checked_type, TupleType) else (body.checked_type,)
        for place, (name, kind) in enumerate(zip(self._names[body], kinds, strict=True)):
            count = math.prod(self._tensor(kind, body).concrete_shape)
            out = f"(({self._c_type(kind, body)}*)args[{len(self.function.params) + place}])"
            self.lines.append(f"for (int64_t i = 0; i < {count}; ++i) {out}[i] = {name}[i];")
        header = str(self.function.attrs.get("ccompiler.header", ""))
        return "\n".join([
            *([header] if header else []), "#include <stdint.h>", "",
            f"void {self.entry}(void* const* args, void* const* constants, char* workspace) {{",
            *(f"  {line}" for line in self.lines), "}", ""])

    def _value(self, e: Expr) -> list[str]:
        match e:
            case Constant():
                self.constants.append(np.asarray(e.value))
                return [self._variable(e, f"constants[{len(self.constants) - 1}]", "const ")]
            case Tuple():
                return [name for f in e.fields for name in self._names[f]]
            case TupleGetItem():
                return [self._names[e.tuple_value][e.index]]
            case Call(op=Op() as op) if op.name in OPERATORS:
                return [self._call(e, OPERATORS[op.name])]
        what = e.op.name if isinstance(e, Call) and isinstance(e.op, Op) else f"a {type(e).__name__}"
        raise CompileError(
            f"'ccompiler' writes {', '.join(OPERATORS)}, and @{self.symbol} has {what}; leave it to the processor",
            e.span, code="TW0904")

    def _call(self, call: Call, sign: str) -> str:
        """Write the loops of a call, and return the name of its result."""
        kind = self._tensor(call.checked_type, call)
        name = self._variable(call, f"(workspace + {self.workspace})", "")
        self.workspace += -(-kind.nbytes // _ALIGNMENT) * _ALIGNMENT
        shape = kind.concrete_shape
        operands = [
            f"{self._names[a][0]}[{_index(self._tensor(a.checked_type, a).concrete_shape, len(shape))}]"
            for a in call.args]
        loops = "".join(f"for (int64_t i{d} = 0; i{d} < {n}; ++i{d}) " for d, n in enumerate(shape))
        self.lines.append(f"{loops}{name}[{_index(shape, len(shape))}] = {operands[0]} {sign} {operands[1]};")
        return name

    def _variable(self, e: Expr, place: str, qualifier: str) -> str:
        name = f"v{self._count}"
        self._count += 1
        c_type = self._c_type(e.checked_type, e)
        self.lines.append(f"{qualifier}{c_type}* const {name} = ({qualifier}{c_type}*){place};")
        return name

    def _c_type(self, kind: Any, e: Expr) -> str:
        dtype = str(self._tensor(kind, e).dtype)
        if dtype not in C_TYPES:
            raise CompileError(
                f"'ccompiler' has no C type for {dtype}, which @{self.symbol} uses; known are {', '.join(C_TYPES)}",
                e.span, code="TW0904")
        return C_TYPES[dtype]

    def _tensor(self, kind: Any, e: Expr) -> TensorType:
        if isinstance(kind, TensorType) and kind.is_static:
            return kind
        raise CompileError(
            f"@{self.symbol} has a value of type {kind}; 'ccompiler' takes tensors of known shape", e.span,
            code="TW0904")


def _index(shape: Sequence[int], rank: int) -> str:
    """Return the place of an element of an operand in row-major order; `i0`, `i1`, … are the places in the result."""
    terms, stride = [], 1
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] != 1:
            terms.append(f"i{rank - len(shape) + d}" + (f" * {stride}" if stride > 1 else ""))
        stride *= shape[d]
    return " + ".join(reversed(terms)) or "0"
