"""The forms that operators have in a graph: a pattern, what is read of a match, and random programs of it for tests.

Quantized ones are those that `relay.qnn.transform.Unify` leaves: sums of products with a bias, requantized, clipped
where an activation is narrower than the type, padding before convolutions. An accelerator that wants another form
derives from `Form`.
"""

from __future__ import annotations

from tilewright.backends.accelerators.declared.float_forms import float_add, float_conv2d, float_dense, relu
from tilewright.backends.accelerators.declared.matches import Form, Match, Reading
from tilewright.backends.accelerators.declared.quantized_forms import (
    add,
    avg_pool2d,
    concatenate,
    conv2d,
    dense,
    max_pool2d,
    pad,
    requantize,
    reshape,
)

__all__ = [
    "Form", "Match", "Reading", "add", "avg_pool2d", "concatenate", "conv2d", "dense", "float_add", "float_conv2d",
    "float_dense", "max_pool2d", "pad", "relu", "requantize", "reshape",
]
