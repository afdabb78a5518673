"""Padding of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.relay.frontend.tflite.node import Node
from tilewright.relay.frontend.tflite.schema import PADDINGS


def padding_of(code: int, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int],
               node: Node) -> tuple[int, ...]:
    """Padding before each dimension, then after each; raises `ModelError` for invalid windows."""
    if not 0 <= code < len(PADDINGS):
        node.refuse(f"its padding is {code}; it must be 0 (SAME) or 1 (VALID)")
    if any(n < 1 for n in (*kernel, *strides, *dilation)):
        node.refuse(f"its window is {tuple(kernel)} with strides {tuple(strides)} and dilation {tuple(dilation)}, "
                    "which must all be above zero")
    if PADDINGS[code] == "VALID":
        return (0,) * (2 * len(sizes))
    totals = [same_padding(n, k, s, d) for n, k, s, d in zip(sizes, kernel, strides, dilation, strict=True)]
    return (*(t // 2 for t in totals), *(t - t // 2 for t in totals))


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> int:
    """Total padding for ceil(size / stride) outputs."""
    return max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
