"""What the operators refuse, and what they say."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.base.errors import CompileError, Origin, ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op import (
    OPS,
    create,
    einsum,
    elementwise,
    fixed_point,
    image,
    image_sampling,
    indexing,
    nn,
    random,
    reduction,
    registry,
    scattering,
    shaping,
    signal,
    sorting,
    transform,
    vision,
    vision_maps,
)
from tilewright.relay.op import broadcast as b
from tilewright.relay.op.blocks import DepthToSpace, LayoutTransform, SpaceToDepth
from tilewright.relay.op.registry import Op
from tilewright.scalar.expr import Var as Symbol

N, M = Symbol("n"), Symbol("m")


def t(*shape: Any, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype)


I32 = "int32"
IMAGE = t(1, 3, 8, 8)


def both(*types: Type) -> TupleType:
    return TupleType(types)


REFUSED: list[tuple[Op, tuple[Any, ...], str]] = [
    (
        elementwise.Exp(), (t(2, dtype=I32),),
        "a floating-point tensor was expected, and this one is int32; cast it first"
    ),
    (elementwise.Exp(), (both(t(2)),), "a tensor was expected, and (Tensor[(2), float32],) was given"),
    (
        elementwise.LogicalNot(), (t(2),),
        "a boolean tensor was expected, and this one is float32; compare it with zero first"
    ),
    (elementwise.BitwiseNot(), (t(2),), "an integer or boolean tensor was expected, and this one is float32"),
    (
        fixed_point.FixedPointMultiply(1, 1), (t(2),),
        "an int32 tensor was expected, and this one is float32; cast it first"
    ),
    (nn.PRelu(), (IMAGE, t(4)), "alpha must have shape (3,), one slope for each channel, and it has (4,)"),
    (
        b.Add(), (t(2, 3), t(2, 4)),
        "shapes (2, 3) and (2, 4) do not broadcast: dimension -1 is 3 in one and 4 in another; make them equal, or one "
        "of them 1"
    ),
    (
        b.Add(), (t(N), t(M)),
        "shapes (n,) and (m,) do not broadcast: dimension -1 is n in one and m in another; give both the same symbol"
    ),
    (b.Add(), (t(2), t(2, dtype=I32)), "dtypes float32 and int32 differ; cast one of the arguments"),
    (
        b.LogicalAnd(), (t(2), t(2)),
        "boolean tensors were expected, and these are float32; compare them with zero first"
    ),
    (b.LeftShift(), (t(2), t(2)), "integer tensors were expected, and these are float32"),
    (b.BroadcastTo((3, 1)), (t(3, 4),), "(3, 4) cannot be broadcast to (3, 1): their common shape is (3, 4)"),
    (reduction.Sum(3), (t(2, 3),), "axis 3 is out of range for a tensor of 2 dimensions; it must be in [-2, 1]"),
    (reduction.Sum((1, -1)), (t(2, 3),), "axis (1, -1) names a dimension twice; name each once"),
    (reduction.Max(1), (t(2, 0),), "the max of no elements is not defined: (2, 0) is empty along the axes (1,)"),
    (reduction.ArgMax(1), (t(2, 0),), "the argmax of no elements is not defined: (2, 0) is empty along the axes (1,)"),
    (reduction.All(), (t(2),), "a boolean tensor was expected, and this one is float32; compare it with zero first"),
    (
        reduction.Variance(1), (t(2, 3), t(2)),
        "the mean must have shape (2, 1), and it has (2,); take it along the same axes with keepdims=True"
    ),
    (shaping.Reshape((4, 2)), (t(2, 3),), "(2, 3) has 6 elements and cannot have the shape (4, 2), which has 8"),
    (shaping.Reshape((-1, 4)), (t(2, 3),), "(2, 3) has 6 elements, which (-1, 4) cannot divide into rows of 4"),
    (
        shaping.Reshape((-1, -1)), (t(2, 3),),
        "newshape (-1, -1) has -1 more than once; only one dimension can be inferred"
    ),
    (
        shaping.Reshape((2, 3, 0)), (t(2, 3),),
        "0 in newshape (2, 3, 0) needs dimension 2 of the input, which has the shape (2, 3)"
    ),
    (
        shaping.Reshape((-5,)), (t(2),),
        "-5 in newshape (-5,) is invalid; use sizes, 0, -1, -2, -3, or -4 before two sizes"
    ),
    (shaping.Reshape((-4, 4, 2)), (t(6),), "-4 cannot split a dimension of 6 into 4 and 2"),
    (
        shaping.Squeeze(1), (t(2, 3),),
        "dimension 1 of (2, 3) is 3 and cannot be squeezed; only dimensions of size 1 can"
    ),
    (shaping.BatchFlatten(), (t(),), "a scalar has no batch dimension; apply expand_dims first"),
    (transform.Transpose((0, 0)), (t(2, 3),), "axes (0, 0) must name each of the 2 dimensions once"),
    (transform.Concatenate(), (t(2),), "concatenate takes one tuple of tensors, and was given Tensor[(2), float32]"),
    (transform.Concatenate(), (both(),), "concatenate got an empty tuple; give at least one tensor"),
    (
        transform.Concatenate(1), (both(t(2, 3), t(3, 3)),),
        "(2, 3) and (3, 3) cannot be joined along axis 1: they differ along another axis"
    ),
    (transform.Stack(), (both(t(2, 3), t(3, 3)),), "(2, 3) and (3, 3) cannot be stacked: all shapes must be equal"),
    (transform.Split(2), (t(5),), "a dimension of 5 cannot be split into 2 equal parts; give the indices to cut at"),
    (transform.Split((4, 2)), (t(5),), "the indices (4, 2) must ascend and stay within the dimension of 5"),
    (
        transform.StridedSlice((0,), (1, 2)), (t(5),),
        "begin (0,), end (1, 2), strides (1,) and axes (0,) differ in length"
    ),
    (
        transform.StridedSlice((0,), (1,), (0,)), (t(5),),
        "a stride must not be 0; use 1 or more, or a negative stride to slice backward"
    ),
    (transform.StridedSlice((1,), (3,)), (t(N),), "dimension n is symbolic and cannot be sliced by [1:3:1]"),
    (transform.SliceLike(), (t(2), t(3)), "(2,) cannot be sliced to (3,) along axis 0"),
    (
        nn.Pad(((1, 1),)), (t(2, 3), t()),
        "pad_width must have a pair (before, after) for each of the 2 dimensions, and it is ((1, 1),)"
    ),
    (nn.Pad(((1, 1),), "wrap"), (t(2), t()), "pad_mode 'wrap' is not supported; it must be constant, edge or reflect"),
    (nn.Pad(((1, 1),)), (t(2), t(2)), "pad_value must be a scalar, and it has the shape (2,)"),
    (nn.Pad(((-1, 1),)), (t(2), t()), "pad_width ((-1, 1),) is negative; use strided_slice to cut elements off"),
    (
        nn.Pad(((2, 0),), "reflect"), (t(2), t()),
        "a dimension of 2 can be reflected by at most 1 elements, but pad_width has 2"
    ),
    (DepthToSpace(2), (t(1, 6, 2, 2),), "the channels (6) must be a multiple of 4"),
    (DepthToSpace(2, mode="X"), (t(1, 4, 2, 2),), "mode 'X' is not supported; it must be DCR or CRD"),
    (DepthToSpace(2), (t(4, 2, 2),), "data must have 4 dimensions; it has 3: (4, 2, 2)"),
    (SpaceToDepth(2), (t(1, 1, 3, 2),), "the height (3) must be a multiple of 2"),
    (
        LayoutTransform("NC8h", "NC"), (t(1, 1, 1),),
        "the layout 'NC8h' has blocks 8h, but no dimension H"
    ),
    (LayoutTransform("NC", "NHC"), (t(1, 1),), "layouts NC and NHC do not have the same dimensions: N, C and N, H, C"),
    (
        LayoutTransform("NC4c", "NC"), (t(1, 1, 8),),
        "a tensor of shape (1, 1, 8) does not have the layout NC4c, which has 3 dimensions, where dimension 2 is 4"
    ),
    (
        LayoutTransform("NC", "N8C"), (t(1, 6),),
        "the layout 'N8C' has a size before the dimension C; only blocks have sizes: 8c"
    ),
    (LayoutTransform("NC", "NCN"), (t(1, 6),), "the layout 'NCN' contains the dimension N twice"),
    (
        LayoutTransform("NC", "NCc"), (t(1, 6),),
        "the layout 'NCc' has the block c without a size; write the size before the letter, such as 8c"
    ),
    (
        LayoutTransform("NC", "NC-"), (t(1, 6),),
        "'NC-' is not a layout; it has capital letters, and numbers only before small letters, for example NCHW8c"
    ),
    (create.Full((2,)), (t(3),), "fill_value must be a scalar, and it has the shape (3,)"),
    (create.FullLike(), (t(2), t(3)), "fill_value must be a scalar, and it has the shape (3,)"),
    (create.Arange(0, 1, 0), (), "the step is 0; use another number"),
    (create.Arange(0, float("inf")), (), "from 0 to inf by 1 is not a finite number of steps; use finite numbers"),
    (create.OneHot(3), (t(2), t(), t()), "indices must be integers, and they are float32; cast them first"),
    (
        create.OneHot(3), (t(2, dtype=I32), t(1), t()),
        "on_value and off_value must be scalars, and they have the shapes (1,) and ()"
    ),
    (create.Trilu(), (t(2), t(dtype=I32)), "the data must be matrices, but they have the shape (2,)"),
    (create.Trilu(), (t(2, 2), t()), "k must be one integer, and it is float32"),
    (indexing.Take(0), (t(2), t(2)), "indices must be integers, and they are float32; cast them first"),
    (
        indexing.Take(0, mode="raise"), (t(2), t(2, dtype=I32)),
        "mode 'raise' is not supported; it must be clip, wrap or fast"
    ),
    (
        indexing.Take(0, 1), (t(2, 3), t(2, dtype=I32)),
        "the first 1 dimensions of (2, 3) and (2,) must be equal, and must precede axis 0"
    ),
    (indexing.Gather(0), (t(2, 3), t(2, dtype=I32)), "indices (2,) must have as many dimensions as the data (2, 3)"),
    (
        indexing.GatherNd(), (t(2), t(2, 4, dtype=I32)),
        "indices of 2 coordinates after 0 batch dimensions exceed the rank of data (2,)"
    ),
    (
        indexing.GatherNd(), (t(2), t(N, dtype=I32)),
        "the first dimension of indices (n,) is the number of coordinates, and must be known at compile time"
    ),
    (
        indexing.ScatterElements(), (t(2, 2), t(2, 2, dtype=I32), t(2, 1)),
        "indices (2, 2) and updates (2, 1) must have equal shapes, of 2 dimensions"
    ),
    (
        indexing.ScatterElements(0, "sub"), (t(2), t(2, dtype=I32), t(2)),
        "reduction 'sub' is not supported; it must be update, add, mul, min, max"
    ),
    (
        indexing.ScatterNd(), (t(4, 3), t(1, 2, dtype=I32), t(2, 4)),
        "updates must have the shape (2, 3), and they have (2, 4)"
    ),
    (
        indexing.ScatterNd("x"), (t(4), t(1, 2, dtype=I32), t(2)),
        "mode 'x' is not supported; it must be update, add, mul, min, max"
    ),
    (
        sorting.SearchSorted(), (t(3, 4), t(2, 5)),
        "sorted_sequence (3, 4) must be a vector, or have the dimensions of values (2, 5) except the last"
    ),
    (sorting.SearchSorted(), (t(), t()), "sorted_sequence must have at least one dimension, but it is a scalar"),
    (sorting.Unique(), (t(2, 3),), "data must be a vector, but it has the shape (2, 3); reshape it first"),
    (vision.GetValidCounts(), (t(2, 3, 1),), "data (2, 3, 1) must have at least 2 values for each box"),
    (
        vision.NonMaxSuppression(), (t(2, 3, 6), t(3, dtype=I32), t(2, 3, dtype=I32)),
        "valid_count must have one integer for each of the 2 images, but it is Tensor[(3), int32]"
    ),
    (
        vision.NonMaxSuppression(), (t(2, 3, 6), t(2, dtype=I32), t(2, 4, dtype=I32)),
        "indices must have one integer for each box (2, 3), but they are Tensor[(2, 4), int32]"
    ),
    (
        vision.AllClassNonMaxSuppression(), (t(1, 5, 3), t(1, 2, 5)),
        "boxes must have the shape (1, 5, 4), and they have (1, 5, 3)"
    ),
    (
        vision.AllClassNonMaxSuppression(output_format="x"), (t(1, 5, 4), t(1, 2, 5)),
        "output_format 'x' is not supported; it must be onnx or tensorflow"
    ),
    (
        vision_maps.RoiAlign(2, 1.0), (IMAGE, t(3, 4)),
        "rois must have 5 values each (image, x, y, x, y), and they are (3, 4)"
    ),
    (
        vision_maps.RoiAlign(2, 1.0, layout="NCHW4c"), (IMAGE, t(3, 5)),
        "layout 'NCHW4c' is not supported; it must be NCHW or NHWC"
    ),
    (
        vision_maps.RoiAlign(2, 1.0, mode="sum"), (IMAGE, t(3, 5)),
        "mode 'sum' is not supported; it must be avg, max or max_taps"
    ),
    (
        vision_maps.Proposal((1.0,), (1.0, 2.0), 16, 0.5, 9, 9, 4), (t(1, 4, 5, 5), t(1, 4, 5, 5), t(1, 3)),
        "bbox_pred must have the shape (1, 8, 5, 5) for 2 anchors, and it has (1, 4, 5, 5)"
    ),
    (
        vision_maps.MultiboxTransformLoc(), (t(1, 3, 7), t(1, 27), t(1, 7, 4)),
        "loc_pred must have the shape (1, 28) for 7 anchors, and it has (1, 27)"
    ),
    (vision_maps.YoloReorg(2), (t(1, 6, 4, 4),), "the channels (6) must be a multiple of 4"),
    (
        image_sampling.GridSample(), (IMAGE, t(1, 3, 4, 4)),
        "data (1, 3, 8, 8) must have 4 or 5 dimensions; the grid (1, 3, 4, 4) must have the same rank and "
        "batch size, and a second dimension of 2 or 3"
    ),
    (
        image_sampling.GridSample("cubic"), (IMAGE, t(1, 2, 4, 4)),
        "method 'cubic' is not supported for 2 dimensions; it must be nearest or bilinear or bicubic"
    ),
    (
        image_sampling.GridSample(padding_mode="wrap"), (IMAGE, t(1, 2, 4, 4)),
        "padding_mode 'wrap' is not supported; it must be zeros, border or reflection"
    ),
    (
        image_sampling.GridSample(layout="NHWC"), (IMAGE, t(1, 2, 4, 4)),
        "layout 'NHWC' is not supported; for 2 dimensions it must be NCHW"
    ),
    (
        image_sampling.AffineGrid((4, 5)), (t(1, 3, 4),),
        "the matrices (3, 4) must be (2, 3) for a target of 2 dimensions, or (3, 4) for 3; the target is (4, 5)"
    ),
    (
        image_sampling.CropAndResize((2, 2)), (IMAGE, t(3, 4), t(2, dtype=I32)),
        "boxes (3, 4) must have 4 values each, and box_indices (2,) an image for each box"
    ),
    (
        image_sampling.CropAndResize((2, 2)), (IMAGE, t(3, 4), t(3)),
        "box_indices must be integers, and they are float32; cast them first"
    ),
    (
        image_sampling.CropAndResize((2, 2), method="area"), (IMAGE, t(3, 4), t(3, dtype=I32)),
        "method 'area' is not supported; it must be bilinear or nearest_neighbor"
    ),
    (image_sampling.Dilation2d(), (IMAGE, t(4, 3, 3)), "channels of data (3) and weight (4) differ"),
    (
        image_sampling.Dilation2d(dilations=5), (IMAGE, t(3, 3, 3)),
        "a window of 11 does not fit into spatial dimension 0 of 8 with its padding"
    ),
    (
        random.ThreefryGenerate((8,)), (t(10),),
        "a generator's state must be Tensor[(10), uint64], but got Tensor[(10), float32]; make one with "
        "relay.random.threefry_key(seed)"
    ),
    (
        random.Uniform((5,), "int8"), (t(10, dtype="uint64"), t(), t()),
        "random numbers are float32 or float64, not int8; cast them afterwards"
    ),
    (
        random.Normal((5,)), (t(10, dtype="uint64"), t(2), t()),
        "the limits, mean and scale must be scalars of float32, and one is Tensor[(2), float32]"
    ),
    (
        random.Multinomial(), (t(10, dtype="uint64"), t()),
        "probs must be rows of floating-point probabilities, but they are float32"
    ),
    (
        einsum.Einsum("ij,jk->ik"), (both(t(2, 3), t(4, 5)),),
        "dimension 'j' of 'ij,jk->ik' is 3 in one operand and 4 in another"
    ),
    (einsum.Einsum("ij->i"), (both(t(2, 3), t(4, 5)),), "equation 'ij->i' has 1 operands, but 2 tensors were given"),
    (
        einsum.Einsum("ijk,jk->i"), (both(t(2, 3), t(4, 5)),),
        "equation 'ijk,jk->i' names 3 dimensions for a tensor of 2 dimensions"
    ),
    (
        einsum.Einsum("ij,jk->iil"), (both(t(2, 3), t(3, 5)),),
        "equation 'ij,jk->iil' must name each dimension of the result once, and each must occur in an operand"
    ),
    (einsum.Einsum("i"), (t(2),), "a tuple of tensors was expected, and Tensor[(2), float32] was given"),
    (signal.Dft(), (t(4), t(5)), "the parts must be rows of equal shape, but they are (4,) and (5,)"),
    (
        signal.Dft(), (t(4, dtype=I32), t(4, dtype=I32)),
        "a Fourier transform takes floating-point numbers, and these are int32; cast them first"
    ),
    (signal.Stft(8, 2, 8), (t(6), t(8)), "a signal of 6 elements is shorter than n_fft=8; pad it first"),
    (signal.Stft(8, 2, 9), (t(20), t(9)), "a window (9,) of 9 elements every 2 does not fit n_fft=8"),
    (
        signal.Stft(8, 2, 8), (t(1, 2, 20), t(8)),
        "data must be one signal or a batch of them, and it has the shape (1, 2, 20)"
    ),
    (
        scattering.SparseToDense((3, 4)), (t(2, 3, dtype=I32), t(2), t()),
        "sparse_indices (2, 3) must have 2 columns, one for each dimension of (3, 4)"
    ),
    (
        scattering.SparseToDense((3, 4)), (t(2, 2, dtype=I32), t(3), t()),
        "sparse_values (3,) must have one value or 2, and default_value () one"
    ),
    (
        scattering.SparseReshape(), (t(2, 3, dtype=I32), t(2, dtype=I32), t(2, dtype=I32)),
        "sparse_indices (2, 3) must have a column for each dimension of prev_shape (2,)"
    ),
    (
        scattering.InvertPermutation(), (t(2, 2, dtype=I32),),
        "a permutation must be a vector of indices, but it has the shape (2, 2)"
    ),
    (scattering.InvertPermutation(), (t(2),), "indices must be integers, and they are float32; cast them first"),
    (
        nn.NllLoss(), (t(2, 4), t(3, dtype=I32), t(4)),
        "targets (3,) must have the shape of predictions (2, 4) without the classes"
    ),
    (
        nn.NllLoss(), (t(2, 4), t(2, dtype=I32), t(3)),
        "weights must have one element for each of the 4 classes, but their shape is (3,)"
    ),
    (nn.NllLoss(), (t(2, 4), t(2), t(4)), "targets must be integers, and they are float32; cast them first"),
    (
        nn.NllLoss("max"), (t(2, 4), t(2, dtype=I32), t(4)),
        "reduction 'max' is not supported; it must be mean, sum or none"
    ),
    (sorting.TopK(5), (t(3),), "k is 5, but axis -1 has 3 elements; use at most that many"),
    (sorting.TopK(1, ret_type="all"), (t(3),), "ret_type 'all' is not supported; it must be both, values or indices"),
    (nn.Conv2d(), (IMAGE, t(8, 4, 3, 3)), "channels of data (3) and weight (4) differ"),
    (nn.Conv2d(groups=2), (t(1, 4, 8, 8), t(8, 4, 3, 3)), "channels of data (4) and weight (4 in 2 groups) differ"),
    (nn.Conv2d(groups=3), (IMAGE, t(8, 1, 3, 3)), "the 8 output channels cannot be divided among 3 groups"),
    (nn.Conv2d(), (t(3, 8, 8), t(8, 3, 3, 3)), "data must have 4 dimensions; it has 3: (3, 8, 8)"),
    (nn.Conv2d(), (IMAGE, t(8, 3, 3)), "weight must have 4 dimensions; it has 3: (8, 3, 3)"),
    (nn.Conv2d(channels=4), (IMAGE, t(8, 3, 3, 3)), "channels is 4, but the weight has 8 output channels"),
    (
        nn.Conv2d(kernel_size=(5,)), (IMAGE, t(8, 3, 3, 3)),
        "kernel_size is (5, 5), and the weight (8, 3, 3, 3) (OIHW) has (3, 3)"
    ),
    (
        nn.Conv2d(), (IMAGE, t(8, 3, 9, 3)),
        "a window of 9 does not fit into spatial dimension 0 of 8 with padding 0 and 0"
    ),
    (
        nn.Conv2d(data_layout="NCHW4c"), (IMAGE, t(8, 3, 3, 3)),
        "data of shape (1, 3, 8, 8) does not have the layout NCHW4c, which has 5 dimensions, where dimension 4 is 4"
    ),
    (
        nn.Conv2d(data_layout="NCHW4c", kernel_layout="OIHW4i4o"), (t(1, 1, 5, 5, 4), t(8, 3, 3, 3)),
        "a weight of shape (8, 3, 3, 3) does not have the layout OIHW4i4o, which has 6 dimensions, where dimension 4 "
        "is 4 and dimension 5 is 4"
    ),
    (
        nn.Conv2d(data_layout="NCHW4h", kernel_layout="OIHW"), (t(1, 4, 2, 5, 4), t(8, 4, 3, 3)),
        "the layout NCHW4h has blocks of the spatial dimension H; only N and C can have blocks"
    ),
    (
        nn.Conv2d(data_layout="NCHW4c", kernel_layout="OIHW"), (t(1, 1, 5, 5, 4), t(6, 4, 3, 3)),
        "the 6 output channels cannot be divided into the blocks of 4 that the layout NCHW4c has"
    ),
    (
        nn.DepthwiseConv2dNCHWc(data_layout="NCHW4c", groups=4, kernel_layout="OIHW4i4o"),
        (t(1, 1, 5, 5, 4), t(1, 1, 3, 3, 4, 4)),
        "a depthwise kernel has one input channel for each output, but this one (OIHW4i4o) has 4"
    ),
    (
        nn.MaxPool2d(layout="NCHW", out_layout="NCHW4c"), (t(1, 6, 5, 5),),
        "the 6 channels cannot be divided into the blocks of 4 that the layout NCHW4c has"
    ),
    (
        nn.Conv2d(kernel_layout="HW"), (IMAGE, t(8, 3, 3, 3)),
        "kernel layout 'HW' is not a valid layout here; it must be a permutation of the letters O, I, H, W, for "
        "example OIHW"
    ),
    (
        nn.Conv2d(), (t(1, 3, 8, 8, dtype="int8"), t(8, 3, 3, 3, dtype="uint8")),
        "dtypes int8 and uint8 differ; cast one of the arguments, or give out_dtype for integers"
    ),
    (nn.Conv2dTranspose(), (IMAGE, t(4, 8, 3, 3)), "channels of data (3) and weight (4) differ"),
    (
        nn.Conv2dTranspose(output_padding=(1,)), (IMAGE, t(3, 8, 3, 3)),
        "output_padding 1 must be less than the stride 1 or the dilation 1 of dimension 0"
    ),
    (
        nn.Conv2dTranspose(padding=(9,)), (IMAGE, t(3, 8, 3, 3)),
        "the padding (9, 9, 9, 9) makes the result empty: its spatial shape is (-8, -8)"
    ),
    (
        nn.Dense(), (t(2, 3), t(4, 5)),
        "the last dimension of data (2, 3) and of weight (4, 5) differ; the weight is (units, in)"
    ),
    (nn.Dense(7), (t(2, 5), t(4, 5)), "units is 7, and the weight (4, 5) has 4"),
    (nn.Matmul(), (t(2, 3), t(4, 5)), "(2, 3) and (4, 5) cannot be multiplied: 3 and 4 differ"),
    (nn.Matmul(7), (t(2, 4), t(4, 5)), "units is 7, and tensor_b has 5 columns"),
    (
        nn.Matmul(transpose_a=True), (t(4), t(4, 5)),
        "tensor_a (4,) cannot be transposed: it has fewer than two dimensions"
    ),
    (nn.BatchMatmul(), (t(1, 2, 3), t(1, 4, 5)), "(2, 3) and (5, 4) cannot be multiplied: 3 and 5 differ"),
    (
        nn.BiasAdd(), (IMAGE, t(4)),
        "the bias must have the shape (3,), one value for each element of axis 1, and it has (4,)"
    ),
    (nn.MaxPool2d((9,)), (IMAGE,), "a window of 9 does not fit into spatial dimension 0 of 8 with padding 0 and 0"),
    (
        nn.MaxPool2d((2,), (3,), ceil_mode=True), (t(1, 3, N, 8),),
        "ceil_mode with a stride of 3 and a window of 2 needs known sizes, and spatial dimension 0 is n; give the "
        "model's inputs fixed sizes"
    ),
    (nn.AdaptiveAvgPool2d((0, 1)), (IMAGE,), "spatial dimension 0 of 8 cannot be pooled to 0; both must be 1 or more"),
    (
        nn.LeakyRelu(), (t(2, dtype=I32),),
        "a floating-point tensor was expected, and this one is int32; cast it first, or write qnn.leaky_relu"
    ),
    (nn.Softmax(), (t(2, dtype=I32),), "a floating-point tensor was expected, and this one is int32; cast it first"),
    (
        nn.Attention(2, 4, 4), (t(1, 5, 8, dtype=I32),) * 3,
        "floating-point tensors were expected, and these are int32; cast them first"
    ),
    (nn.Attention(2, 4, 4), (t(5, 8), t(1, 5, 8), t(1, 5, 8)), "query must have 3 dimensions; it has 2: (5, 8)"),
    (
        nn.Attention(2, 4, 4, starts=(0, 8, 0)), (t(1, 5, 8),) * 3,
        "the 2 heads of key are its columns 8 to 16, but (1, 5, 8) has only 8"
    ),
    (
        nn.Attention(2, 4, 4), (t(1, 5, 8), t(1, 6, 8), t(1, 5, 8)),
        "query (1, 5, 8), key (1, 6, 8) and value (1, 5, 8) must have equal batch sizes, and key and value "
        "equal numbers of keys"
    ),
    (
        nn.Attention(2, 4, 4), (t(1, 5, 8), t(1, 6, 8), t(1, 6, 8), t(1, 2, 5, 6)),
        "the mask (1, 2, 5, 6) must have the shape (1, 2, 6, 5): batch, heads, keys, queries; all but keys may be 1"
    ),
    (
        nn.BatchNorm(), (IMAGE, t(3), t(3), t(3), t(4)),
        "moving_var must have the shape (3,), one value for each element of axis 1, and it has (4,)"
    ),
    (nn.GroupNorm(2), (IMAGE, t(3), t(3)), "the 3 channels cannot be divided into 2 groups"),
    (nn.LRN(0), (IMAGE,), "a neighbourhood of 0 is empty; size must be 1 or more"),
    (
        image.Resize2d((4, 4), method="area"), (IMAGE,),
        "method 'area' is not supported; it must be one of nearest_neighbor, linear, cubic"
    ),
    (image.Resize2d((4, 4), scales=(1,)), (IMAGE,), "scales must have 2 numbers, and it is (1,)"),
    (image.Resize2d((0, 4)), (IMAGE,), "an image of (8, 8) cannot be resized to (0, 4); all sizes must be 1 or more"),
    (
        nn.Upsampling(method="area"), (IMAGE,),
        "method 'area' is not supported; it must be nearest_neighbor, bilinear or bicubic"
    ),
    (
        nn.Upsampling(2, 2), (t(1, 3, N, 8),),
        "data of the symbolic sizes (n, 8) cannot be resized; give the model's inputs fixed sizes"
    ),
]


@pytest.mark.parametrize(("op", "types", "reason"), REFUSED, ids=lambda p: p.name if isinstance(p, Op) else "")
def test_refusals(op: Op, types: tuple[Any, ...], reason: str) -> None:
    """The message names the model's node, the operator with its attributes, the types given, and the reason."""
    origin = Origin("node_7", "Kind")
    with pytest.raises(ShapeError) as caught:
        op.infer_call(types, origin)
    shown = ", ".join(map(repr, types))
    assert str(caught.value) == f"Kind 'node_7': {op}({shown}): {reason}"
    assert caught.value.origin is origin


def test_attributes_in_no_form() -> None:
    with pytest.raises(ShapeError, match=r"strides must be 1 or 2 numbers, not \(1, 2, 3\)"):
        nn.Conv2d((1, 2, 3))
    with pytest.raises(ShapeError, match=r"padding must be 1, 2 or 4 numbers, not \(1, 2, 3\)"):
        nn.Conv2d(padding=(1, 2, 3))
    with pytest.raises(
        CompileError, match=r"nn\.softmax: got an unexpected keyword argument 'axes'; its attributes are: axis"
    ):
        nn.Softmax(axes=1)  # type: ignore[call-arg]
    with pytest.raises(
        CompileError, match=r"nn\.softmax: takes 1 attribute, and was given 2; its attributes are: axis"
    ):
        nn.Softmax(1, 2)  # type: ignore[call-arg]
    with pytest.raises(
        CompileError, match=r"nn\.softmax: got multiple values for argument 'axis'; its attributes are: axis"
    ):
        nn.Softmax(1, axis=2)  # type: ignore[misc]
    with pytest.raises(
        CompileError, match=r"expand_dims: missing 1 required argument: axis; its attributes are: axis, num_newaxis"
    ):
        relay.op.get("expand_dims")()
    with pytest.raises(
        CompileError,
        match=r"vision\.roi_pool: 'NoneType' object is not iterable; its attributes are: pooled_size, spatial_scale"
    ):
        relay.op.get("vision.roi_pool")(pooled_size=None, spatial_scale=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'axis'"):
        nn.Softmax(1).axis = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'axis'"):
        del nn.Softmax(1).axis


def test_wrong_number_of_arguments() -> None:
    with pytest.raises(ShapeError, match=r"nn\.relu takes 1 argument \(data\), and is given 2"):
        nn.Relu()(relay.var("x", shape=(2,)), relay.var("y", shape=(2,)))
    x = relay.var("x", shape=(2,))
    with pytest.raises(CompileError, match=r"nn\.softmax takes at most 2 arguments: data, axis"):
        relay.nn.softmax(x, 0, 1)
    with pytest.raises(CompileError, match=r"nn\.softmax was given 'axis' twice"):
        relay.nn.softmax(x, 0, axis=0)


def test_unknown_operators() -> None:
    with pytest.raises(CompileError, match=r"there is no operator 'nn.conv2'; did you mean nn\.conv"):
        registry.get("nn.conv2")
    with pytest.raises(AttributeError, match=r"module 'tilewright\.relay\.nn' has no attribute 'convolution'"):
        _ = relay.nn.convolution
    with pytest.raises(AttributeError, match=r"module 'tilewright\.relay' has no attribute 'adds'"):
        _ = relay.adds
    with pytest.raises(CompileError, match="operator 'add' is declared twice"):
        registry.op("add", kind=registry.Fusion.BROADCAST)(type("Again", (Op,), {}))
    assert OPS["add"] is b.Add


def test_functions_take_tensors_then_attributes() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    by_place, by_name = relay.nn.conv2d(x, w, 2, 1), relay.nn.conv2d(data=x, weight=w, padding=1, strides=2)
    assert by_place.op == by_name.op == nn.Conv2d((2,), (1,))
    assert relay.sum(x, (2, 3), True).checked_type == TensorType((1, 3, 1, 1))
    assert relay.reshape(x, [0, -1]).checked_type == TensorType((1, 192))
    assert relay.cast(x, np.float16).checked_type == TensorType((1, 3, 8, 8), "float16")
    assert relay.gather(x, 3, relay.const(np.zeros((1, 3, 8, 1), "int64"))).op == indexing.Gather(3)
    assert relay.arange(4).checked_type == TensorType((4,))
    assert relay.arange(
        relay.const(1), relay.const(7), relay.const(2), "int32"
    ).checked_type == TensorType((3,), "int32")
    assert relay.image.resize2d(x, (4, 4)).checked_type == TensorType((1, 3, 4, 4))
    assert relay.nn.pad(
        relay.cast(x, "int8"), ((0, 0), (0, 0), (1, 1), (1, 1))
    ).checked_type == TensorType((1, 3, 10, 10), "int8")
    assert {"conv2d", "relu"} <= set(dir(relay.nn))
    assert {"resize2d"} <= set(dir(relay.image))
    assert {"add", "reshape", "std"} <= set(dir(relay))
    assert relay.arange(0, relay.var("n", shape=())).op.name == "dyn.arange"
    with pytest.raises(
        CompileError,
        match="sparse_to_dense: output_shape must be a number or a constant, because it determines the shape of the "
        "result"
    ):
        relay.sparse_to_dense(
            relay.const(np.zeros((1, 1), "int64")), [relay.var("n", shape=())], relay.const(np.ones(1, "float32"))
        )


def test_composed_functions() -> None:
    from tilewright.relay.interpreter import evaluate

    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    v = relay.var("x", shape=x.shape)
    np.testing.assert_allclose(evaluate(relay.std(v, 1), x), x.std(1), rtol=1e-5)
    np.testing.assert_allclose(
        evaluate(relay.variance(v, 0, True, unbiased=True), x), x.var(0, ddof=1, keepdims=True), rtol=1e-5
    )
    np.testing.assert_allclose(
        evaluate(relay.logsumexp(v, 1), x * 100), np.logaddexp.reduce(x.astype("float64") * 100, axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(
        evaluate(relay.logsumexp(v, 1, True), x), np.log(np.exp(x).sum(1, keepdims=True)), rtol=1e-5
    )


def test_python_operators() -> None:
    from tilewright.relay.interpreter import evaluate

    x = np.asarray([1, 2, 7], "int64")
    v = relay.var("x", shape=(3,), dtype="int64")
    np.testing.assert_array_equal(evaluate((10 - v) * 2 / v + -v, x), [17, 6, -7])
    assert (1 + v).checked_type == (v - 1).checked_type == (2 * v).checked_type == (8 / v).checked_type == TensorType(
        (3,), "int64"
    )
    assert v.astype("int8").checked_type == TensorType((3,), "int8")
    first, second, third = relay.split(v, 3)
    assert [e.index for e in (first, second, third) if isinstance(e, relay.TupleGetItem)] == [0, 1, 2]
    assert relay.Tuple((v, first))[1] is first
    with pytest.raises(CompileError, match=r"a tuple is expected, not Tensor\[\(3\), int64\]; take elements"):
        v[0]
