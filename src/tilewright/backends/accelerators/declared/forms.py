"""The forms of operators in a graph: a pattern, the properties of a match, and random programs for tests.

Quantized forms are those after `relay.qnn.transform.Unify`: sums of products with a bias, requantized, clipped if an
activation has narrower bounds than the dtype, with padding before convolutions. Accelerators derive other forms from
`Form`.
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
