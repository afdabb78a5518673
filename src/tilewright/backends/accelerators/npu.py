"""A virtual NPU, declared in this file: a 16x16 array of 8-bit multipliers with 32-bit sums, 256 KiB on chip, and one transfer engine.

Weights are int8 with a zero point. Sums are scaled in fixed point, with the rounding of TensorFlow Lite's reference kernels.
`backends/accelerators/declared/stream.py` specifies the command stream.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.backends.accelerators.declared import Accelerator, Memory, arithmetic, forms

BYTE: Final = ("int8", "uint8")
SCALED: Final = {"out_zero": -9, "low": -9, "high": -9}
"""Fields of an 8-bit result: its zero point, and its bounds."""

npu = Accelerator(
    "npu", dtypes=BYTE, layout="NHWC", numerics="tflite", macs_per_cycle=256,
    far=Memory("dram", 256 << 20, bytes_per_cycle=16, latency=32), near=Memory("sram", 256 << 10, align=16))


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def finish(sums: Any, q: Any, once: int, out_zero: int, low: int, high: int, dtype: Any) -> Any:
    """Convert sums to 8 bits, with the bias and the scale of each channel."""
    scaled = arithmetic.rescaled(sums + q[:, 0], q[:, 1], q[:, 2], once)
    return arithmetic.saturated(scaled + out_zero, low, high, dtype)


WINDOW: Final = {"sh": 4, "sw": 4, "dh": 3, "dw": 3}


@npu.instruction(
    0x10, x="n h*sh+kh*dh w*sw+kw*dw ci", w="kh kw ci co", q="co 4", y="n h w co", dtypes={"x": BYTE, "w": "int8", "q": "int32", "y": BYTE},
    fields={**WINDOW, "in_zero": -9, "once": 1, **SCALED},
    cycles=lambda n, h, w, co, kh, kw, ci, **_: n * h * w * kh * kw * ceil(ci, 16) * ceil(co, 16) + 32)
def conv(x: Any, w: Any, q: Any, *, sh: int, sw: int, dh: int, dw: int, in_zero: int, once: int, out_zero: int, low: int, high: int) -> Any:
    """A convolution. For each output channel, `q` has the bias, the multiplier, the exponent and the zero point of the weight.

    `sh` and `sw` are the strides, `dh` and `dw` the dilations. Scaled sums are rounded twice, or once if `once` is 1. Results are clipped to
    `low` and `high`.
    """
    sums = arithmetic.convolve(x.astype(np.int32) - in_zero, w.astype(np.int32) - q[:, 3], (sh, sw), (dh, dw))
    return finish(sums, q, once, out_zero, low, high, x.dtype)


@npu.instruction(
    0x11, x="n h*sh+kh*dh w*sw+kw*dw c", w="kh kw c", q="c 4", y="n h w c", dtypes={"x": BYTE, "w": "int8", "q": "int32", "y": BYTE},
    fields={**WINDOW, "in_zero": -9, "once": 1, **SCALED},
    cycles=lambda n, h, w, c, kh, kw, **_: n * h * w * kh * kw * ceil(c, 16) + 32)
def depthwise(x: Any, w: Any, q: Any, *, sh: int, sw: int, dh: int, dw: int, in_zero: int, once: int, out_zero: int, low: int, high: int) -> Any:
    """A depthwise convolution, on one row of the array. The fields are those of `conv`."""
    sums = arithmetic.convolve_depthwise(x.astype(np.int32) - in_zero, w.astype(np.int32) - q[:, 3], (sh, sw), (dh, dw))
    return finish(sums, q, once, out_zero, low, high, x.dtype)


@npu.instruction(
    0x12, a="n h w c", b="n h w c", y="n h w c", dtypes={"a": BYTE, "b": BYTE, "y": BYTE},
    fields={"a_zero": -9, "a_by": -32, "a_exp": -8, "b_zero": -9, "b_by": -32, "b_exp": -8, "by": -32, "exp": -8, **SCALED},
    cycles=lambda n, h, w, c, **_: n * h * w * ceil(c, 16) * 2 + 16)
def add(
    a: Any, b: Any, *, a_zero: int, a_by: int, a_exp: int, b_zero: int, b_by: int, b_exp: int, by: int, exp: int, out_zero: int, low: int, high: int,
) -> Any:
    """A sum. Both operands are shifted left by 20 bits and rescaled to one scale; the sum is rescaled to the result's scale.

    A scale is a multiplier (`a_by`, `b_by`, `by`) and an exponent (`a_exp`, `b_exp`, `exp`).
    """
    left = arithmetic.rescaled((a.astype(np.int64) - a_zero) << 20, a_by, a_exp)
    right = arithmetic.rescaled((b.astype(np.int64) - b_zero) << 20, b_by, b_exp)
    return arithmetic.saturated(arithmetic.rescaled(left + right, by, exp) + out_zero, low, high, a.dtype)


POOL: Final[dict[str, Any]] = {
    "x": "n h*sh+kh w*sw+kw c", "y": "n h w c", "dtypes": {"x": BYTE, "y": BYTE}, "fields": {"kh": 8, "kw": 8, "sh": 8, "sw": 8},
    "cycles": lambda n, h, w, c, kh, kw, **_: n * h * w * kh * kw * ceil(c, 16) + 16,
}


@npu.instruction(0x13, **POOL)
def average(x: Any, *, kh: int, kw: int, sh: int, sw: int) -> Any:
    """The mean of windows of `kh` by `kw` elements at strides `sh` and `sw`; halves round away from zero."""
    sums = arithmetic.windows(x, (kh, kw), (sh, sw)).sum((3, 4), dtype=np.int64)
    return arithmetic.rounded_quotient(sums, kh * kw).astype(x.dtype)


@npu.instruction(0x16, **{**POOL, "fields": {**POOL["fields"], "in_zero": -9, "by": -32, "exp": -8, **SCALED}})
def mean(x: Any, *, kh: int, kw: int, sh: int, sw: int, in_zero: int, by: int, exp: int, out_zero: int, low: int, high: int) -> Any:
    """The mean of windows under another scale: sums times a scale (`by`, `exp`) that includes the division by the window size."""
    sums = arithmetic.windows(x, (kh, kw), (sh, sw)).sum((3, 4), dtype=np.int64) - kh * kw * in_zero
    return arithmetic.saturated(arithmetic.rescaled(sums, by, exp) + out_zero, low, high, x.dtype)


@npu.instruction(0x14, **POOL)
def largest(x: Any, *, kh: int, kw: int, sh: int, sw: int) -> Any:
    """The maximum of windows."""
    return arithmetic.windows(x, (kh, kw), (sh, sw)).max((3, 4))


@npu.instruction(0x15, x="n h w c", y="n h w c", dtypes={"x": BYTE, "y": BYTE}, cycles=lambda n, h, w, c, **_: n * h * w * ceil(c, 16))
def copy(x: Any) -> Any:
    """A copy."""
    return x


def scaled(f: Any) -> dict[str, Any]:
    """Return the arguments that all sums of products share."""
    return {
        "q": np.stack([f.bias, f.multiplier, f.exponent, f.weight_zero], 1), "once": f.once, "in_zero": f.in_zero, "out_zero": f.out_zero,
        "low": f.low, "high": f.high,
    }


def window(f: Any) -> dict[str, int]:
    return {"sh": f.strides[0], "sw": f.strides[1], "dh": f.dilation[0], "dw": f.dilation[1]}


@npu.operator(forms.conv2d())
def conv2d(f: Any) -> Any:
    return conv(x=f.x, w=f.weight, y=f.y, **window(f), **scaled(f))


@npu.operator(forms.conv2d(depthwise=True))
def depthwise_conv2d(f: Any) -> Any:
    return depthwise(x=f.x, w=f.weight, y=f.y, **window(f), **scaled(f))


@npu.operator(forms.conv2d(pad=False))
def conv2d_of_padded(f: Any) -> Any:
    return conv(x=f.x, w=f.weight, y=f.y, **window(f), **scaled(f))


@npu.operator(forms.dense())
def dense(f: Any) -> Any:
    (n, k), (_, units) = f.x.shape, f.weight.shape
    one = {"sh": 1, "sw": 1, "dh": 1, "dw": 1}
    return conv(x=f.x.reshape(n, 1, 1, k), w=f.weight.reshape(1, 1, k, units), y=f.y.reshape(n, 1, 1, units), **one, **scaled(f))


def images(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape of up to four dimensions as an image shape."""
    return (*(1,) * (4 - len(shape)), *shape)


@npu.operator(forms.add())
def add2(f: Any) -> Any:
    f.require(len(f.a.shape) <= 4, f"sums have up to four dimensions, and this has {len(f.a.shape)}", "reshape its operands to four dimensions")
    largest_scale = 2 * max(f.scales[:2])
    (a_by, a_exp), (b_by, b_exp) = (arithmetic.fixed_point(s / largest_scale) for s in f.scales[:2])
    by, exp = arithmetic.fixed_point(largest_scale / ((1 << 20) * f.scales[2]))
    a, b, y = (t.reshape(*images(t.shape)) for t in (f.a, f.b, f.y))
    return add(
        a=a, b=b, y=y, a_zero=f.zeros[0], a_by=a_by, a_exp=a_exp, b_zero=f.zeros[1], b_by=b_by, b_exp=b_exp, by=by, exp=exp,
        out_zero=f.zeros[2], low=f.low, high=f.high)


@npu.operator(forms.avg_pool2d())
def avg_pool2d(f: Any) -> Any:
    f.require(not any(f.padding), "a mean is of whole windows", "give avg_pool2d padding 0, and pad its data where zeros are to count")
    pool = {"x": f.x, "y": f.y, "kh": f.kernel[0], "kw": f.kernel[1], "sh": f.strides[0], "sw": f.strides[1]}
    if f.scales[0] == f.scales[1] and f.zeros[0] == f.zeros[1]:
        return average(**pool)
    f.require(f.y.shape[1:3] == (1, 1), "a mean of parts of an image has the scale of its data", "give the pool's result the scale of its data")
    (by, exp), count = arithmetic.fixed_point(f.scales[0] / f.scales[1]), f.kernel[0] * f.kernel[1]
    shift = min(count.bit_length() - 1, 31 + exp)
    low, high = np.iinfo(f.dtype).min, np.iinfo(f.dtype).max
    return mean(**pool, in_zero=f.zeros[0], by=(by << shift) // count, exp=exp - shift, out_zero=f.zeros[1], low=low, high=high)


@npu.operator(forms.max_pool2d())
def max_pool2d(f: Any) -> Any:
    return largest(x=f.x, y=f.y, kh=f.kernel[0], kw=f.kernel[1], sh=f.strides[0], sw=f.strides[1])


@npu.operator(forms.concatenate())
def concatenate(f: Any) -> Any:
    axis, y, at, made = f.axis + 4 - len(f.y.shape), f.y.reshape(*images(f.y.shape)), 0, []
    for part in f.parts:
        x = part.reshape(*images(part.shape))
        made.append(copy(x=x, y=y.part(axis, at, x.shape[axis])))
        at += x.shape[axis]
    return made


@npu.operator(forms.pad())
def pad(f: Any) -> Any:
    return copy(x=f.x, y=f.y)


@npu.operator(forms.reshape())
def reshape(f: Any) -> Any:
    return f.x


npu.register()
