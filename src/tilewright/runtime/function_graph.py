"""A graph in TVM's form (`graph.json`) whose nodes call functions of a library, one after another.

    {"nodes": [{"op": "null", "name": "x", "inputs": []},
               {"op": "tvm_op", "name": "add", "inputs": [[0, 0, 0]],
                "attrs": {"func_name": "myadd", "flatten_data": "0", "num_inputs": "1", "num_outputs": "1"}}],
     "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2],
     "attrs": {"shape": ["list_shape", …], "dltype": ["list_str", …], "storage_id": ["list_int", …]}}

A function takes the arrays of its inputs, then those of its outputs; `__nop` passes its input on. Values with the same
`storage_id` share memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.base.json_reading import read_json
from tilewright.base.nd import NDArray, aligned_empty, as_numpy
from tilewright.base.types import DataType
from tilewright.runtime.program import TensorInfo

NOTHING = "__nop"
"""The function of a node that changes the shape alone, such as a reshape."""


class FunctionGraph:
    """The program of a graph: `program(*inputs, out=outputs)`, as `Session` calls it."""

    def __init__(self, text: str, functions: Any) -> None:
        """`functions` is a module, or a mapping, that has the functions of the nodes by name.

        Raises `ArtifactError` for text that is not such a graph, and `InputError` for an unknown function.
        """
        try:
            self._read(read_json(text), functions)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ArtifactError(
                f"the text is not a graph of functions: {error!r}; give the text of a graph.json, and the library with "
                "its functions", code="TW0812"
            ) from None

    def _read(self, graph: Any, functions: Any) -> None:
        nodes, attrs = graph["nodes"], {name: value[1] for name, value in graph["attrs"].items()}
        rows: list[int] = graph["node_row_ptr"]
        infos = [
            TensorInfo(node["name"], tuple(map(int, attrs["shape"][entry])), DataType(attrs["dltype"][entry]))
            for node, begin, end in zip(nodes, rows, rows[1:], strict=False) for entry in range(begin, end)
        ]

        def entry_of(reference: Sequence[int]) -> int:
            node, output = reference[:2]
            entry = rows[node] + output
            if node < 0 or not rows[node] <= entry < rows[node + 1]:
                raise IndexError(f"there is no output {output} of node {node}")
            return entry

        self._arguments = [rows[node] for node in graph["arg_nodes"]]
        self._heads = [entry_of(head) for head in graph["heads"]]
        self.inputs = [infos[entry] for entry in self._arguments]
        self.outputs = [infos[entry] for entry in self._heads]
        self._values = _memory(infos, attrs["storage_id"])
        self._calls: list[Callable[[], None]] = []
        for number, node in enumerate(nodes):
            if node["op"] == "null":
                continue
            if node["op"] != "tvm_op":
                raise ValueError(f"node {node['name']!r} is a {node['op']!r}")
            sources = [entry_of(i) for i in node["inputs"]]
            if any(source >= rows[number] for source in sources):
                raise ValueError(f"node {node['name']!r} reads a value that is computed later")
            self._calls.append(self._call(node["attrs"], sources, range(rows[number], rows[number + 1]), functions))

    def _call(
        self, attrs: Mapping[str, str], sources: Sequence[int], results: Sequence[int], functions: Any
    ) -> Callable[[], None]:
        name = attrs["func_name"]
        arrays = [self._values[entry] for entry in (*sources, *results)]
        if name == NOTHING:
            source, result = arrays
            return lambda: np.copyto(result.reshape(-1), source.reshape(-1))
        if attrs.get("flatten_data") == "1":
            arrays = [a.reshape(-1) for a in arrays]
        function, passed = functions[name], [NDArray(a) for a in arrays]
        return lambda: function(*passed)

    def __call__(self, *inputs: Any, out: Sequence[NDArray]) -> None:
        """Run all nodes; the results are copied into `out`."""
        for entry, value in zip(self._arguments, inputs, strict=True):
            np.copyto(self._values[entry], as_numpy(value))
        for call in self._calls:
            call()
        for entry, result in zip(self._heads, out, strict=True):
            np.copyto(as_numpy(result), self._values[entry])


def _memory(infos: Sequence[TensorInfo], storage: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """Return an array for each value; those with the same number of a storage share its memory."""
    sizes: dict[int, int] = {}
    for info, number in zip(infos, storage, strict=True):
        sizes[number] = max(sizes.get(number, 0), info.nbytes)
    blocks = {number: aligned_empty((size,), np.dtype("uint8")) for number, size in sizes.items()}
    for block in blocks.values():
        block.fill(0)
    return [
        blocks[number][: math.prod(info.shape) * info.dtype.itemsize].view(info.dtype.numpy()).reshape(info.shape)
        for info, number in zip(infos, storage, strict=True)
    ]
