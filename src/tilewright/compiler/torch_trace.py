"""Traces graphs of `torch.compile` to graphs over aten operators, for given inputs or for all dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.scalar.expr import Var

Described = tuple[str, "tuple[int | Var, ...]", str]
"""The name, shape and dtype of an input."""


def placeholders(graph: Any) -> list[Any]:
    """Return the nodes of the inputs."""
    return [n for n in graph.graph.nodes if n.op == "placeholder"]


class Trace:
    """Traces a graph for these inputs, each time for other decompositions, and keeps the results.

    `taken` numbers the inputs of traced graphs: tensors and dynamic sizes. Other inputs are constants.
    """

    def __init__(self, graph: Any, inputs: Sequence[Any]) -> None:
        import torch

        self._graph, self._inputs = graph, inputs
        self.taken = [k for k, x in enumerate(inputs) if isinstance(x, (torch.Tensor, torch.SymInt))]
        self._made: dict[frozenset[str], Any] = {}

    def __call__(self, refused: frozenset[str] = frozenset(), table: Callable[[], Any] = lambda: None) -> Any:
        """Return the graph with the operators of `table` decomposed, for the names `refused`.

        Raises `ModelError` if values decide what the graph does.
        """
        if refused not in self._made:
            self._made[refused] = self._traced(table())
        return self._made[refused]

    def _traced(self, table: Any) -> Any:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        def call(*taken: Any) -> Any:
            values = dict(enumerate(self._inputs)) | dict(zip(self.taken, taken, strict=True))
            return self._graph(*(values[k] for k in range(len(self._inputs))))

        given = (self._inputs[k] for k in self.taken)
        try:
            with torch.no_grad():
                return make_fx(
                    call, tracing_mode="fake", pre_dispatch=True, decomposition_table=table, _allow_non_fake_inputs=True
                )(*(x.detach() if isinstance(x, torch.Tensor) else x for x in given))
        except Exception as error:
            if type(error).__module__ != "torch.fx.experimental.symbolic_shapes":
                raise
            reason = str(error).partition("\n")[0]
            raise ModelError(
                f"torch cannot trace the graph without its values ({reason}); exclude this part with "
                "torch.compiler.disable",
                code="TW0118") from error


@dataclass(frozen=True)
class DynamicSizes:
    """The sizes of a graph that torch regards as dynamic."""

    described: Mapping[int, Described | Var]
    """The inputs with dynamic sizes by number, those that are such sizes, and other integers as tensors of rank 0."""
    ranges: Mapping[str, str]
    """Sizes by name, in the form of `compile(shapes=)`: `n=2..8`."""
    trace: Trace

    @property
    def places(self) -> frozenset[int]:
        """The numbers of the inputs that do not decide which program is used."""
        return frozenset(self.described)


def dynamic_sizes(graph: Any) -> DynamicSizes | None:
    """Return the sizes of a captured graph that torch regards as dynamic; None without such sizes, or with one that is
    computed from others."""
    import torch

    values = [n.meta.get("example_value") for n in placeholders(graph)]
    tensors = {k: v for k, v in enumerate(values) if isinstance(v, torch.Tensor) and v.device.type == "cpu"}
    symbols: dict[Any, Var] = {}
    described: dict[int, Described | Var] = {}
    for k, tensor in tensors.items():
        if all(isinstance(d, int) for d in tensor.shape):
            continue
        dims = tuple(_dimension(d, symbols) for d in tensor.shape)
        if any(d is None for d in dims):
            return None
        if not all(isinstance(d, int) for d in dims):
            described[k] = f"x{k}", tuple(d for d in dims if d is not None), str(tensor.dtype).removeprefix("torch.")
    if not symbols:
        return None
    numbers = {k: v for k, v in enumerate(values) if isinstance(v, torch.SymInt)}
    for k, number in numbers.items():
        described[k] = symbols.get(number.node.expr, (f"x{k}", (), "int64"))
    if any(v is None for v in values) or len(tensors) + len(numbers) < len(values):
        return None
    bounds = next(iter(numbers.values()), next(d for k in described for d in getattr(values[k], "shape", ())
                                               if not isinstance(d, int))).node.shape_env.var_to_range
    return DynamicSizes(
        described, {size.name: _range(size.name, bounds.get(symbol)) for symbol, size in symbols.items()},
        Trace(graph, values))


def _dimension(size: Any, symbols: dict[Any, Var]) -> int | Var | None:
    """Return a size, as the variable of its symbol if it is dynamic; None if it is computed from others."""
    if isinstance(size, int):
        return size
    symbol = size.node.expr
    if symbol.is_Integer:
        return int(symbol)
    return symbols.setdefault(symbol, Var(str(symbol))) if symbol.is_Symbol else None


def _range(name: str, bounds: Any) -> str:
    """Return a size with its range, as `compile` takes it."""
    least = int(bounds.lower) if bounds is not None and bounds.lower.is_Integer else 0
    most = str(int(bounds.upper)) if bounds is not None and bounds.upper.is_Integer else ""
    return f"{name}={max(least, 0)}..{most}"
