"""Special functions against mpmath and torch, and the refusals of their operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.base.errors import ModelError, ShapeError
from tilewright.relay.expr import var
from tilewright.relay.op import special

pytest.importorskip("torch")
import torch

mpmath = pytest.importorskip("mpmath")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
S = torch.special
RNG = np.random.default_rng(5)
LINE = np.concatenate([RNG.uniform(-14, 14, 50), RNG.uniform(-1, 1, 20), [0.5, 1.0, 2.0, 1e-9]])
POSITIVE = np.abs(LINE) + 1e-3
SHARES = RNG.uniform(1e-9, 1 - 1e-9, 60)
ROOT = mpmath.sqrt(2)
UNARY: dict[str, tuple[type[special.Special], Callable[[Any], Any], np.ndarray[Any, Any]]] = {
    "lgamma": (special.Lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x))), LINE),
    "digamma": (special.Digamma, mpmath.digamma, POSITIVE),
    "erfc": (special.Erfc, mpmath.erfc, LINE),
    "erfcx": (special.Erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), LINE),
    "erfinv": (special.Erfinv, mpmath.erfinv, 2 * SHARES - 1),
    "log_ndtr": (special.LogNdtr, lambda x: mpmath.log(mpmath.erfc(-x / ROOT) / 2), LINE),
    "ndtri": (special.Ndtri, lambda p: ROOT * mpmath.erfinv(2 * p - 1), SHARES),
    "i0": (special.I0, lambda x: mpmath.besseli(0, x), LINE),
    "i0e": (special.I0E, lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x), LINE),
    "i1": (special.I1, lambda x: mpmath.besseli(1, x), LINE),
    "i1e": (special.I1E, lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x), LINE),
    "k0": (special.K0, lambda x: mpmath.besselk(0, x), POSITIVE),
    "k0e": (special.K0E, lambda x: mpmath.exp(x) * mpmath.besselk(0, x), POSITIVE),
    "k1": (special.K1, lambda x: mpmath.besselk(1, x), POSITIVE),
    "k1e": (special.K1E, lambda x: mpmath.exp(x) * mpmath.besselk(1, x), POSITIVE),
    "j0": (special.J0, mpmath.j0, LINE),
    "j1": (special.J1, mpmath.j1, LINE),
    "y0": (special.Y0, lambda x: mpmath.bessely(0, x), POSITIVE),
    "y1": (special.Y1, lambda x: mpmath.bessely(1, x), POSITIVE),
    "spherical_j0": (special.SphericalJ0, mpmath.sinc, LINE),
    "airy": (special.Airy, mpmath.airyai, LINE),
}


@pytest.mark.parametrize("name", UNARY)
def test_a_special_function_has_its_digits(name: str) -> None:
    cls, exact, x = UNARY[name]
    with mpmath.workdps(40):
        wanted = np.asarray([float(exact(mpmath.mpf(float(v)))) for v in x])
    np.testing.assert_allclose(cls().reference(x), wanted, rtol=1e-13, atol=1e-14)


def test_functions_of_two_numbers_have_their_digits() -> None:
    a, x = RNG.uniform(0.1, 150, 40), RNG.uniform(0.1, 150, 40)
    s, q = np.rint(RNG.uniform(2, 9, 40)), RNG.uniform(-9, 9, 40)
    with mpmath.workdps(30):
        lower = np.asarray([float(mpmath.gammainc(u, 0, v, regularized=True)) for u, v in zip(a, x, strict=True)])
        upper = np.asarray([float(mpmath.gammainc(u, v, regularized=True)) for u, v in zip(a, x, strict=True)])
    np.testing.assert_allclose(special.Igamma().reference(a, x), lower, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(special.Igammac().reference(a, x), upper, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(
        special.Zeta().reference(s, q), S.zeta(torch.from_numpy(s), torch.from_numpy(q)).numpy(), rtol=1e-11
    )


@pytest.mark.parametrize(
    "family", ["chebyshev_v", "shifted_chebyshev_u", "hermite_h", "hermite_he", "laguerre_l", "legendre_p"]
)
def test_polynomials_are_torchs(family: str) -> None:
    name = "_polynomial_".join(family.rsplit("_", 1))
    x, n = RNG.uniform(-2, 2, 200), RNG.uniform(-3, 15, 200)
    found = special.Polynomial(family).reference(x, n)
    np.testing.assert_allclose(
        found, getattr(S, name)(torch.from_numpy(x), torch.from_numpy(n)).numpy(), rtol=1e-9, atol=1e-10
    )


class Many(torch.nn.Module):
    def forward(self, x: Any, n: Any) -> Any:
        return (
            torch.polygamma(2, x),
            torch.mvlgamma(x + 3, 3),
            S.zeta(x, 2.0),
            S.entr(x),
            S.xlog1py(n, x),
            S.ndtr(x),
            torch.igamma(x, n.abs()),
            torch.lgamma(n),
            S.legendre_polynomial_p(x, 3),
        )


def test_compiled_functions_agree_with_torch() -> None:
    x, n = torch.rand(3, 5) * 4 + 0.1, torch.arange(-2, 3)
    exported = torch.export.export(Many(), (x, n))
    found = tilewright.compile(exported, threads=1)(x.numpy(), n.numpy())
    for got, wanted in zip(found, Many()(x, n), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted.numpy(), rtol=2e-5, atol=2e-6)


def test_what_a_special_function_refuses() -> None:
    with pytest.raises(ShapeError, match="takes floating-point numbers, and these are int32; cast them first"):
        _ = relay.special.lgamma(var("x", shape=(3,), dtype="int32")).checked_type
    x = var("x", shape=(3,))
    with pytest.raises(ShapeError, match="family is 'jacobi'; it must be one of chebyshev_t"):
        _ = relay.special.polynomial(x, x, family="jacobi").checked_type


def test_a_negative_derivative_is_refused() -> None:
    from tilewright.relay.frontend.pytorch.special import polygamma

    class Refusing:
        def refuse(self, why: str) -> None:
            raise ModelError(why, code="TW0107")

    with pytest.raises(ModelError, match="argument 'n' is -1; it must be 0 or more"):
        polygamma(-1, var("x", shape=(3,)), Refusing())  # type: ignore[arg-type]
