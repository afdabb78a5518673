"""Fourier transforms and complex tensors of PyTorch models."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import tilewright
import torch_functions
from tilewright.base.errors import ModelError

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.filterwarnings("ignore")
F = torch.fft
torch.manual_seed(4)
REAL, COMPLEX = torch.randn(3, 5, 8), torch.randn(3, 5, 8, dtype=torch.complex64)
agrees = functools.partial(torch_functions.agrees, rtol=1e-4, atol=2e-5)
NORMS = ("backward", "ortho", "forward")


@pytest.mark.parametrize("norm", NORMS)
def test_transforms_of_real_tensors(norm: str) -> None:
    agrees(
        lambda x: tuple(
            torch.view_as_real(v.resolve_conj())
            for v in (
                F.fft(x, norm=norm),
                F.ifft(x, 6, 1, norm=norm),
                F.rfft(x, 9, norm=norm),
                F.ihfft(x, norm=norm),
                F.rfft2(x, norm=norm),
                F.fftn(x, norm=norm),
                F.rfftn(x, (4, 7), norm=norm),
                F.ihfftn(x, norm=norm),
                F.ifft2(x, norm=norm),
            )
        ),
        REAL,
    )


@pytest.mark.parametrize("norm", NORMS)
def test_transforms_that_give_real_tensors(norm: str) -> None:
    agrees(
        lambda x: (
            F.irfft(x, norm=norm),
            F.irfft(x, 9, 1, norm=norm),
            F.hfft(x, 7, norm=norm),
            F.irfft2(x, norm=norm),
            F.hfftn(x, (4, 6), (0, 2), norm=norm),
        ),
        COMPLEX,
    )


def test_a_filter_in_frequencies_is_native() -> None:
    import warnings

    def filtered(x: Any) -> Any:
        spectrum = F.rfft(x)
        return (
            F.irfft(spectrum * 0.5 + spectrum.conj().roll(1, -1) * torch.polar(torch.ones(5), torch.arange(5.0)), n=8),
            spectrum.abs(),
            spectrum.angle(),
        )

    with warnings.catch_warnings():
        warnings.simplefilter("error", tilewright.errors.NotNativeWarning)
        agrees(filtered, REAL)


def test_arithmetic_of_complex_tensors() -> None:
    agrees(
        lambda x: (
            x + 1,
            x - 2j,
            x * x,
            x / (x + 3),
            -x,
            x.exp(),
            x.real + x.imag,
            torch.stack([x, x.conj()]).reshape(6, -1),
        ),
        COMPLEX,
    )
    agrees(
        lambda x: (
            torch.complex(x, x + 1),
            torch.view_as_complex(x.reshape(3, 5, 4, 2)),
            x.angle(),
            torch.view_as_real(F.fft(x).to(torch.complex128)),
        ),
        REAL,
    )


def test_lengths_of_complex_numbers_do_not_overflow() -> None:
    agrees(lambda x: x.abs(), torch.tensor([0, 1e-30 + 1e-30j, 3e30 - 4e30j, complex("inf"), complex("nan")]))


@pytest.mark.parametrize("center", [True, False])
def test_short_transforms_and_back(center: bool) -> None:
    window = torch.hann_window(12) + 0.1
    signal = torch.randn(2, 40)
    agrees(lambda x: torch.stft(x, 16, 4, 12, window, center=center, return_complex=True, normalized=center), signal)
    spectrum = torch.stft(signal, 16, 4, 16, torch.ones(16), center=center, return_complex=True)
    agrees(
        lambda x: (
            torch.istft(x, 16, 4, 16, torch.ones(16), center),
            torch.istft(x, 16, 4, 16, torch.ones(16), center, length=33),
        ),
        spectrum,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (
            lambda x: torch.sort(x.real)[0] + torch.sigmoid(x).real,
            "sigmoid is supported for real tensors only; compute with torch.view_as_real",
        ),
        (lambda x: x.to(torch.float32), "a complex tensor is cast to float32; take its real part with torch.real"),
        (
            lambda x: torch.istft(x.transpose(1, 2), 8, window=x[0, 0], onesided=False, return_complex=True),
            "return_complex",
        ),
    ],
)
def test_what_is_refused(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        tilewright.compile(torch.export.export(torch_functions.Applied(function), (COMPLEX,)), threads=1)
