"""TVM's `tvm.contrib.cudnn`: whether cuDNN can be called, and shapes of its convolutions. Programs run on CPUs, so the
library is not called."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import ShapeError

__all__ = ["conv_output_shape", "exists"]


def exists() -> bool:
    """Return False: no library for GPUs is called."""
    return False


def conv_output_shape(
    tensor_format: int, pad: Sequence[int], stride: Sequence[int], dilation: Sequence[int], x_shape: Sequence[int],
    w_shape: Sequence[int], data_dtype: str, conv_dtype: str, groups: int = 1
) -> list[int]:
    """Return the shape of the result of a convolution.

    `tensor_format` is 0 for channels first (NCHW, weights OIHW) and 1 for channels last (NHWC, weights OHWI). `pad` has
    one number for each spatial dimension. Raises `ShapeError` for other formats, and for channels that do not fit.
    """
    if tensor_format not in (0, 1):
        raise ShapeError(f"tensor_format is {tensor_format}; it must be 0 (NCHW) or 1 (NHWC)")
    x, w = ([*s] if tensor_format == 0 else [s[0], s[-1], *s[1:-1]] for s in (x_shape, w_shape))
    if x[1] != w[1] * groups:
        raise ShapeError(f"the input has {x[1]} channels, and the weight expects {w[1] * groups}")
    sizes = [
        (n + 2 * p - ((k - 1) * d + 1)) // s + 1 for n, k, p, s, d in zip(x[2:], w[2:], pad, stride, dilation,
                                                                           strict=True)]
    return [x[0], w[0], *sizes] if tensor_format == 0 else [x[0], *sizes, w[0]]
