"""Consecutive nodes of a torch.fx graph as a separate compiled graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import ModelError, Origin


class Part:
    """Consecutive nodes: `inputs` are nodes before them, `outputs` those of them that are used after."""

    def __init__(
        self, module: Any, nodes: Sequence[Any], given: Mapping[Any, Any], compile_part: Callable[..., Any]
    ) -> None:
        import torch

        inside = set(nodes)
        used = list(dict.fromkeys(m for n in nodes for m in n.all_input_nodes if m not in inside))
        self.inputs = [n for n in used if n.op != "get_attr"]
        self.outputs = [n for n in nodes if any(u not in inside for u in n.users)]
        graph = torch.fx.Graph()
        env: dict[Any, Any] = {n: graph.placeholder(n.name) for n in self.inputs}
        env |= {n: graph.node_copy(n) for n in used if n.op == "get_attr"}
        for node in nodes:
            env[node] = graph.node_copy(node, env.__getitem__)
        graph.output([env[n] for n in self.outputs])
        described = [given[n] if n in given else _described(n) for n in self.inputs]
        self.run = compile_part(torch.fx.GraphModule(module, graph), described)


def _described(node: Any) -> tuple[str, tuple[int, ...], str]:
    """Return name, shape and dtype of a value between parts; raises `ModelError` unless it is a tensor of static shape.
    """
    import torch

    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(isinstance(d, int) for d in value.shape):
        raise ModelError(
            "its result is not a tensor of known shape, so torch cannot pass it on",
            Origin(node.name, str(node.target)), code="TW0118")
    return node.name, tuple(value.shape), str(value.dtype).removeprefix("torch.")
