"""Faster elementary functions with bounded errors, which the pass `FastMath` substitutes."""

from __future__ import annotations

from typing import Final

from tilewright.relay.op.elementwise import Erf, Exp, FloatFunction, Tanh
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.registry import Fusion, Op, Precision, op
from tilewright.scalar import intrinsics as I


@op("fast_exp", kind=Fusion.ELEMWISE)
class FastExp(FloatFunction):
    """e to the power x, with an error of at most 1 ulp of float32."""

    precision = Precision.NEVER
    intrinsic = I.exp


@op("fast_tanh", kind=Fusion.ELEMWISE)
class FastTanh(FloatFunction):
    """The hyperbolic tangent, with an error of at most 2.5 ulp of float32."""

    precision = Precision.FOLLOW
    intrinsic = I.tanh


@op("fast_erf", kind=Fusion.ELEMWISE)
class FastErf(FloatFunction):
    """The error function, with an error of at most 2 ulp of float32."""

    precision = Precision.NEVER
    intrinsic = I.erf


@op("nn.fast_softmax", kind=Fusion.OUT_FUSABLE)
class FastSoftmax(Softmax):
    """`nn.softmax` computed with `fast_exp`."""

APPROXIMATIONS: Final[dict[type[Op], type[Op]]] = {Exp: FastExp, Tanh: FastTanh, Erf: FastErf, Softmax: FastSoftmax}
"""By class of operator, what stands for it when speed counts more than the last bits."""
