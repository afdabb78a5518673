"""Quantization parameters of values: `TensorAffineType`, and `TupleAffineType` for a tuple of tensors.

    TensorAffineType(relay.const(0.5), relay.const(3), "int8")     the integers q are worth 0.5 * (q - 3)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class AffineType:
    """Base of the quantization parameters."""


@dataclass(frozen=True, eq=False)
class TensorAffineType(AffineType):
    """`scale` (float32) and `zero_point` (int32) of integers of `dtype`, expressions of Relay.

    They are scalars, or vectors with one element for each index of `axis`.
    """

    scale: Any
    zero_point: Any
    dtype: str
    axis: int = -1


@dataclass(frozen=True, eq=False)
class TupleAffineType(AffineType):
    """The parameters of each tensor of a tuple."""

    types: Sequence[TensorAffineType]
