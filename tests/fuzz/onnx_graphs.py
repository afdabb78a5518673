"""Random ONNX graphs of many nodes; `onnx_steps.py` has the operators.

Each node is evaluated by a reference when it is drawn, so its results have known shapes, and nodes that no reference
accepts are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz import arrays, rules
from fuzz.onnx_evaluate import IR_VERSION, NoAnswer, run_node, type_of
from fuzz.outcomes import Draw

Array = np.ndarray[Any, Any]
OPSETS: Final = (13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 22)
DTYPES: Final = ("float32",) * 14 + (
    "float64", "float16", "float16", "int64", "int64", "int32", "int32", "bool", "int8", "uint8", "int16", "uint16",
    "uint32", "uint64"
)
LARGEST: Final = 3000
"""Elements of the largest value."""


class Graph:
    """A graph as it grows. `values` has every value by name; `feeds` and `stored` say where the leaves come from."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.opset = draw.pick(OPSETS)
        self.opsets = [helper.make_opsetid("", self.opset)]
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, Any] = {}
        self.feeds: dict[str, Any] = {}
        self.stored: dict[str, Any] = {}

    def leaf(self, shape: Sequence[int], dtype: str = "", mood: str = "", store: float = 0.4) -> str:
        """A new input, or with the probability `store` a stored tensor."""
        return self.given(arrays.values(self.draw, shape, dtype or self.draw.pick(DTYPES), mood), store)

    def given(self, value: Any, store: float = 0.75) -> str:
        """An array as a stored tensor with the probability `store`, else as an input."""
        name = f"{'c' if self.draw.chance(store) else 'x'}{len(self.values)}"
        self.values[name] = np.asarray(value)
        (self.stored if name[0] == "c" else self.feeds)[name] = self.values[name]
        return name

    def ints(self, *numbers: int, store: float = 0.9, dtype: str = "int64") -> str:
        """Whole numbers as a tensor: shapes, axes, indices."""
        return self.given(np.asarray(numbers, dtype), store)

    def some(self, kinds: str = "fiub", low: int = 0, high: int = 9, dtypes: Sequence[str] = ()) -> str:
        """A value of these kinds of numpy and ranks, a late one most often; a new one where there is none."""
        fitting = [n for n, v in self.values.items() if isinstance(v, np.ndarray) and low <= v.ndim <= high
                   and (v.dtype.name in dtypes if dtypes else v.dtype.kind in kinds)]
        if fitting and self.draw.chance(0.92):
            return str(self.draw.pick(fitting[-6:]))
        names = [d for d in dtypes or DTYPES if dtypes or np.dtype(d).kind in kinds]
        return self.leaf(arrays.shape_of(self.draw, low, min(high, max(low, 4))), self.draw.pick(names))

    def like(self, name: str) -> str:
        """A value that broadcasts with another one and has its element type."""
        value = self.values[name]
        fitting = [
            n for n,
            v in self.values.items() if isinstance(v, np.ndarray) and v.dtype == value.dtype
            and broadcasts(v.shape, value.shape)
        ]
        if self.draw.chance(0.5):
            return str(self.draw.pick(fitting))
        shape = [d if self.draw.chance(0.6) else 1 for d in value.shape]
        return self.leaf(shape[self.draw.random.randrange(len(shape) + 1):], value.dtype.name)

    def array(self, name: str) -> Array:
        return self.values[name]  # type: ignore[no-any-return]

    def axis(self, name: str, extra: int = 0) -> int:
        """An axis of a value, negative half of the time."""
        rank = self.array(name).ndim + extra
        return self.draw.between(-rank, rank - 1) if rank else 0

    def add(self, op: str, inputs: Sequence[str], results: int = 1, domain: str = "", **attributes: Any) -> str:
        """A node with its first result; an empty text where it is not kept."""
        names = [f"v{len(self.values) + k}" for k in range(results)]
        try:
            node = helper.make_node(
                op, inputs, names, domain=domain, **{k: v for k, v in attributes.items() if v is not None}
            )
            made = run_node(node, self.values, self.opsets)
        except (NoAnswer, ValueError, TypeError, KeyError):
            return ""
        if not all(isinstance(m, np.ndarray) and m.size <= LARGEST and m.dtype.kind in "fiub" for m in made):
            return ""
        if rules.applying(node, [self.values.get(n) for n in inputs], made) is not None and not self.draw.chance(0.1):
            return ""
        if any(m.dtype.kind == "f" and m.size and not np.isfinite(m).all() for m in made) and not self.draw.chance(0.3):
            return ""
        self.nodes.append(node)
        self.values.update(zip(names, made, strict=False))
        return names[0]

    def model(self) -> onnx.ModelProto:
        """The model; its outputs are the values that nothing reads, and some others."""
        read = {n for node in self.nodes for n in node.input}
        made = [o for node in self.nodes for o in node.output]
        outputs = [o for o in made if o not in read or self.draw.chance(0.08)]
        infos = [helper.make_value_info(o, type_of(self.values[o])) for o in outputs]
        if self.draw.chance(0.5):
            for i in infos:
                i.type.tensor_type.ClearField("shape")
        inputs = [helper.make_value_info(n, type_of(v)) for n, v in self.feeds.items()]
        inits = [numpy_helper.from_array(v, n) for n, v in self.stored.items()]
        graph = helper.make_graph(self.nodes, "g", inputs, infos, inits)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=IR_VERSION)


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(tuple(a), tuple(b)))) <= LARGEST
    except ValueError:
        return False


def drawn(draw: Draw) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of some nodes with its inputs."""
    from fuzz.onnx_steps import STEPS, WEIGHTS

    g = Graph(draw)
    length = draw.pick((1, 2, 3, 4, 5, 6, 8, 12))
    names = [*STEPS]
    g.leaf(arrays.shape_of(draw, 1, 4), "" if draw.chance(0.4) else "float32", store=0.0)
    for _ in range(40):
        draw.random.choices([STEPS[n] for n in names], [WEIGHTS.get(n, 2) for n in names])[0](g)
        if len(g.nodes) >= length:
            break
    if not g.nodes:
        g.add("Identity", [next(iter(g.values))])
    return g.model(), g.feeds
