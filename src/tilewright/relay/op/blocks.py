"""Operators that split dimensions into blocks, reorder the blocks, and join them: layouts, depth-to-space, batches."""

from __future__ import annotations

import math

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.tir.data_layout import bijective_layout
from tilewright.topi import transform as topi
from tilewright.topi.blocks import Plan, depth_to_space_plan, space_to_depth_plan
from tilewright.topi.nn import blocks as of_batches
from tilewright.topi.shapes import Shape, is_multiple, is_too_small, text


class Regrouping(Op):
    """Base of the operators that split dimensions, transpose, and join them, as a list of plans."""

    def plans(self, shape: Shape) -> list[Plan]:
        """Return the steps for an input of `shape`. Raises `ShapeError` where the shape does not fit."""
        raise NotImplementedError

    def infer(self, data: Type) -> TensorType:
        """The regrouped shape; the dtype of the data."""
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
    """Channels rearranged into blocks of `block_size` x `block_size` pixels (ONNX DepthToSpace)."""

    precision = Precision.NEVER
    block_size: int
    """Height and width of a block, in pixels."""
    layout: str = "NCHW"
    """Order of the dimensions: "NCHW" or "NHWC"."""
    mode: str = "DCR"
    """Place of the block within the channels: "DCR" (block is the slower part) or "CRD" (the faster part)."""

    def plans(self, shape: Shape) -> list[Plan]:
        return [depth_to_space_plan(shape, self.block_size, self.layout, self.mode)]


@op("nn.space_to_depth", kind=Fusion.INJECTIVE)
class SpaceToDepth(Regrouping):
    """Blocks of `block_size` x `block_size` pixels rearranged into channels, the block being the slower part (ONNX
    SpaceToDepth).
    """

    block_size: int
    """Height and width of a block, in pixels."""
    layout: str = "NCHW"
    """Order of the dimensions: "NCHW" or "NHWC"."""

    def plans(self, shape: Shape) -> list[Plan]:
        return [space_to_depth_plan(shape, self.block_size, self.layout)]


@op("layout_transform", kind=Fusion.INJECTIVE)
class LayoutTransform(Op):
    """The data in another layout; either layout may be blocked: `NCHW` -> `NCHW8c`.

    Where the block size does not divide a dimension, the last block is padded with zeros. The transform back keeps the
    padding.
    """

    precision = Precision.FOLLOW
    src_layout: str
    """Layout of the data, such as "NCHW"."""
    dst_layout: str
    """Layout of the result, such as "NCHW8c"."""

    def infer(self, data: Type) -> TensorType:
        """The shape of the data in `dst_layout`; the dtype of the data."""
        (t,) = tensors(data)
        return TensorType(bijective_layout(self.src_layout, self.dst_layout).forward_shape(t.shape), t.dtype)

    def reference(self, data: Array) -> Array:
        return bijective_layout(self.src_layout, self.dst_layout).forward(data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.layout_transform(data, self.src_layout, self.dst_layout)

    def simplify(self, call: Call) -> Expr | None:
        """No move -> the input; there and back without padding -> the input."""
        data = call.args[0]
        if self.src_layout == self.dst_layout:
            return data
        if isinstance(data, Call) and isinstance(data.op, LayoutTransform) and data.op.dst_layout == self.src_layout:
            first = data.args[0]
            if data.op.src_layout == self.dst_layout and first.tensor_type == call.tensor_type:
                return first
        return None


@op("nn.space_to_batch_nd", kind=Fusion.INJECTIVE)
class SpaceToBatchNd(Op):
    """Blocks of the dimensions after the batch, padded first, moved into the batch (TensorFlow SpaceToBatchND).

    The position within a block is the slower part of the new batch.
    """

    block_shape: tuple[int, ...]
    """Size of a block along each dimension after the batch, in elements."""
    paddings: tuple[tuple[int, int], ...]
    """Number of elements added (before, after) for each dimension of `block_shape`."""
    pad_value: float = 0.0
    """Value of the added elements."""

    def infer(self, data: Type) -> TensorType:
        """(batch * blocks, padded sizes / block sizes, remaining sizes); blocks must divide the padded sizes."""
        (t,) = tensors(data)
        blocks, m = self.block_shape, len(self.block_shape)
        if t.ndim <= m or len(self.paddings) != m:
            raise ShapeError(f"block_shape {text(blocks)} needs a pair of paddings for each of its dimensions, and "
                             "data with at least one more dimension")
        padded = [n + sum(p) for n, p in zip(t.shape[1:], self.paddings, strict=False)]
        if not all(is_multiple(n, b) for n, b in zip(padded, blocks, strict=True)):
            raise ShapeError(f"blocks of {text(blocks)} do not divide the padded dimensions {text(padded)}")
        return TensorType((t.shape[0] * math.prod(blocks), *(n // b for n, b in zip(padded, blocks, strict=True)),
                           *t.shape[1 + m :]), t.dtype)

    def reference(self, data: Array) -> Array:
        m = len(self.block_shape)
        padded = np.pad(data, [(0, 0), *self.paddings, *[(0, 0)] * (data.ndim - 1 - m)], constant_values=self.pad_value)
        n, *sizes = padded.shape
        split = padded.reshape(n, *(v for s, b in zip(sizes, self.block_shape, strict=False) for v in (s // b, b)),
                               *sizes[m:])
        moved = split.transpose(*(2 + 2 * k for k in range(m)), 0, *(1 + 2 * k for k in range(m)),
                                *range(1 + 2 * m, split.ndim))
        return np.ascontiguousarray(moved).reshape(-1, *(s // b for s, b in zip(sizes, self.block_shape, strict=False)),
            *sizes[m:])

    def compute(self, data: te.Tensor) -> te.Tensor:
        before, after = zip(*self.paddings, strict=True)
        return of_batches.space_to_batch_nd(data, self.block_shape, before, after, self.pad_value)


@op("nn.batch_to_space_nd", kind=Fusion.INJECTIVE)
class BatchToSpaceNd(Op):
    """Elements of the batch moved into blocks of the dimensions after it; then `crops` are cut off (TensorFlow
    BatchToSpaceND).
    """

    block_shape: tuple[int, ...]
    """Size of a block along each dimension after the batch, in elements."""
    crops: tuple[tuple[int, int], ...]
    """Number of elements cut off (before, after) for each dimension of `block_shape`."""

    def infer(self, data: Type) -> TensorType:
        """(batch / blocks, sizes * block sizes - crops, remaining sizes); blocks must divide the batch."""
        (t,) = tensors(data)
        blocks, m = self.block_shape, len(self.block_shape)
        if t.ndim <= m or len(self.crops) != m:
            raise ShapeError(f"block_shape {text(blocks)} needs a pair of crops for each of its dimensions, and data "
                             "with at least one more dimension")
        if not is_multiple(t.shape[0], math.prod(blocks)):
            raise ShapeError(f"a batch of {t.shape[0]} cannot be divided into blocks of {text(blocks)}")
        sizes = [n * b - sum(c) for n, b, c in zip(t.shape[1:], blocks, self.crops, strict=False)]
        return TensorType((t.shape[0] // math.prod(blocks), *sizes, *t.shape[1 + m :]), t.dtype)

    def reference(self, data: Array) -> Array:
        m, (n, *sizes) = len(self.block_shape), data.shape
        batch = n // math.prod(self.block_shape)
        split = data.reshape(*self.block_shape, batch, *sizes)
        moved = split.transpose(m, *(v for k in range(m) for v in (m + 1 + k, k)), *range(2 * m + 1, split.ndim))
        whole = np.ascontiguousarray(moved).reshape(batch,
            *(s * b for s, b in zip(sizes, self.block_shape, strict=False)), *sizes[m:])
        kept = (slice(None), *(slice(a, s - b) for s, (a, b) in zip(whole.shape[1:], self.crops, strict=False)))
        return np.ascontiguousarray(whole[kept])

    def compute(self, data: te.Tensor) -> te.Tensor:
        before, after = zip(*self.crops, strict=True)
        return of_batches.batch_to_space_nd(data, self.block_shape, before, after)


@op("nn.mirror_pad", kind=Fusion.INJECTIVE)
class MirrorPad(Op):
    """The data, mirrored at the edges of each dimension (TensorFlow MirrorPad)."""

    mode: str = "SYMMETRIC"
    """Mirroring: "SYMMETRIC" repeats the edge element, "REFLECT" does not."""
    pad_width: tuple[tuple[int, int], ...] = ()
    """Number of elements added (before, after) along each dimension."""

    def infer(self, data: Type) -> TensorType:
        """The sizes of the data plus both paddings; the dtype of the data."""
        (t,) = tensors(data)
        if self.mode not in ("SYMMETRIC", "REFLECT"):
            raise ShapeError(f"mode '{self.mode}' is not supported; it must be SYMMETRIC or REFLECT")
        if len(self.pad_width) != t.ndim or any(len(w) != 2 or min(w) < 0 for w in self.pad_width):
            raise ShapeError(f"pad_width must have a pair (before, after) for each of the {t.ndim} dimensions, and it "
                             f"is {self.pad_width}")
        most = 0 if self.mode == "SYMMETRIC" else 1
        for n, w in zip(t.shape, self.pad_width, strict=True):
            if any(w) and any(is_too_small(n - p, most) for p in w):
                raise ShapeError(f"a dimension of {n} can be mirrored by at most {n - most} elements, but pad_width "
                                 f"has {max(w)}")
        return TensorType([n + b + a for n, (b, a) in zip(t.shape, self.pad_width, strict=True)], t.dtype)

    def reference(self, data: Array) -> Array:
        return np.pad(data, self.pad_width, mode="symmetric" if self.mode == "SYMMETRIC" else "reflect")

    def compute(self, data: te.Tensor) -> te.Tensor:
        return of_batches.mirror_pad(data, [b for b, _ in self.pad_width], [a for _, a in self.pad_width], self.mode)


@op("nn.dilate", kind=Fusion.INJECTIVE)
class Dilate(Op):
    """The data with `strides[d] - 1` elements of `dilation_value` inserted between neighbours along dimension d."""

    strides: tuple[int, ...]
    """Distance in the result between two neighbouring elements of the data, for each dimension; 1 or more."""
    dilation_value: float = 0.0
    """Value of the inserted elements."""

    def infer(self, data: Type) -> TensorType:
        """(size - 1) * stride + 1 for each dimension; the dtype of the data."""
        (t,) = tensors(data)
        if len(self.strides) != t.ndim or any(s < 1 for s in self.strides):
            raise ShapeError(f"strides {text(self.strides)} need one number, 1 or more, for each of the {t.ndim} "
                             "dimensions")
        return TensorType([(n - 1) * s + 1 for n, s in zip(t.shape, self.strides, strict=True)], t.dtype)

    def reference(self, data: Array) -> Array:
        result = np.full([(n - 1) * s + 1 for n, s in zip(data.shape, self.strides, strict=True)],
                         self.dilation_value).astype(data.dtype)
        result[tuple(slice(None, None, s) for s in self.strides)] = data
        return result

    def compute(self, data: te.Tensor) -> te.Tensor:
        return of_batches.dilate(data, self.strides, self.dilation_value)
