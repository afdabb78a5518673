"""The methods of buffers that scripts use: addresses, elements as vectors, and places in memory (`addresses.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tilewright.base.plugins import Hook
from tilewright.base.scriptable import Scriptable
from tilewright.base.types import DataType

if TYPE_CHECKING:
    from tilewright.scalar.expr_nodes import Buffer, PrimExpr, Value

store_at: Final[Hook[..., Any]] = Hook("tilewright.tir.buffers")
"""Returns the statement that stores a scalar or a vector: `store_at(buffer, begin, value)`."""


class BufferAccess(Scriptable):
    """Base of buffers."""

    __slots__ = ()

    READ: ClassVar = 1
    WRITE: ClassVar = 2

    def same_as(self, other: object) -> bool:
        """Return whether both are the same buffer."""
        return self is other

    def access_ptr(
        self, access_mask: str | int = "rw", ptr_type: str = "handle", content_lanes: int = 1, offset: Value = 0,
        extent: Value | None = None,
    ) -> PrimExpr:
        """Return the address of the buffer from `offset` elements on, for a function that reads (`r`) or writes (`w`)
        it, `extent` elements of it if that is given."""
        from tilewright.scalar.addresses import address_for

        return address_for(self, access_mask, offset)  # type: ignore[arg-type]

    @property
    def data(self) -> PrimExpr:
        """The address of the buffer, for a function that reads or writes it."""
        from tilewright.scalar.addresses import address

        return address(self)  # type: ignore[arg-type]

    def vload(self, begin: Any, dtype: str | DataType | None = None) -> PrimExpr:
        """Return the element at `begin`; for a vector type, a vector along the last dimension."""
        from tilewright.scalar.addresses import load_at

        return load_at(self, begin, dtype)  # type: ignore[arg-type]

    def vstore(self, begin: Any, value: Value) -> Any:
        """Return a statement that stores `value`, a scalar or a vector along the last dimension, at `begin`."""
        return store_at(self, begin, value)

    def offset_of(self, indices: Sequence[Value]) -> list[PrimExpr]:
        """Return the place of the element at `indices`, in elements from the address: one number for each dimension of
        the memory, which has one unless `axis_separators` are given. Raises `CompileError` for another number of
        indices."""
        from tilewright.scalar.addresses import offset_of

        return offset_of(self, indices)  # type: ignore[arg-type]

    def get_flattened_buffer(self) -> Buffer:
        """Return the memory as a buffer with one dimension, or with one for each part between `axis_separators`; the
        buffer itself if it has these dimensions already."""
        from tilewright.scalar.addresses import flattened

        return flattened(self)  # type: ignore[arg-type]
