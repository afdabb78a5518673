"""Fourier transforms of real and complex tensors, along one dimension and several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.complex_numbers import is_complex, joined, of_both, parts_of
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import floating
from tilewright.relay.frontend.shaping import axis_of, fields, pad, slice_axis, transpose
from tilewright.relay.types_of import rank, scalar, shape_of

Pair = tuple[Expr, Expr]
"""Real and imaginary part."""

_NORMS: Final = {None: 0, "backward": 0, "ortho": 1, "forward": 2}
_NONE, _ROOT, _WHOLE = range(3)
"""The divisor of a transform: 1, the square root of its length, or its length; torch's codes for `normalization`."""


def _scaling(norm: str | None, forward: bool, node: Node) -> int:
    """The divisor that the argument `norm` of a public function selects."""
    if norm not in _NORMS:
        node.refuse(f"argument 'norm' is {norm!r}; it must be 'backward', 'ortho' or 'forward'")
    return _NORMS[norm] if forward else 2 - _NORMS[norm]


def _parts(x: Expr, node: Node) -> Pair:
    return parts_of(x) if is_complex(x) else parts_of(floating(x, node))


def _sized(x: Expr, axis: int, size: int) -> Expr:
    """Crop or zero-pad `x` to `size` along one axis."""
    before = shape_of(x)[axis]
    if size < before:
        return slice_axis(x, axis, 0, size)
    return pad(x, [(0, size - before if k == axis else 0) for k in range(rank(x))])


def _transformed(pair: Pair, axis: int, forward: bool, scaling: int) -> Pair:
    """The full DFT along one axis."""
    ndim, n = rank(pair[0]), shape_of(pair[0])[axis]
    order = [*(k for k in range(ndim) if k != axis), axis]
    real, imaginary = fields(op.dft(*(transpose(p, order) for p in pair), inverse=not forward), 2)
    factor = {_NONE: 1.0, _ROOT: 1 / math.sqrt(n), _WHOLE: 1 / n}[scaling] * (1 if forward else n)
    back = [order.index(k) for k in range(ndim)]
    found = [transpose(p if factor == 1 else op.multiply(p, scalar(factor, p)), back) for p in (real, imaginary)]
    return found[0], found[1]


def _half(pair: Pair, axis: int) -> Pair:
    """The non-redundant half of the spectrum of a real signal."""
    count = shape_of(pair[0])[axis] // 2 + 1
    return slice_axis(pair[0], axis, 0, count), slice_axis(pair[1], axis, 0, count)


def _completed(pair: Pair, axis: int, n: int) -> Pair:
    """Complete half of a spectrum of `n` frequencies; the other half is its conjugate in reverse order."""
    half = n // 2 + 1
    real, imaginary = (_sized(p, axis, half) for p in pair)
    k = np.arange(n)
    mirrored = k > n // 2
    where = Constant(np.where(mirrored, n - k, k))
    signs = np.where(mirrored, -1.0, 1.0).reshape([n if d == axis else 1 for d in range(rank(real))])
    flipped = op.multiply(op.take(imaginary, where, axis=axis), Constant(signs.astype(real.tensor_type.dtype.numpy())))
    return op.take(real, where, axis=axis), flipped


def _real_result(pair: Pair, axis: int, n: int, forward: bool, scaling: int, node: Node) -> Expr:
    """The real transform of a half spectrum."""
    if n < 1:
        node.refuse(f"its result would have {n} numbers along dimension {axis}; it must have at least 1")
    return _transformed(_completed(pair, axis, n), axis, forward, scaling)[0]


def real_inverse(pair: Pair, axis: int, n: int, is_normalized: bool, node: Node) -> Expr:
    """The real signal of a half spectrum; divided by sqrt(n) if `is_normalized`, otherwise by n."""
    return _real_result(pair, axis, n, False, _ROOT if is_normalized else _WHOLE, node)


# One dimension


@of_both("fft_fft", "fft_ifft")
def fft(self: Expr, node: Node, n: int | None = None, dim: int = -1, norm: str | None = None) -> Expr:
    forward, axis = node.name == "fft_fft", axis_of(dim, rank(self), node)
    pair = _all_sized(_parts(self, node), [axis], None if n is None else [n], node)
    return joined(*_transformed(pair, axis, forward, _scaling(norm, forward, node)))


@of_both("fft_rfft", "fft_ihfft")
def rfft(self: Expr, node: Node, n: int | None = None, dim: int = -1, norm: str | None = None) -> Expr:
    return rfftn(self, node.renamed(f"{node.name}n"), None if n is None else [n], [dim], norm)


@of_both("fft_irfft", "fft_hfft")
def irfft(self: Expr, node: Node, n: int | None = None, dim: int = -1, norm: str | None = None) -> Expr:
    return irfftn(self, node.renamed(f"{node.name}n"), None if n is None else [n], [dim], norm)


# Several dimensions


def _axes(x: Expr, s: Sequence[int] | None, dim: Any, node: Node) -> list[int]:
    """The transformed dimensions: `dim`, the last ones if only sizes are given, or all."""
    if dim is None:
        return list(range(rank(x)))[-len(s) :] if s is not None else list(range(rank(x)))
    return [axis_of(d, rank(x), node) for d in (dim if isinstance(dim, (list, tuple)) else [dim])]


def _all_sized(pair: Pair, axes: Sequence[int], sizes: Sequence[int] | None, node: Node) -> Pair:
    """Crop or zero-pad both parts to the requested sizes; -1 keeps a size."""
    for k, axis in enumerate(axes):
        size = shape_of(pair[0])[axis] if sizes is None or sizes[k] == -1 else sizes[k]
        if not isinstance(size, int) or size < 1:
            node.refuse(
                f"it transforms {size} numbers along dimension {axis}; the number must be known at compile time, and "
                "at least 1")
        pair = _sized(pair[0], axis, size), _sized(pair[1], axis, size)
    return pair


@of_both("fft_fftn", "fft_ifftn", "fft_fft2", "fft_ifft2")
def fftn(self: Expr, node: Node, s: list[int] | None = None, dim: Any = None, norm: str | None = None) -> Expr:
    forward, axes = not node.name.startswith("fft_i"), _axes(self, s, dim, node)
    pair = _all_sized(_parts(self, node), axes, s, node)
    for axis in axes:
        pair = _transformed(pair, axis, forward, _scaling(norm, forward, node))
    return joined(*pair)


@of_both("fft_rfftn", "fft_rfft2", "fft_ihfftn", "fft_ihfft2")
def rfftn(self: Expr, node: Node, s: list[int] | None = None, dim: Any = None, norm: str | None = None) -> Expr:
    """The half spectrum of a real tensor along the last dimension; `ihfft` uses the inverse transform."""
    forward, axes = node.name.startswith("fft_r"), _axes(self, s, dim, node)
    scaling = _scaling(norm, forward, node)
    pair = _all_sized(_parts(self, node), axes, s, node)
    pair = _half(_transformed(pair, axes[-1], forward, scaling), axes[-1])
    for axis in axes[:-1]:
        pair = _transformed(pair, axis, forward, scaling)
    return joined(*pair)


@of_both("fft_irfftn", "fft_irfft2", "fft_hfftn", "fft_hfft2")
def irfftn(self: Expr, node: Node, s: list[int] | None = None, dim: Any = None, norm: str | None = None) -> Expr:
    """The real tensor of a half spectrum along the last dimension; `hfft` uses the forward transform."""
    forward, axes = node.name.startswith("fft_h"), _axes(self, s, dim, node)
    scaling = _scaling(norm, forward, node)
    last = 2 * (shape_of(self)[axes[-1]] - 1) if s is None or s[-1] == -1 else s[-1]
    pair = _all_sized(_parts(self, node), axes[:-1], None if s is None else s[:-1], node)
    for axis in axes[:-1]:
        pair = _transformed(pair, axis, forward, scaling)
    return _real_result(pair, axes[-1], last, forward, scaling, node)


# Operators that decompositions of exported programs produce


@of_both("_fft_c2c")
def complex_to_complex(self: Expr, dim: list[int], normalization: int, forward: bool, node: Node) -> Expr:
    pair = _parts(self, node)
    for axis in _axes(self, None, dim, node):
        pair = _transformed(pair, axis, forward, normalization)
    return joined(*pair)


@of_both("_fft_r2c")
def real_to_complex(self: Expr, dim: list[int], normalization: int, onesided: bool, node: Node) -> Expr:
    pair, axes = _parts(self, node), _axes(self, None, dim, node)
    pair = _transformed(pair, axes[-1], True, normalization)
    pair = _half(pair, axes[-1]) if onesided else pair
    for axis in axes[:-1]:
        pair = _transformed(pair, axis, True, normalization)
    return joined(*pair)


@of_both("_fft_c2r")
def complex_to_real(self: Expr, dim: list[int], normalization: int, last_dim_size: int, node: Node) -> Expr:
    pair, axes = _parts(self, node), _axes(self, None, dim, node)
    for axis in axes[:-1]:
        pair = _transformed(pair, axis, False, normalization)
    return _real_result(pair, axes[-1], last_dim_size, False, normalization, node)
