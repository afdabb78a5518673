"""TVM's `tvmc.shape_parser`: the shapes of inputs from the text of `--input-shapes`."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final

from tilewright.scalar.expr import UnknownDim

_INPUT: Final = re.compile(
    r"[\s,]*(?P<name>(?:\w+/)?[\w.:]+?)\s*:\s*\[\s*(?P<dims>-?\d+(?:\s*,\s*-?\d+)*)\s*\]", re.ASCII)


def parse_shape_string(inputs_string: str) -> dict[str, list[Any]]:
    """Read `"x:[1,3,224,224] y:[-1,10]"` as `{"x": [1, 3, 224, 224], "y": [Any(), 10]}`.

    Inputs are separated by spaces or commas; a negative size is unknown. Raises `argparse.ArgumentTypeError` for other
    texts.
    """
    found: dict[str, list[Any]] = {}
    at, text = 0, inputs_string.strip()
    while at < len(text):
        match = _INPUT.match(text, at)
        if match is None:
            raise argparse.ArgumentTypeError(
                f"--input-shapes: cannot read '{text[at:].strip()}'; write \"x:[1,3,224,224] y:[1,10]\"")
        sizes = [int(word) for word in match["dims"].split(",")]
        found[match["name"]] = [UnknownDim() if n < 0 else n for n in sizes]
        at = match.end()
    return found
