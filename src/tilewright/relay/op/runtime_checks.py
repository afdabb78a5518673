"""Conditions on values that are checked at run time; a violation ends the run with a message."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.base.errors import RunError, ShapeError
from tilewright.base.types import INT32, TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.topi.elementwise import elementwise
from tilewright.topi.outside import outside
from tilewright.topi.shapes import text


@op("outside", kind=Fusion.OPAQUE)
class Outside(Op):
    """1 if an element of `indices` lies outside of [-size, size), or of [0, size) without `negative`, else 0: an int32
    scalar.
    """

    precision = Precision.NEVER
    sizes: tuple[int, ...]
    """Size of the indexed dimension: one for all, or one for each position along the last dimension."""
    negative: bool = True
    """True allows indices from -size on."""

    def infer(self, indices: Type) -> TensorType:
        """A scalar of int32; the indices are integer."""
        (t,) = tensors(indices)
        if not t.dtype.is_integer:
            raise ShapeError(f"indices must be integers, and they are {t.dtype}; cast them first")
        if len(self.sizes) != 1 and (not t.ndim or t.shape[-1] != len(self.sizes)):
            raise ShapeError(f"sizes {self.sizes} are given for indices {text(t.shape)}; give one, or one for each "
                             "element of the last dimension")
        return TensorType((), INT32)

    def reference(self, indices: Array) -> Array:
        sizes = np.asarray(self.sizes, np.int64)
        return np.asarray(np.any((indices < (-sizes if self.negative else 0)) | (indices >= sizes)), np.int32)

    def compute(self, indices: te.Tensor) -> te.Tensor:
        return outside(indices, self.sizes, self.negative)


@op("require_zero", kind=Fusion.ELEMWISE)
class RequireZero(Op):
    """`data`. Where the int32 scalar `faults` is not zero, the run ends with a `RunError` of the text `message`."""

    precision = Precision.NEVER
    message: str
    """Text of the `RunError`."""

    def infer(self, data: Type, faults: Type) -> TensorType:
        """The type of the data; `faults` is a scalar of int32."""
        t, count = tensors(data, faults)
        if count.dtype is not INT32 or count.ndim:
            raise ShapeError(f"faults must be an int32 scalar, but it is {count}")
        return t

    def reference(self, data: Array, faults: Array) -> Array:
        if faults:
            raise RunError(self.message, code="TW0713")
        return data

    def compute(self, data: te.Tensor, faults: te.Tensor) -> te.Tensor:
        """`data` itself: the program checks `faults` before it calls the kernel that contains this."""
        return elementwise(data, lambda x: x, "require_zero")
