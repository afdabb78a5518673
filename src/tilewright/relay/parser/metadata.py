"""The `#[metadata]` section at the end of a text: the values of its constants.

    {"relay.Constant": [{"dtype": "float32", "shape": [2], "data": "AACAPwAAAEA="}]}

That is what the printer writes: base64 of the little-endian contents. The form that TVM writes, a graph of nodes with
arrays beside it (`root`, `nodes`, `b64ndarrays`), is read as well.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tilewright.base.array_bytes import from_bytes
from tilewright.base.errors import CompileError
from tilewright.base.json_reading import read_json
from tilewright.base.params import read_array
from tilewright.base.types import DataType


def read_metadata(text: str) -> dict[str, list[Any]]:
    """The entries by class: arrays for `relay.Constant`. Raises `CompileError` where the section is damaged."""
    try:
        found = read_json(text)
        return _tvm_form(found) if "b64ndarrays" in found else {kind: [_entry(e) for e in entries]
            for kind, entries in found.items()}
    except (CompileError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CompileError(f"the section #[metadata] is damaged: {error}", code="TW0406") from None


def _entry(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    return from_bytes(base64.b64decode(entry["data"]), DataType(entry["dtype"]), entry["shape"])


def _tvm_form(graph: Any) -> dict[str, list[Any]]:
    """The map at the root, from class to array of nodes; a constant names its array by number."""
    nodes, arrays = graph["nodes"], [read_array(base64.b64decode(a)) for a in graph["b64ndarrays"]]
    root = nodes[graph["root"]]
    found: dict[str, list[Any]] = {}
    for kind, at in zip(root["keys"], root["data"], strict=True):
        entries = [nodes[i] for i in nodes[at]["data"]]
        found[kind] = [arrays[int(e["attrs"]["data"])] if e["type_key"] == "relay.Constant" else e for e in entries]
    return found
