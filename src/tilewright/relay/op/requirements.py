"""What must hold of values while a program runs: where it does not, the run ends with a message."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.base.errors import RunError, ShapeError
from tilewright.base.types import INT32, TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.topi.elementwise import elementwise
from tilewright.topi.outside import outside
from tilewright.topi.shapes import text


@op("outside", kind=Fusion.OPAQUE, takes_open_sizes=True)
class Outside(Op):
    """1 where an element of `indices` is outside of [-size, size), else 0: int32 without dimensions.

    `sizes` is one number for all, or one for each place along the last dimension. Without `negative`, elements below zero are outside.
    """

    precision = Precision.NEVER
    sizes: tuple[int, ...]
    negative: bool = True

    def infer(self, indices: Type) -> TensorType:
        (t,) = tensors(indices)
        if not t.dtype.is_integer:
            raise ShapeError(f"indices must be integers, and they are {t.dtype}; cast them first")
        if len(self.sizes) != 1 and (not t.ndim or t.shape[-1] != len(self.sizes)):
            raise ShapeError(f"sizes {self.sizes} are given for indices {text(t.shape)}; give one, or one for each place along the last dimension")
        return TensorType((), INT32)

    def reference(self, indices: Array) -> Array:
        sizes = np.asarray(self.sizes, np.int64)
        return np.asarray(np.any((indices < (-sizes if self.negative else 0)) | (indices >= sizes)), np.int32)

    def compute(self, indices: te.Tensor) -> te.Tensor:
        return outside(indices, self.sizes, self.negative)


@op("require_zero", kind=Fusion.ELEMWISE, takes_open_sizes=True)
class RequireZero(Op):
    """`data`, provided that `faults`, an int32 without dimensions, is zero; elsewhere the run ends with a `RunError` that says `message`."""

    precision = Precision.NEVER
    message: str

    def infer(self, data: Type, faults: Type) -> TensorType:
        t, count = tensors(data, faults)
        if count.dtype is not INT32 or count.ndim:
            raise ShapeError(f"faults must be an int32 without dimensions, and it is {count}")
        return t

    def reference(self, data: Array, faults: Array) -> Array:
        if faults:
            raise RunError(self.message, code="TW0713")
        return data

    def compute(self, data: te.Tensor, faults: te.Tensor) -> te.Tensor:
        """`data` itself: the program looks at `faults` before it calls the kernel that this is in."""
        return elementwise(data, lambda x: x, "require_zero")
