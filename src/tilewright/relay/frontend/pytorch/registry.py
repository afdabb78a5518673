"""The table of PyTorch converters.

A converter is a plain function whose parameters have the names of the operator's schema. It converts both TorchScript's
`aten::elu` and torch.export's `aten.elu.default`:

    @converter("elu")
    def elu(self: Expr, alpha: float = 1.0) -> Expr: ...

Tensors are expressions, all other arguments are Python values. Schema parameters that the function does not have must
be at their defaults, or have no effect on values (`_IGNORED`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tilewright.relay.frontend.core.registry import Converter, Converters, Terms

if TYPE_CHECKING:
    from tilewright.relay.expr import Expr
    from tilewright.relay.frontend.pytorch.node import Node

F = TypeVar("F", bound=Callable[..., Any])

_IGNORED: Final = frozenset({
    "layout", "device", "pin_memory", "memory_format", "generator", "non_blocking", "copy", "cudnn_enabled",
    "cudnn_enable", "benchmark",
    "deterministic", "allow_tf32", "inplace", "sparse", "scale_grad_by_freq", "is_coalesced",
})
"""Parameters that affect only the storage of a tensor, or training."""

CONVERTERS: Final = Converters(
    "pytorch", "tilewright.relay.frontend.pytorch.register_converter",
    Terms(attribute="argument", ignored=_IGNORED, missing="; the file is damaged: export the model again"),
    by_name=True)
"""By name: `elu` for every overload, `max.dim` for one, `quantized::linear` for namespaces other than aten."""
converter: Final = CONVERTERS.converter
WRITERS: Final[dict[str, Callable[..., Mapping[str, Expr]]]] = {}
"""Operators that write into arguments without declaring it in their schemas, or into several arguments."""


def convert(found: Converter, node: Node, arguments: Mapping[str, Any]) -> Any:
    """Call a converter with arguments by schema name. Raises `ModelError` for unsupported arguments."""
    named, order = {}, tuple(found.attributes)
    for k, (name, value) in enumerate(arguments.items()):
        if (name not in found.attributes and (not k or name == unnamed(k)) and k < len(order)
                and order[k] not in arguments):
            # `dropout_` has `self` where `dropout` has `input`; Python's functions have unnamed arguments
            name = order[k]
        named[name] = value
    return found.convert(node, (), named)


def unnamed(place: int) -> str:
    """The name of an argument without a name, as of Python's functions on symbolic numbers."""
    return f"x{place}"


def writer(*names: str) -> Callable[[F], F]:
    """Register a function that computes what the operators `names` write into their arguments, besides their results.

    It takes the node and the named arguments, and returns new values by argument name.
    """

    def register(function: F) -> F:
        WRITERS.update(dict.fromkeys(names, function))
        return function

    return register


def find(name: str, overload: str) -> Converter | None:
    """The converter of an operator, named without `aten::`."""
    return CONVERTERS.find(f"{name}.{overload}") or CONVERTERS.find(name)
