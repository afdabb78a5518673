"""The `#[metadata]` section at the end of a text: the values of its constants.

    {"relay.Constant": [{"dtype": "float32", "shape": [2], "data": "AACAPwAAAEA="}]}

That is what the printer writes: base64 of the little-endian contents. The form that TVM writes, a graph of nodes with arrays beside it
(`root`, `nodes`, `b64ndarrays`), is read as well.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tilewright.errors import CompileError
from tilewright.types import DataType

_MAGIC: Final = 0xDD5E40F096B4A13F
"""The first eight bytes of an array as TVM stores it."""
_CODES: Final = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}


def read_metadata(text: str) -> dict[str, list[Any]]:
    """The entries by class: arrays for `relay.Constant`. Raises `CompileError` where the section is damaged."""
    try:
        found = json.loads(text)
        return _tvm_form(found) if "b64ndarrays" in found else {kind: [_entry(e) for e in entries] for kind, entries in found.items()}
    except (CompileError, ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise CompileError(f"the section #[metadata] is damaged: {error}") from None


def _entry(entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    kind = DataType(entry["dtype"]).numpy()
    return np.frombuffer(base64.b64decode(entry["data"]), kind).reshape(entry["shape"])


def _tvm_form(graph: Any) -> dict[str, list[Any]]:
    """The map at the root, from class to array of nodes; a constant names its array by number."""
    nodes, arrays = graph["nodes"], [_array(base64.b64decode(a)) for a in graph["b64ndarrays"]]
    root = nodes[graph["root"]]
    found: dict[str, list[Any]] = {}
    for kind, at in zip(root["keys"], root["data"], strict=True):
        entries = [nodes[i] for i in nodes[at]["data"]]
        found[kind] = [arrays[int(e["attrs"]["data"])] if e["type_key"] == "relay.Constant" else e for e in entries]
    return found


def _array(raw: bytes) -> np.ndarray[Any, Any]:
    """Magic, reserved, device (2 x int32), rank, code, bits, lanes, the shape, the number of bytes, the bytes."""
    magic, _, _, _, rank, code, bits, lanes = struct.unpack_from("<QQiiiBBH", raw)
    if magic != _MAGIC or lanes != 1:
        raise ValueError("an array in it is not in TVM's form")
    at = struct.calcsize("<QQiiiBBH")
    shape = struct.unpack_from(f"<{rank}q", raw, at)
    (size,) = struct.unpack_from("<q", raw, at + 8 * rank)
    name = "bool" if (code, bits) == (1, 1) else f"{_CODES[code]}{bits}"
    return np.frombuffer(raw, DataType(name).numpy(), offset=at + 8 * rank + 8, count=size // DataType(name).itemsize).reshape(shape)
