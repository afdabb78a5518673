"""Small graph builders shared by the converters of all frontends. They omit operators that would have no effect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from tilewright.base.types import DataType, OpenSize
from tilewright.relay.expr import Constant, Expr, TupleGetItem
from tilewright.relay.frontend.operators import op
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.topi.shapes import require_at_least

Array = np.ndarray[Any, Any]


class Refusing(Protocol):
    """A node of a model that can raise errors with its origin."""

    def refuse(self, why: str) -> NoReturn:
        """Raise a `ModelError` at the node."""


def same_size(a: Any, b: Any) -> bool:
    """Whether two dimensions are known to be equal: one symbol, or equal numbers."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def number(value: Any, dtype: str = "int64") -> Constant:
    """A scalar constant."""
    return Constant(np.asarray(value, dtype))


def size_value(size: Any, like: Expr) -> Expr:
    """A size as a scalar with the element type of `like`; computed in each call for a dynamic size."""
    if not isinstance(size, OpenSize):
        return scalar(size, like)
    return op.squeeze(op.arange(start=size, stop=size + 1, step=1, dtype=dtype_of(like)), axis=(0,))


def steps_to(count: Any, dtype: str = "int64") -> Expr:
    """The numbers from 0 up to but without `count`, computed in each call for a dynamic size."""
    if not isinstance(count, OpenSize):
        return Constant(np.arange(count, dtype=dtype))
    return op.arange(start=0, stop=count, step=1, dtype=dtype)


def axis_of(axis: int, ndim: int, node: Refusing) -> int:
    """`axis` counted from the front; refuses an axis out of range."""
    most = max(ndim, 1)  # a scalar counts as a vector of one element
    if not -most <= axis < most:
        node.refuse(f"axis {axis} is out of range for its input of {ndim} dimensions; it must be in [{-most}, "
                    f"{most - 1}]")
    return axis % ndim if ndim else 0


def cast(x: Expr, dtype: str | DataType) -> Expr:
    """`x` as `dtype`; `x` itself if it already has that dtype."""
    return x if dtype_of(x) is DataType(dtype) else op.cast(x, dtype=DataType(dtype))


def reshape(x: Expr, shape: Sequence[Any]) -> Expr:
    """`x` in another shape, which may have one -1. Symbolic dimensions are replaced by 0 or -1 where possible."""
    old, new = shape_of(x), tuple(int(d) if isinstance(d, np.integer) else d for d in shape)
    if len(old) == len(new) and all(map(same_size, old, new)):
        return x
    if all(isinstance(d, int) for d in new):
        if 0 in new:
            return op.reshape(x, newshape=new, allowzero=True)
        return _reshaped_constant(x, new) or op.reshape(x, newshape=new)
    for d in new:
        require_at_least(d, 0)
    if not any(isinstance(d, int) and d == 0 for d in new):
        new = tuple(0 if k < len(old) and d is old[k] and not isinstance(d, int) else d for k, d in enumerate(new))
        symbolic = [k for k, d in enumerate(new) if not isinstance(d, int)]
        if len(symbolic) == 1 and not any(isinstance(d, int) and d == -1 for d in new):
            new = tuple(-1 if k == symbolic[0] else d for k, d in enumerate(new))
    return op.reshape(x, newshape=new)


def _reshaped_constant(x: Expr, shape: tuple[int, ...]) -> Expr | None:
    """A view of a constant with another shape; None if the shape does not match its size."""
    if (isinstance(x, Constant) and (-1 in shape or math.prod(shape) == x.value.size)
            and (-1 not in shape or x.value.size)):
        known = math.prod(d for d in shape if d != -1)
        if known and x.value.size % known == 0:
            return Constant(x.value.reshape(shape), x.span)
    return None


def transpose(x: Expr, axes: Sequence[int]) -> Expr:
    """Permute the dimensions of `x` to the order `axes`; for a constant, a view."""
    if tuple(axes) == tuple(range(rank(x))):
        return x
    if isinstance(x, Constant) and sorted(axes) == list(range(rank(x))):
        return Constant(x.value.transpose(tuple(axes)), x.span)
    return op.transpose(x, axes=tuple(axes))


def per_channel(v: Expr, ndim: int, axis: int = 1) -> Expr:
    """Reshape a vector so that it broadcasts along `axis` of a tensor with `ndim` dimensions."""
    after = ndim - axis - 1
    return reshape(v, (*shape_of(v), *[1] * after)) if after else v


def slice_axis(x: Expr, axis: int, begin: int, end: int) -> Expr:
    """The elements [begin, end) along one axis."""
    return op.strided_slice(x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))


def fields(call: Expr, count: int) -> tuple[Expr, ...]:
    """The results of an operator with several outputs."""
    return tuple(TupleGetItem(call, k) for k in range(count))


def pad(x: Expr, widths: Sequence[tuple[int, int]], value: Any = 0.0, mode: str = "constant") -> Expr:
    """`x` with `widths[k]` = (before, after) elements added to dimension k."""
    if not any(a or b for a, b in widths):
        return x
    fill = value if isinstance(value, Expr) else scalar(value, x)
    return op.nn.pad(x, fill, pad_width=tuple((_whole(a), _whole(b)) for a, b in widths), pad_mode=mode)


def _whole(n: Any) -> Any:
    """`n` as a Python int, or a dynamic size as it is."""
    return n if isinstance(n, OpenSize) else int(n)


def is_negative(x: Expr) -> Expr:
    """Whether floats are negative, including negative zero; False for NaN."""
    zero = scalar(0, x)
    below = op.less(op.divide(scalar(1, x), x), zero)
    return op.logical_or(op.less(x, zero), op.logical_and(op.equal(x, zero), below))


def log_1p(x: Expr) -> Expr:
    """log(1 + x) for floats. With u = 1 + x rounded, log(u) * x / (u - 1) compensates the rounding."""
    zero, one = scalar(0, x), scalar(1, x)
    u = op.add(one, x)
    lost = op.subtract(u, one)
    found = op.multiply(op.log(u), op.divide(x, op.where(op.equal(lost, zero), one, lost)))
    return op.where(op.equal(lost, zero), x, op.where(op.isfinite(u), found, op.log(u)))


def mish(x: Expr) -> Expr:
    """x * tanh(log(1 + e^x)), computed as x * n / (n + 2) with n = e^x * (e^x + 2).

    The exponent is clamped so that n does not overflow; the quotient is 1 there.
    """
    two = scalar(2, x)
    power = op.exp(op.minimum(x, scalar(5.5 if dtype_of(x) == DataType("float16") else 20, x)))
    n = op.multiply(power, op.add(power, two))
    return op.multiply(x, op.divide(n, op.add(n, two)))


def angle_of(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y) in radians, like C's `atan2` for zeros, infinities and NaN; one float type."""
    high, wide = op.abs(y), op.abs(x)
    # If both lengths are zero or infinite, their quotient is NaN; use the known angle.
    level = op.where(op.equal(high, scalar(0, x)), scalar(0, x), scalar(math.pi / 4, x))
    angle = op.where(op.equal(high, wide), level, op.atan(op.divide(high, wide)))
    angle = op.where(is_negative(x), op.subtract(scalar(math.pi, x), angle), angle)
    return op.where(is_negative(y), op.negative(angle), angle)
