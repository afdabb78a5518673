"""Programs as JSON: any module, expression, type, function of loops, with what they share, and back.

    text = save_json(mod); mod = load_json(text)

The text is `{"format": "tilewright", "version": 1, "root": …, "nodes": […], "arrays": […]}`. A node is written after
those it refers to and names them by their numbers, so that nothing nests with the depth of the program; each stands on
a line of its own. The contents of constants are base64 of little-endian bytes. Loading runs no code, allocates no more
than the text describes, and says where a damaged text is wrong.
"""

from typing import Any

from tilewright.ir import dialects
from tilewright.relay.serialization.reader import load_json
from tilewright.relay.serialization.writer import save_json

__all__ = ["load_json", "save_json"]


@dialects.pickled.provide
def _pickled(value: Any) -> tuple[Any, ...]:
    return load_json, (save_json(value),)
