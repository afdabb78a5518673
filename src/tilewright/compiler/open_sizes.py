"""Open sizes as a manifest writes them."""

from __future__ import annotations

from tilewright.base.types import OpenSize
from tilewright.runtime.sizes import Size
from tilewright.scalar.walk import text_of


def written(size: int) -> Size:
    """A size as the manifest has it: a number, or arithmetic over the symbols as text."""
    return text_of(size.expr) if isinstance(size, OpenSize) else int(size)
