"""Random programs of each form, mostly with typical sizes, attributes, scales and zero points, sometimes with unusual
ones.

Values include the limits of their dtypes, where declarations often fail: zero points of -128 and 127, multipliers above
one, sums near 32-bit overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tilewright.backends.accelerators.declared.declaration import Accelerator
    from tilewright.relay.expr import Expr, Function, Var

Array = np.ndarray[Any, Any]
Rng = np.random.Generator


def _const(value: Any, dtype: str) -> Any:
    from tilewright.relay.expr import Constant

    return Constant(np.asarray(value, dtype))


def _dtype(rng: Rng, accelerator: Accelerator, kinds: tuple[str, ...] = ("int8", "uint8")) -> str:
    known = [d for d in accelerator.dtypes if d in kinds]
    return str(rng.choice(known or list(kinds)))


def _zero(rng: Rng, dtype: str) -> int:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return int(rng.choice([low, high, 0, int(rng.integers(low, high + 1))], p=[0.3, 0.1, 0.2, 0.4]))


def _image(rng: Rng, most: int = 14, channels: int | None = None) -> tuple[int, int, int, int]:
    n, h, w = int(rng.choice([1, 1, 2])), int(rng.integers(1, most)), int(rng.integers(1, most))
    return n, h, w, channels or int(rng.choice([1, 3, 8, 16, 17, 32, 40]))


def _var(shape: tuple[int, ...], dtype: str, name: str = "x") -> Var:
    from tilewright import relay

    return relay.var(name, shape=shape, dtype=dtype)


def _function(body: Expr, *params: Var) -> Function:
    from tilewright.relay.expr import Function

    return Function(params, body)


def _finished(rng: Rng, sums: Expr, reach: float, scale: Array, axis: int, dtype: str) -> Expr:
    """Return sums with a bias, requantized to about the range or far beyond it, clipped or not."""
    from tilewright import relay

    channels = sums.tensor_type.shape[axis]
    bias = rng.integers(-2000, 2000, channels)
    body = relay.nn.bias_add(sums, _const(bias, "int32"), axis=axis)
    sums_scale = np.float32(scale) if scale.size == 1 else scale.astype(np.float32)
    spread = float(rng.choice([1, 1, 1, 0.002, 0.05]))
    out = np.float32(float(scale.mean()) * reach / 110 * spread)
    body = relay.qnn.op.requantize(
        body, _const(sums_scale, "float32"), _const(0, "int32"), _const(out, "float32"),
        _const(_zero(rng, dtype), "int32"), axis=axis, out_dtype=dtype)
    if rng.random() < 0.4:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        body = relay.op.clip(body, float(low + int(rng.integers(1, 100))), float(high - int(rng.integers(1, 100))))
    result: Expr = body
    return result


def _weights(rng: Rng, shape: tuple[int, ...], channels: int, dtype: str) -> tuple[Array, int, Array, Array]:
    """Return a weight, its zero point, the data's scale and the weight's scale (one, or one per channel)."""
    weight = rng.integers(-128, 128, shape).astype(np.int8)
    zero = int(rng.integers(-128, 128)) if dtype == "uint8" and rng.random() < 0.7 else 0
    s_x: Array = np.asarray(rng.uniform(0.003, 0.05), np.float32)
    s_w = (
        rng.uniform(0.6, 1.4, channels if rng.random() < 0.6 and not zero else 1).astype(np.float32) * np.float32(0.01)
    )
    return weight, zero, s_x, s_w


def conv2d(rng: Rng, accelerator: Accelerator, depthwise: bool, padded: bool) -> Function:
    """Return a convolution of images in the accelerator's layout, channels last."""
    from tilewright import relay

    dtype = _dtype(rng, accelerator)
    n, h, w, ci = _image(rng)
    kh, kw, strides = (
        int(rng.choice([1, 2, 3, 5])), int(rng.choice([1, 2, 3, 5])),
        tuple(int(s) for s in rng.choice([1, 1, 2, 3, 17], 2))
    )
    dilation = tuple(int(d) for d in rng.choice([1, 1, 1, 2, 3], 2))
    reach = [(k - 1) * d + 1 for k, d in zip((kh, kw), dilation, strict=True)]
    sides = [(int(rng.integers(0, 3)), int(rng.integers(0, 3))) if padded else (0, 0) for _ in range(2)]
    h, w = max(h, reach[0] - sum(sides[0])), max(w, reach[1] - sum(sides[1]))
    co = ci if depthwise else int(rng.choice([1, 8, 16, 20, 33]))
    x, zero = _var((n, h, w, ci), dtype), _zero(rng, dtype)
    data: Expr = x
    if any(map(any, sides)):
        data = relay.nn.pad(x, [[0, 0], list(sides[0]), list(sides[1]), [0, 0]], float(zero))
    weight, zw, s_x, s_w = _weights(rng, (kh, kw, 1 if depthwise else ci, co), co, dtype)
    sums = relay.qnn.op.conv2d(
        data, _const(weight, "int8"), _const(zero, "int32"), _const(zw, "int32"), _const(s_x, "float32"),
        _const(s_w if s_w.size > 1 else s_w[0], "float32"), kernel_size=(kh, kw), channels=co, strides=strides,
        dilation=dilation, padding=(0, 0, 0, 0), groups=ci if depthwise else 1, data_layout="NHWC",
        kernel_layout="HWIO", out_dtype="int32")
    size = 5000 * np.sqrt(kh * kw * (1 if depthwise else ci)) + 1500
    return _function(_finished(rng, sums, size, s_x * s_w, 3, dtype), x)


def dense(rng: Rng, accelerator: Accelerator) -> Function:
    """Return a matrix product."""
    from tilewright import relay

    dtype = _dtype(rng, accelerator)
    n, k, units = int(rng.choice([1, 1, 3])), int(rng.choice([1, 10, 64, 300])), int(rng.choice([1, 2, 10, 17, 70]))
    x, zero = _var((n, k), dtype), _zero(rng, dtype)
    weight, zw, s_x, s_w = _weights(rng, (units, k), units, dtype)
    sums = relay.qnn.op.dense(
        x, _const(weight, "int8"), _const(zero, "int32"), _const(zw, "int32"), _const(s_x, "float32"),
        _const(s_w if s_w.size > 1 else s_w[0], "float32"), units=units, out_dtype="int32")
    return _function(_finished(rng, sums, 5000 * np.sqrt(k) + 1500, s_x * s_w, 1, dtype), x)


def add(rng: Rng, accelerator: Accelerator) -> Function:
    """Return a sum of images or vectors."""
    from tilewright import relay

    dtype = _dtype(rng, accelerator)
    shape = _image(rng) if rng.random() < 0.7 else (int(rng.integers(1, 4)), int(rng.integers(1, 70)))
    a, b = _var(shape, dtype, "a"), _var(shape, dtype, "b")
    scales = rng.uniform(0.01, 0.2, 3) * rng.choice([1, 1, 1, 0.05], 3)
    parameters = [v for s in scales for v in (_const(s, "float32"), _const(_zero(rng, dtype), "int32"))]
    body = relay.qnn.op.add(a, b, *parameters)
    if rng.random() < 0.4:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        body = relay.op.clip(body, float(low + int(rng.integers(1, 100))), float(high - int(rng.integers(0, 100))))
    return _function(body, a, b)


def avg_pool2d(rng: Rng, accelerator: Accelerator) -> Function:
    """Return a mean of windows, in half of the cases of whole images; the scale rarely changes."""
    from tilewright import relay

    dtype = _dtype(rng, accelerator)
    shape = _image(rng)
    whole = rng.random() < 0.5
    kernel = (
        shape[1:3] if whole
        else tuple(int(min(k, s)) for k, s in zip(rng.choice([1, 2, 3], 2), shape[1:3], strict=True))
    )
    strides = kernel if whole else tuple(int(s) for s in rng.choice([1, 2, 3], 2))
    x, s, z = _var(shape, dtype), rng.uniform(0.01, 0.2), _zero(rng, dtype)
    to, out_zero = (s, z) if rng.random() < 0.8 else (s * 1.3, _zero(rng, dtype))
    padding = (
        (0, 0, 0, 0) if whole or rng.random() < 0.4 else tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))
    )
    body = relay.qnn.op.avg_pool2d(
        x, _const(s, "float32"), _const(z, "int32"), _const(to, "float32"), _const(out_zero, "int32"), pool_size=kernel,
        strides=strides, padding=padding, dilation=(1, 1), ceil_mode=False, count_include_pad=False, layout="NHWC")
    return _function(body, x)


def max_pool2d(rng: Rng, accelerator: Accelerator) -> Function:
    """Return a maximum of windows."""
    from tilewright import relay

    shape = _image(rng)
    kernel = tuple(int(k) for k in rng.choice([1, 2, 3], 2))
    padding = tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))
    height, width = max(shape[1], kernel[0]), max(shape[2], kernel[1])
    x = _var((shape[0], height, width, shape[3]), _dtype(rng, accelerator, ("int8", "uint8", "float16", "float32")))
    strides = tuple(int(s) for s in rng.choice([1, 2, 3], 2))
    return _function(
        relay.nn.max_pool2d(x, pool_size=kernel, strides=strides, padding=padding, layout=accelerator.layout), x)


def concatenate(rng: Rng, accelerator: Accelerator) -> Function:
    """Return a concatenation of two to four tensors along any axis."""
    from tilewright import relay
    from tilewright.relay.expr import Tuple

    dtype = _dtype(rng, accelerator, ("int8", "uint8", "float16", "float32"))
    shape = list(_image(rng, 9)) if rng.random() < 0.8 else [1, int(rng.integers(1, 40))]
    axis = int(rng.integers(0, len(shape)))
    parts = []
    for k in range(int(rng.integers(2, 5))):
        shape[axis] = int(rng.integers(1, 12))
        parts.append(_var(tuple(shape), dtype, f"x{k}"))
    return _function(relay.op.concatenate(Tuple(tuple(parts)), axis=axis), *parts)


def reshape(rng: Rng, accelerator: Accelerator) -> Function:
    """Return a reshape of images to vectors."""
    from tilewright import relay

    shape = _image(rng)
    x = _var(shape, _dtype(rng, accelerator, ("int8", "uint8", "float16", "float32")))
    return _function(relay.op.reshape(x, (shape[0], shape[1] * shape[2] * shape[3])), x)


def pad(rng: Rng, accelerator: Accelerator) -> Function:
    """Return padding of images, with a different amount on each side."""
    from tilewright import relay

    dtype = _dtype(rng, accelerator)
    x = _var(_image(rng), dtype)
    widths = [[0, 0], *([int(n) for n in rng.integers(0, 4, 2)] for _ in range(2)), [0, 0]]
    return _function(relay.nn.pad(x, widths, float(_zero(rng, dtype))), x)


def requantize(rng: Rng, accelerator: Accelerator) -> Function:
    """Return a requantization of 8-bit integers."""
    from tilewright import relay

    dtype = _dtype(rng, accelerator)
    x = _var(_image(rng), dtype)
    s, to = rng.uniform(0.01, 0.1, 2)
    body = relay.qnn.op.requantize(
        x, _const(s, "float32"), _const(_zero(rng, dtype), "int32"), _const(to, "float32"),
        _const(_zero(rng, dtype), "int32"), out_dtype=dtype)
    return _function(body, x)


# Floating point

_FLOATS = ("float16", "float32")


def _values(rng: Rng, shape: tuple[int, ...], dtype: str) -> Any:
    """Return multiples of 1/8: their products and short sums are exact in 16 bits."""
    return _const(rng.integers(-8, 9, shape) / 8, dtype)


def _active(rng: Rng, body: Expr, wanted: bool = True) -> Expr:
    from tilewright import relay

    return relay.nn.relu(body) if wanted and rng.random() < 0.5 else body


def _summed(rng: Rng, product: Callable[[str], Expr], axis: int, dtype: str, active: bool) -> Expr:
    """Return a product with or without bias, summed in its own dtype, or in float32 and converted."""
    from tilewright import relay

    wide = "float32" if rng.random() < 0.6 else dtype
    sums = product(wide)
    channels, ndim = int(sums.tensor_type.shape[axis]), len(sums.tensor_type.shape)
    bias = _values(rng, (channels,), wide)
    spread = _const(bias.value.reshape([-1 if d == axis else 1 for d in range(ndim)]), wide)
    if wide != dtype and rng.random() < 0.3:
        sums, bias, spread, wide = relay.op.cast(sums, dtype), *(_const(v.value, dtype) for v in (bias, spread)), dtype
    kind = rng.random()
    biased = (
        sums if kind < 0.2 else relay.nn.bias_add(sums, bias, axis=axis) if kind < 0.6 else relay.op.add(sums, spread)
    )
    return _active(rng, biased if wide == dtype else relay.op.cast(biased, dtype), active)


def float_conv2d(rng: Rng, accelerator: Accelerator, active: bool = True) -> Function:
    """Return a convolution in the accelerator's layout; half have no padding, and some 32 or 64 channels."""
    from tilewright import relay

    dtype = _dtype(rng, accelerator, _FLOATS)
    n, h, w, ci = _image(rng, 9, int(rng.choice([3, 32, 32, 64, 17])))
    kh, kw, co = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2, 3])), int(rng.choice([32, 32, 64, 10]))
    padding = tuple(int(p) for p in rng.integers(0, 2, 4)) if rng.random() < 0.4 else (0, 0, 0, 0)
    dilation, strides = (tuple(int(v) for v in rng.choice(few, 2)) for few in ([1, 1, 1, 2], [1, 1, 2, 3]))
    h, w = max(h, (kh - 1) * dilation[0] + 1), max(w, (kw - 1) * dilation[1] + 1)
    last = accelerator.layout == "NHWC"
    x = _var((n, h, w, ci) if last else (n, ci, h, w), dtype)
    weight = _values(rng, (kh, kw, ci, co) if last else (co, ci, kh, kw), dtype)
    how: dict[str, Any] = {
        "data_layout": accelerator.layout,
        "kernel_layout": "HWIO" if last else "OIHW",
        "strides": strides,
        "dilation": dilation,
        "padding": padding,
    }
    body = _summed(
        rng, lambda wide: relay.nn.conv2d(x, weight, kernel_size=(kh, kw), channels=co, out_dtype=wide, **how),
        3 if last else 1, dtype, active)
    return _function(body, x)


def float_dense(rng: Rng, accelerator: Accelerator, active: bool = True) -> Function:
    """Return a matrix product."""
    from tilewright import relay

    dtype = _dtype(rng, accelerator, _FLOATS)
    n, k, units = int(rng.choice([1, 1, 3])), int(rng.choice([10, 32, 64, 96])), int(rng.choice([10, 32, 64]))
    x, weight = _var((n, k), dtype), _values(rng, (units, k), dtype)
    return _function(
        _summed(rng, lambda wide: relay.nn.dense(x, weight, units=units, out_dtype=wide), 1, dtype, active), x)


def float_add(rng: Rng, accelerator: Accelerator, active: bool = True) -> Function:
    """Return a sum of images."""
    from tilewright import relay

    shape, dtype = _image(rng, channels=int(rng.choice([3, 32, 64]))), _dtype(rng, accelerator, _FLOATS)
    a, b = _var(shape, dtype, "a"), _var(shape, dtype, "b")
    return _function(_active(rng, relay.op.add(a, b), active), a, b)


def relu(rng: Rng, accelerator: Accelerator) -> Function:
    """Return a ReLU of images."""
    from tilewright import relay

    x = _var(_image(rng, channels=int(rng.choice([3, 32, 64]))), _dtype(rng, accelerator, _FLOATS))
    return _function(relay.nn.relu(x), x)
