"""`onnx.deferred`: a node of an ONNX model that is converted when the values it asks for, and the types of its inputs, are known.

    onnx.deferred(%data, %axes, op_type="ReduceSum", model="…")  ->  sum(%data, axis=[1])       once %axes is [1]

It is a whole model of one node in an operator's attributes, so that it can be printed, stored and moved as every other. Nothing is
known of its type; what reads it has no type either, until `resolve` has put the converted node in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple
from tilewright.relay.op.registry import Array, Fusion, Op, op
from tilewright.relay.sequence_values import NOTHING

Ask = Callable[[Expr], "Array | None"]
"""The value of an expression for whoever cannot go on without it; None where it is not known yet."""


class Waiting(Op):
    """Base of the operators that stand for one of a model that could not be converted yet. Nothing is known of their type."""

    objects = True
    random: bool

    @property
    def pure(self) -> bool:  # type: ignore[override]
        """False for what draws random numbers."""
        return not self.random

    @property
    def decides(self) -> bool:
        """Whether the first argument decides which graph the operator is; the others are what that graph takes, and it is made without their types."""
        return False

    def content(self) -> Hashable:
        """What tells conversions apart: two operators of the same content are converted alike."""
        return self

    def infer(self, *inputs: Any) -> Any:
        """The types of the converted node, unknown until it is converted."""

    def resolve(self, call: Call, ask: Ask) -> Expr | None:
        """What is converted, or None when `ask` does not know a value it needs; raises `CompileError` naming the node."""
        raise NotImplementedError

    def reference(self, *inputs: Array) -> Any:
        from tilewright.relay.interpreter import evaluate

        found = self.resolve(Call(self, [_given(x) for x in inputs]), _value)
        assert found is not None
        return _there(found, evaluate(Function((), found)))


@op("onnx.deferred", kind=Fusion.OPAQUE)
class Deferred(Waiting):
    """A node of an ONNX model that could not be converted yet; a tuple where the node has several outputs.

    `model` is the model of that node alone, serialized, in base64; `config` the importer's options; `random` says that two runs of
    the node may differ.
    """

    objects = True
    op_type: str
    """ONNX operator of the node."""
    model: str
    """Model of this node alone, serialized, in base64."""
    config: tuple[tuple[str, Any], ...] = ()
    """Options of the importer, as pairs."""
    random: bool = False
    """True when two runs of the node may differ."""

    def resolve(self, call: Call, ask: Ask) -> Expr | None:
        from tilewright.relay.frontend.onnx.deferred import convert

        return convert(self, call, ask)

    @property
    def decides(self) -> bool:
        from tilewright.relay.frontend.onnx.deferred import is_branch

        return is_branch(self)

    def content(self) -> Hashable:
        from tilewright.relay.frontend.onnx.deferred import nameless

        return (nameless(self.model), self.config)


@op("tflite.deferred", kind=Fusion.OPAQUE)
class DeferredTflite(Waiting):
    """An operator of a TFLite model that could not be converted yet; a tuple where it has several results.

    `operator` is what the file says of it, as JSON; `model` the whole file in base64 for an operator that runs other graphs of it.
    """

    op_kind: str
    """TFLite operator."""
    operator: str
    """Description of the operator in the file, as JSON."""
    model: str = ""
    """Whole file in base64, for operators that run other graphs of it; "" for the others."""
    random: bool = False
    """True when two runs of the operator may differ."""

    def resolve(self, call: Call, ask: Ask) -> Expr | None:
        from tilewright.relay.frontend.tflite.deferred import convert

        return convert(self, call, ask)


def _given(value: Any) -> Expr:
    """A value of the interpreter as an expression; an empty optional is None there."""
    if value is None:
        return NOTHING
    return Tuple(tuple(map(_given, value))) if isinstance(value, tuple) else Constant(np.asarray(value))


def _there(found: Expr, value: Any) -> Any:
    """The value of `found`, with None for what is not there."""
    if isinstance(found, Tuple):
        return None if found is NOTHING else tuple(map(_there, found.fields, value))
    return value


def _value(e: Expr) -> Array | None:
    """The value of an expression over constants."""
    from tilewright.relay.interpreter import evaluate

    return e.value if isinstance(e, Constant) else np.asarray(evaluate(Function((), e)))


def pending(call: Expr) -> bool:
    """Whether `call` is of an operator that waits for values."""
    return isinstance(call, Call) and hasattr(call.op, "resolve")


def all_known(values: Sequence[Array | None]) -> list[Array] | None:
    """`values` when none is missing."""
    known = [v for v in values if v is not None]
    return known if len(known) == len(values) else None
