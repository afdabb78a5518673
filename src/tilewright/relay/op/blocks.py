"""Operators that split dimensions into blocks, reorder the pieces, and join them: layouts and depth-to-space."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi import transform as topi
from tilewright.topi.blocks import Plan, depth_to_space_plan, plans_of_layouts, space_to_depth_plan
from tilewright.topi.shapes import Shape
from tilewright.types import TensorType, Type


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


@op("nn.depth_to_space", kind=Fusion.INJECTIVE)
class DepthToSpace(Regrouping):
    """Channels become blocks of `block_size` x `block_size` pixels.

    With `mode` "DCR" the block is the slower part of the channel, with "CRD" the faster one (ONNX DepthToSpace).
    """

    block_size: int
    layout: str = "NCHW"
    mode: str = "DCR"

    def plans(self, shape: Shape) -> list[Plan]:
        return [depth_to_space_plan(shape, self.block_size, self.layout, self.mode)]


@op("nn.space_to_depth", kind=Fusion.INJECTIVE)
class SpaceToDepth(Regrouping):
    """Blocks of `block_size` x `block_size` pixels become channels, the block being the slower part (ONNX SpaceToDepth)."""

    block_size: int
    layout: str = "NCHW"

    def plans(self, shape: Shape) -> list[Plan]:
        return [space_to_depth_plan(shape, self.block_size, self.layout)]


@op("layout_transform", kind=Fusion.INJECTIVE)
class LayoutTransform(Regrouping):
    """From `src_layout` to `dst_layout`, either of which may have blocks: `NCHW` -> `NCHW8c`."""

    src_layout: str
    dst_layout: str

    def plans(self, shape: Shape) -> list[Plan]:
        return plans_of_layouts(shape, self.src_layout, self.dst_layout)

    def simplify(self, call: Call) -> Expr | None:
        return call.args[0] if self.src_layout == self.dst_layout else None
