"""Faster elementary functions with bounded errors, which the pass `FastMath` substitutes."""

from __future__ import annotations

from typing import Final

from tilewright.relay.op.elementwise import Erf, Exp, FloatFunction, Tanh
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.registry import Fusion, Op, Precision, declare, op
from tilewright.scalar import intrinsics as I

FastExp = declare(
    FloatFunction, "fast_exp", Fusion.ELEMWISE,
    "e to the power x, with an error of at most 1 ulp of float32.",
    intrinsic=I.exp, precision=Precision.NEVER)
FastTanh = declare(
    FloatFunction, "fast_tanh", Fusion.ELEMWISE,
    "The hyperbolic tangent, with an error of at most 2.5 ulp of float32.",
    intrinsic=I.tanh, precision=Precision.FOLLOW)
FastErf = declare(
    FloatFunction, "fast_erf", Fusion.ELEMWISE,
    "The error function, with an error of at most 2 ulp of float32.",
    intrinsic=I.erf, precision=Precision.NEVER)


@op("nn.fast_softmax", kind=Fusion.OUT_FUSABLE)
class FastSoftmax(Softmax):
    """`nn.softmax` computed with `fast_exp`."""


APPROXIMATIONS: Final[dict[type[Op], type[Op]]] = {Exp: FastExp, Tanh: FastTanh, Erf: FastErf, Softmax: FastSoftmax}
"""The approximation of each class of operator."""
