"""Complex numbers as pairs of floats, and back. All other operators compute with the parts."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors

_PARTS: Final = {"complex64": "float32", "complex128": "float64"}
_WHOLE: Final = {part: whole for whole, part in _PARTS.items()}


@op("complex_parts", kind=Fusion.OPAQUE)
class ComplexParts(Op):
    """The real and the imaginary parts of complex numbers, along a new last dimension."""

    def infer(self, data: Type) -> TensorType:
        """(*shape, 2); float32 for complex64, float64 for complex128."""
        (t,) = tensors(data)
        if t.dtype not in _PARTS:
            raise ShapeError(f"data must be of {' or '.join(_PARTS)}, and it is of {t.dtype}")
        return TensorType((*t.shape, 2), _PARTS[t.dtype])

    def reference(self, data: Array) -> Array:
        return np.stack([data.real, data.imag], axis=-1)


@op("complex_of_parts", kind=Fusion.OPAQUE)
class ComplexOfParts(Op):
    """Complex numbers made of their real and imaginary parts, which lie along the last dimension."""

    def infer(self, data: Type) -> TensorType:
        """The shape without its last dimension, which must be 2; complex64 for float32, complex128 for float64."""
        (t,) = tensors(data)
        if t.dtype not in _WHOLE or not t.ndim or t.shape[-1] != 2:
            raise ShapeError(f"data must be pairs of {' or '.join(_WHOLE)} along its last dimension, and it is {t!r}")
        return TensorType(t.shape[:-1], _WHOLE[t.dtype])

    def reference(self, data: Array) -> Array:
        whole = DataType(_WHOLE[data.dtype.name]).numpy()
        return np.ascontiguousarray(data).view(whole).reshape(data.shape[:-1])
