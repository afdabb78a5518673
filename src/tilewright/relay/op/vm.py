"""Operators of TVM's virtual machine that programs may contain: forms of `shape_of` and `reshape` whose shapes are on
the host, as `PlanDevices` places them."""

from __future__ import annotations

from typing import Any, ClassVar

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.create import ShapeOf
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, public_function, tensors
from tilewright.relay.op.shaping import sized
from tilewright.topi import transform as topi
from tilewright.topi.shapes import require_elements, text


@op("vm.shape_of", kind=Fusion.OPAQUE)
class VmShapeOf(ShapeOf):
    """The shape of a tensor, as a vector on the host."""

    on_host: ClassVar[tuple[int, ...]] = (-1,)
    dtype: str = "int64"
    """Type of the result."""


@op("vm.reshape_tensor", kind=Fusion.OPAQUE)
class VmReshapeTensor(Op):
    """The elements of `data` in row-major order as a tensor of the sizes `newshape`, which `shape` has on the host."""

    precision = Precision.FOLLOW
    on_host: ClassVar[tuple[int, ...]] = (1,)
    newshape: tuple[int, ...]
    """Sizes of the result."""

    def infer(self, data: Type, shape: Type) -> TensorType:
        """`newshape`; the dtype of the data. `shape` is a vector with an integer for each size."""
        t, sizes = tensors(data, shape)
        if sizes.ndim != 1 or not sizes.dtype.is_integer or (
                isinstance(sizes.shape[0], int) and sizes.shape[0] != len(self.newshape)):
            raise ShapeError(f"shape must be a vector of {len(self.newshape)} integers, and it is {sizes!r}; newshape "
                             f"is {text(self.newshape)}")
        return TensorType(require_elements(t.shape, self.newshape, self.newshape), t.dtype)

    def reference(self, data: Array, shape: Array) -> Array:
        return data.reshape(self.newshape)

    def compute(self, data: te.Tensor, shape: te.Tensor) -> te.Tensor:
        return topi.reshape(data, self.newshape, "reshape_tensor")

    def simplify(self, call: Call) -> Expr | None:
        """The reshape without the tensor of the shape."""
        return sized(call.tensor_type.shape)(call.args[0], span=call.span)


def __getattr__(name: str) -> Any:
    """Return the function of an operator of the virtual machine by its name."""
    return public_function("vm." + name, __name__)
