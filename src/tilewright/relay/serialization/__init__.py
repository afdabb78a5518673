"""Serialization of modules, expressions, types and TIR functions as JSON; shared parts stay shared.

    text = save_json(mod); mod = load_json(text)

The text is `{"format": "tilewright", "version": 1, "root": …, "nodes": […], "arrays": […]}`. A node follows the nodes
that it refers to by index, so the JSON is not nested as deeply as the program. Each node has a separate line. The
contents of constants are base64 of little-endian bytes. Loading runs no code, allocates no more memory than the text
describes, and reports the position of a fault.
"""

from typing import Any

from tilewright.ir import dialects
from tilewright.relay.serialization.reader import load_json
from tilewright.relay.serialization.writer import save_json

__all__ = ["load_json", "save_json"]


@dialects.pickled.provide
def _pickled(value: Any) -> tuple[Any, ...]:
    return load_json, (save_json(value),)
