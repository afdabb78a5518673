"""Memory requirements of a tensor on a device: bytes, alignment, scope. Allocation and binding of buffers use them on
both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import DataType

HOST_SCOPE: Final = "global"
"""The memory scope of the host, which holds the tensors of programs."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory for a dense row-major tensor of this shape and dtype, aligned to `alignment` bytes, in `scope`.

    Raises `OptionError` for dynamic sizes, dtypes without a memory layout, and alignments that are not powers of two.
    """

    shape: tuple[int, ...]
    dtype: DataType
    scope: str = HOST_SCOPE
    alignment: int = 64

    def __post_init__(self) -> None:
        if not all(isinstance(n, int) and n >= 0 for n in self.shape):
            raise OptionError(
                f"a tensor of shape {self.shape} has no size in memory; each dimension must be a number from 0",
                code="TW0209")
        if self.dtype.is_object or self.dtype.code in ("void", "handle"):
            raise OptionError(
                f"a tensor of {self.dtype} cannot be placed in device memory; convert it to numbers "
                "first", code="TW0209")
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise OptionError(f"an alignment of {self.alignment} bytes is not a power of two", code="TW0209")

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; dtypes of fewer than 8 bits take one byte per element."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def allocated(self) -> int:
        """Bytes to allocate: a positive multiple of `alignment`."""
        return max(1, -(-self.nbytes // self.alignment)) * self.alignment

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbouring elements, for each axis."""
        return tuple(math.prod(self.shape[k + 1 :]) * self.dtype.itemsize for k in range(len(self.shape)))

    def holds(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether an array satisfies these requirements, so that it need not be copied; an empty array always does."""
        place: int = array.__array_interface__["data"][0]
        same = self.scope == HOST_SCOPE and array.shape == self.shape and array.dtype == self.dtype.numpy()
        return same and bool(array.flags.c_contiguous) and (array.size == 0 or place % self.alignment == 0)


def memory_of(array: Any, scope: str = HOST_SCOPE, alignment: int = 64) -> DeviceMemory:
    """Return the memory requirements of a tensor, which is any object with `shape` and `dtype`."""
    return DeviceMemory(tuple(map(int, array.shape)), DataType(array.dtype), scope, alignment)
