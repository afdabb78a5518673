"""Random ONNX graphs with open dimensions, each with inputs at several sizes; `random_open_steps.py` has the operators.

    x: float32[a, 3, b], y: float32[b], a = 1 | 7 | 30, b = 12 | 1 | 4

A value is known at every size while the graph grows: each node is evaluated by ONNX Runtime when it is drawn. Nodes
that it accepts at too few of the sizes are left out, and sizes at which it refuses a node are left out of the case.

    python tests/random_open_graphs.py --count 2000 --seed 1     # counts, and the table of refusals
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz import arrays, rules
from fuzz.onnx_evaluate import IR_VERSION, element, free_names
from fuzz.outcomes import Draw

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]
"""One dimension at every size."""
OPSETS: Final = (13, 15, 17, 17, 18, 19, 20, 21)
CALLS: Final = 5
"""Sizes of a case."""
FEWEST: Final = 3
"""Sizes that are left where a node refuses others."""
LARGEST: Final = 20_000
"""Elements of the largest value."""


class TooLarge(Exception):
    """A new input would have more elements than `LARGEST`."""


@dataclass(frozen=True)
class Case:
    """A model, the `shapes` that it is compiled with, and its inputs at several sizes."""

    model: onnx.ModelProto
    shapes: Mapping[str, tuple[int | str, ...]]
    calls: Sequence[Mapping[str, Any]]


@dataclass
class Graph:
    """A graph as it grows. `values` has every value at every size, `given` the dimensions of the inputs."""

    draw: Draw
    opsets: list[Any] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)
    given: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    stored: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Dims] = field(default_factory=dict)
    """The sizes of the open dimensions by name."""
    steps: dict[str, int] = field(default_factory=dict)
    """Open dimensions that are declared as multiples."""
    alive: list[int] = field(default_factory=lambda: list(range(CALLS)))

    def __post_init__(self) -> None:
        self.opsets.append(helper.make_opsetid("", self.draw.pick(OPSETS)))
        for name in "abc"[:self.draw.pick((1, 2, 2, 3))]:
            if self.draw.chance(0.1):
                self.steps[name] = self.draw.pick((2, 4, 8))
            self.sizes[name] = self._drawn_sizes(self.steps.get(name, 1))

    def _drawn_sizes(self, step: int) -> Dims:
        """One of the sizes is 1, or the smallest multiple."""
        sizes = [step * self.draw.pick((self.draw.between(2, 9), self.draw.between(2, 9), self.draw.between(10, 33)))
                 for _ in range(CALLS)]
        sizes[self.draw.random.randrange(CALLS)] = step
        return tuple(sizes)

    @property
    def opset(self) -> int:
        return int(self.opsets[0].version)

    # Values.

    def dims(self, name: str) -> list[Dims]:
        """Return the dimensions of a value at the sizes that are left."""
        return [tuple(d) for d in zip(*(self.values[name][k].shape for k in self.alive), strict=True)]

    def named(self, dim: Dims) -> int | str | None:
        """Return a dimension as a number or a name; None if it is derived from others."""
        if len({*dim}) == 1:
            return dim[0]
        return next((n for n, s in self.sizes.items() if tuple(s[k] for k in self.alive) == dim), None)

    def least(self, name: str, axis: int) -> int:
        return min(self.dims(name)[axis])

    def rank(self, name: str) -> int:
        return int(self.values[name][self.alive[0]].ndim)

    def kind(self, name: str) -> np.dtype[Any]:
        return self.values[name][self.alive[0]].dtype  # type: ignore[no-any-return]

    def axis(self, name: str, extra: int = 0) -> int:
        """Return an axis of a value, negative half of the time."""
        rank = self.rank(name) + extra
        return self.draw.between(-rank, rank - 1)

    def leaf(self, dims: Sequence[int | str], dtype: str = "float32", low: int = 0, high: int = 0) -> str:
        """Add an input; with `high`, whole numbers from `low` to below it. Raises `TooLarge`."""
        made = []
        for k in range(CALLS):
            shape = [d if isinstance(d, int) else self.sizes[d][k] for d in dims]
            if prod(shape) > LARGEST:
                raise TooLarge
            made.append(
                self.draw.numbers.integers(low, high, shape).astype(dtype) if high
                else arrays.values(self.draw, shape, dtype, "normal" if self.draw.chance(0.8) else "whole"))
        name = f"x{len(self.values)}"
        self.values[name], self.given[name] = made, tuple(dims)
        return name

    def const(self, value: Any) -> str:
        name = f"c{len(self.values)}"
        self.stored[name] = np.asarray(value)
        self.values[name] = [self.stored[name]] * CALLS
        return name

    def weights(self, *shape: int, dtype: str = "float32") -> str:
        return self.const((self.draw.numbers.standard_normal(shape) / 2).astype(dtype))

    def ints(self, *numbers: int) -> str:
        return self.const(np.asarray(numbers, np.int64))

    def dim(self) -> int | str:
        """Return a dimension of a new input."""
        choices: tuple[int | str, ...] = (*self.sizes, *self.sizes, self.draw.between(1, 4), self.draw.pick((1, 2, 6)))
        return choices[self.draw.random.randrange(len(choices))]

    def some(self, kinds: str = "f", low: int = 0, high: int = 5) -> str:
        """Return a value of these kinds and ranks, a late one most often; a new input where there is none."""
        fitting = [n for n in self.values if n not in self.stored and self.kind(n).kind in kinds
                   and low <= self.rank(n) <= high]
        if fitting and self.draw.chance(0.95):
            return str(self.draw.pick(fitting[-5:]))
        dtype = {"f": "float32", "i": self.draw.pick(("int64", "int32")), "b": "bool"}[kinds[0]]
        return self.leaf([self.dim() for _ in range(self.draw.between(low, min(high, max(low, 4))))], dtype)

    def like(self, name: str) -> str:
        """Return a value that broadcasts with another one and has its element type."""
        dims, kind = self.dims(name), self.kind(name)
        fitting = [n for n in self.values if self.kind(n) == kind and _broadcast(self.dims(n), dims)]
        if self.draw.chance(0.5):
            return str(self.draw.pick(fitting))
        names = [self.named(d) for d in dims]
        chosen = [1 if n is None or self.draw.chance(0.35) else n for n in names][self.draw.between(0, len(dims)):]
        if all(isinstance(n, int) for n in chosen) and self.draw.chance(0.6):
            return self.const(arrays.values(self.draw, [int(n) for n in chosen], kind.name, "normal"))
        return self.leaf(chosen, kind.name)

    # Nodes.

    def add(
        self, op: str, inputs: Sequence[str], results: int = 1, reads: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add a node and return its first result; an empty text where it is not kept. Its bodies read `reads`."""
        if any(i and i not in self.values for i in inputs) or not all(inputs[:1]):
            return ""
        names = [f"v{len(self.values) + k}" for k in range(results)]
        node = helper.make_node(op, inputs, names, **{k: v for k, v in attributes.items() if v is not None})
        found = self._evaluated(node, reads)
        if found is None:
            return ""
        self.nodes.append(node)
        for k, name in enumerate(names):
            self.values[name] = [None if made is None else made[k] for made in found]
        return names[0]

    def _evaluated(self, node: onnx.NodeProto, reads: Sequence[str]) -> list[Any] | None:
        """Return the results at every size; None where the node is left out."""
        names = dict.fromkeys((*filter(None, node.input), *reads))
        session = _session(node, {n: self.kind(n) for n in names}, self.opsets)
        found: list[Any] = [None] * CALLS
        for k in self.alive:
            feeds = {n: self.values[n][k] for n in names}
            made = _run(session, feeds)
            if made is not None and self._keeps(node, feeds, made):
                found[k] = made
        alive = [k for k in self.alive if found[k] is not None]
        if len(alive) < len(self.alive) and (len(alive) < FEWEST or not self.draw.chance(0.4)):
            return None
        self.alive = alive
        return found

    def _keeps(self, node: onnx.NodeProto, feeds: Mapping[str, Any], made: Sequence[Any]) -> bool:
        if any(m.size > LARGEST or not np.isfinite(m).all() or np.abs(m).max(initial=0) > 1e6
               for m in made if m.dtype.kind in "fiub"):
            return False
        return rules.applying(node, [feeds.get(n) for n in node.input], list(made)) is None

    # Sizes as values.

    def size(self, name: str, axis: int, scalar: bool = False) -> str:
        """Add nodes that compute a dimension as a value, as vectors of one element or scalars."""
        if self.opset >= 15 and not scalar and self.draw.chance(0.2):
            end = axis + 1 if axis != -1 else None
            return self.add("Shape", [name], start=axis, end=end)
        shape = self.add("Shape", [name])
        if not scalar and self.draw.chance(0.3):
            axis %= self.rank(name)
            return self.add("Slice", [shape, self.ints(axis), self.ints(axis + 1)])
        return self.add("Gather", [shape, self.const(np.int64(axis)) if scalar else self.ints(axis)])

    def vector(self, parts: Sequence[int | str]) -> str:
        """Return numbers and names of vectors of one element as one vector."""
        if all(isinstance(p, int) for p in parts):
            return self.ints(*(int(p) for p in parts))
        return self.add("Concat", [self.ints(p) if isinstance(p, int) else p for p in parts], axis=0)

    def case(self) -> Case:
        """Return the model; its outputs are the values that nothing reads, and some others."""
        read = {n for node in self.nodes for n in free_names(node)}
        outputs = [o for node in self.nodes for o in node.output if o not in read or self.draw.chance(0.08)]
        infos = [helper.make_tensor_value_info(o, element(self.kind(o)), None) for o in outputs]
        used = read | {*outputs}
        shapes = {n: d for n, d in self.given.items() if n in used}
        inputs = [helper.make_tensor_value_info(n, element(self.kind(n)), d) for n, d in shapes.items()]
        inits = [numpy_helper.from_array(v, n) for n, v in self.stored.items() if n in used]
        graph = helper.make_graph(self.nodes, "g", inputs, infos, inits)
        model = helper.make_model(graph, opset_imports=self.opsets, ir_version=IR_VERSION)
        calls = [{n: self.values[n][k] for n in shapes} for k in self.alive]
        return Case(model, {n: tuple(self._declared(d) for d in dims) for n, dims in shapes.items()}, calls)

    def _declared(self, dim: int | str) -> int | str:
        return f"{dim}={self.steps[dim]}..:{self.steps[dim]}" if isinstance(dim, str) and dim in self.steps else dim


def _broadcast(a: Sequence[Dims], b: Sequence[Dims]) -> bool:
    """Whether two shapes broadcast at every size in the same way."""
    return all(
        x == y or {*x} == {1} or {*y} == {1} for x, y in zip(reversed(a), reversed(b), strict=False))


def _session(node: onnx.NodeProto, kinds: Mapping[str, np.dtype[Any]], opsets: Sequence[Any]) -> Any:
    """Return a session of ONNX Runtime for one node; None where it refuses the node."""
    import onnxruntime

    inputs = [helper.make_tensor_value_info(n, element(k), None) for n, k in kinds.items()]
    outputs = [onnx.ValueInfoProto(name=o) for o in node.output if o]
    model = helper.make_model(
        helper.make_graph([node], "one", inputs, outputs), opset_imports=opsets, ir_version=IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # its classes have no common base
        return None


def _run(session: Any, feeds: Mapping[str, Any]) -> list[Any] | None:
    try:
        return None if session is None else [np.asarray(v) for v in session.run(None, dict(feeds))]
    except Exception:  # its classes have no common base
        return None


def drawn(draw: Draw) -> Case:
    """Return a model of some nodes with its inputs."""
    from random_open_counts import STEPS as MORE
    from random_open_steps import STEPS

    g = Graph(draw)
    length = draw.pick((2, 3, 4, 5, 6, 8, 12))
    with suppress(TooLarge):
        g.leaf([draw.pick([*g.sizes]), *(g.dim() for _ in range(draw.between(0, 3)))])
    choices = (*STEPS, *MORE)
    steps, weights = [s for s, _ in choices], [w for _, w in choices]
    for _ in range(60):
        with suppress(TooLarge):
            draw.random.choices(steps, weights)[0](g)
        if len(g.nodes) >= length:
            break
    if not g.nodes:
        g.add("Identity", [g.leaf(["a"])])
    return g.case()


if __name__ == "__main__":
    from fuzz.__main__ import main

    sys.exit(main(["--kind", "open", *sys.argv[1:]]))
