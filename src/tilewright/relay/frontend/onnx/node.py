"""`Node`: what a converter may ask about the node it converts, beyond its inputs and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tilewright.base.errors import ModelError, Origin
from tilewright.base.limits import MOST_TABLE
from tilewright.base.types import DataType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.known import KnownValues
from tilewright.scalar.expr import PrimExpr
from tilewright.scalar.walk import free_vars

if TYPE_CHECKING:
    import onnx

    from tilewright.relay.frontend.onnx.inputs import ModelInputs

Array = np.ndarray[Any, Any]


class NotKnownError(ModelError):
    """A conversion needs a value that is computed from the model's inputs: it is tried again when the value is there."""

    code = "TW0108"


class Node:
    """One node of the model while it is converted."""

    __slots__ = ("_import_graph", "_inputs", "_known", "config", "opset", "origin", "outputs")

    def __init__(
        self, origin: Origin, opset: int, outputs: tuple[str, ...], config: dict[str, Any], known: KnownValues, inputs: ModelInputs,
        import_graph: Callable[[onnx.GraphProto, Sequence[Expr], Callable[[Expr], Expr] | None], list[Expr]],
    ) -> None:
        self.origin, self.opset, self.config = origin, opset, config
        self.outputs = outputs
        """Names of the outputs; an empty name is an output that nobody wants."""
        self._known, self._inputs, self._import_graph = known, inputs, import_graph

    def refuse(self, why: str) -> NoReturn:
        """Raise a `ModelError` at this node."""
        raise ModelError(why, self.origin, code="TW0107")

    def check_table(self, *sizes: int) -> None:
        """Raise `ModelError` where a table of these sizes is more than an import makes."""
        if math.prod(max(s, 1) for s in sizes) > MOST_TABLE or any(s < 0 for s in sizes):
            self.refuse(f"it asks for a table of {' x '.join(map(str, sizes))} elements, and {MOST_TABLE} are the most that are made while importing; "
                        "correct its attributes and the shapes of its inputs")

    def import_graph(
        self, graph: onnx.GraphProto, inputs: Sequence[Expr] = (), outside: Callable[[Expr], Expr] | None = None,
    ) -> list[Expr]:
        """The outputs of a subgraph on `inputs`. It sees the names around this node, through `outside` where that is given."""
        if len(inputs) != len(graph.input):
            self.refuse(f"the subgraph '{graph.name}' takes {len(graph.input)} inputs, and {len(inputs)} are given; the file is damaged: export the model again")
        return self._import_graph(graph, inputs, outside)

    def known(self, x: Expr | None) -> Array | None:
        """The value of an input if it is known now; of dtype object when symbolic dimensions are in it."""
        value = self._known.of(x)
        return self._inputs.params_value(x) if value is None and x is not None else value

    def settled(self, x: Expr) -> Expr:
        """`x`, or the constant that it comes to."""
        return self._known.settle(x)

    def value(self, x: Expr, name: str, why: str = "") -> Array:
        """The value of input `name`; raises `ModelError` when it has symbolic dimensions.

        One that is computed from the model's inputs is waited for: the conversion ends here, and begins again when the value is there.
        `why` says what it is needed for, where that is not the node itself.
        """
        value = self.dims(x, name, why)
        if value.dtype == object and not x.tensor_type.dtype.is_object:
            self._refuse_symbols(f"input '{name}' is {_shown(value)}", list(value.flat))
        return value

    def dims(self, x: Expr, name: str, why: str = "") -> Array:
        """The same for values that may be symbolic dimensions: those are of dtype object."""
        value = self.known(x)
        if value is None:
            value = self._known.demand(x)
        if value is None:
            raise NotKnownError(f"input '{name}' must be known to convert the node{why}, and it is computed from the model's inputs", self.origin)
        return value

    def ints(self, x: Expr, name: str) -> tuple[int, ...]:
        """The value of input `name` as Python ints."""
        return tuple(int(v) for v in self.value(x, name).flat)

    def map_value_type(self, x: Expr) -> DataType:
        """The type of the values of an input of the model that is a map; raises `ModelError` for anything else."""
        found = self._inputs.map_values.get(x)
        if found is None:
            self.refuse("its input must be a map that is an input of the model")
        return found

    def scalar(self, x: Expr | None, name: str, default: Any = None) -> Any:
        """The one number in input `name`, or `default` when the input is left out."""
        if x is None:
            return default
        value = self.value(x, name)
        if value.size != 1:
            self.refuse(f"input '{name}' must be one number, and its shape is {value.shape}")
        return value.reshape(-1)[0].item()

    def static(self, x: Expr, name: str) -> tuple[int, ...]:
        """The shape of input `name`; raises `ModelError` when a dimension of it is symbolic."""
        shape = x.tensor_type.shape
        if not all(isinstance(d, int) for d in shape):
            self._refuse_symbols(f"the shape of input '{name}' is {_shown(shape)}", shape)
        return shape

    def _refuse_symbols(self, what: str, dims: Sequence[Any]) -> NoReturn:
        symbols = dict.fromkeys(v for d in dims if isinstance(d, PrimExpr) for v in free_vars(d))
        self.refuse(f"{what}, and must be known while compiling{self._inputs.hint(list(symbols))}")


def _shown(dims: Any) -> str:
    return "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")" if np.ndim(dims) else str(dims)
