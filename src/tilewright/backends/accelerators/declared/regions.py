"""A function for an accelerator after partitioning: its operators in order, each as instructions on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.backends.accelerators.declared.declaration import Accelerator, Emitted, Operand, Operator, Refused
from tilewright.backends.accelerators.declared.matches import Match, Reading, tensor_of
from tilewright.base.errors import CompileError
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.visitor import post_order

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Named:
    """An operator of the network: its name, the accelerator's operator, and its multiply-accumulates."""

    name: str
    operator: str
    macs: int


@dataclass
class Region:
    """The contents of one function: `layers` in order, over tensors identified by the `source` of operands."""

    symbol: str
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)
    layers: list[tuple[Named, list[Emitted]]] = field(default_factory=list)


def lowered(operator: Operator, match: Match) -> tuple[list[Emitted], Operand | None]:
    """Return the instructions of a match, or the operand of the result if no data move. Raises `Refused` if a field
    of an instruction is too small for its value."""
    made = operator.lower(match)
    if isinstance(made, Operand):
        return [], made
    found = list(made) if isinstance(made, Sequence) else [made]
    if not found or not all(isinstance(e, Emitted) for e in found):
        raise CompileError(
            f"the operator {operator.name} returned {made!r}; it returns an instruction that it called, several in a "
            "list, or the operand that the result is",
            code="TW0903")
    return found, None


def operator_of(accelerator: Accelerator, call: Expr) -> Operator:
    """Return the operator of a called composite function."""
    composite = call.op.attrs.get("Composite", "") if isinstance(call, Call) and isinstance(call.op, Function) else ""
    owner, _, name = str(composite).partition(".")
    if owner != accelerator.name or name not in accelerator.operators:
        what = (
            composite or (call.op.name if isinstance(call, Call) and hasattr(call.op, "name") else type(call).__name__)
        )
        raise CompileError(
            f"{accelerator.name} does not compute {what}; partition with {accelerator.name}.partition_for(mod)",
            call.span, code="TW0904")
    return accelerator.operators[name]


def read_region(accelerator: Accelerator, function: Function) -> Region:
    """Return the layers of a function with calls of composite functions as its body. Raises `CompileError` for a call
    that the accelerator does not compute."""
    return _Reader(accelerator, function).region


class _Reader:
    """Reads a function. `tensors` maps values to operands; sources are numbered in order of appearance."""

    def __init__(self, accelerator: Accelerator, function: Function) -> None:
        self.accelerator = accelerator
        own = function.attrs.get(NUMERICS)
        self.numerics = str(own) if own else accelerator.numerics
        if own and str(own) != accelerator.numerics:
            raise CompileError(
                f'the network has the numerics "{own}", and {accelerator.name} rounds as "{accelerator.numerics}"; '
                f"partition with {accelerator.name}.partition_for(mod), "
                "which uses its rounding for the whole network, and omit the option relay.qnn.numerics",
                function.span, code="TW0905")
        self.tensors: dict[Expr, Operand | Array] = {}
        self.region = Region(str(function.attrs.get("global_symbol", accelerator.name)))
        for p in function.params:
            self.region.inputs.append(self._fresh(p))
        for e in post_order(function.body, inside=False):
            self._visit(e)
        results = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
        for e in results:
            found = self.tensors[e]
            if not isinstance(found, Operand):
                raise CompileError(
                    f"the function @{self.region.symbol} gives a constant; fold constants before the network is "
                    "partitioned",
                    function.span, code="TW0904")
            self.region.outputs.append(found)

    def _fresh(self, e: Expr) -> Operand:
        made = tensor_of(e)
        assert isinstance(made, Operand)
        numbered = Operand(len(self.tensors), made.whole, made.dtype)
        self.tensors[e] = numbered
        return numbered

    def _visit(self, e: Expr) -> None:
        if e in self.tensors or isinstance(e, (Tuple, Function)):
            return
        if isinstance(e, Constant):
            self.tensors[e] = e.value
            return
        if isinstance(e, (Var, TupleGetItem)) or not isinstance(e, Call):
            raise CompileError(
                f"{self.accelerator.name} does not support a {type(e).__name__}; its functions contain only its "
                "operators", e.span, code="TW0904")
        operator = operator_of(self.accelerator, e)
        composite: Any = e.op
        result = self._fresh(e)
        arguments = [self.tensors[a] for a in e.args]
        given = dict(zip(composite.params, arguments, strict=True))

        def tensor(inner: Expr) -> Operand | Array:
            return result if inner is composite.body else given[inner] if inner in given else tensor_of(inner)

        try:
            match = operator.form.read(composite.body, Reading(self.accelerator, self.numerics, tensor))
            emitted, same = lowered(operator, match)
        except Refused as refused:
            raise CompileError(
                f"{self.accelerator.name} refuses {operator.name}: {refused.rule}; {refused.edit}", e.span,
                code="TW0904"
            ) from None
        if same is not None:
            self.tensors[e] = Operand(same.source, result.whole, result.dtype)
        else:
            name = e.span.name if e.span is not None else match.name
            self.region.layers.append((Named(name or operator.name, operator.name, match.macs), emitted))
