"""Operators for deferred nodes, which are converted once the values they need and the types of their inputs are known.

    frontend.deferred(%data, %axes, source="onnx", op_type="ReduceSum", model="…")
      ->  sum(%data, axis=[1])       once %axes is [1]

The node is stored in the attributes of the operator, so the call can be printed, stored and moved like any other. Its
type is unknown, and so are the types of its consumers, until `resolve` replaces it by the converted node. Each frontend
registers a `Resolver` for its format.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from tilewright.base.plugins import load_frontend
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple
from tilewright.relay.op.registry import Array, Fusion, Op, op
from tilewright.relay.sequence_values import NOTHING

Ask = Callable[[Expr], "Array | None"]
"""Returns the value of an expression that a conversion needs, or None if it is not known yet."""


class Resolver(Protocol):
    """The part of a frontend that converts deferred nodes of its format."""

    def convert(self, op: Deferred, call: Call, ask: Ask) -> Expr | None:
        """The converted node, or None if `ask` lacks a value it needs; raises `CompileError` naming the node."""

    def is_branch(self, op: Deferred) -> bool:
        """Whether the node selects one of its inner graphs by its first input."""

    def content(self, op: Deferred) -> Hashable:
        """A key that is equal for nodes that convert alike."""


RESOLVERS: Final[dict[str, Resolver]] = {}
"""Resolvers by the name of the format."""


def register_resolver(name: str, resolver: Resolver) -> None:
    """Register the resolver of deferred nodes of the format `name`."""
    RESOLVERS[name] = resolver


class Waiting(Op):
    """Base of the operators that are replaced by a graph once values are known. Their types are unknown."""

    objects = True
    random: bool

    @property
    def pure(self) -> bool:  # type: ignore[override]
        """False for operators that draw random numbers."""
        return not self.random

    @property
    def decides(self) -> bool:
        """Whether the first argument selects the graph, which takes the other arguments, of any types."""
        return False

    def content(self) -> Hashable:
        """A key of the conversion: operators of equal content convert alike."""
        return self

    def infer(self, *inputs: Any) -> Any:
        """The types of the converted node, unknown until it is converted."""

    def resolve(self, call: Call, ask: Ask) -> Expr | None:
        """The graph, or None if `ask` lacks a value that it needs; raises `CompileError` naming the node."""
        raise NotImplementedError

    def reference(self, *inputs: Array) -> Any:
        from tilewright.relay.interpreter import evaluate

        found = self.resolve(Call(self, [_given(x) for x in inputs]), _value)
        assert found is not None
        return _there(found, evaluate(Function((), found)))


@op("frontend.deferred", kind=Fusion.OPAQUE)
class Deferred(Waiting):
    """A node of a model that could not be converted yet; a tuple if the node has several outputs."""

    source: str
    """Format of the model."""
    op_type: str
    """Operator of the node."""
    model: str
    """The node as text: JSON, or for ONNX a model with only this node, in base64."""
    context: str = ""
    """Text that the conversion needs beside the node: options of the ONNX importer as JSON, or a TFLite file in base64
    for operators that run other graphs of it."""
    random: bool = False
    """True when two runs of the node may differ."""
    for_sizes: bool = False
    """True when the node needs only symbolic sizes of its inputs, which are known when the program is called."""

    @property
    def resolver(self) -> Resolver:
        """The resolver of the model's format; imports the frontend if necessary."""
        if self.source not in RESOLVERS:
            load_frontend(self.source)
        return RESOLVERS[self.source]

    def resolve(self, call: Call, ask: Ask) -> Expr | None:
        return self.resolver.convert(self, call, ask)

    @property
    def decides(self) -> bool:
        return self.resolver.is_branch(self)

    def content(self) -> Hashable:
        return self.resolver.content(self)


def _given(value: Any) -> Expr:
    """A value of the interpreter as an expression; None is an empty optional."""
    if value is None:
        return NOTHING
    return Tuple(tuple(map(_given, value))) if isinstance(value, tuple) else Constant(np.asarray(value))


def _there(found: Expr, value: Any) -> Any:
    """The value of `found`, with None for an empty optional."""
    if isinstance(found, Tuple):
        return None if found is NOTHING else tuple(map(_there, found.fields, value))
    return value


def _value(e: Expr) -> Array | None:
    """Evaluate an expression over constants."""
    from tilewright.relay.interpreter import evaluate

    return e.value if isinstance(e, Constant) else np.asarray(evaluate(Function((), e)))


def pending(call: Expr) -> bool:
    """Whether `call` is a call of a deferred operator."""
    return isinstance(call, Call) and hasattr(call.op, "resolve")


def all_known(values: Sequence[Array | None]) -> list[Array] | None:
    """`values`, or None if a value is missing."""
    known = [v for v in values if v is not None]
    return known if len(known) == len(values) else None
