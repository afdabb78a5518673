"""Reads the tables of a flatbuffer as dictionaries, and checks every offset, length and size before using it.

The file is not trusted. A table or vector outside the file raises `ModelError`. Vectors of numbers are views of the
file, so a length never allocates memory. Shared tables are read only once, so the elements read never outnumber the
file's bytes.

Source: https://flatbuffers.dev/internals
"""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.relay.frontend.tflite.schema import SCALARS, TABLES, UNIONS, Field

_NUMPY: Final = {"i8": "i1", "u8": "u1", "bool": "u1", "u16": "<u2", "i32": "<i4", "u32": "<u4", "i64": "<i8",
                 "u64": "<u8", "f32": "<f4"}
_READERS: Final = {kind: struct.Struct("<" + letter) for kind, letter in SCALARS.items()}
_U16: Final = struct.Struct("<H")
_I32: Final = struct.Struct("<i")
_U32: Final = struct.Struct("<I")
_WORD: Final = 4
"""Size of an offset or length, in bytes."""


class Flatbuffer:
    """The bytes of one file, and the tables already read from it."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self._read: dict[tuple[str, int], Any] = {}
        self._left = len(data)

    def root(self, kind: str) -> dict[str, Any]:
        """Read the root table."""
        return self._table(kind, self._target(0))

    def refuse(self, what: str) -> NoReturn:
        """Raise the `ModelError` for a damaged file."""
        raise ModelError(f"{self.name} is not a valid TFLite model: {what}; the file is damaged or truncated: download "
                         "or convert it again", code="TW0103")

    def _table(self, kind: str, at: int) -> dict[str, Any]:
        known = self._read.get((kind, at))
        if known is not None:
            return known  # type: ignore[no-any-return]
        self._spend(1)
        size = len(self.data)
        vtable = at - self._number(_I32, at, f"a table of {kind}")
        entries = self._number(_U16, vtable, f"the fields of a {kind}") - _WORD
        width = self._number(_U16, vtable + 2, f"the fields of a {kind}")
        if entries < 0 or entries % 2 or vtable + _WORD + entries > size or width < _WORD or at + width > size:
            self.refuse(f"the {kind} at byte {at} does not fit in its {size} bytes")
        found: dict[str, Any] = {}
        for k, field in enumerate(TABLES.get(kind, ())):
            offset = _U16.unpack_from(self.data, vtable + _WORD + 2 * k)[0] if 2 * k < entries else 0
            found[field.name] = self._field(kind, field, at, offset, width, found) if offset else field.default
        self._read[kind, at] = found
        return found

    def _field(self, kind: str, field: Field, at: int, offset: int, width: int, before: dict[str, Any]) -> Any:
        reader = _READERS.get(field.type)
        if offset + (reader.size if reader is not None else _WORD) > width:
            self.refuse(f"field '{field.name}' of the {kind} at byte {at} is outside its bytes")
        if reader is not None:
            return reader.unpack_from(self.data, at + offset)[0]
        if field.type == "skip":
            return None
        target = self._target(at + offset)
        if field.type == "str":
            return bytes(self._vector("u8", target)).decode("utf-8", "replace")
        if field.type == "union":
            kinds, which = UNIONS[kind, field.name], list(before.values())[-1]
            if which >= len(kinds):
                self.refuse(f"field '{field.name}' of the {kind} at byte {at} is of the unknown kind {which}")
            return self._table(kinds[which], target) if which else None
        if not field.type.startswith("["):
            return self._table(field.type, target)
        return self._vector(field.type[1:-1], target)

    def _vector(self, kind: str, at: int) -> Any:
        known = self._read.get(("[" + kind, at))
        if known is not None:
            return known
        count = self._number(_U32, at, f"a vector of {kind}")
        begin, width = at + _WORD, np.dtype(_NUMPY[kind]).itemsize if kind in _NUMPY else _WORD
        if count * width > len(self.data) - begin:
            self.refuse(f"the vector at byte {at} has {count} elements, more than the file has")
        found: Any
        if kind in _NUMPY:
            found = np.frombuffer(self.data, _NUMPY[kind], count, begin)
            if kind != "u8":
                self._spend(count)
                found = tuple(found.astype(bool).tolist() if kind == "bool" else found.tolist())
        else:
            self._spend(count)
            found = tuple(self._table(kind, self._target(begin + _WORD * k)) for k in range(count))
        self._read["[" + kind, at] = found
        return found

    def _target(self, at: int) -> int:
        """The position that the offset at `at` refers to."""
        return at + self._number(_U32, at, "an offset")

    def _number(self, reader: struct.Struct, at: int, what: str) -> int:
        if not 0 <= at <= len(self.data) - reader.size:
            self.refuse(f"{what} would be at byte {at}, but the file has {len(self.data)}")
        return int(reader.unpack_from(self.data, at)[0])

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            self.refuse("its tables overlap")
