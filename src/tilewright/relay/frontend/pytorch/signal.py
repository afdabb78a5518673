"""Fourier transforms of windows."""

from __future__ import annotations

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import cast, dtype_of, pad, rank, reshape, shape_of


@converter("stft", "stft.center")
def stft(
    self: Expr, n_fft: int, node: Node, hop_length: int | None = None, win_length: int | None = None, window: Expr | None = None, normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None, center: bool = False, pad_mode: str = "reflect", align_to_window: bool | None = None,
) -> Expr:
    if return_complex:
        node.refuse("return_complex=True gives complex numbers, which are not supported; use return_complex=False, which gives them in pairs")
    hop, length = hop_length or n_fft // 4, win_length or n_fft
    x = self if rank(self) == 2 else reshape(self, (1, *shape_of(self)))
    if center:
        x = pad(x, [(0, 0), (n_fft // 2, n_fft // 2)], 0, pad_mode)
    weights = Constant(np.ones(length, dtype_of(x).numpy())) if window is None else cast(window, dtype_of(x))
    found = op.stft(x, weights, n_fft=n_fft, hop_length=hop, win_length=length, normalized=bool(normalized), onesided=onesided is not False)
    return found if rank(self) == 2 else reshape(found, shape_of(found)[1:])
