"""`Node`: what an ONNX converter can query about its node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.base.errors import ModelError, Origin
from tilewright.base.types import DataType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.core import node as core
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.relay.frontend.core.size_choices import SizeChoices, only_valid
from tilewright.topi.shapes import is_number

if TYPE_CHECKING:
    import onnx

    from tilewright.relay.frontend.core.registry import Converter
    from tilewright.relay.frontend.onnx.inputs import ModelInputs

Outside = Callable[[Expr], Expr]


class Node(core.Node):
    """One node of the model while it is converted."""

    __slots__ = ("_import_graph", "_inputs", "config", "opset")

    def __init__(
        self, origin: Origin, opset: int, outputs: Sequence[Any], config: dict[str, Any], known: KnownValues,
        params: Mapping[Expr, core.Array], inputs: ModelInputs,
        import_graph: Callable[[onnx.GraphProto, Sequence[Expr], Outside | None, bool], list[Expr]],
    ) -> None:
        super().__init__(origin, outputs, known, params)
        self.opset, self.config = opset, config
        self._inputs, self._import_graph = inputs, import_graph

    def import_graph(self, graph: onnx.GraphProto, inputs: Sequence[Expr] = (),
                     outside: Outside | None = None, *, is_looped: bool = True) -> list[Expr]:
        """Import a subgraph applied to `inputs`; return its outputs. It sees outer names, through `outside` if given.

        With `outside` it is the body of a loop, unless `is_looped` is false.
        """
        if len(inputs) != len(graph.input):
            what = f"the subgraph '{graph.name}' takes {len(graph.input)} inputs, but {len(inputs)} are given"
            self.refuse(f"{what}; the file is damaged: export the model again")
        return self._import_graph(graph, inputs, outside, is_looped and outside is not None)

    def import_with_only_sizes(self, graph: onnx.GraphProto, outside: Outside | None = None) -> list[Expr] | None:
        """Import a subgraph in which conditions on sizes decide types; return its outputs if only one answer to each
        condition gives a valid graph. Other sizes then end the run."""

        def make(choices: SizeChoices) -> list[Expr]:
            outer, self._known.choices = self._known.choices, choices
            try:
                return self.import_graph(graph, (), outside, is_looped=False)
            finally:
                self._known.choices = outer

        return only_valid(make)

    def choice(self, condition: Expr) -> bool | None:
        """Return the answer to take for a condition on sizes that decides types; None for another condition, and
        outside of `import_with_only_sizes`."""
        choices = self._known.choices
        return choices.answer() if choices is not None and self._known.is_undecided(condition) else None

    def require_equal(self, condition: Expr) -> tuple[Any, int] | None:
        """Note the size and the number whose equality is the condition as required, and return them; None for another
        condition."""
        found = self._known.equated(condition)
        choices = self._known.choices
        if found is None or choices is None:
            return None
        size, number = found[::-1] if is_number(found[0]) else found
        if not is_number(number) or number < 1:
            return None
        choices.equal.append((size, number))
        return size, number

    def refuse_attribute(self, converter: Converter, name: str, value: Any) -> NoReturn:
        known = ", ".join(converter.attributes) or "none"
        what = f"attribute '{name}' is not one of {converter.name} at opset {self.opset}; its attributes are: {known}"
        raise ModelError(what, self.origin, code="TW0109")

    def hint(self, symbols: Sequence[Any] = ()) -> str:
        return self._inputs.hint(symbols)

    def map_value_type(self, x: Expr) -> DataType:
        """The value type of a map that is an input of the model; raises `ModelError` for anything else."""
        found = self._inputs.map_values.get(x)
        if found is None:
            self.refuse("its input must be a map, and an input of the model")
        return found
