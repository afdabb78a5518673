"""Short-time Fourier transforms."""

from __future__ import annotations

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.complex_numbers import is_complex, of_both, parts_of
from tilewright.relay.frontend.pytorch.fft import real_inverse
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import cast, pad, reshape, slice_axis, transpose
from tilewright.relay.types_of import dtype_of, rank, shape_of


@converter("stft", "stft.center")
def stft(
    self: Expr, n_fft: int, node: Node, hop_length: int | None = None, win_length: int | None = None,
    window: Expr | None = None, normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, center: bool = False, pad_mode: str = "reflect",
    align_to_window: bool | None = None,
) -> Expr:
    hop, length = hop_length or n_fft // 4, win_length or n_fft
    x = self if rank(self) == 2 else reshape(self, (1, *shape_of(self)))
    if center:
        x = pad(x, [(0, 0), (n_fft // 2, n_fft // 2)], 0, pad_mode)
    weights = Constant(np.ones(length, dtype_of(x).numpy())) if window is None else cast(window, dtype_of(x))
    found = op.stft(
        x, weights, n_fft=n_fft, hop_length=hop, win_length=length, normalized=bool(normalized),
        onesided=onesided is not False)
    pairs = found if rank(self) == 2 else reshape(found, shape_of(found)[1:])
    return op.complex_of_parts(pairs) if return_complex else pairs


@of_both("istft")
def istft(
    self: Expr, n_fft: int, node: Node, hop_length: int | None = None, win_length: int | None = None,
    window: Expr | None = None, center: bool = True, normalized: bool = False, onesided: bool | None = None,
    length: int | None = None,
) -> Expr:
    """The signal whose windows have these transforms.

    Inverse transforms are weighted, added where they overlap, and divided by the sums of squared weights. Only the
    first half of a full spectrum is read, as in torch.
    """
    if window is not None and is_complex(window):
        node.refuse("its window is complex; pass a real one")
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    if not is_complex(self):
        node.refuse("its input must be complex; pass torch.view_as_complex(x)")
    bins, frames = shape_of(self)[-2:]
    batch = shape_of(self)[0] if rank(self) == 3 else 1
    pair = tuple(transpose(reshape(p, (batch, bins, frames)), (0, 2, 1)) for p in parts_of(self))
    rows = real_inverse((pair[0], pair[1]), 2, n_fft, bool(normalized), node)
    weights = Constant(np.ones(width, dtype_of(rows).numpy())) if window is None else cast(window, dtype_of(rows))
    before = (n_fft - width) // 2
    weights = pad(weights, [(before, n_fft - width - before)])
    total = n_fft + hop * (frames - 1)
    added = _overlapped(op.multiply(rows, weights), hop, total)
    shares = _overlapped(op.broadcast_to(op.multiply(weights, weights), shape=(1, frames, n_fft)), hop, total)
    begin = n_fft // 2 if center else 0
    end = total - begin if length is None else min(begin + length, total)
    found: Expr = op.divide(*(slice_axis(v, 1, begin, end) for v in (added, shares)))
    found = pad(found, [(0, 0), (0, 0 if length is None else begin + length - end)])
    return found if rank(self) == 3 else reshape(found, shape_of(found)[1:])


def _overlapped(rows: Expr, hop: int, total: int) -> Expr:
    """Overlap-add rows (batch, frames, elements), each `hop` after the previous one, to signals of `total` elements."""
    batch, frames, size = shape_of(rows)
    places = np.arange(frames)[:, None] * hop + np.arange(size)
    where = Constant(np.broadcast_to(places.reshape(-1), (batch, frames * size)).astype(np.int64))
    zeros = Constant(np.zeros((batch, total), dtype_of(rows).numpy()))
    return op.scatter_elements(zeros, where, reshape(rows, (batch, frames * size)), axis=1, reduction="add")
