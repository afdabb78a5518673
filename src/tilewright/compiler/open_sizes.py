"""Open sizes as a manifest writes them."""

from __future__ import annotations

from tilewright.expr_walk import text_of
from tilewright.runtime.sizes import Size
from tilewright.types import OpenSize


def written(size: int) -> Size:
    """A size as the manifest has it: a number, or arithmetic over the symbols as text."""
    return text_of(size.expr) if isinstance(size, OpenSize) else int(size)
