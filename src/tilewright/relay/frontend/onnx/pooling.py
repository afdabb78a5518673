"""Max pooling with indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, reshape, transpose
from tilewright.relay.types_of import dtype_of, scalar


def max_and_where(
    x: Expr, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Sequence[int],
    ceil: bool, column_major: bool, node: Node,
) -> tuple[Expr, Expr]:
    """The maxima of windows and their indices in the flattened tensor, by comparing the taps of each window."""
    dims, n = node.static(x, "X"), len(kernel)
    batch, inner = dims[0] * dims[1], math.prod(dims[2:])
    taps = np.zeros((1,) * 2 * n, np.int64)
    inside = np.ones((1,) * 2 * n, bool)
    sizes: list[int] = []
    for k in range(n):
        left = dims[2 + k] + padding[k] + padding[k + n] - (kernel[k] - 1) * dilations[k] - 1
        count = (-(-left // strides[k]) if ceil else left // strides[k]) + 1
        if ceil and (count - 1) * strides[k] >= dims[2 + k] + padding[k]:  # no window begins after the end
            count -= 1
        sizes.append(count)
        node.check_table(*sizes, *kernel[: k + 1])
        along = (np.arange(count) * strides[k] - padding[k])[:, None] + np.arange(kernel[k]) * dilations[k]
        shape = [1] * 2 * n
        shape[k], shape[n + k] = along.shape
        step = math.prod(dims[2 : 2 + k]) if column_major else math.prod(dims[3 + k :])
        inside = inside & ((along >= 0) & (along < dims[2 + k])).reshape(shape)
        taps = taps + np.clip(along, 0, dims[2 + k] - 1).reshape(shape) * step
    count, places = math.prod(kernel), np.ascontiguousarray(taps.reshape(math.prod(sizes), -1))
    order = (0, 1, *range(n + 1, 1, -1)) if column_major else tuple(range(n + 2))
    windows = op.take(reshape(transpose(x, order), (batch, inner)), Constant(places), axis=1)
    outside = Constant(np.broadcast_to(~inside, taps.shape).reshape(1, *places.shape))
    least = scalar(np.iinfo(dtype_of(x).numpy()).min if dtype_of(x).is_integer else -math.inf, x)
    windows = op.where(outside, least, windows)
    first = cast(op.argmax(windows, axis=-1), "int64")
    chosen = op.take(Constant(places.reshape(-1)),
                     op.add(first, Constant(np.arange(math.prod(sizes), dtype=np.int64) * count)))
    where = op.add(chosen, Constant((np.arange(batch, dtype=np.int64) * inner)[:, None]))
    return reshape(op.max(windows, axis=-1), (*dims[:2], *sizes)), reshape(where, (*dims[:2], *sizes))
