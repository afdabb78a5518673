"""Writes tables of TFLite's schema as a flatbuffer, which `flatbuffer.py` reads.

Tables precede what they refer to, so all offsets are positive. Fields at their defaults are omitted.

Source: https://flatbuffers.dev/internals
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InternalError
from tilewright.relay.frontend.tflite.schema import SCALARS, TABLES, UNIONS, Field

_SIZES: Final = {kind: struct.calcsize("<" + letter) for kind, letter in SCALARS.items()}
_WORD: Final = 4
_STORED: Final = 16
"""Alignment of stored tensors, in bytes."""


def model_bytes(values: Mapping[str, Any]) -> bytes:
    """A model from the fields of its root table: tables as mappings, a union as (name of its table, its fields).

    Raises `InternalError` for a field that the schema does not have.
    """
    return _Writer().model(values)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray(8)

    def model(self, values: Mapping[str, Any]) -> bytes:
        self.out[4:8] = b"TFL3"
        self._refer(0, self._table("Model", values))
        return bytes(self.out)

    def _refer(self, slot: int, target: int) -> None:
        struct.pack_into("<I", self.out, slot, target - slot)

    def _align(self, size: int, behind: int = 0) -> None:
        """Add padding so that the position `behind` bytes later is aligned."""
        self.out += bytes(-(len(self.out) + behind) % size)

    def _table(self, kind: str, values: Mapping[str, Any]) -> int:
        fields = TABLES.get(kind, ())
        given = _with_kinds_of_unions(kind, fields, values)
        present = [(k, f, given[f.name]) for k, f in enumerate(fields) if f.name in given
                   and given[f.name] != f.default]
        places: dict[int, int] = {}
        width = _WORD
        for k, f, _ in sorted(present, key=lambda entry: -_SIZES.get(entry[1].type, _WORD)):
            size = _SIZES.get(f.type, _WORD)
            width += -width % size
            places[k] = width
            width += size
        count = max(places, default=-1) + 1
        self._align(8, _WORD + 2 * count)
        vtable = len(self.out)
        self.out += struct.pack(f"<HH{count}H", _WORD + 2 * count, width, *(places.get(k, 0) for k in range(count)))
        at = len(self.out)
        self.out += struct.pack("<i", at - vtable) + bytes(width - _WORD)
        for k, f, value in present:
            slot = at + places[k]
            if f.type in SCALARS:
                struct.pack_into("<" + SCALARS[f.type], self.out, slot, value)
            else:
                self._refer(slot, self._child(f, value))
        return at

    def _child(self, field: Field, value: Any) -> int:
        if field.type == "str":
            return self._numbers("u8", value.encode(), tail=b"\0")
        if field.type == "union":
            return self._table(value[0], value[1])
        if field.type.startswith("["):
            element = field.type[1:-1]
            return self._numbers(element, value) if element in SCALARS else self._tables(element, value)
        return self._table(field.type, value)

    def _numbers(self, kind: str, values: Any, tail: bytes = b"") -> int:
        data = (bytes(values) if isinstance(values, (bytes, bytearray))
                else np.asarray(values, np.dtype(SCALARS[kind])).tobytes())
        self._align(_STORED if kind == "u8" and not tail else max(_SIZES[kind], _WORD), _WORD)
        at = len(self.out)
        self.out += struct.pack("<I", len(data) // _SIZES[kind]) + data + tail
        return at

    def _tables(self, kind: str, values: Sequence[Mapping[str, Any]]) -> int:
        self._align(_WORD)
        at = len(self.out)
        self.out += struct.pack("<I", len(values)) + bytes(_WORD * len(values))
        for k, value in enumerate(values):
            self._refer(at + _WORD * (k + 1), self._table(kind, value))
        return at


def _with_kinds_of_unions(kind: str, fields: Sequence[Field], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with the number of each union's table set."""
    given = dict(values)
    for k, f in enumerate(fields):
        if f.type == "union" and f.name in given:
            given[fields[k - 1].name] = UNIONS[kind, f.name].index(given[f.name][0])
    unknown = set(given) - {f.name for f in fields}
    if unknown:
        raise InternalError(f"the table {kind} of TFLite's schema has no field {min(unknown)}")
    return given
