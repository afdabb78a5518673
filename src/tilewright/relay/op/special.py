"""Special functions: gamma, error and Bessel functions, orthogonal polynomials. Formulas are in `topi/special.py`."""

from __future__ import annotations

from typing import ClassVar

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.elementwise import Elementwise
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
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


@op("special.lgamma", kind=Fusion.OPAQUE)
class Lgamma(Special):
    """The logarithm of |Gamma(x)|."""

    formula = staticmethod(topi.lgamma)


@op("special.digamma", kind=Fusion.OPAQUE)
class Digamma(Special):
    """The derivative of log Gamma."""

    formula = staticmethod(topi.digamma)


@op("special.erfc", kind=Fusion.OPAQUE)
class Erfc(Special):
    """1 - erf(x), accurate where the result is small."""

    formula = staticmethod(topi.erfc)


@op("special.erfcx", kind=Fusion.OPAQUE)
class Erfcx(Special):
    """exp(x^2) erfc(x)."""

    formula = staticmethod(topi.erfcx)


@op("special.erfinv", kind=Fusion.OPAQUE)
class Erfinv(Special):
    """The inverse of the error function."""

    formula = staticmethod(topi.erfinv)


@op("special.log_ndtr", kind=Fusion.OPAQUE)
class LogNdtr(Special):
    """The logarithm of the standard normal distribution function."""

    formula = staticmethod(topi.log_ndtr)


@op("special.ndtri", kind=Fusion.OPAQUE)
class Ndtri(Special):
    """The inverse of the standard normal distribution function."""

    formula = staticmethod(topi.ndtri)


@op("special.i0", kind=Fusion.OPAQUE)
class I0(Special):
    """I0(x), the modified Bessel function of the first kind."""

    formula = staticmethod(topi.i0)


@op("special.i0e", kind=Fusion.OPAQUE)
class I0E(Special):
    """exp(-|x|) I0(x), the scaled modified Bessel function of the first kind."""

    formula = staticmethod(topi.i0e)


@op("special.i1", kind=Fusion.OPAQUE)
class I1(Special):
    """I1(x), the modified Bessel function of the first kind."""

    formula = staticmethod(topi.i1)


@op("special.i1e", kind=Fusion.OPAQUE)
class I1E(Special):
    """exp(-|x|) I1(x), the scaled modified Bessel function of the first kind."""

    formula = staticmethod(topi.i1e)


@op("special.k0", kind=Fusion.OPAQUE)
class K0(Special):
    """K0(x), the modified Bessel function of the second kind."""

    formula = staticmethod(topi.k0)


@op("special.k0e", kind=Fusion.OPAQUE)
class K0E(Special):
    """exp(x) K0(x), the scaled modified Bessel function of the second kind."""

    formula = staticmethod(topi.k0e)


@op("special.k1", kind=Fusion.OPAQUE)
class K1(Special):
    """K1(x), the modified Bessel function of the second kind."""

    formula = staticmethod(topi.k1)


@op("special.k1e", kind=Fusion.OPAQUE)
class K1E(Special):
    """exp(x) K1(x), the scaled modified Bessel function of the second kind."""

    formula = staticmethod(topi.k1e)


@op("special.j0", kind=Fusion.OPAQUE)
class J0(Special):
    """J0(x), the Bessel function of the first kind."""

    formula = staticmethod(topi.j0)


@op("special.j1", kind=Fusion.OPAQUE)
class J1(Special):
    """J1(x), the Bessel function of the first kind."""

    formula = staticmethod(topi.j1)


@op("special.y0", kind=Fusion.OPAQUE)
class Y0(Special):
    """Y0(x), the Bessel function of the second kind."""

    formula = staticmethod(topi.y0)


@op("special.y1", kind=Fusion.OPAQUE)
class Y1(Special):
    """Y1(x), the Bessel function of the second kind."""

    formula = staticmethod(topi.y1)


@op("special.spherical_j0", kind=Fusion.OPAQUE)
class SphericalJ0(Special):
    """sin(x) / x, the spherical Bessel function of the first kind and order zero."""

    formula = staticmethod(topi.spherical_j0)


@op("special.airy", kind=Fusion.OPAQUE)
class Airy(Special):
    """Ai(x), the Airy function of the first kind."""

    formula = staticmethod(topi.airy)


class Special2(Op):
    """Base of the special functions of two numbers."""

    precision = Precision.NEVER

    @property
    def formula(self) -> topi.Formula:
        """The function of two elements."""
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
