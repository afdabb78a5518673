"""Special functions: gamma, error and Bessel functions, orthogonal polynomials. Formulas are in `topi/special.py`."""

from __future__ import annotations

from typing import ClassVar

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.elementwise import Elementwise
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, declare, op, tensors
from tilewright.topi import special as topi
from tilewright.topi.shapes import broadcast_shapes, require_same_dtype


def _floats(t: TensorType) -> None:
    if not t.dtype.is_float:
        raise ShapeError(f"a special function takes floating-point numbers, and these are {t.dtype}; cast them first")


class Special(Elementwise):
    """Base of the special functions of one number, computed in float64; `formula` is the function of one element."""

    precision = Precision.NEVER
    formula: ClassVar[topi.Formula]

    def infer(self, data: Type) -> TensorType:
        """The type of the data, which must be floating-point."""
        (t,) = tensors(data)
        _floats(t)
        return t

    def reference(self, data: Array) -> Array:
        return topi.evaluate(self.formula, data)

    def compute(self, data: te.Tensor) -> te.Tensor:
        return topi.apply(self.name, self.formula, data.extents, data)


Lgamma = declare(Special, "special.lgamma", Fusion.OPAQUE, "The logarithm of |Gamma(x)|.", formula=topi.lgamma)
Digamma = declare(Special, "special.digamma", Fusion.OPAQUE, "The derivative of log Gamma.", formula=topi.digamma)
Erfc = declare(Special, "special.erfc", Fusion.OPAQUE, "1 - erf(x), accurate where the result is small.",
    formula=topi.erfc)
Erfcx = declare(Special, "special.erfcx", Fusion.OPAQUE, "exp(x^2) erfc(x).", formula=topi.erfcx)
Erfinv = declare(Special, "special.erfinv", Fusion.OPAQUE, "The inverse of the error function.", formula=topi.erfinv)
LogNdtr = declare(
    Special, "special.log_ndtr", Fusion.OPAQUE,
    "The logarithm of the standard normal distribution function.",
    formula=topi.log_ndtr)
Ndtri = declare(Special, "special.ndtri", Fusion.OPAQUE, "The inverse of the standard normal distribution function.",
    formula=topi.ndtri)
I0 = declare(Special, "special.i0", Fusion.OPAQUE, "I0(x), the modified Bessel function of the first kind.",
    formula=topi.i0)
I0E = declare(
    Special, "special.i0e", Fusion.OPAQUE,
    "exp(-|x|) I0(x), the scaled modified Bessel function of the first kind.",
    formula=topi.i0e)
I1 = declare(Special, "special.i1", Fusion.OPAQUE, "I1(x), the modified Bessel function of the first kind.",
    formula=topi.i1)
I1E = declare(
    Special, "special.i1e", Fusion.OPAQUE,
    "exp(-|x|) I1(x), the scaled modified Bessel function of the first kind.",
    formula=topi.i1e)
K0 = declare(Special, "special.k0", Fusion.OPAQUE, "K0(x), the modified Bessel function of the second kind.",
    formula=topi.k0)
K0E = declare(
    Special, "special.k0e", Fusion.OPAQUE,
    "exp(x) K0(x), the scaled modified Bessel function of the second kind.",
    formula=topi.k0e)
K1 = declare(Special, "special.k1", Fusion.OPAQUE, "K1(x), the modified Bessel function of the second kind.",
    formula=topi.k1)
K1E = declare(
    Special, "special.k1e", Fusion.OPAQUE,
    "exp(x) K1(x), the scaled modified Bessel function of the second kind.",
    formula=topi.k1e)
J0 = declare(Special, "special.j0", Fusion.OPAQUE, "J0(x), the Bessel function of the first kind.", formula=topi.j0)
J1 = declare(Special, "special.j1", Fusion.OPAQUE, "J1(x), the Bessel function of the first kind.", formula=topi.j1)
Y0 = declare(Special, "special.y0", Fusion.OPAQUE, "Y0(x), the Bessel function of the second kind.", formula=topi.y0)
Y1 = declare(Special, "special.y1", Fusion.OPAQUE, "Y1(x), the Bessel function of the second kind.", formula=topi.y1)
SphericalJ0 = declare(
    Special, "special.spherical_j0", Fusion.OPAQUE,
    "sin(x) / x, the spherical Bessel function of the first kind and order zero.",
    formula=topi.spherical_j0)
Airy = declare(Special, "special.airy", Fusion.OPAQUE, "Ai(x), the Airy function of the first kind.", formula=topi.airy)


class Special2(Op):
    """Base of the special functions of two numbers."""

    precision = Precision.NEVER

    @property
    def formula(self) -> topi.Formula:
        """The scalar function that is applied to each pair of elements."""
        raise NotImplementedError

    def infer(self, lhs: Type, rhs: Type) -> TensorType:
        """The broadcast shape of two tensors of one floating-point dtype; that dtype."""
        a, b = tensors(lhs, rhs)
        require_same_dtype((a, b))
        _floats(a)
        return TensorType(broadcast_shapes(a.shape, b.shape), a.dtype)

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return topi.evaluate(self.formula, lhs, rhs)

    def compute(self, lhs: te.Tensor, rhs: te.Tensor) -> te.Tensor:
        return topi.apply(self.name, self.formula, broadcast_shapes(lhs.extents, rhs.extents), lhs, rhs)


@op("special.zeta", kind=Fusion.OPAQUE)
class Zeta(Special2):
    """Hurwitz's zeta function of x and q: the sum of (q + k)^-x over integers k from 0."""

    @property
    def formula(self) -> topi.Formula:
        return topi.zeta


@op("special.igamma", kind=Fusion.OPAQUE)
class Igamma(Special2):
    """The lower incomplete gamma function of a and x, divided by Gamma(a)."""

    @property
    def formula(self) -> topi.Formula:
        return topi.igamma


@op("special.igammac", kind=Fusion.OPAQUE)
class Igammac(Special2):
    """The upper incomplete gamma function of a and x, divided by Gamma(a)."""

    @property
    def formula(self) -> topi.Formula:
        return topi.igammac


@op("special.polynomial", kind=Fusion.OPAQUE)
class Polynomial(Special2):
    """The orthogonal polynomial of the family `family` at x, of the degree n, rounded toward zero.

    It is zero for a negative degree, and NaN for a degree above 10,000.
    """

    family: str
    """Family of polynomials, one of `topi.special.POLYNOMIALS`."""

    @property
    def formula(self) -> topi.Formula:
        return topi.polynomial(self.family)

    def infer(self, lhs: Type, rhs: Type) -> TensorType:
        """The broadcast shape of two tensors of one floating-point dtype; that dtype."""
        if self.family not in topi.POLYNOMIALS:
            raise ShapeError(f"family is '{self.family}'; it must be one of {', '.join(topi.POLYNOMIALS)}")
        return super().infer(lhs, rhs)
