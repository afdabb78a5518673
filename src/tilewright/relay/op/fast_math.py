"""The approximations of functions of real numbers: what `FastMath` puts in their place.

The kernels of `exp`, `tanh`, `erf` and `nn.softmax` are polynomials and quotients of polynomials already, off by few units in the
last place of float32 (`tir/transform/lower_math.py`: exp by 1, erf by 2, tanh by 2.5); the fast operators have the same kernels and the same meaning.
They exist for programs that name them.
"""

from __future__ import annotations

from typing import Final

from tilewright.relay.op.elementwise import Erf, Exp, FloatFunction, Tanh
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.registry import Fusion, Op, Precision, op
from tilewright.scalar import intrinsics as I


@op("fast_exp", kind=Fusion.ELEMWISE)
class FastExp(FloatFunction):
    """e to the power x, off by at most 1 unit in the last place of float32."""

    precision = Precision.NEVER
    intrinsic = I.exp


@op("fast_tanh", kind=Fusion.ELEMWISE)
class FastTanh(FloatFunction):
    """The hyperbolic tangent, off by at most 2.5 units in the last place of float32."""

    precision = Precision.FOLLOW
    intrinsic = I.tanh


@op("fast_erf", kind=Fusion.ELEMWISE)
class FastErf(FloatFunction):
    """The error function, off by at most 2 units in the last place of float32."""

    precision = Precision.NEVER
    intrinsic = I.erf


@op("nn.fast_softmax", kind=Fusion.OUT_FUSABLE)
class FastSoftmax(Softmax):
    """exp(x - max(x)) / sum(exp(x - max(x))) along `axis`, with `fast_exp`."""

    axis: int = -1


APPROXIMATIONS: Final[dict[type[Op], type[Op]]] = {Exp: FastExp, Tanh: FastTanh, Erf: FastErf, Softmax: FastSoftmax}
"""By class of operator, what stands for it when speed counts more than the last bits."""
