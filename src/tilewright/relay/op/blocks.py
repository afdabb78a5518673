"""Operators that split dimensions into blocks, reorder the pieces, and join them: layouts and depth-to-space."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.errors import ShapeError
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.layouts import axes_between
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.relay.op.shapes import Perm, Shape, product, require_rank, text
from tilewright.topi import transform as topi
from tilewright.types import TensorType, Type

Plan = tuple[Shape, Perm, Shape]
"""See the tensor under the first shape, order its dimensions by the axes, see the result under the second shape."""


def _plan(layout: Sequence[str], split: Mapping[str, Sequence[str]], join: Mapping[str, Sequence[str]], sizes: Mapping[str, Any]) -> Plan:
    """A plan from the pieces that each dimension of `layout` is split into, and those that it has afterwards."""
    pieces = [p for letter in layout for p in split[letter]]
    order = [p for letter in layout for p in join[letter]]
    shape = tuple(product(sizes[p] for p in join[letter]) for letter in layout)
    return tuple(sizes[p] for p in pieces), tuple(pieces.index(p) for p in order), shape


class Regrouping(Op):
    """Base of the operators that are a sequence of plans."""

    def plans(self, shape: Shape) -> list[Plan]:
        """The steps for an input of `shape`; raises `ShapeError` when it does not fit."""
        raise NotImplementedError

    def infer(self, data: Type) -> TensorType:
        (t,) = tensors(data)
        return TensorType(self.plans(t.shape)[-1][2], t.dtype)

    def reference(self, data: Array) -> Array:
        for split, axes, shape in self.plans(data.shape):
            data = np.ascontiguousarray(data.reshape(split).transpose(axes)).reshape(shape)
        return data

    def compute(self, data: te.Tensor) -> te.Tensor:
        for split, axes, shape in self.plans(topi.dims(data)):
            data = topi.regroup(data, split, axes, shape, self.name.replace("nn.", ""))
        return data


def _sizes(shape: Shape, layout: str, what: str) -> dict[str, Any]:
    require_rank(TensorType(shape), 4, what)
    axes_between(layout, "NCHW", "layout")
    return dict(zip(layout, shape, strict=True))


def _divided(size: Any, by: int, what: str) -> Any:
    if isinstance(size, int) and size % by:
        raise ShapeError(f"the {what} ({size}) must be a multiple of {by}")
    return size // by


@op("nn.depth_to_space", kind=Fusion.INJECTIVE)
class DepthToSpace(Regrouping):
    """Channels become blocks of `block_size` x `block_size` pixels.

    With `mode` "DCR" the block is the slower part of the channel, with "CRD" the faster one (ONNX DepthToSpace).
    """

    block_size: int
    layout: str = "NCHW"
    mode: str = "DCR"

    def plans(self, shape: Shape) -> list[Plan]:
        n, b = _sizes(shape, self.layout, "data"), self.block_size
        if self.mode not in ("DCR", "CRD"):
            raise ShapeError(f"mode '{self.mode}' is not known; it is DCR or CRD")
        sizes = {"n": n["N"], "h": n["H"], "w": n["W"], "y": b, "x": b, "c": _divided(n["C"], b * b, "channels")}
        split = {"N": "n", "C": "yxc" if self.mode == "DCR" else "cyx", "H": "h", "W": "w"}
        return [_plan(self.layout, split, {"N": "n", "C": "c", "H": "hy", "W": "wx"}, sizes)]


@op("nn.space_to_depth", kind=Fusion.INJECTIVE)
class SpaceToDepth(Regrouping):
    """Blocks of `block_size` x `block_size` pixels become channels, the block being the slower part (ONNX SpaceToDepth)."""

    block_size: int
    layout: str = "NCHW"

    def plans(self, shape: Shape) -> list[Plan]:
        n, b = _sizes(shape, self.layout, "data"), self.block_size
        sizes = {"n": n["N"], "c": n["C"], "y": b, "x": b, "h": _divided(n["H"], b, "height"), "w": _divided(n["W"], b, "width")}
        split = {"N": "n", "C": "c", "H": "hy", "W": "wx"}
        return [_plan(self.layout, split, {"N": "n", "C": "yxc", "H": "h", "W": "w"}, sizes)]


def _parse(layout: str) -> list[tuple[str, int]]:
    """`NCHW8c` as letters with block sizes: `[(N, 0), (C, 0), (H, 0), (W, 0), (c, 8)]`."""
    found = re.findall(r"(\d*)([A-Za-z])", layout)
    dims = [(letter, int(number or 0)) for number, letter in found]
    letters = [letter for letter, _ in dims]
    wrong = "".join(n + c for n, c in found) != layout or len(set(letters)) != len(letters)
    if wrong or any((size > 0) != c.islower() or c.upper() not in letters for c, size in dims):
        raise ShapeError(f"'{layout}' is not a layout; it has capital letters once each, and blocks such as 8c of letters that are there")
    return dims


@op("layout_transform", kind=Fusion.INJECTIVE)
class LayoutTransform(Regrouping):
    """From `src_layout` to `dst_layout`, either of which may have blocks: `NCHW` -> `NCHW8c`."""

    src_layout: str
    dst_layout: str

    def plans(self, shape: Shape) -> list[Plan]:
        source, target = _parse(self.src_layout), _parse(self.dst_layout)
        plain = [c for c, _ in target if c.isupper()]
        if sorted(plain) != sorted(c for c, _ in source if c.isupper()):
            raise ShapeError(f"layouts {self.src_layout} and {self.dst_layout} do not have the same dimensions")
        if len(source) != len(shape) or any(n and n != size for (_, n), size in zip(source, shape, strict=True)):
            raise ShapeError(f"a tensor of shape {text(shape)} does not have the layout {self.src_layout}")
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
        return [second] if self.src_layout == "".join(plain) else [first, second]

    def simplify(self, call: Call) -> Expr | None:
        return call.args[0] if self.src_layout == self.dst_layout else None
