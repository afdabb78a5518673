"""Dimensions split into blocks, the pieces reordered, and joined: the plans of layouts, and of depth to space and back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.topi.layouts import axes_between
from tilewright.topi.shapes import Perm, Shape, product, require_rank, text
from tilewright.types import TensorType

Plan = tuple[Shape, Perm, Shape]
"""See the tensor under the first shape, order its dimensions by the axes, see the result under the second shape."""


def _plan(layout: Sequence[str], split: Mapping[str, Sequence[str]], join: Mapping[str, Sequence[str]], sizes: Mapping[str, Any]) -> Plan:
    """A plan from the pieces that each dimension of `layout` is split into, and those that it has afterwards."""
    pieces = [p for letter in layout for p in split[letter]]
    order = [p for letter in layout for p in join[letter]]
    shape = tuple(product(sizes[p] for p in join[letter]) for letter in layout)
    return tuple(sizes[p] for p in pieces), tuple(pieces.index(p) for p in order), shape


def _sizes(shape: Shape, layout: str, what: str) -> dict[str, Any]:
    require_rank(TensorType(shape), 4, what)
    axes_between(layout, "NCHW", "layout")
    return dict(zip(layout, shape, strict=True))


def _divided(size: Any, by: int, what: str) -> Any:
    if isinstance(size, int) and size % by:
        raise ShapeError(f"the {what} ({size}) must be a multiple of {by}")
    return size // by


def depth_to_space_plan(shape: Shape, block_size: int, layout: str, mode: str) -> Plan:
    """Channels become blocks of pixels; the block is the slower part of the channel (`DCR`) or the faster one (`CRD`)."""
    n, b = _sizes(shape, layout, "data"), block_size
    if mode not in ("DCR", "CRD"):
        raise ShapeError(f"mode '{mode}' is not known; it is DCR or CRD")
    sizes = {"n": n["N"], "h": n["H"], "w": n["W"], "y": b, "x": b, "c": _divided(n["C"], b * b, "channels")}
    split = {"N": "n", "C": "yxc" if mode == "DCR" else "cyx", "H": "h", "W": "w"}
    return _plan(layout, split, {"N": "n", "C": "c", "H": "hy", "W": "wx"}, sizes)


def space_to_depth_plan(shape: Shape, block_size: int, layout: str) -> Plan:
    """Blocks of pixels become channels, the block being the slower part."""
    n, b = _sizes(shape, layout, "data"), block_size
    sizes = {"n": n["N"], "c": n["C"], "y": b, "x": b, "h": _divided(n["H"], b, "height"), "w": _divided(n["W"], b, "width")}
    split = {"N": "n", "C": "c", "H": "hy", "W": "wx"}
    return _plan(layout, split, {"N": "n", "C": "yxc", "H": "h", "W": "w"}, sizes)


def _parse(layout: str) -> list[tuple[str, int]]:
    """`NCHW8c` as letters with block sizes: `[(N, 0), (C, 0), (H, 0), (W, 0), (c, 8)]`."""
    found = re.findall(r"(\d*)([A-Za-z])", layout)
    dims = [(letter, int(number or 0)) for number, letter in found]
    letters = [letter for letter, _ in dims]
    wrong = "".join(n + c for n, c in found) != layout or len(set(letters)) != len(letters)
    if wrong or any((size > 0) != c.islower() or c.upper() not in letters for c, size in dims):
        raise ShapeError(f"'{layout}' is not a layout; it has capital letters once each, and blocks such as 8c of letters that are there")
    return dims


def plans_of_layouts(shape: Shape, src_layout: str, dst_layout: str) -> list[Plan]:
    """From one layout to another, either of which may have blocks; raises `ShapeError` when `shape` does not fit."""
    source, target = _parse(src_layout), _parse(dst_layout)
    plain = [c for c, _ in target if c.isupper()]
    if sorted(plain) != sorted(c for c, _ in source if c.isupper()):
        raise ShapeError(f"layouts {src_layout} and {dst_layout} do not have the same dimensions")
    if len(source) != len(shape) or any(n and n != size for (_, n), size in zip(source, shape, strict=True)):
        raise ShapeError(f"a tensor of shape {text(shape)} does not have the layout {src_layout}")
    letters = [c for c, _ in source]
    sizes = dict(zip(letters, shape, strict=True))
    joined = {c: [c, c.lower()] if c.lower() in sizes else [c] for c in plain}
    whole = {c: product(sizes[p] for p in joined[c]) for c in plain}
    first = (tuple(shape), tuple(letters.index(p) for c in plain for p in joined[c]), tuple(whole[c] for c in plain))
    blocks = {c.upper(): n for c, n in target if n}
    if not blocks:
        return [first]
    split = [p for c in plain for p in ([c, c.lower()] if c in blocks else [c])]
    sizes = {c: _divided(whole[c], blocks.get(c, 1), f"dimension {c}") for c in plain} | {c.lower(): n for c, n in blocks.items()}
    order = tuple(split.index(c) for c, _ in target)
    second = (tuple(sizes[p] for p in split), order, tuple(sizes[c] for c, _ in target))
    return [second] if src_layout == "".join(plain) else [first, second]
