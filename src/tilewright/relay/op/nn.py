"""Forwards the names of `relay.nn`, so that `relay.op.nn.conv2d` works."""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.relay.op.blocks import DepthToSpace, Dilate, MirrorPad, SpaceToDepth
from tilewright.relay.op.elementwise import LeakyRelu, PRelu, Relu
from tilewright.relay.op.image import Upsampling, Upsampling3d
from tilewright.relay.op.nn_attention import Attention
from tilewright.relay.op.nn_conv import Conv1d, Conv1dTranspose, Conv2d, Conv2dTranspose, Conv3d, Conv3dTranspose
from tilewright.relay.op.nn_conv_blocks import Conv2dNCHWc, DepthwiseConv2dNCHWc
from tilewright.relay.op.nn_gradients import Conv2dBackwardWeight
from tilewright.relay.op.nn_loss import CrossEntropy, CrossEntropyWithLogits, NllLoss
from tilewright.relay.op.nn_matmul import BatchMatmul, BiasAdd, Dense, DensePack, Matmul
from tilewright.relay.op.nn_norm import (
    LRN,
    BatchNorm,
    Dropout,
    GroupNorm,
    InstanceNorm,
    L2Normalize,
    LayerNorm,
    LogSoftmax,
    Softmax,
)
from tilewright.relay.op.nn_pool import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool2dGrad,
    AvgPool3d,
    GlobalAvgPool2d,
    GlobalMaxPool2d,
    MaxPool1d,
    MaxPool2d,
    MaxPool2dGrad,
    MaxPool3d,
)
from tilewright.relay.op.shaping import BatchFlatten
from tilewright.relay.op.transform import Pad

__all__ = [
    "LRN", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "Attention", "AvgPool1d", "AvgPool2d", "AvgPool2dGrad", "AvgPool3d", "BatchFlatten",
    "BatchMatmul", "BatchNorm", "BiasAdd", "Conv1d", "Conv1dTranspose", "Conv2d", "Conv2dBackwardWeight", "Conv2dNCHWc",
    "Conv2dTranspose", "Conv3d", "Conv3dTranspose", "CrossEntropy", "CrossEntropyWithLogits", "Dense", "DensePack",
    "DepthToSpace", "DepthwiseConv2dNCHWc", "Dilate", "Dropout", "GlobalAvgPool2d", "GlobalMaxPool2d", "GroupNorm",
    "InstanceNorm", "L2Normalize", "LayerNorm", "LeakyRelu", "LogSoftmax", "Matmul", "MaxPool1d", "MaxPool2d",
    "MaxPool2dGrad", "MaxPool3d", "MirrorPad", "NllLoss", "PRelu", "Pad", "Relu", "Softmax", "SpaceToDepth",
    "Upsampling", "Upsampling3d",
]


def __getattr__(name: str) -> Any:
    """The attribute `name` of `relay.nn`."""
    return getattr(importlib.import_module("tilewright.relay.nn"), name)
