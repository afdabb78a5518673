"""The order in which the nodes of a graph are converted: producers first, and only what the outputs need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx

from tilewright.base.errors import ModelError

_OPEN, _DONE = 1, 2


def execution_order(
    nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], is_known: Callable[[str], bool], graph: str,
) -> list[tuple[int, onnx.NodeProto]]:
    """The nodes that `outputs` depend on, with their positions, producers before users whatever their order in the file.

    `is_known` tells the names that exist before the first node. Raises `ModelError` for names made twice, names that
    nothing makes, and cycles.
    """
    outputs = list(outputs)
    producers = _producers(nodes, is_known, graph)
    missing: dict[str, str] = {}
    order: list[tuple[int, onnx.NodeProto]] = []
    state = [0] * len(nodes)
    for name in outputs:
        if name not in producers and not is_known(name):
            missing[name] = "the outputs of the graph"
    stack = [producers[name] for name in reversed(outputs) if name in producers]
    while stack:
        index = stack[-1]
        if state[index] == 0:
            state[index] = _OPEN
            for name in _wanted(nodes[index], producers):
                producer = producers.get(name)
                if producer is None:
                    if not is_known(name):
                        missing.setdefault(name, _name(nodes[index], index))
                elif state[producer] == 0:
                    stack.append(producer)
                elif state[producer] == _OPEN:
                    _refuse_cycle(nodes, state, graph)
        else:
            stack.pop()
            if state[index] == _OPEN:
                state[index] = _DONE
                order.append((index, nodes[index]))
    if missing:
        shown = "; ".join(f"'{name}', wanted by {who}" for name, who in list(missing.items())[:10])
        raise ModelError(f"the graph '{graph}' uses {len(missing)} tensors that nothing makes: {shown}; the file is damaged: export the model again", code="TW0103")
    return order


def _producers(nodes: Sequence[onnx.NodeProto], is_known: Callable[[str], bool], graph: str) -> dict[str, int]:
    producers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in producers:
                other = producers[name]
                raise ModelError(f"the tensor '{name}' of the graph '{graph}' is made twice, by {_name(nodes[other], other)} and by "
                                 f"{_name(node, index)}; names must be unique: export the model again", code="TW0103")
            producers[name] = index
    return producers


def _wanted(node: onnx.NodeProto, producers: dict[str, int]) -> list[str]:
    """The names a node needs: its inputs, and what its subgraphs take from around it."""
    names = [name for name in node.input if name]
    stack = [(a.g, frozenset[str]()) for a in node.attribute if a.HasField("g")]
    while stack:
        graph, around = stack.pop()
        own = around.union((i.name for i in graph.input), (t.name for t in graph.initializer), (name for n in graph.node for name in n.output))
        for inner in graph.node:
            names.extend(name for name in inner.input if name in producers and name not in own)
            stack.extend((a.g, own) for a in inner.attribute if a.HasField("g"))
        names.extend(o.name for o in graph.output if o.name in producers and o.name not in own)
    return names


def _refuse_cycle(nodes: Sequence[onnx.NodeProto], state: list[int], graph: str) -> None:
    shown = ", ".join(_name(nodes[i], i) for i, s in enumerate(state) if s == _OPEN)[:400]
    raise ModelError(f"the graph '{graph}' has a cycle through these nodes: {shown}; the file is damaged: export the model again", code="TW0103")


def _name(node: onnx.NodeProto, index: int) -> str:
    return f"{node.op_type} '{node.name or f'{node.op_type}_{index}'}'"
