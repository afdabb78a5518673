"""Indices of models: normalized to count from the front, and checked at run time against their dimension.

    gather(data, i)  ->  take(data, where(j < 0, j + n, j)), j = require_zero(i, outside(i, n))

Indices with statically known bounds (argmax, argsort, clipped values) are not checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from tilewright.base.types import INT64
from tilewright.relay.expr import Call, Constant, Expr, TupleGetItem
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import Refusing, cast, reshape
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.scalar.arith.open_sizes import limit, open_size, takes_open
from tilewright.topi.shapes import is_dynamic, is_number


class Located(Refusing, Protocol):
    """A node of a model with an origin."""

    @property
    def origin(self) -> object:
        """The position of the node in the model, for messages."""


_SAME: Final = frozenset(["cast", "reshape", "transpose", "squeeze", "expand_dims", "strided_slice", "take", "gather",
                          "broadcast_to", "flip", "repeat", "tile", "require_zero"])
"""Operators whose results are elements of their first argument."""


def from_front(indices: Expr, data: Expr, axis: int, node: Located) -> Expr:
    """Indices into a dimension of `data` in [-size, size), which count from the end if negative, normalized to
    [0, size).

    Constant indices out of range are refused at import, others at run time.
    """
    size, what = shape_of(data)[axis], f"dimension {axis} of the input"
    if not is_number(size):
        return _from_front_of_symbolic(indices, data, range(axis, axis + 1), node)
    low, high = bounds_of(indices)
    wrong = f"an index is outside {what}, which has {size} elements; indices must be {-size} to {size - 1}"
    if isinstance(indices, Constant):
        if indices.value.size and (low < -size or high >= size):
            node.refuse(wrong)
        return (indices if low >= 0 or not indices.value.size
                else Constant(np.where(indices.value < 0, indices.value + size, indices.value), indices.span))
    if dtype_of(indices).bits < 32 or dtype_of(indices).code != "int":
        indices = cast(indices, INT64)
    if low < -size or high >= size:
        indices = _required(indices, (size,), f"{node.origin}: {wrong}")
    return indices if low >= 0 else op.where(op.less(indices, scalar(0, indices)),
                                             op.add(indices, scalar(size, indices)), indices)


def tuples_from_front(indices: Expr, data: Expr, axes: range, node: Located) -> Expr:
    """`from_front` for tuples of indices along the last dimension, one index for each of the consecutive `axes`."""
    sizes = [shape_of(data)[a] for a in axes]
    if not all(map(is_number, sizes)):
        return _from_front_of_symbolic(indices, data, axes, node)
    low = bounds_of(indices)[0]
    lengths = np.asarray(sizes, np.int64)
    wrong = (f"an index is outside the input, whose dimensions have {', '.join(map(str, sizes))} elements; each index "
             "must be at least minus the size of its dimension, and below the size")
    if isinstance(indices, Constant):
        if indices.value.size and ((indices.value < -lengths) | (indices.value >= lengths)).any():
            node.refuse(wrong)
        return (indices if low >= 0 or not indices.value.size
                else Constant(np.where(indices.value < 0, indices.value + lengths, indices.value), indices.span))
    indices = cast(indices, INT64)
    indices = _required(indices, tuple(sizes), f"{node.origin}: {wrong}")
    return op.where(op.less(indices, scalar(0, indices)), op.add(indices, Constant(lengths)), indices)


def _from_front_of_symbolic(indices: Expr, data: Expr, axes: range, node: Located) -> Expr:
    """`from_front` where the sizes of some of the `axes` of `data` are known only when the program runs.

    Constant indices become limits of symbolic sizes. Sizes that depend on values bound no index.
    """
    low, high = bounds_of(indices)
    sizes = tuple(shape_of(data)[a] for a in axes)
    if dtype_of(indices).bits < INT64.bits or dtype_of(indices).code != "int":
        indices = cast(indices, INT64)
    if (takes_open() and all(is_number(n) or is_dynamic(n) for n in sizes)
            and not _are_limited(sizes, low, high)):
        shown = ", ".join(map(str, sizes))
        indices = _required(indices, sizes, f"{node.origin}: an index is outside the input, whose dimensions have "
                            f"{shown} elements; each index must be at least minus the size of its dimension, and "
                            "below the size")
    if low >= 0:
        return indices
    lengths = op.strided_slice(op.shape_of(data, dtype=dtype_of(indices)), begin=(axes.start,), end=(axes.stop,))
    below = op.add(indices, lengths if rank(indices) else reshape(lengths, ()))
    return below if high < 0 else op.where(op.less(indices, scalar(0, indices)), below, indices)


def _are_limited(sizes: Sequence[Any], low: float, high: float) -> bool:
    """Whether all indices from `low` to `high` are within `sizes`, because symbolic sizes are limited accordingly."""
    least = max(-low, high + 1)
    if not np.isfinite(least) or any(is_number(n) and n < least for n in sizes):
        return False
    found = [n if isinstance(n, int) else open_size(n) for n in sizes if not is_number(n)]
    if any(n is None for n in found):
        return False
    for n in found:
        limit(n, int(least))  # type: ignore[arg-type]
    return True


def inside(indices: Expr, sizes: Sequence[int], node: Located) -> Expr:
    """Check indices that must not be negative: refuse those outside [0, size).

    `sizes` has one size for all indices, or one for each position along the last dimension.
    """
    low, high = bounds_of(indices)
    listed = ", ".join(map(str, sizes))
    wrong = (f"an index is outside the input, which has {listed} elements along the indexed dimensions; each index "
             "must be 0 or more and below the size")
    if isinstance(indices, Constant):
        if indices.value.size and (low < 0 or (indices.value >= np.asarray(sizes, np.int64)).any()):
            node.refuse(wrong)
        return indices
    if low >= 0 and high < min(sizes):
        return indices
    return _required(indices, tuple(sizes), f"{node.origin}: {wrong}", negative=False)


def _required(indices: Expr, sizes: tuple[Any, ...], message: str, negative: bool = True) -> Expr:
    """`indices`, checked at run time to be within `sizes`."""
    if any(isinstance(d, int) and not d for d in shape_of(indices)):
        return indices
    flat = indices
    if rank(indices) > 1 and indices.tensor_type.is_static and all(isinstance(n, int) for n in sizes):
        sizes = sizes[:1] if len(set(sizes)) == 1 else sizes
        flat = reshape(indices, (-1,) if len(sizes) == 1 else (-1, len(sizes)))
    return op.require_zero(indices, op.outside(flat, sizes=sizes, negative=negative), message=message)


def bounds_of(e: Expr, depth: int = 16) -> tuple[float, float]:
    """The smallest and greatest value of an integer expression: infinite bounds if they are not easily derived."""
    if isinstance(e, Constant):
        return ((float(e.value.min()), float(e.value.max())) if e.value.size and e.value.dtype != object
                else (-np.inf, np.inf))
    if (isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Call) and e.index == 1
            and e.tuple_value.op.name == "topk"):
        return 0, _most(e.tuple_value.args[0], e.tuple_value.op.axis)
    if depth and isinstance(e, Call) and hasattr(e.op, "name"):
        if e.op.name in _SAME and dtype_of(e.args[0]).is_integer:
            return bounds_of(e.args[0], depth - 1)
        rule = _BOUNDS.get(e.op.name)
        if rule is not None:
            return rule(e)
    return (0 if e.tensor_type.dtype.code == "uint" else -np.inf), np.inf


def _most(x: Expr, axis: Any) -> float:
    """The greatest index along an axis; infinite if its size is not static."""
    size = shape_of(x)[axis] if isinstance(axis, int) else None
    return size - 1 if isinstance(size, int) else np.inf


def _of_extreme(e: Call) -> tuple[float, float]:
    axis = e.op.axis
    return 0, _most(e.args[0], axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis)


_BOUNDS: Final[dict[str, Callable[[Call], tuple[float, float]]]] = {
    "argmax": _of_extreme, "argmin": _of_extreme, "argsort": lambda e: (0, _most(e.args[0], e.op.axis)),
    "clip": lambda e: (float(e.op.a_min), float(e.op.a_max)),
}
