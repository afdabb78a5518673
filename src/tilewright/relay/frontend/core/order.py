"""The conversion order of the nodes of a graph: producers first, and only nodes that the outputs need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tilewright.base.errors import ModelError
from tilewright.relay.frontend.core.reading import Name, SourceNode, given

N = TypeVar("N", bound=SourceNode)
_OPEN, _DONE = 1, 2
_DAMAGED = "the file is damaged: export the model again"


def execution_order(nodes: Sequence[N], outputs: Iterable[Name], is_known: Callable[[Name], bool],
                    graph: str) -> list[N]:
    """The nodes that `outputs` depend on, producers before consumers, for any order in the file.

    `is_known` tests whether a name exists before the first node. Raises `ModelError` for names defined twice or never,
    and for cycles.
    """
    outputs = list(outputs)
    producers = _producers(nodes, graph)
    missing: dict[Name, str] = {}
    order: list[N] = []
    state = [0] * len(nodes)
    for name in outputs:
        if name not in producers and not is_known(name):
            missing[name] = "the outputs of the graph"
    stack = [producers[name] for name in reversed(outputs) if name in producers]
    while stack:
        index = stack[-1]
        if state[index] == 0:
            state[index] = _OPEN
            node = nodes[index]
            for name in (*given(node.inputs), *(n for n in node.captured if n in producers)):
                producer = producers.get(name)
                if producer is None:
                    if not is_known(name):
                        missing.setdefault(name, node.label)
                elif state[producer] == 0:
                    stack.append(producer)
                elif state[producer] == _OPEN:
                    shown = ", ".join(n.label for n, s in zip(nodes, state, strict=True) if s == _OPEN)[:400]
                    raise ModelError(f"the graph '{graph}' has a cycle through these nodes: {shown}; {_DAMAGED}",
                                     code="TW0103")
        else:
            stack.pop()
            if state[index] == _OPEN:
                state[index] = _DONE
                order.append(nodes[index])
    if missing:
        shown = "; ".join(f"'{name}', used by {user}" for name, user in list(missing.items())[:10])
        raise ModelError(f"the graph '{graph}' uses {len(missing)} tensors that no node computes: {shown}; {_DAMAGED}",
                         code="TW0103")
    return order


def _producers(nodes: Sequence[SourceNode], graph: str) -> dict[Name, int]:
    producers: dict[Name, int] = {}
    for index, node in enumerate(nodes):
        for name in given(node.outputs):
            if name in producers:
                both = f"{nodes[producers[name]].label} and by {node.label}"
                raise ModelError(
                    f"the tensor '{name}' of the graph '{graph}' is computed twice, by {both}; names must be unique: "
                    "export the model again",
                    code="TW0103")
            producers[name] = index
    return producers
