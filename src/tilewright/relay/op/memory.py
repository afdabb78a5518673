"""Blocks of memory as values, tensors inside them, and ends of lifetimes, as in programs of TVM's virtual machine.

    let %block = memory.alloc_storage(1024i64, 64i64, virtual_device=meta[VirtualDevice][0]);
    memory.alloc_tensor(%block, 0i64, %shape, const_shape=[3, 2])

Compiled programs plan their memory themselves, so no pass inserts the first two. Passes keep and place them, and the
interpreter runs them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.errors import ShapeError
from tilewright.base.types import DataType, GlobalTypeVar, TensorType, TupleType, Type, TypeCall
from tilewright.ir.virtual_device import FREE, VirtualDevice, virtual_device
from tilewright.relay.expr import Call, Constant, Expr, Tuple
from tilewright.relay.op.registry import Array, Fusion, Op, as_relay, op, public_function, tensors
from tilewright.scalar.expr import UnknownDim
from tilewright.topi.shapes import text

STORAGE: Final = TypeCall(GlobalTypeVar("Storage"), ())
"""The type of a block of memory, which `core.rly` defines."""


@op("memory.alloc_storage", kind=Fusion.OPAQUE)
class AllocStorage(Op):
    """A new block of `size` bytes at a multiple of `alignment`, two integers that the host has."""

    on_host: ClassVar[tuple[int, ...]] = (0, 1)
    dtype: str = "float32"
    """Type of most elements that the block will have."""
    virtual_device: VirtualDevice = FREE
    """Device of the block: a `VirtualDevice`, a device, or its name "kind:index"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "virtual_device", virtual_device(self.virtual_device))

    def infer(self, size: Type, alignment: Type) -> TypeCall:
        """The type `Storage`."""
        for name, t in zip(("size", "alignment"), tensors(size, alignment), strict=True):
            _check_integer(name, t)
        return STORAGE

    def reference(self, size: Array, alignment: Array) -> Array:
        return np.zeros(int(size), "uint8")


@op("memory.alloc_tensor", kind=Fusion.OPAQUE)
class AllocTensor(Op):
    """A tensor in the block `storage`, from the byte `offset` on. Its sizes are the vector `shape`, which the host has.
    """

    on_host: ClassVar[tuple[int, ...]] = (1, 2)
    objects = True
    dtype: str = "float32"
    """Type of the elements."""
    const_shape: tuple[int, ...] | None = None
    """The sizes, where they are known."""
    assert_shape: tuple[int, ...] = ()
    """The sizes of the result, if they are not those of `shape`, such as those of a padded tensor."""

    def __post_init__(self) -> None:
        if isinstance(self.const_shape, Constant):
            object.__setattr__(self, "const_shape", tuple(map(int, np.ravel(self.const_shape.value))))

    def infer(self, storage: Type, offset: Type, shape: Type) -> TensorType:
        """`assert_shape`, else `const_shape`, else one unknown size for each element of `shape`."""
        if storage != STORAGE:
            raise ShapeError(f"storage must be of the type {STORAGE!r}, and it is {storage!r}")
        place, sizes = tensors(offset, shape)
        _check_integer("offset", place)
        if sizes.ndim != 1 or not sizes.dtype.is_integer or not isinstance(sizes.shape[0], int):
            raise ShapeError(f"shape must be a vector of a known number of integers, and it is {sizes!r}")
        known = self.const_shape
        if known is not None and len(known) != sizes.shape[0]:
            raise ShapeError(f"shape has {sizes.shape[0]} elements, and const_shape is {text(known)}")
        if self.assert_shape or known is not None:
            return TensorType(self.assert_shape or known or (), DataType(self.dtype))
        return TensorType([UnknownDim() for _ in range(sizes.shape[0])], DataType(self.dtype))

    def reference(self, storage: Array, offset: Array, shape: Array) -> Array:
        kind, sizes = DataType(self.dtype).numpy(), self.assert_shape or tuple(map(int, shape))
        first = int(offset)
        return storage[first : first + int(np.prod(sizes, dtype=np.int64)) * kind.itemsize].view(kind).reshape(sizes)


@op("memory.kill", kind=Fusion.OPAQUE)
class MemoryKill(Op):
    """An empty tuple. It marks the end of the lifetime of `data`; `ManifestLifetimes` inserts it."""

    objects = True
    kept = True

    def infer(self, data: Type) -> TupleType:
        """The empty tuple, for data of any type."""
        return TupleType(())

    def reference(self, data: Any) -> tuple[()]:
        return ()

    def simplify(self, call: Call) -> Expr | None:
        """The empty tuple, because compiled programs plan the memory themselves."""
        return Tuple(())


def _check_integer(name: str, t: TensorType) -> None:
    if t.ndim != 0 or not t.dtype.is_integer:
        raise ShapeError(f"{name} must be one integer, and it is {t!r}")


def alloc_storage(size: Any, alignment: Any, virtual_device: Any, dtype_hint: str = "float32") -> Call:
    """Return a call that makes a block of memory: numbers or expressions, and the block's device."""
    return AllocStorage(dtype_hint, virtual_device)(size, alignment)


def alloc_tensor(
    storage: Expr, offset: Any, shape: Any, dtype: str = "float32", assert_shape: tuple[int, ...] = ()
) -> Call:
    """Return a call that makes a tensor in a block of memory. The sizes are known if `shape` is a constant."""
    sizes = as_relay(np.asarray(shape, "int64") if isinstance(shape, (tuple, list)) else shape)
    known = tuple(map(int, np.ravel(sizes.value))) if isinstance(sizes, Constant) else None
    return AllocTensor(dtype, known, assert_shape or ())(storage, offset, sizes)


def __getattr__(name: str) -> Any:
    """Return the function of an operator of memory by its name."""
    return public_function("memory." + name, __name__)
