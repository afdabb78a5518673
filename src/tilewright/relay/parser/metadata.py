"""The `#[metadata]` section at the end of a text: the values of its constants.

    {"relay.Constant": [{"dtype": "float32", "shape": [2], "data": "AACAPwAAAEA="}]}

This is the printer's form: base64 of the little-endian contents. TVM's form, a graph of nodes and separate arrays
(`root`, `nodes`, `b64ndarrays`), is supported as well.
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
    """Return the entries by class: arrays for `relay.Constant`. Raises `CompileError` if the section is damaged."""
    try:
        found = read_json(text)
        return _tvm_form(found) if "b64ndarrays" in found else {kind: [_entry(e) for e in entries]
            for kind, entries in found.items()}
    except (CompileError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CompileError(f"the section #[metadata] cannot be read: {error}", code="TW0406") from None


def _entry(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    return from_bytes(base64.b64decode(entry["data"]), DataType(entry["dtype"]), entry["shape"])


def _tvm_form(graph: Any) -> dict[str, list[Any]]:
    """Return the entries by class from TVM's form, in which a constant refers to its array by index."""
    nodes, arrays = graph["nodes"], [read_array(base64.b64decode(a)) for a in graph["b64ndarrays"]]
    root = nodes[graph["root"]]
    found: dict[str, list[Any]] = {}
    for kind, at in zip(root["keys"], root["data"], strict=True):
        entries = [nodes[i] for i in nodes[at]["data"]]
        found[kind] = [arrays[int(e["attrs"]["data"])] if e["type_key"] == "relay.Constant" else e for e in entries]
    return found
