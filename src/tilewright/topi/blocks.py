"""Plans that split dimensions into blocks, reorder these, and join them: for layouts, depth to space, and its inverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType
from tilewright.topi.layouts import axes_between
from tilewright.topi.shapes import Perm, Shape, is_multiple, product, require_rank

Plan = tuple[Shape, Perm, Shape]
"""Reshape to the first shape, transpose by the axes, reshape to the second shape."""


def _plan(
    layout: Sequence[str], split: Mapping[str, Sequence[str]], join: Mapping[str, Sequence[str]],
    sizes: Mapping[str, Any]
) -> Plan:
    """Return the plan from the pieces of each dimension of `layout` before (`split`) and after (`join`)."""
    pieces = [p for letter in layout for p in split[letter]]
    order = [p for letter in layout for p in join[letter]]
    shape = tuple(product(sizes[p] for p in join[letter]) for letter in layout)
    return tuple(sizes[p] for p in pieces), tuple(pieces.index(p) for p in order), shape


def _sizes(shape: Shape, layout: str, what: str) -> dict[str, Any]:
    require_rank(TensorType(shape), 4, what)
    axes_between(layout, "NCHW", "layout")
    return dict(zip(layout, shape, strict=True))


def _divided(size: Any, by: int, what: str) -> Any:
    if not is_multiple(size, by):
        raise ShapeError(f"the {what} ({size}) must be a multiple of {by}")
    return size // by


def depth_to_space_plan(shape: Shape, block_size: int, layout: str, mode: str) -> Plan:
    """Turn channels into blocks of pixels; the block is the slower part of the channel (`DCR`) or the faster one
    (`CRD`)."""
    n, b = _sizes(shape, layout, "data"), block_size
    if mode not in ("DCR", "CRD", "CDR"):  # the last is TVM's spelling of the second
        raise ShapeError(f"mode '{mode}' is not supported; it must be DCR or CRD")
    sizes = {"n": n["N"], "h": n["H"], "w": n["W"], "y": b, "x": b, "c": _divided(n["C"], b * b, "channels")}
    split = {"N": "n", "C": "yxc" if mode == "DCR" else "cyx", "H": "h", "W": "w"}
    return _plan(layout, split, {"N": "n", "C": "c", "H": "hy", "W": "wx"}, sizes)


def space_to_depth_plan(shape: Shape, block_size: int, layout: str) -> Plan:
    """Turn blocks of pixels into channels, with the block as the slower part."""
    n, b = _sizes(shape, layout, "data"), block_size
    sizes = {
        "n": n["N"], "c": n["C"], "y": b, "x": b, "h": _divided(n["H"], b, "height"), "w": _divided(n["W"], b, "width")
    }
    split = {"N": "n", "C": "c", "H": "hy", "W": "wx"}
    return _plan(layout, split, {"N": "n", "C": "yxc", "H": "h", "W": "w"}, sizes)
