"""Fourier transforms of signals."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.scalar.expr import UnknownDim
from tilewright.topi import spectra as topi
from tilewright.topi.shapes import differ, is_too_small, require_same_dtype, require_static, text


def _floats(t: TensorType) -> None:
    if not t.dtype.is_float:
        raise ShapeError(f"a Fourier transform takes floating-point numbers, and these are {t.dtype}; cast them first")


@op("dft", kind=Fusion.OPAQUE)
class Dft(Op):
    """The discrete Fourier transform of complex rows along the last axis, as real and imaginary parts.

    The inverse transform divides by the length.
    """

    inverse: bool = False
    """True computes the inverse transform."""

    def infer(self, re_data: Type, im_data: Type) -> TupleType:
        """A tuple of two tensors of the type of the inputs, which must be equal and floating-point."""
        real, imaginary = tensors(re_data, im_data)
        require_same_dtype((real, imaginary))
        _floats(real)
        if not real.ndim or real.ndim != imaginary.ndim or any(map(differ, real.shape, imaginary.shape)):
            raise ShapeError(f"the parts must be rows of equal shape, but they are {text(real.shape)} and "
                             f"{text(imaginary.shape)}")
        return TupleType((real, real))

    def reference(self, re_data: Array, im_data: Array) -> tuple[Array, Array]:
        found = (np.fft.ifft if self.inverse else np.fft.fft)(re_data + 1j * im_data)
        return found.real.astype(re_data.dtype), found.imag.astype(re_data.dtype)

    def compute(self, re_data: te.Tensor, im_data: te.Tensor) -> tuple[te.Tensor, ...]:
        return topi.dft(re_data, im_data, self.inverse)


@op("stft", kind=Fusion.OPAQUE)
class Stft(Op):
    """The Fourier transforms (signals, frequencies, frames, 2) of windows that start every `hop_length` elements.

    `data` is a signal or a batch of them; `window` (win_length,) weights the middle of the `n_fft` elements of a frame.
    """

    n_fft: int
    """Length of a transform, in elements."""
    hop_length: int
    """Distance between the starts of neighbouring frames, in elements."""
    win_length: int
    """Length of the window, at most `n_fft`."""
    normalized: bool = False
    """True divides by sqrt(n_fft)."""
    onesided: bool = True
    """True returns the n_fft // 2 + 1 frequencies of a real signal only."""

    def infer(self, data: Type, window: Type) -> TensorType:
        """(signals, frequencies, frames, 2); the floating-point dtype of the data."""
        t, weights = tensors(data, window)
        require_same_dtype((t, weights))
        _floats(t)
        if t.ndim not in (1, 2):
            raise ShapeError(f"data must be one signal or a batch of them, and it has the shape {text(t.shape)}")
        if (not 0 < self.win_length <= self.n_fft or self.hop_length < 1 or weights.ndim != 1
                or differ(weights.shape[0], self.win_length)):
            raise ShapeError(f"a window {text(weights.shape)} of {self.win_length} elements every {self.hop_length} "
                             f"does not fit n_fft={self.n_fft}")
        if not all(isinstance(n, int) for n in t.shape):
            frames: Any = self._shape((1, t.shape[-1]))[2] if isinstance(t.shape[-1], int) else UnknownDim()
            batch = t.shape[0] if t.ndim == 2 else 1
            return TensorType((batch, self._bins, frames, 2), t.dtype)
        return TensorType(self._shape(require_static(t, "data")), t.dtype)

    @property
    def _bins(self) -> int:
        return self.n_fft // 2 + 1 if self.onesided else self.n_fft

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if is_too_small(shape[-1], self.n_fft):
            raise ShapeError(f"a signal of {shape[-1]} elements is shorter than n_fft={self.n_fft}; pad it first")
        return (shape[0] if len(shape) == 2 else 1, self._bins, (shape[-1] - self.n_fft) // self.hop_length + 1, 2)

    def reference(self, data: Array, window: Array) -> Array:
        signals, bins, frames, _ = self._shape(data.shape)
        before = (self.n_fft - self.win_length) // 2
        weights = np.pad(window, (before, self.n_fft - self.win_length - before))
        starts = np.arange(frames)[:, None] * self.hop_length + np.arange(self.n_fft)
        found = np.fft.fft(
            data.reshape(signals, -1)[:, starts].astype(np.float64) * weights)[..., :bins].transpose(0, 2, 1)
        found = found / sqrt(self.n_fft) if self.normalized else found
        return np.asarray(np.stack([found.real, found.imag], -1), data.dtype)

    def compute(self, data: te.Tensor, window: te.Tensor) -> Any:
        shape = self._shape(data.extents)
        return topi.stft(data, self.n_fft, self.hop_length, self.win_length, window, self.normalized, self.onesided,
                         shape)
