"""MAC32: 32 lanes of half precision. No padding, channels in blocks of 32, 64 KiB on chip. Written by following docs/accelerators.md alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import relay, transform
from tilewright.contrib.accelerator import Accelerator, Memory, arithmetic, forms
from tilewright.ir import IRModule

LANES = 32
HALF = "float16"


def prepare(mod: IRModule) -> IRModule:
    """Networks of real numbers with images channels last, as the operators below want them."""
    passes = [
        relay.transform.SimplifyInference(),
        relay.transform.ToMixedPrecision(HALF, keep_orig_output_dtype=True),
        relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "HWIO"], "nn.max_pool2d": ["NHWC"]}),
        relay.transform.FoldConstant(),
        relay.transform.DeadCodeElimination(),
    ]
    return transform.Sequential(passes)(mod)


mac32 = Accelerator(
    "mac32",
    far=Memory("dram", 64 << 20, align=64, bytes_per_cycle=32, latency=20),
    near=Memory("scratch", 64 << 10, align=64),
    dtypes=(HALF,),
    layout="NHWC",
    macs_per_cycle=LANES * LANES,
    tolerance=2e-3,
    prepare=prepare,
)


@mac32.instruction(
    0x20,
    x="n h*sh+kh w*sw+kw ci", w="kh kw ci co", b="co", y="n h w co",
    dtypes={"x": HALF, "w": HALF, "b": "float32", "y": HALF},
    fields={"sh": 2, "sw": 2, "relu": 1}, blocks={"ci": LANES, "co": LANES},
    cycles=lambda n, h, w, kh, kw, ci, co, **_: n * h * w * kh * kw * (ci // LANES) * (co // LANES) + 20,
)
def mac(x: Any, w: Any, b: Any, *, sh: int, sw: int, relu: int) -> Any:
    """Blocks of 32 by 32 products, summed in single precision and rounded once."""
    views = arithmetic.windows(x.astype(np.float32), w.shape[:2], (sh, sw))
    sums = np.tensordot(views, w.astype(np.float32), axes=3) + b
    return np.maximum(sums, 0 if relu else -np.inf).astype(HALF)


@mac32.instruction(
    0x21,
    a="n h w c", b="n h w c", y="n h w c",
    dtypes={"a": HALF, "b": HALF, "y": HALF},
    fields={"relu": 1}, blocks={"c": LANES},
    cycles=lambda n, h, w, c, **_: n * h * w * (c // LANES) + 8,
)
def add(a: Any, b: Any, *, relu: int) -> Any:
    """A sum, lane by lane."""
    return np.maximum(a + b, np.float16(0 if relu else -np.inf))


def in_lanes(f: Any, channels: int, what: str) -> None:
    filled = -(-channels // LANES) * LANES
    f.require(channels % LANES == 0, f"{what} are a multiple of {LANES}", f"fill the {channels} {what} up to {filled} with zeros")


@mac32.operator(forms.float_conv2d())
def conv2d(f: Any) -> Any:
    kh, kw, depth, channels = f.weight.shape
    f.require(not any(f.padding), "convolutions have no padding", "pad the image before the convolution, with nn.pad")
    f.require(f.dilation == (1, 1), "convolutions have no dilation", f"spread the {kh}x{kw} weight with zeros, and set dilation to 1")
    f.require(f.groups == 1, "convolutions have one group", "split the convolution into one for each group")
    in_lanes(f, depth, "input channels")
    in_lanes(f, channels, "output channels")
    return mac(x=f.x, w=f.weight, b=f.bias.astype(np.float32), y=f.y, sh=f.strides[0], sw=f.strides[1], relu=f.relu)


@mac32.operator(forms.float_dense())
def dense(f: Any) -> Any:
    (n, k), (_, units) = f.x.shape, f.weight.shape
    in_lanes(f, k, "input features")
    in_lanes(f, units, "output features")
    weight = f.weight.reshape(1, 1, k, units)
    return mac(x=f.x.reshape(n, 1, 1, k), w=weight, b=f.bias.astype(np.float32), y=f.y.reshape(n, 1, 1, units), sh=1, sw=1, relu=f.relu)


@mac32.operator(forms.float_add())
def sum2(f: Any) -> Any:
    f.require(len(f.a.shape) == 4, "sums are of images", "reshape both to four dimensions")
    in_lanes(f, f.a.shape[3], "channels")
    return add(a=f.a, b=f.b, y=f.y, relu=f.relu)


mac32.register()
