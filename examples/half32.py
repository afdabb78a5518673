"""half32: an accelerator of half precision: 32 channels at once, 96 KiB on chip, convolutions without padding, sums in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.backends.accelerators.declared import Accelerator, Memory, arithmetic, forms


def prepare(mod: Any) -> Any:
    """Networks of real numbers brought to half precision, images channels last, constants computed."""
    from tilewright import relay  # here, so that programs run where the compiler is not installed
    from tilewright.compat import transform

    passes = relay.transform
    mixed = passes.ToMixedPrecision("float16", acc_dtype="float32", keep_orig_output_dtype=True, wide_kernels=True)
    layouts = passes.ConvertLayout({"nn.conv2d": ["NHWC", "HWIO"], "nn.max_pool2d": ["NHWC"], "nn.global_avg_pool2d": ["NHWC"]})
    return transform.Sequential([passes.SimplifyInference(), mixed, layouts, passes.FoldConstant(), passes.DeadCodeElimination()])(mod)


half32 = Accelerator(
    "half32",
    far=Memory("ddr", 64 << 20, align=64, bytes_per_cycle=8, latency=48),
    near=Memory("scratch", 96 << 10, align=64),
    dtypes=("float16",),
    macs_per_cycle=1024,
    tolerance=2e-3,
    prepare=prepare,
)
HALF = dict.fromkeys("xy", "float16")
SUMS = {**HALF, "w": "float16", "b": "float32"}


def finished(sums: Any, relu: int) -> Any:
    """Rounded once; what is too large is infinite."""
    with np.errstate(over="ignore"):
        return (np.maximum(sums, 0) if relu else sums).astype("float16")


@half32.instruction(
    0x20, x="n h*sh+kh*dh w*sw+kw*dw ci", w="kh kw ci co", b="co", y="n h w co", dtypes=SUMS,
    fields={"sh": 2, "sw": 2, "dh": 2, "dw": 2, "relu": 1}, blocks={"ci": 32, "co": 32},
    cycles=lambda n, h, w, co, kh, kw, ci, **_: n * h * w * kh * kw * (ci // 32) * (co // 32) + 16,
)
def conv(x: Any, w: Any, b: Any, *, sh: int, sw: int, dh: int, dw: int, relu: int) -> Any:
    """A convolution of what is there: 32 by 32 channels a cycle, sums in float32."""
    windows = arithmetic.windows(x.astype("float32"), w.shape[:2], (sh, sw), (dh, dw))
    return finished(np.tensordot(windows, w.astype("float32"), 3) + b, relu)


@half32.instruction(
    0x21, x="n k", w="k units", b="units", y="n units", dtypes=SUMS, fields={"relu": 1}, blocks={"k": 32, "units": 32},
    cycles=lambda n, k, units, **_: n * (k // 32) * (units // 32) + 16,
)
def product(x: Any, w: Any, b: Any, *, relu: int) -> Any:
    """A matrix product, sums in float32."""
    return finished(x.astype("float32") @ w.astype("float32") + b, relu)


@half32.instruction(
    0x22, a="n h w c", b="n h w c", y="n h w c", dtypes=dict.fromkeys("aby", "float16"), fields={"relu": 1}, blocks={"c": 32},
    cycles=lambda n, h, w, c, **_: n * h * w * (c // 32) + 8,
)
def add(a: Any, b: Any, *, relu: int) -> Any:
    """A sum of 32 channels at once."""
    return finished(a + b, relu)


@half32.instruction(
    0x23, x="n h*sh+kh w*sw+kw c", y="n h w c", dtypes=HALF, fields={"kh": 3, "kw": 3, "sh": 2, "sw": 2}, blocks={"c": 32},
    cycles=lambda n, h, w, c, kh, kw, **_: n * h * w * kh * kw * (c // 32) + 8,
)
def largest(x: Any, *, kh: int, kw: int, sh: int, sw: int) -> Any:
    """The largest of windows."""
    return arithmetic.windows(x, (kh, kw), (sh, sw)).max((3, 4))


@half32.instruction(0x24, x="n h w c", y="n c", dtypes=HALF, blocks={"c": 32}, cycles=lambda n, h, w, c, **_: n * h * w * (c // 32) + 8)
def mean(x: Any) -> Any:
    """The mean of whole images, summed in float32."""
    return finished(x.astype("float32").mean((1, 2)), 0)


class GlobalMean(forms.Form):
    """The mean of each channel of images in half precision: `x`, `y`."""

    def pattern(self) -> Any:
        from tilewright.relay.dataflow_pattern import is_op, wildcard

        return is_op("nn.global_avg_pool2d")(wildcard()).has_attr({"layout": "NHWC"})

    def read(self, root: Any, reading: forms.Reading) -> forms.Match:
        return forms.Match(root, reading, x=reading.tensor(root.args[0]), dtype="float16")

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Any:
        from tilewright import relay

        x = relay.var("x", shape=(*map(int, rng.integers(1, 9, 3)), 32 * int(rng.integers(1, 4))), dtype="float16")
        return relay.Function([x], relay.nn.global_avg_pool2d(x, layout="NHWC"))


def whole(f: Any, name: str, channels: int) -> None:
    f.require(channels % 32 == 0, f"the array has 32 lanes, and {name} are {channels}", f"make {name} {-(-channels // 32) * 32}")


@half32.operator(forms.float_conv2d())
def conv2d(f: Any) -> Any:
    f.require(not any(f.padding), f"convolutions have no padding, and this has {tuple(f.padding)}", "set the padding to 0, or pad before it")
    f.require(f.groups == 1, f"convolutions have one group, and this has {f.groups}", "make groups 1")
    whole(f, "the input channels", f.weight.shape[2])
    whole(f, "the output channels", f.weight.shape[3])
    (sh, sw), (dh, dw) = f.strides, f.dilation
    return conv(x=f.x, w=f.weight, b=f.bias.astype("float32"), y=f.y, sh=sh, sw=sw, dh=dh, dw=dw, relu=f.relu)


@half32.operator(forms.float_dense())
def dense(f: Any) -> Any:
    whole(f, "the inputs", f.weight.shape[0])
    whole(f, "the units", f.weight.shape[1])
    return product(x=f.x, w=f.weight, b=f.bias.astype("float32"), y=f.y, relu=f.relu)


@half32.operator(forms.float_add())
def add2(f: Any) -> Any:
    f.require(len(f.a.shape) == 4, f"sums are of images, and this has {len(f.a.shape)} dimensions", "reshape both to four dimensions")
    whole(f, "the channels", f.a.shape[3])
    return add(a=f.a, b=f.b, y=f.y, relu=f.relu)


@half32.operator(forms.max_pool2d())
def max_pool2d(f: Any) -> Any:
    whole(f, "the channels", f.x.shape[3])
    (kh, kw), (sh, sw) = f.kernel, f.strides
    return largest(x=f.x, y=f.y, kh=kh, kw=kw, sh=sh, sw=sw)


@half32.operator(GlobalMean())
def global_mean(f: Any) -> Any:
    whole(f, "the channels", f.x.shape[3])
    return mean(x=f.x, y=f.y.reshape(f.x.shape[0], f.x.shape[3]))


@half32.operator(forms.reshape())
def reshape(f: Any) -> Any:
    return f.x


half32.register()
