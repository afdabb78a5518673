"""The open sizes of a program: their variables while it is compiled, their names and ranges in its manifest."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr import Var
from tilewright.expr_walk import text_of
from tilewright.runtime.manifest import Symbol
from tilewright.runtime.sizes import Size
from tilewright.types import OpenSize


@dataclass(frozen=True, slots=True)
class OpenSizes:
    """The variables, in the order in which kernels take them, and the range of each."""

    symbols: tuple[Var, ...]
    signature: tuple[Symbol, ...]


def written(size: int) -> Size:
    """A size as the manifest has it: a number, or arithmetic over the symbols as text."""
    return text_of(size.expr) if isinstance(size, OpenSize) else int(size)
