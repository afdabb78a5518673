"""The table of converters: one function for each operator of TFLite.

A converter's positional parameters are the operator's inputs, in the order of the schema; one that may be left out has the default None.
Its keyword parameters are the options by the schema's names with the schema's defaults; `node`, where it asks for it, is the `Node`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tilewright.base.errors import ModelError

if TYPE_CHECKING:
    from tilewright.relay.frontend.tflite.node import Node, Value

F = TypeVar("F", bound=Callable[..., Any])

_REQUIRED: Final = inspect.Parameter.empty
_HINTS: Final = frozenset({
    "asymmetric_quantize_inputs", "pot_scale_int16", "quantized_bias_type", "num_splits", "values_count", "num", "in_data_type", "validate_indices",
    "weights_format", "depth_multiplier", "kernel_type", "new_shape", "out_data_type",
})
"""Options that say again what tensors say, or choose between implementations."""


@dataclass(frozen=True, slots=True)
class Converter:
    """The converter of one operator, and what it takes."""

    kind: str
    function: Callable[..., Any]
    inputs: tuple[str, ...]
    required: int
    optional: frozenset[str]
    variadic: bool
    gaps: bool
    """Whether inputs of a variadic operator may be left out: those annotated `Value | None`."""
    options: Mapping[str, Any]
    wants_node: bool

    def convert(self, node: Node, inputs: Sequence[Value | None], options: Mapping[str, Any]) -> Any:
        """Call the converter; raises `ModelError` where the operator does not fit it."""
        if len(inputs) > len(self.inputs) and not self.variadic:
            raise ModelError(f"{len(inputs)} inputs are given; {self.kind} takes at most {len(self.inputs)}: {', '.join(self.inputs)}", node.origin, code="TW0109")
        for k, name in enumerate(self.inputs[: max(self.required, len(inputs))]):
            if (k >= len(inputs) and k < self.required) or (k < len(inputs) and inputs[k] is None and name not in self.optional):
                raise ModelError(f"input '{name}' is missing", node.origin, code="TW0109")
        if self.variadic and not self.gaps and any(x is None for x in inputs[len(self.inputs):]):
            raise ModelError(f"an input of {self.kind} is missing", node.origin, code="TW0109")
        for name, value in options.items():
            if name not in self.options and name not in _HINTS and value:
                raise ModelError(f"option '{name}' is {value!r}, which is not supported; convert the model without it", node.origin, code="TW0107")
        given = {name: options.get(name, default) for name, default in self.options.items()}
        return self.function(*inputs, **given, **({"node": node} if self.wants_node else {}))


CONVERTERS: Final[dict[str, Converter]] = {}
"""By the name of the operator, which for a custom one is its own."""


def converter(*kinds: str) -> Callable[[F], F]:
    """Register the decorated function as the converter of these operators; a later one replaces it."""

    def register(function: F) -> F:
        for kind in kinds:
            CONVERTERS[kind] = described(kind, function)
        return function

    return register


def described(kind: str, function: Callable[..., Any]) -> Converter:
    """A function as a converter."""
    parameters = inspect.signature(function).parameters.values()
    inputs = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "node"}
    return Converter(
        kind, function, tuple(p.name for p in inputs), sum(p.default is _REQUIRED for p in inputs),
        frozenset(p.name for p in inputs if p.default is not _REQUIRED or str(p.annotation).endswith("None")),
        any(p.kind is p.VAR_POSITIONAL for p in parameters),
        any(p.kind is p.VAR_POSITIONAL and str(p.annotation).endswith("None") for p in parameters), options, any(p.name == "node" for p in parameters),
    )
