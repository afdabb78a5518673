"""Annotate functions with the bytes of the values that are alive while they run.

    let %a = fn (…, Primitive=1) {…}(%x); let %b = fn (…, Primitive=1) {…}(%a); %b
    -> the same with the attribute used_memory=[bytes of %x and %a], then [bytes of %a and %b]

The values are those of the variables of a program in A-normal form: the arguments of the call, its result, and all
other values that are read later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from tilewright.base.errors import CompileError
from tilewright.base.types import FuncType, RefType, TensorType, TupleType, Type
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.adt import Match, pattern_vars
from tilewright.relay.expr import Call, Expr, Function, If, Let, Var
from tilewright.relay.visitor import free_vars, rewrite


@dataclass(frozen=True)
class AnnotateUsedMemory(FunctionPass):
    """Give each primitive function the attribute `used_memory`: for each of its calls, the bytes of the live values.
    Needs A-normal form and known types.

    The function of the module receives `io_used_memory`, the bytes of its parameters and of its result. Raises
    `CompileError` for symbolic sizes.
    """

    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if function.attrs.get("Primitive") or "Compiler" in function.attrs:
            return function
        size = sum(_bytes(e.checked_type) for e in (*function.params, function.body))
        found = _Liveness()
        found.before(function.body, set())
        marked: dict[Expr, Expr] = {
            f: f.with_attr("used_memory", [found.used[c] for c in reversed(calls)]) for f, calls in found.calls.items()}
        new = rewrite(function, marked.get) if marked else function
        assert isinstance(new, Function)
        return new.with_attr("io_used_memory", size)


@dataclass
class _Liveness:
    """Bytes of the live values at each call of a primitive function, and the calls of each function, last first."""

    used: dict[Call, int] = field(default_factory=dict)
    calls: dict[Function, list[Call]] = field(default_factory=dict)
    functions: dict[Var, Function] = field(default_factory=dict)

    def before(self, body: Expr, after: set[Var]) -> set[Var]:
        """Return the variables that are alive before `body`, if those of `after` are alive after it."""
        lets: list[Let] = []
        while isinstance(body, Let):
            lets.append(body)
            if isinstance(body.value, Function):
                self.functions[body.var] = body.value
            body = body.body
        live = self._value(body, None, after)
        for let in reversed(lets):
            live = self._value(let.value, let.var, live)
        return live

    def _value(self, value: Expr, result: Var | None, after: set[Var]) -> set[Var]:
        live = after - {result} if result is not None else after
        if isinstance(value, If):
            return self.before(value.true_branch, live) | self.before(value.false_branch, live) | set(
                free_vars(value.cond))
        if isinstance(value, Match):
            inside = [self.before(c.rhs, live) - set(pattern_vars(c.lhs)) for c in value.clauses]
            return set().union(*inside) | set(free_vars(value.data))
        live = live | set(free_vars(value))
        if isinstance(value, Call):
            called = self.functions.get(value.op, value.op) if isinstance(value.op, Var) else value.op
            if isinstance(called, Function) and called.attrs.get("Primitive"):
                self.used[value] = sum(_bytes(v.checked_type) for v in live) + _bytes(value.checked_type)
                self.calls.setdefault(called, []).append(value)
        return live


def _bytes(kind: Type) -> int:
    """Return the number of bytes of a value of tensors; functions and references have none."""
    if isinstance(kind, TupleType):
        return sum(_bytes(f) for f in kind.fields)
    if isinstance(kind, TensorType):
        if not kind.is_static:
            raise CompileError(f"AnnotateUsedMemory does not support dynamic shapes, such as {kind!r}", code="TW0303")
        return int(kind.nbytes)
    if isinstance(kind, (FuncType, RefType)):
        return 0
    raise CompileError(f"the bytes of a value of type {kind!r} are unknown", code="TW0303")
