"""Smaller ONNX models: fewer outputs, fewer nodes, fewer attributes, smaller shapes, plainer values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from fuzz.onnx_evaluate import NoAnswer, Steps, free_names, type_of

Smaller = tuple[ModelProto, dict[str, Any]]
Feeds = Mapping[str, Any]
_MOST: Final = 64
"""Elements that are made plainer one by one."""


def smaller(model: ModelProto, feeds: Feeds) -> Iterator[Smaller]:
    """Candidates, the boldest first."""
    try:
        known = Steps(model, feeds).values()
    except NoAnswer:
        known = dict(feeds)
    if len(model.graph.node) > 1:
        yield from _alone(model, feeds, known)
        yield from _prefixes(model, feeds, known)
    yield from _one_output(model, feeds)
    yield from _without_node(model, feeds, known)
    yield from _without_attribute(model, feeds)
    yield from _smaller_sizes(model, feeds)
    yield from _one_dimension(model, feeds)
    yield from _plainer(model, feeds)


def rebuilt(
    model: ModelProto, feeds: Feeds, nodes: Iterable[NodeProto], outputs: Iterable[onnx.ValueInfoProto],
    arrays: Feeds | None = None
) -> Smaller:
    """The model with these nodes and outputs and without what nothing reads; `arrays` are values of stored tensors and
    inputs."""
    kept: list[NodeProto] = []
    made = list(outputs)
    needed = {o.name for o in made}
    for node in reversed([*nodes]):
        if needed.intersection(node.output):
            kept.insert(0, node)
            needed.update(free_names(node))
    given = {**feeds, **(arrays or {})}
    stored = {t.name: t for t in model.graph.initializer if t.name in needed and t.name not in feeds}
    inits = [numpy_helper.from_array(np.asarray(given[n]), n) if n in given else t for n, t in stored.items()]
    fed = {n: v for n, v in given.items() if n in needed and n not in stored}
    inputs = [helper.make_value_info(n, type_of(v)) for n, v in fed.items()]
    graph = helper.make_graph(kept, "g", inputs, made, inits)
    result = helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, functions=model.functions
    )
    return result, fed


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    kind = type_of(value)
    if kind.HasField("tensor_type"):
        kind.tensor_type.ClearField("shape")
    return helper.make_value_info(name, kind)


def _one_output(model: ModelProto, feeds: Feeds) -> Iterator[Smaller]:
    if len(model.graph.output) > 1:
        for output in model.graph.output:
            yield rebuilt(model, feeds, model.graph.node, [output])


def _alone(model: ModelProto, feeds: Feeds, known: Feeds) -> Iterator[Smaller]:
    """One node on the values that a reference computes for it."""
    for node in model.graph.node:
        names = [o for o in node.output if o]
        if all(n in known for n in [*names, *free_names(node)]):
            given = {n: known[n] for n in free_names(node)}
            yield rebuilt(model, {**feeds, **given}, [node], [_info(n, known[n]) for n in names])


def _prefixes(model: ModelProto, feeds: Feeds, known: Feeds) -> Iterator[Smaller]:
    """The results of one node alone, the first node first."""
    nodes = list(model.graph.node)
    for node in nodes:
        names = [o for o in node.output if o in known]
        if names and {*names} != {o.name for o in model.graph.output}:
            yield rebuilt(model, feeds, nodes, [_info(n, known[n]) for n in names])


def _without_node(model: ModelProto, feeds: Feeds, known: Feeds) -> Iterator[Smaller]:
    """One node less: its results are inputs, with the values that a reference computes."""
    nodes = list(model.graph.node)
    for k, node in enumerate(nodes[:-1] if len(nodes) > 1 else []):
        names = [o for o in node.output if o]
        if all(n in known for n in names) and not {o.name for o in model.graph.output}.intersection(names):
            yield rebuilt(
                model, {**feeds, **{n: known[n] for n in names}}, nodes[:k] + nodes[k + 1:], model.graph.output
            )


def _without_attribute(model: ModelProto, feeds: Feeds) -> Iterator[Smaller]:
    for k, node in enumerate(model.graph.node):
        for a in node.attribute:
            changed = NodeProto()
            changed.CopyFrom(node)
            changed.attribute.remove(a)
            yield rebuilt(model, feeds, [*model.graph.node[:k], changed, *model.graph.node[k + 1:]], model.graph.output)
        if len(node.input) > 1:
            changed = NodeProto()
            changed.CopyFrom(node)
            del changed.input[-1]
            yield rebuilt(model, feeds, [*model.graph.node[:k], changed, *model.graph.node[k + 1:]], model.graph.output)


def _arrays(model: ModelProto, feeds: Feeds) -> dict[str, Any]:
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    return {n: v for n, v in {**stored, **feeds}.items() if isinstance(v, np.ndarray)}


def _free_outputs(model: ModelProto) -> list[onnx.ValueInfoProto]:
    """The outputs without their shapes."""
    made = []
    for o in model.graph.output:
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(o)
        if copy.type.HasField("tensor_type"):
            copy.type.tensor_type.ClearField("shape")
        made.append(copy)
    return made


def _smaller_sizes(model: ModelProto, feeds: Feeds) -> Iterator[Smaller]:
    """Every dimension of one size is smaller."""
    arrays = _arrays(model, feeds)
    for size in sorted({d for a in arrays.values() for d in a.shape if d > 1}, reverse=True):
        for to in sorted({1, size // 2, size - 1} - {0, size}):
            cut = {n: a[tuple(slice(to) if d == size else slice(None) for d in a.shape)] for n, a in arrays.items()}
            yield rebuilt(model, feeds, model.graph.node, _free_outputs(model), cut)


def _one_dimension(model: ModelProto, feeds: Feeds) -> Iterator[Smaller]:
    """One dimension of one array is smaller."""
    for n, a in _arrays(model, feeds).items():
        for axis, size in enumerate(a.shape):
            for to in sorted({1, size // 2, size - 1} - {0, size}) if size > 1 else ():
                cut = a[tuple(slice(to) if k == axis else slice(None) for k in range(a.ndim))]
                yield rebuilt(model, feeds, model.graph.node, _free_outputs(model), {n: cut})


def _plainer(model: ModelProto, feeds: Feeds) -> Iterator[Smaller]:
    """One array is all zeros or ones, or whole; then one element after another is 0 or 1."""
    for n, a in _arrays(model, feeds).items():
        if a.dtype.kind in "OSU" or not a.size:
            continue
        with np.errstate(all="ignore"):
            plain = [np.zeros_like(a), np.ones_like(a), *([np.round(a)] if a.dtype.kind == "f" else [])]
        for p in plain:
            if _measure(p) < _measure(a):
                yield rebuilt(model, feeds, model.graph.node, model.graph.output, {n: p})
        for k in range(a.size if a.size <= _MOST else 0):
            for value in (0, 1):
                changed = a.copy()
                changed.flat[k] = value
                if _measure(changed) < _measure(a):
                    yield rebuilt(model, feeds, model.graph.node, model.graph.output, {n: changed})


def _measure(a: Any) -> int:
    """The length of the text of the values: what a reader has to take in, and what ends the loop."""
    return sum(
        len(str(v)) for v in np.asarray(a).ravel().tolist()
    ) * 2 + int(np.count_nonzero(np.asarray(a).astype(np.float64)))
