"""Special functions of one element, computed in float64 for tensors of any type.

Each formula is written once, for `Arrays` (numpy, the reference) or `Elements` (generated code). It has no branches:
`where` selects among the values of all pieces. Section numbers are those of the Digital Library of Mathematical
Functions (https://dlmf.nist.gov). `special_tables.py` documents the origin of the tables of Chebyshev coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, prod, sqrt
from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi import special_tables as tables
from tilewright.topi.broadcast import broadcast_to
from tilewright.topi.kinds import Step
from tilewright.topi.loops import Loops, loops

__all__ = ["apply", "evaluate"]

FLOAT64: Final = DataType("float64")
INFINITY: Final = float("inf")
NAN: Final = float("nan")


class Arrays:
    """Mathematical operations on numpy arrays of float64."""

    exp, log, sin, cos, tan, sqrt = np.exp, np.log, np.sin, np.cos, np.tan, np.sqrt
    absolute, nearest, power, truncated = np.abs, np.rint, np.power, np.trunc
    where = staticmethod(np.where)
    equal, both, least, most = np.equal, np.logical_and, np.minimum, np.maximum

    def let(self, value: Any) -> Any:
        """Return a value that is used several times."""
        return value

    def repeat(self, count: Any, state: Sequence[Any], step: Callable[..., Sequence[Any]]) -> tuple[Any, ...]:
        """Return the state after `step(k, *state)` for k from 0 to `count` - 1; `count` is a number or an array."""
        for k in range(int(np.max(count, initial=0))):
            state = [np.where(k < count, new, old) for new, old in zip(step(float(k), *state), state, strict=True)]
        return tuple(state)


class Elements:
    """Mathematical operations on one element, as statements of `builder`."""

    exp, log, sin, cos, tan, sqrt = I.exp, I.log, I.sin, I.cos, I.tan, I.sqrt
    absolute, nearest, power, truncated = I.fabs, I.nearbyint, I.pow, I.trunc
    both, least, most = staticmethod(E.logical_and), staticmethod(E.minimum), staticmethod(E.maximum)

    def __init__(self, builder: Loops) -> None:
        self._builder = builder

    def let(self, value: Any) -> Any:
        """Bind a value that is used several times to a variable."""
        return self._builder.let("v", value)

    def where(self, condition: PrimExpr, yes: Any, no: Any) -> Any:
        """Return `yes` where the condition is true, else `no`."""
        return self.let(E.if_then_else(condition, _wide(yes), _wide(no)))

    def equal(self, x: Any, y: Any) -> PrimExpr:
        """Return whether two values are equal."""
        return E.compare(E.EQ, x, _wide(y))

    def repeat(self, count: Any, state: Sequence[Any], step: Callable[..., Sequence[Any]]) -> tuple[Any, ...]:
        """Return the state after `step(k, *state)` for k from 0 to `count` - 1."""
        b = self._builder
        cells = [b.variable("state", FLOAT64, _wide(s)) for s in state]
        with b.for_range(0, E.cast("int64", count) if isinstance(count, PrimExpr) else count, "k") as k:
            held = [self.let(c[0]) for c in cells]
            new = [self.let(_wide(v)) for v in step(E.cast(FLOAT64, k), *held)]
            for cell, value in zip(cells, new, strict=True):
                cell[0] = value
        return tuple(self.let(c[0]) for c in cells)


def _wide(value: Any) -> PrimExpr:
    return value if isinstance(value, PrimExpr) else E.const(float(value), FLOAT64)


Formula = Callable[..., Any]
"""A function `formula(mathematics, *arguments)` on float64 values."""


def evaluate(formula: Formula, *inputs: Any) -> np.ndarray[Any, Any]:
    """Evaluate the formula on arrays that broadcast; the result has the type of the first."""
    with np.errstate(all="ignore"):
        found = formula(Arrays(), *(np.asarray(x, np.float64) for x in inputs))
        return np.asarray(found).astype(inputs[0].dtype)


def apply(name: str, formula: Formula, shape: Sequence[int], *inputs: te.Tensor) -> te.Tensor:
    """Apply the formula to tensors that broadcast to `shape`; the result has the type of the first."""
    whole = [x if tuple(x.extents) == tuple(shape) else broadcast_to(x, tuple(shape)) for x in inputs]
    dtype: DataType = inputs[0].dtype
    total = prod(shape)

    def body(b: Loops, *buffers: BufferVar) -> None:
        if not total:
            return
        with b.shared(total, total, Step.FUNCTION, "element") as at:
            given = [b.let("x", E.cast(FLOAT64, x[at])) for x in buffers[:-1]]
            buffers[-1][at] = E.cast(dtype, _wide(formula(Elements(b), *given)))

    return loops(name, whole, [(tuple(shape), dtype)], body)[0]


def chebyshev(m: Any, table: Sequence[float], x: Any, low: float, high: float) -> Any:
    """Evaluate the Chebyshev series of `table` at `x`, clamped to [low, high], by Clenshaw's recurrence."""
    t = m.let((m.most(m.least(x, high), low) * 2.0 - (low + high)) / (high - low))
    twice = m.let(t * 2.0)
    after, now = table[-1], m.let(t * (2.0 * table[-1]) + table[-2])
    for c in table[-3:0:-1]:
        after, now = now, m.let(twice * now - after + c)
    return m.let(t * now - after + table[0])


# Gamma functions


def _log_gamma_from_half(m: Any, y: Any) -> Any:
    """Return the logarithm of the gamma function above 1/2.

    A table is used up to 3, Stirling's series (5.11.1) from 10, and the recurrence between.
    """
    near = (y - 1.0) * (y - 2.0) * chebyshev(m, tables.LGAMMA, y, 0.5, 3.0)
    small = y < 10.0
    product = y
    for k in range(1, 7):
        product = m.let(product * (y + float(k)))
    z = m.let(m.where(small, y + 7.0, y))
    w = m.let(1.0 / z)
    s = m.let(w * w)
    rest = w * (
        1 / 12 + s * (-1 / 360 + s * (1 / 1260 + s * (-1 / 1680 + s * (1 / 1188 + s * (-691 / 360360 + s / 156)))))
    )
    stirling = z * (m.log(z) - 1.0) - 0.5 * m.log(z) + 0.5 * float(np.log(2 * pi)) + rest
    far = stirling - m.where(small, m.log(m.where(small, product, 1.0)), 0.0)
    return m.where(y <= 3.0, near, far)


def lgamma(m: Any, x: Any) -> Any:
    """Return the logarithm of |Gamma(x)|; by reflection (5.5.3) below 1/2."""
    reflected = x < 0.5
    above = m.let(_log_gamma_from_half(m, m.let(m.where(reflected, 1.0 - x, x))))
    offset = m.let(m.absolute(x - m.nearest(x)))
    found = m.where(reflected, m.log(pi / m.sin(pi * offset)) - above, above)
    return m.where(m.equal(m.absolute(x), INFINITY), INFINITY, found)


def digamma(m: Any, x: Any) -> Any:
    """Return the derivative of log Gamma: the series of 5.11.2 from 10, the recurrence below, reflection (5.5.4) below
    1/2."""
    reflected = x < 0.5
    y = m.let(m.where(reflected, 1.0 - x, x))
    total = 0.0
    for k in range(10):
        total = m.let(1.0 / (y + float(k)) + total)
    z = m.let(y + 10.0)
    s = m.let(1.0 / (z * z))
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))))
    above = m.let(m.log(z) - 0.5 / z - series - total)
    whole = m.nearest(x)
    found = m.where(reflected, above - pi / m.tan(pi * (x - whole)), above)
    found = m.where(m.both(m.equal(x, whole), x < 0.0), NAN, found)
    return m.where(m.equal(x, 0.0), -1.0 / x, found)


_EULER_MACLAURIN: Final = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
    43867 / 5109094217170944000,
    -174611 / 802857662698291200000,
)
"""B(2j) / (2j)! for the Bernoulli numbers B(2j)."""


def _zeta_above_zero(m: Any, x: Any, q: Any) -> Any:
    """Return Hurwitz's zeta function for q > 0 by the Euler-Maclaurin formula (25.11.5).

    Ten terms are summed; the rest is an integral.
    """
    total = m.power(q, -x)
    for k in range(1, 10):
        total = m.let(m.power(q + float(k), -x) + total)
    a = m.let(q + 10.0)
    last = m.let(m.power(a, -x))
    total = m.let(total + last * (a / (x - 1.0) + 0.5))
    rising, scale = m.let(x / a), m.let(1.0 / (a * a))
    for j, b in enumerate(_EULER_MACLAURIN):
        total = m.let(total + last * rising * b)
        rising = m.let(rising * (x + (2 * j + 1.0)) * (x + (2 * j + 2.0)) * scale)
    return total


def zeta(m: Any, x: Any, q: Any) -> Any:
    """Return Hurwitz's zeta function, the sum of (q + k)^-x; for q < 0, its first terms are the difference of two other
    sums.

    It is NaN for x < 1, and for q < 0 with fractional x. It is infinite at x = 1 and at q = 0, -1, -2, ….
    """
    below = q < 0.0
    steps = m.let(m.where(below, -(m.nearest(q - 0.5)), 0.0))
    steps = m.let(m.where(q + steps < 0.0, steps + 1.0, steps))
    rest = m.let(m.where(below, q + steps, q))
    ahead = m.let(1.0 - rest)
    odd = m.let(m.absolute(x - 2.0 * m.nearest(0.5 * x)))
    first = m.let(_zeta_above_zero(m, x, ahead) - _zeta_above_zero(m, x, m.let(ahead + steps)))
    found = _zeta_above_zero(m, x, rest) + m.where(below, m.where(m.equal(odd, 1.0), -first, first), 0.0)
    found = m.where(m.both(below, odd * (1.0 - odd) > 0.0), NAN, found)
    found = m.where(m.both(q <= 0.0, m.equal(q, m.nearest(q))), INFINITY, found)
    found = m.where(m.equal(x, 1.0), INFINITY, found)
    return m.where(x < 1.0, NAN, found)


_SERIES, _FRACTION, _LARGE = 130, 130, 60.0
_NODES, _WEIGHTS = (tuple(map(float, v)) for v in np.polynomial.legendre.leggauss(48))


def _incomplete_gammas(m: Any, a: Any, x: Any) -> tuple[Any, Any]:
    """Return P and Q, the lower and the upper incomplete gamma function divided by Gamma(a), for positive arguments.

    P by its series (8.11.4) below a + 1, Q by the continued fraction (8.9.2) above; from a = 60, both by Gaussian
    quadrature of the density.
    """
    scale = m.let(m.exp(a * m.log(x) - x - lgamma(m, m.let(a + 1.0))))
    _, total = m.repeat(
        _SERIES,
        (1.0 + 0.0 * x, 1.0 + 0.0 * x),
        lambda k, term, total: (term * x / (a + (k + 1.0)), total + term * x / (a + (k + 1.0))),
    )
    below = m.let(scale * total)

    def deeper(k: Any, t: Any) -> tuple[Any]:
        n = _FRACTION - k
        return (n * (n - a) / (x + 2.0 * n + 1.0 - a - t),)

    (tail,) = m.repeat(_FRACTION, (0.0 * x,), deeper)
    above = m.let(scale * a / (x + 1.0 - a - tail))
    v, width = m.let(x / a), m.let(14.0 / m.sqrt(a))
    upper = x >= a
    low = m.let(m.where(upper, v, m.most(v - width, 0.0)))
    half = m.let(m.where(upper, width, v - low) * 0.5)
    area = 0.0 * half
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        u = m.let(low + half * (1.0 + node))
        area = m.let(area + weight * m.exp(a * (m.log(u) - u + 1.0)) / u)
    w = m.let(1.0 / a)
    area = m.let(area * half * m.sqrt(a / (2 * pi)) * m.exp(-w * (1 / 12 - w * w * (1 / 360 - w * w / 1260))))
    large, near = a > _LARGE, x < a + 1.0
    p = m.where(large, m.where(upper, 1.0 - area, area), m.where(near, below, 1.0 - above))
    q = m.where(large, m.where(upper, area, 1.0 - area), m.where(near, 1.0 - below, above))
    return p, q


def _incomplete(m: Any, a: Any, x: Any, which: int) -> Any:
    """Return P or Q, including the values at the edges of the domain.

    These are 0 and 1 at x = 0, at infinity and at a = 0; NaN outside of the domain.
    """
    edge = (0.0, 1.0)[which]
    found = _incomplete_gammas(m, a, x)[which]
    found = m.where(m.equal(x, 0.0), edge, found)
    found = m.where(m.equal(a, INFINITY), edge, found)
    found = m.where(m.equal(x, INFINITY), 1.0 - edge, found)
    found = m.where(m.equal(a, 0.0), 1.0 - edge, found)
    undefined = m.where(m.equal(a, x), m.where(m.equal(a, 0.0), 1.0, m.where(m.equal(a, INFINITY), 1.0, 0.0)), 0.0)
    found = m.where(undefined > 0.0, NAN, found)
    return m.where(m.both(a >= 0.0, x >= 0.0), found, NAN)


def igamma(m: Any, a: Any, x: Any) -> Any:
    """Return the lower incomplete gamma function divided by Gamma(a)."""
    return _incomplete(m, a, x, 0)


def igammac(m: Any, a: Any, x: Any) -> Any:
    """Return the upper incomplete gamma function divided by Gamma(a)."""
    return _incomplete(m, a, x, 1)


# Error functions


def _erfcx_above_zero(m: Any, x: Any) -> Any:
    """Return exp(x^2) erfc(x) for x >= 0, by a table of (x - 3.75) / (x + 3.75) (Shepherd and Laframboise, 1981)."""
    return m.let(chebyshev(m, tables.ERFCX, m.let(1.0 - 7.5 / (x + 3.75)), -1.0, 1.0) / (1.0 + 2.0 * x))


def erfcx(m: Any, x: Any) -> Any:
    """Return exp(x^2) erfc(x)."""
    above = _erfcx_above_zero(m, m.let(m.absolute(x)))
    return m.where(x < 0.0, 2.0 * m.exp(x * x) - above, above)


def erfc(m: Any, x: Any) -> Any:
    """Return 1 - erf(x), with full relative accuracy for small results."""
    above = m.let(_erfcx_above_zero(m, m.let(m.absolute(x))) * m.exp(-(x * x)))
    return m.where(x < 0.0, 2.0 - above, above)


def _log1p(m: Any, x: Any) -> Any:
    u = m.let(1.0 + x)
    return m.where(m.equal(u, 1.0), x, m.log(u) * x / m.where(m.equal(u, 1.0), 1.0, u - 1.0))


def log_ndtr(m: Any, x: Any) -> Any:
    """Return the logarithm of the normal distribution function."""
    z = m.let(x * -sqrt(0.5))
    above = m.let(_erfcx_above_zero(m, m.let(m.absolute(z))))
    half = m.let(0.5 * above * m.exp(-(z * z)))
    near = _log1p(m, m.let(m.where(z < 0.0, -half, half - 1.0)))
    return m.where(x < -1.0, m.log(0.5 * above) - z * z, near)


def _lower_quantile(m: Any, q: Any) -> Any:
    """Return the quantile x <= 0 of the normal distribution for the probability q, 0 < q <= 1/2.

    From an initial estimate (Abramowitz and Stegun, 26.2.23) by three Newton steps on the logarithm of the probability.
    """
    wanted = m.let(m.log(q))
    s = m.let(m.sqrt(-2.0 * wanted))
    x = m.let((2.515517 + s * (0.802853 + s * 0.010328)) / (1.0 + s * (1.432788 + s * (0.189269 + s * 0.001308))) - s)
    for _ in range(3):
        mills = m.let(sqrt(pi / 2) * _erfcx_above_zero(m, m.let(m.most(x * -sqrt(0.5), 0.0))))
        area = m.log(mills) - 0.5 * x * x - 0.5 * float(np.log(2 * pi))
        x = m.let(x - (area - wanted) * mills)
    return x


def ndtri(m: Any, p: Any) -> Any:
    """Return the quantile of the normal distribution for the probability p."""
    upper = p > 0.5
    q = m.let(m.where(upper, 1.0 - p, p))
    x = m.let(m.where(m.equal(q, 0.0), -INFINITY, _lower_quantile(m, q)))
    return m.where(upper, -x, x)


def erfinv(m: Any, y: Any) -> Any:
    """Return x with erf(x) = y: by a table up to 0.75, by the quantile of the normal distribution above."""
    size = m.let(m.absolute(y))
    q = m.let(0.5 - 0.5 * size)
    far = m.let(m.where(m.equal(q, 0.0), INFINITY, _lower_quantile(m, q) * -sqrt(0.5)))
    return m.where(
        size <= 0.75, y * chebyshev(m, tables.ERFINV, m.let(y * y), 0.0, 0.5625), m.where(y < 0.0, -far, far)
    )


# Bessel functions


def _modified(m: Any, x: Any, small: Sequence[float], large: Sequence[float], odd: bool) -> Any:
    """Return exp(-|x|) I(x) by tables: of x up to 8, and of 8 / x above."""
    a = m.let(m.absolute(x))
    high = m.let(m.most(a, 8.0))
    near = chebyshev(m, small, a, 0.0, 8.0) * (a if odd else 1.0)
    found = m.let(m.where(a <= 8.0, near, chebyshev(m, large, m.let(8.0 / high), 0.0, 1.0) / m.sqrt(high)))
    found = m.where(m.equal(a, a), found, NAN)
    return m.where(x < 0.0, -found, found) if odd else found


def i0e(m: Any, x: Any) -> Any:
    """Return exp(-|x|) I0(x), with the modified Bessel function of the first kind."""
    return _modified(m, x, tables.I0_SMALL, tables.I0_LARGE, False)


def i1e(m: Any, x: Any) -> Any:
    """Return exp(-|x|) I1(x), with the modified Bessel function of the first kind."""
    return _modified(m, x, tables.I1_SMALL, tables.I1_LARGE, True)


def _grown(m: Any, x: Any, scaled: Any) -> Any:
    """Return `scaled` times exp(|x|), in two factors so that neither overflows before the product."""
    factor = m.let(m.exp(0.5 * m.absolute(x)))
    return m.where(m.equal(m.absolute(x), INFINITY), x, factor * scaled * factor)


def i0(m: Any, x: Any) -> Any:
    """Return I0(x), the modified Bessel function of the first kind."""
    return _grown(m, m.let(m.absolute(x)), i0e(m, x))


def i1(m: Any, x: Any) -> Any:
    """Return I1(x), the modified Bessel function of the first kind."""
    return _grown(m, x, i1e(m, x))


def _second(m: Any, x: Any, order: int, scaled: bool) -> Any:
    """Return K0 or K1, times exp(x) if `scaled`.

    Up to 2, a Chebyshev series gives the value without its logarithmic part (10.31.1, 10.31.2). Above 2, the series is
    one in 2 / x.
    """
    square, log = m.let(m.least(x * x, 4.0)), m.let(m.log(0.5 * x))
    if order:
        first = x * chebyshev(m, tables.I1_SQUARE, square, 0.0, 4.0)
        near = log * first + chebyshev(m, tables.K1_SMALL, square, 0.0, 4.0) / x
    else:
        near = chebyshev(m, tables.K0_SMALL, square, 0.0, 4.0) - log * chebyshev(m, tables.I0_SQUARE, square, 0.0, 4.0)
    high = m.let(m.most(x, 2.0))
    far = chebyshev(m, (tables.K0_LARGE, tables.K1_LARGE)[order], m.let(2.0 / high), 0.0, 1.0) / m.sqrt(high)
    low = m.let(m.least(x, 2.0))
    found = m.where(x <= 2.0, near * m.exp(low) if scaled else near, far if scaled else far * m.exp(-x))
    found = m.where(m.equal(x, 0.0), INFINITY, found)
    return m.where(x >= 0.0, found, NAN)


def k0(m: Any, x: Any) -> Any:
    """Return K0(x), the modified Bessel function of the second kind."""
    return _second(m, x, 0, False)


def k1(m: Any, x: Any) -> Any:
    """Return K1(x), the modified Bessel function of the second kind."""
    return _second(m, x, 1, False)


def k0e(m: Any, x: Any) -> Any:
    """Return exp(x) K0(x)."""
    return _second(m, x, 0, True)


def k1e(m: Any, x: Any) -> Any:
    """Return exp(x) K1(x)."""
    return _second(m, x, 1, True)


def _wave(m: Any, a: Any, order: int, second: bool) -> Any:
    """Return J or Y above 8, from the parts P and Q of Hankel's expansion (10.17.3, 10.17.4)."""
    high = m.let(m.most(a, 8.0))
    ratio = m.let(8.0 / high)
    square = m.let(ratio * ratio)
    p = chebyshev(m, (tables.P0, tables.P1)[order], square, 0.0, 1.0)
    q = m.let(chebyshev(m, (tables.Q0, tables.Q1)[order], square, 0.0, 1.0) / high)
    turned = m.let(high - (2 * order + 1) * pi / 4)
    s, c = m.let(m.sin(turned)), m.let(m.cos(turned))
    found = (p * s + q * c if second else p * c - q * s) * m.sqrt(2 / (pi * high))
    return m.where(m.equal(high, INFINITY), 0.0, found)


def j0(m: Any, x: Any) -> Any:
    """Return J0(x), the Bessel function of the first kind."""
    a = m.let(m.absolute(x))
    found = m.where(a <= 8.0, chebyshev(m, tables.J0_SMALL, m.let(a * a), 0.0, 64.0), _wave(m, a, 0, False))
    return m.where(m.equal(a, a), found, NAN)


def j1(m: Any, x: Any) -> Any:
    """Return J1(x), the Bessel function of the first kind."""
    a = m.let(m.absolute(x))
    found = m.let(m.where(a <= 8.0, a * chebyshev(m, tables.J1_SMALL, m.let(a * a), 0.0, 64.0), _wave(m, a, 1, False)))
    found = m.where(m.equal(a, a), found, NAN)
    return m.where(x < 0.0, -found, found)


def y0(m: Any, x: Any) -> Any:
    """Return Y0(x), the Bessel function of the second kind."""
    square = m.let(x * x)
    near = chebyshev(m, tables.Y0_SMALL, square, 0.0, 64.0) + 2 / pi * m.log(x) * chebyshev(
        m, tables.J0_SMALL, square, 0.0, 64.0
    )
    return m.where(x >= 0.0, m.where(x <= 8.0, near, _wave(m, x, 0, True)), NAN)


def y1(m: Any, x: Any) -> Any:
    """Return Y1(x), the Bessel function of the second kind."""
    square = m.let(x * x)
    first = x * chebyshev(m, tables.J1_SMALL, square, 0.0, 64.0)
    near = x * chebyshev(m, tables.Y1_SMALL, square, 0.0, 64.0) + 2 / pi * (m.log(x) * first - 1.0 / x)
    found = m.where(x <= 8.0, near, _wave(m, x, 1, True))
    found = m.where(m.equal(x, 0.0), -INFINITY, found)
    return m.where(x >= 0.0, found, NAN)


def spherical_j0(m: Any, x: Any) -> Any:
    """Return sin(x) / x, the spherical Bessel function of the first kind."""
    found = m.where(m.equal(x, 0.0), 1.0, m.sin(x) / x)
    return m.where(m.equal(m.absolute(x), INFINITY), 0.0, found)


def airy(m: Any, x: Any) -> Any:
    """Return Ai(x): a table from -4 to 2, the expansions of 9.7.5 and 9.7.9 beyond."""
    a = m.let(m.absolute(x))
    high, deep = m.let(m.most(a, 2.0)), m.let(m.most(a, 4.0))
    z, root = m.let(2 / 3 * high * m.sqrt(high)), m.let(m.sqrt(m.sqrt(high)))
    above = chebyshev(m, tables.AIRY_POSITIVE, m.let(1.0 / z), 0.0, _Z_AT_2) * m.exp(-z) / root
    w = m.let(2 / 3 * deep * m.sqrt(deep))
    square = m.let(1.0 / (w * w))
    turned = m.let(w + pi / 4)
    p = chebyshev(m, tables.AIRY_P, square, 0.0, _Z_AT_4)
    q = chebyshev(m, tables.AIRY_Q, square, 0.0, _Z_AT_4) / w
    below = (p * m.sin(turned) - q * m.cos(turned)) / (sqrt(pi) * m.sqrt(m.sqrt(deep)))
    found = m.where(x > 2.0, above, m.where(x < -4.0, below, chebyshev(m, tables.AIRY_MIDDLE, x, -4.0, 2.0)))
    return m.where(m.equal(x, x), m.where(m.equal(x, -INFINITY), 0.0, found), NAN)


_Z_AT_2: Final = 1 / (2 / 3 * 2**1.5)
_Z_AT_4: Final = 1 / (2 / 3 * 4**1.5) ** 2

# Orthogonal polynomials

MAX_DEGREE: Final = 10_000
"""Largest degree of computed polynomials."""

Recurrence = tuple[Callable[[Any], Any], Callable[[Any, Any], tuple[Any, Any]]]
"""The polynomial of degree 1 at x, and the factors a and c, from x and k, of p(k + 1) = a p(k) - c p(k - 1)."""


def _chebyshev_kind(first: Callable[[Any], Any]) -> Recurrence:
    return first, lambda x, k: (2.0 * x, 1.0)


def _shifted(recurrence: Recurrence) -> Recurrence:
    first, factors = recurrence
    return lambda x: first(2.0 * x - 1.0), lambda x, k: factors(2.0 * x - 1.0, k)


_KINDS: Final[dict[str, Recurrence]] = {
    "t": _chebyshev_kind(lambda x: x),
    "u": _chebyshev_kind(lambda x: 2.0 * x),
    "v": _chebyshev_kind(lambda x: 2.0 * x - 1.0),
    "w": _chebyshev_kind(lambda x: 2.0 * x + 1.0),
}
POLYNOMIALS: Final[dict[str, Recurrence]] = {
    **{f"chebyshev_{k}": r for k, r in _KINDS.items()},
    **{f"shifted_chebyshev_{k}": _shifted(r) for k, r in _KINDS.items()},
    "hermite_h": (lambda x: 2.0 * x, lambda x, k: (2.0 * x, 2.0 * k)),
    "hermite_he": (lambda x: x, lambda x, k: (x, k)),
    "laguerre_l": (lambda x: 1.0 - x, lambda x, k: ((2.0 * k + 1.0 - x) / (k + 1.0), k / (k + 1.0))),
    "legendre_p": (lambda x: x, lambda x, k: ((2.0 * k + 1.0) * x / (k + 1.0), k / (k + 1.0))),
}
"""The recurrences of 18.9, by family."""


def polynomial(family: str) -> Formula:
    """Return the formula of a family of polynomials, a function of x and the degree n.

    The result is zero for negative n, and NaN above `MAX_DEGREE`.
    """
    first, factors = POLYNOMIALS[family]

    def formula(m: Any, x: Any, n: Any) -> Any:
        degree = m.let(m.truncated(n))
        count = m.let(m.most(m.least(degree - 1.0, float(MAX_DEGREE)), 0.0))
        count = m.let(m.where(m.equal(degree, degree), count, 0.0))

        def step(k: Any, before: Any, now: Any) -> tuple[Any, Any]:
            a, c = factors(x, k + 1.0)
            return now, m.where(m.absolute(now) < INFINITY, a * now - c * before, now)

        _, found = m.repeat(count, (1.0 + 0.0 * x, first(x)), step)
        found = m.where(m.equal(degree, 0.0), 1.0, m.where(degree < 0.0, 0.0, found))
        return m.where(degree <= float(MAX_DEGREE), found, NAN)

    return formula
