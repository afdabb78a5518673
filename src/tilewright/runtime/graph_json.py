"""A program as a graph for TVM's executors (`mod.json`): its inputs, and one native call that computes its outputs.

    {"nodes": [{"op": "null", "name": "x", "inputs": []},
               {"op": "tvm_op", "name": "default", "attrs": {"func_name": "default_run", …}, "inputs": [[0, 0, 0]]}],
     "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2],
     "attrs": {"shape": ["list_shape", …], "dltype": ["list_str", …], "storage_id": ["list_int", …]}}

Kernels, constants and the workspace are within the call, so there are no other nodes or parameters. Dynamic sizes are
-1.
"""

from __future__ import annotations

import json
from typing import Any

from tilewright.base.errors import ArtifactError
from tilewright.base.json_reading import read_json
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.program import TensorInfo, kernel_symbols


def graph_json(manifest: Manifest) -> str:
    """Return the graph of a program. Its text is deterministic."""
    inputs, outputs = manifest.inputs, manifest.outputs
    count = len(inputs)
    call = {
        "op": "tvm_op",
        "name": manifest.name,
        "attrs": {
            "func_name": f"{manifest.c_name}_run", "num_inputs": str(count), "num_outputs": str(len(outputs)),
            "flatten_data": "0",
            "kernels": ",".join(kernel_symbols(manifest.steps)),
        },
        "inputs": [[i, 0, 0] for i in range(count)],
    }
    values = (*inputs, *outputs)
    return json.dumps({
        "nodes": [*({"op": "null", "name": t.name, "inputs": []} for t in inputs), call],
        "arg_nodes": [*range(count)],
        "heads": [[count, i, 0] for i in range(len(outputs))],
        "attrs": {
            "dltype": ["list_str", [str(t.dtype) for t in values]],
            "shape": ["list_shape", [_shape(t) for t in values]],
            "storage_id": ["list_int", [*range(len(values))]],
        },
        "node_row_ptr": [*range(count + 1), len(values)],
    }, indent=2)


def _shape(t: TensorInfo) -> list[int]:
    return [d if isinstance(d, int) else -1 for d in t.shape]


def check_graph(text: str, manifest: Manifest) -> None:
    """Raise `ArtifactError` if the text is not a graph, or not the graph of this program."""
    try:
        graph: Any = read_json(text)
        nodes, attrs = graph["nodes"], graph["attrs"]
        names = [nodes[k]["name"] for k in graph["arg_nodes"]]
        shapes, dtypes = attrs["shape"][1], attrs["dltype"][1]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ArtifactError(
            f"the text is not a graph of a program: {error!r}; give what get_graph_json() returned, or the text of "
            "mod.json", code="TW0812"
        ) from None
    values = (*manifest.inputs, *manifest.outputs)
    if (
        names != [t.name for t in manifest.inputs] or shapes != [_shape(t) for t in values]
        or dtypes != [str(t.dtype) for t in values]
    ):
        found = ", ".join(map(str, manifest.inputs)) or "none"
        raise ArtifactError(
            f"the graph is of another program: its inputs are {', '.join(map(str, names)) or 'none'}, and those of the "
            f"library are {found}",
            code="TW0812")
