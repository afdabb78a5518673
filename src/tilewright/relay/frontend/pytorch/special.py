"""Special functions: gamma, error and Bessel functions, orthogonal polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.math import log1p
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.promotion import floating, promoted
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.types_of import scalar

_UNARY: Final = {
    "lgamma": "lgamma",
    "special_gammaln": "lgamma",
    "digamma": "digamma",
    "special_digamma": "digamma",
    "special_psi": "digamma",
    "erfc": "erfc",
    "special_erfc": "erfc",
    "special_erfcx": "erfcx",
    "erfinv": "erfinv",
    "special_erfinv": "erfinv",
    "special_log_ndtr": "log_ndtr",
    "special_ndtri": "ndtri",
    "i0": "i0",
    "special_i0": "i0",
    "special_modified_bessel_i0": "i0",
    "special_i0e": "i0e",
    "special_i1": "i1",
    "special_modified_bessel_i1": "i1",
    "special_i1e": "i1e",
    "special_modified_bessel_k0": "k0",
    "special_modified_bessel_k1": "k1",
    "special_scaled_modified_bessel_k0": "k0e",
    "special_scaled_modified_bessel_k1": "k1e",
    "special_bessel_j0": "j0",
    "special_bessel_j1": "j1",
    "special_bessel_y0": "y0",
    "special_bessel_y1": "y1",
    "special_spherical_bessel_j0": "spherical_j0",
    "special_airy_ai": "airy",
}
_POLYNOMIALS: Final = (
    *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw"), "hermite_polynomial_h",
    "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p")


def _register_unary(name: str, build: Callable[[Expr], Expr]) -> None:
    @converter(name)
    def function(self: Expr, node: Node) -> Expr:
        return build(floating(self, node))


def _register_polynomial(name: str) -> None:
    family = name.replace("polynomial_", "")

    @converter(f"special_{name}")
    def polynomial(x: Any, n: Any, node: Node) -> Expr:
        a, b = (floating(v, node) for v in promoted(x, n, node=node))
        return op.special.polynomial(a, b, family=family)


for _name, _function in _UNARY.items():
    _register_unary(_name, getattr(op.special, _function))
for _name in _POLYNOMIALS:
    _register_polynomial(_name)


@converter("special_zeta")
def zeta(self: Any, other: Any, node: Node) -> Expr:
    return op.special.zeta(*(floating(v, node) for v in promoted(self, other, node=node)))


@converter("polygamma", "special_polygamma")
def polygamma(n: int, self: Expr, node: Node) -> Expr:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x)."""
    if n < 0:
        node.refuse(f"argument 'n' is {n}; it must be 0 or more")
    x = floating(self, node)
    if n == 0:
        return op.special.digamma(x)
    factor = math.exp(math.lgamma(n + 1)) * (1 if n % 2 else -1)
    return op.multiply(scalar(factor, x), op.special.zeta(scalar(n + 1, x), x))


@converter("mvlgamma", "special_multigammaln")
def mvlgamma(self: Expr, p: int, node: Node) -> Expr:
    x = floating(self, node)
    found: Expr = scalar(p * (p - 1) / 4 * math.log(math.pi), x)
    for k in range(p):
        found = op.add(found, op.special.lgamma(op.subtract(x, scalar(k / 2, x))))
    return found


@converter("igamma", "special_gammainc")
def igamma(self: Expr, other: Expr, node: Node) -> Expr:
    return op.special.igamma(*(floating(v, node) for v in promoted(self, other, node=node)))


@converter("igammac", "special_gammaincc")
def igammac(self: Expr, other: Expr, node: Node) -> Expr:
    return op.special.igammac(*(floating(v, node) for v in promoted(self, other, node=node)))


@converter("special_ndtr")
def ndtr(self: Expr, node: Node) -> Expr:
    """The normal distribution function: erfc(-x / sqrt(2)) / 2."""
    x = floating(self, node)
    return op.multiply(scalar(0.5, x), op.special.erfc(op.multiply(x, scalar(-math.sqrt(0.5), x))))


@converter("special_entr")
def entropy(self: Expr, node: Node) -> Expr:
    """-x log(x); 0 at 0, and minus infinity for negative numbers."""
    x = floating(self, node)
    zero = scalar(0, x)
    above = op.negative(op.multiply(x, op.log(x)))
    return op.where(op.less(x, zero), scalar(-math.inf, x), op.where(op.equal(x, zero), zero, above))


@converter("xlogy", "special_xlogy", "special_xlog1py")
def xlogy(self: Any, other: Any, node: Node) -> Expr:
    """x log(y), or x log(1 + y); 0 for x = 0 unless y is NaN."""
    x, y = (floating(v, node) for v in promoted(self, other, node=node))
    found = op.multiply(x, log1p(y, node) if node.name.endswith("1py") else op.log(y))
    at_zero = op.where(op.isnan(y), y, scalar(0, x))
    return op.where(op.equal(x, scalar(0, x)), at_zero, found)
