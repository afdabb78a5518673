"""The table of PyTorch converters, and how a call of an operator is bound to one.

A converter is a plain function whose parameters have the names of the operator's schema; it serves TorchScript's `aten::elu` and
torch.export's `aten.elu.default` alike:

    @converter("elu")
    def elu(self: Expr, alpha: float = 1.0) -> Expr: ...

Tensors are expressions, everything else is a Python value. Parameters of the schema that the function does not have must be at
their defaults, or among those that decide no value (`_IGNORED`). A parameter called `node` receives the `Node` being converted;
`from_` is the name for an argument that is a keyword of Python.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from tilewright.relay.expr import Expr
    from tilewright.relay.frontend.pytorch.node import Node

F = TypeVar("F", bound=Callable[..., Any])

_IGNORED: Final = frozenset({
    "layout", "device", "pin_memory", "memory_format", "generator", "non_blocking", "copy", "cudnn_enabled", "cudnn_enable", "benchmark", "deterministic",
    "allow_tf32", "inplace", "sparse", "scale_grad_by_freq", "is_coalesced",
})
"""Parameters about where and how a tensor is stored, or about training."""


@dataclass(frozen=True, slots=True)
class Converter:
    """One operator: `function`, and the names of its parameters, which `order` has in the order of the call."""

    name: str
    function: Callable[..., Any]
    parameters: frozenset[str]
    required: tuple[str, ...]
    wants_node: bool
    order: tuple[str, ...]

    @staticmethod
    def of(name: str, function: Callable[..., Any]) -> Converter:
        """The converter of operator `name` that `function` is."""
        parameters = inspect.signature(function).parameters.values()
        required = tuple(p.name for p in parameters if p.default is inspect.Parameter.empty and p.name != "node")
        order = tuple(p.name.rstrip("_") for p in parameters if p.name != "node")
        wants_node = any(p.name == "node" for p in parameters)
        return Converter(name, function, frozenset(order), required, wants_node, order)

    def convert(self, node: Node, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> Any:
        """Call the converter; raises `ModelError` for an argument that has no meaning here."""
        given = {}
        for k, (name, value) in enumerate(arguments.items()):
            if name not in self.parameters and (not k or name == unnamed(k)) and k < len(self.order) and self.order[k] not in arguments:
                name = self.order[k]  # `dropout_` writes into its `self`, and `dropout` reads its `input`; Python's functions name nothing
            if name in self.parameters:
                given[f"{name}_" if keyword.iskeyword(name) else name] = value
            elif name not in _IGNORED and not _same(value, defaults.get(name)):
                node.refuse(f"argument '{name}' is {_shown(value)}, and is supported only at its default, {defaults.get(name)!r}")
        for name in self.required:
            if name not in given:
                node.refuse(f"argument '{name}' is missing; the file is damaged: export the model again")
        if self.wants_node:
            given["node"] = node
        return self.function(**given)


def unnamed(place: int) -> str:
    """The name of an argument of a function that names none, as Python's on symbolic numbers."""
    return f"x{place}"


CONVERTERS: Final[dict[str, Converter]] = {}
"""By name: `elu` for every overload, `max.dim` for one; operators that are none of aten's with their namespace, `quantized::linear`."""


WRITERS: Final[dict[str, Callable[..., Mapping[str, Expr]]]] = {}
"""Operators that write into arguments which their schemas do not mark, or into several of them."""


def converter(*names: str) -> Callable[[F], F]:
    """Register the decorated function as the converter of `names`."""

    def register(function: F) -> F:
        for name in names:
            CONVERTERS[name] = Converter.of(name, function)
        return function

    return register


def writer(*names: str) -> Callable[[F], F]:
    """Register the decorated function as what the operators `names` write into their arguments, beside what they give.

    It takes the node and the arguments by name, and gives new values by the names of the arguments.
    """

    def register(function: F) -> F:
        WRITERS.update(dict.fromkeys(names, function))
        return function

    return register


def find(name: str, overload: str) -> Converter | None:
    """The converter of an operator without the `aten::` before its name."""
    return CONVERTERS.get(f"{name}.{overload}") or CONVERTERS.get(name)


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return list(value) == list(default)
    return value is None or (type(value) in (bool, int, float, str) and value == default)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (bool, int, float, str, list, tuple)) else f"a {type(value).__name__}"
