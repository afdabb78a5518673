"""Layout names (`NCHW`, `OHWI`, `NCDHW`), and the axes that convert one layout to another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from tilewright.base.errors import ShapeError
from tilewright.tir.data_layout import layout

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


@lru_cache(maxsize=256)
def axes_between(source: str, wanted: str, what: str) -> tuple[int, ...]:
    """Return the axes with which `transpose` converts the layout `source` to `wanted`. Raises `ShapeError` for other
    letters."""
    if sorted(source) != sorted(wanted):
        raise ShapeError(
            f"{what} '{source}' is not a valid layout here; it must be a permutation of the letters "
            f"{', '.join(wanted)}, for example {wanted}"
        )
    return tuple(source.index(letter) for letter in wanted)


def data_axes(layout: str, spatial: int) -> tuple[int, ...]:
    """Return the axes that convert data to N, C, spatial order."""
    return axes_between(layout, "NC" + SPATIAL[spatial], "data layout")


def kernel_axes(layout: str, spatial: int, transposed: bool = False) -> tuple[int, ...]:
    """Return the axes that convert a kernel to O, I, spatial order (I, O for a transposed convolution)."""
    return axes_between(layout, ("IO" if transposed else "OI") + SPATIAL[spatial], "kernel layout")


def channels_first(spatial: int) -> str:
    return "NC" + SPATIAL[spatial]


def channels_last(spatial: int) -> str:
    return "N" + SPATIAL[spatial] + "C"


def axes_of_layout(name: str) -> tuple[int, ...]:
    """Return the axes of a layout that are the batch, the spatial dimensions in order, and the channels: `NCHW` -> (0,
    2, 3, 1)."""
    known = layout(name)
    return tuple(known.index_of(c) for c in "NDHWC" if c in known)


def placed(place: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Return `values`, such as sizes or indices, each at the axis that `place` gives."""
    return [value for _, value in sorted(zip(place, values, strict=True), key=itemgetter(0))]
