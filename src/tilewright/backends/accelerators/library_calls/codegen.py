"""Converts a function for a library to calls: one per composite function, in order of evaluation.

A call reads the composite's arguments, then its inner constants in order, so that a library gets all data of a layer.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from tilewright.backends.accelerators.library_calls.module import LibraryModule, Step, Tensor
from tilewright.base.errors import CompileError
from tilewright.base.types import DataType, TensorType, TupleType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op, plain
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.visitor import post_order

_ALIGNMENT = 64


def library_module(library: str, function: Function) -> LibraryModule:
    """Return the calls of composite functions in a function with `Compiler=<library>`. Raises `CompileError` for any
    other body."""
    return _Calls(library, function).module()


class _Calls:
    def __init__(self, library: str, function: Function) -> None:
        self.library, self.function = library, function
        self.tensors: list[Tensor] = []
        self.constants: list[np.ndarray[Any, Any]] = []
        self.steps: list[Step] = []
        self.of: dict[Expr, tuple[int, ...]] = {}

    def module(self) -> LibraryModule:
        for i, p in enumerate(self.function.params):
            self.of[p] = (self._tensor("input", i, p.checked_type),)
        composites = [e for e in post_order(self.function.body) if isinstance(e, Function)]
        inside = set(post_order(*(f.body for f in composites))) if composites else set()
        for e in post_order(self.function.body):
            if e not in inside and not isinstance(e, (Var, Function)):
                self.of[e] = self._value(e)
        for place, number in enumerate(self.of[self.function.body]):
            self._give_out(place, number)
        return LibraryModule(
            self.library, str(self.function.attrs["global_symbol"]), self.tensors, self.steps, self.constants,
            self._lay_out())

    def _give_out(self, place: int, number: int) -> None:
        t = self.tensors[number]
        if t.kind != "workspace":
            symbol = self.function.attrs["global_symbol"]
            raise CompileError(
                f"@{symbol} returns its {t.kind} {t.place} unchanged, which no call of {self.library} writes; "
                "partition the network again",
                self.function.span, code="TW0904")
        self.tensors[number] = dataclasses.replace(t, kind="output", place=place)

    def _lay_out(self) -> int:
        """Place the tensors between calls consecutively in the workspace; return its bytes."""
        size = 0
        for i, t in enumerate(self.tensors):
            if t.kind == "workspace":
                self.tensors[i] = dataclasses.replace(t, place=size)
                size += -(-TensorType(t.shape, DataType(t.dtype)).nbytes // _ALIGNMENT) * _ALIGNMENT
        return size

    def _tensor(self, kind: str, place: int, type_: Any) -> int:
        if not isinstance(type_, TensorType) or not type_.is_static:
            raise CompileError(
                f"@{self.function.attrs['global_symbol']} has a value of type {type_}; {self.library} takes tensors of "
                "known shape",
                self.function.span, code="TW0904")
        self.tensors.append(Tensor(kind, place, type_.concrete_shape, str(type_.dtype)))
        return len(self.tensors) - 1

    def _value(self, e: Expr) -> tuple[int, ...]:
        match e:
            case Constant():
                self.constants.append(np.asarray(e.value))
                return (self._tensor("constant", len(self.constants) - 1, e.checked_type),)
            case Tuple():
                return tuple(n for f in e.fields for n in self.of[f])
            case TupleGetItem():
                return (self.of[e.tuple_value][e.index],)
            case Call(op=Function() as composite) if "Composite" in composite.attrs:
                return self._call(e, composite)
        what = e.op.name if isinstance(e, Call) and isinstance(e.op, Op) else type(e).__name__
        raise CompileError(
            f"{self.library} was given {what} outside of a composite function; give it rows of its pattern table only "
            "(MergeComposite)",
            e.span, code="TW0904")

    def _call(self, call: Call, composite: Function) -> tuple[int, ...]:
        reads = [n for a in call.args for n in self.of[a]]
        inside = [e for e in post_order(composite.body) if isinstance(e, Constant)]
        reads += [n for c in inside for n in self._value(c)]
        result = call.checked_type
        writes = tuple(
            self._tensor("workspace", 0, t) for t in (result.fields if isinstance(result, TupleType) else (result,)))
        name = re.sub(r"\W", "_", str(composite.attrs["Composite"]))
        rounding = self.function.attrs.get(NUMERICS)
        meaning = IRModule.from_expr(
            Function(composite.params, composite.body, attrs={NUMERICS: rounding} if rounding else {})
        ).astext(show_meta_data=True)
        self.steps.append(Step(name, tuple(reads), writes, len(inside), _attributes(composite), meaning))
        return writes


def _attributes(composite: Function) -> dict[str, Any]:
    """Return the attributes of the inner operators, by operator."""
    found: dict[str, Any] = {}
    for e in post_order(composite.body):
        if isinstance(e, Call) and isinstance(e.op, Op):
            found[e.op.name] = {k: _as_json(plain(v)) for k, v in e.op.attributes().items()}
    return found


def _as_json(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_as_json(v) for v in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
