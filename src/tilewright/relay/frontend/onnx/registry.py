"""The table of ONNX converters, and how a node is bound to one.

A converter is a plain function whose positional parameters are the operator's inputs and whose keyword-only parameters
are its attributes, both named and defaulted as the specification has them:

    @converter("Elu", since=1)
    def elu(x: Expr, *, alpha: float = 1.0) -> Expr: ...

It returns one expression, or a tuple of them for several outputs. A keyword-only parameter called `node` is not an
attribute: it receives the `Node` being converted, for those that need its outputs or the values known at import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tilewright.base.errors import ModelError

if TYPE_CHECKING:
    from tilewright.relay.expr import Expr
    from tilewright.relay.frontend.onnx.node import Node

F = TypeVar("F", bound=Callable[..., Any])

_REQUIRED: Final = inspect.Parameter.empty
_OBSOLETE: Final = frozenset({"consumed_inputs"})
"""Attributes of the first opset that were hints to the executor and never meant anything."""


@dataclass(frozen=True, slots=True)
class Converter:
    """One version of one operator: `function` serves opsets from `since` to the next version of the operator."""

    op_type: str
    domain: str
    since: int
    function: Callable[..., Any]
    inputs: tuple[str, ...]
    required: int
    optional: frozenset[str]
    """Inputs before the last required one that may be left out: those annotated `Expr | None`."""
    variadic: bool
    attributes: dict[str, Any]
    wants_node: bool
    takes_unknown: bool
    """Whether it makes something of inputs of which sizes are not known; it raises `NotKnownError` where it does not."""

    def convert(self, node: Node, inputs: Sequence[Expr | None], attributes: dict[str, Any]) -> Any:
        """Call the converter; raises `ModelError` when the node does not fit the operator's signature."""
        self._check_inputs(node, inputs)
        attributes = {k: v for k, v in attributes.items() if k not in _OBSOLETE}
        for name in attributes:
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise ModelError(f"attribute '{name}' is not one of {self.op_type} at opset {node.opset}; its attributes are: {known}", node.origin, code="TW0109")
        for name, default in self.attributes.items():
            if default is _REQUIRED and name not in attributes:
                raise ModelError(f"attribute '{name}' is missing", node.origin, code="TW0109")
        if self.wants_node:
            return self.function(*inputs, node=node, **attributes)
        return self.function(*inputs, **attributes)

    def _check_inputs(self, node: Node, inputs: Sequence[Expr | None]) -> None:
        if len(inputs) > len(self.inputs) and not self.variadic:
            raise ModelError(f"{len(inputs)} inputs are given; {self.op_type} takes at most {len(self.inputs)}: {', '.join(self.inputs)}", node.origin, code="TW0109")
        for k in range(self.required):
            if k >= len(inputs) or (inputs[k] is None and self.inputs[k] not in self.optional):
                raise ModelError(f"input '{self.inputs[k]}' is missing", node.origin, code="TW0109")
        if self.variadic and (not inputs or any(x is None for x in inputs[len(self.inputs):])):
            raise ModelError(f"{self.op_type} needs at least one input, and none of them empty", node.origin, code="TW0109")


CONVERTERS: Final[dict[tuple[str, str], list[Converter]]] = {}
"""The versions of every operator, oldest first, by `(domain, operator)`; the domain of ONNX itself is ''."""


def converter(*op_types: str, since: int = 1, domain: str = "", takes_unknown: bool = False) -> Callable[[F], F]:
    """Register the decorated function as the converter of `op_types` from opset `since` on; a later one replaces it."""

    def register(function: F) -> F:
        for op_type in op_types:
            versions = CONVERTERS.setdefault((domain_of(domain), op_type), [])
            versions[:] = [v for v in versions if v.since != since]
            versions.append(_describe(op_type, domain_of(domain), since, function, takes_unknown))
            versions.sort(key=lambda v: v.since)
        return function

    return register


def domain_of(name: str) -> str:
    """The domain in its short form: ONNX's own operators are known under two names."""
    return "" if name == "ai.onnx" else name


def find(domain: str, op_type: str, opset: int) -> Converter | None:
    """The newest converter not newer than `opset`, or None."""
    found = None
    for version in CONVERTERS.get((domain_of(domain), op_type), ()):
        if version.since <= opset:
            found = version
    return found


def _describe(op_type: str, domain: str, since: int, function: Callable[..., Any], takes_unknown: bool) -> Converter:
    parameters = inspect.signature(function).parameters.values()
    inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    attributes = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    wants_node = attributes.pop("node", None) is not None
    return Converter(
        op_type, domain, since, function, tuple(p.name for p in inputs), sum(p.default is _REQUIRED for p in inputs),
        frozenset(p.name for p in inputs if str(p.annotation).endswith("None")),
        any(p.kind is p.VAR_POSITIONAL for p in parameters), attributes, wants_node, takes_unknown,
    )
