"""Reads the options of custom operators: a flexbuffer that is a map from names to numbers.

A flexbuffer is read from its end: the last byte is the width of its root, the one before it its type. Reads outside the
buffer are refused.

Source: https://flatbuffers.dev/internals (FlexBuffers)
"""

from __future__ import annotations

import struct
from typing import Any, Final, NoReturn

from tilewright.base.errors import ModelError

_INT, _UINT, _FLOAT, _MAP, _BOOL = 1, 2, 3, 9, 26
_INDIRECT: Final = {6: _INT, 7: _UINT, 8: _FLOAT}
_LETTERS: Final = {_INT: {1: "b", 2: "h", 4: "i", 8: "q"}, _UINT: {1: "B", 2: "H", 4: "I", 8: "Q"},
                   _FLOAT: {2: "e", 4: "f", 8: "d"}, _BOOL: {1: "B", 2: "H", 4: "I", 8: "Q"}}


def numbers_of(data: bytes) -> dict[str, Any]:
    """The numbers and booleans of a map, by name; other values are skipped. Raises `ModelError` for an invalid map."""
    if len(data) < 3:
        return {}
    width, kind = data[-1], data[-2]
    if kind >> 2 != _MAP or width not in (1, 2, 4, 8):
        _refuse()
    at = _back(data, len(data) - 2 - width, width)
    return _Map(data, at, 1 << (kind & 3)).numbers()


def _refuse() -> NoReturn:
    raise ModelError("its custom options are not a valid flexbuffer map; the file is damaged: convert it again",
                     code="TW0103")


def _number(data: bytes, at: int, width: int, kind: int = _UINT) -> Any:
    letter = _LETTERS[kind].get(width)
    if letter is None or not 0 <= at <= len(data) - width:
        _refuse()
    return struct.unpack_from("<" + letter, data, at)[0]


def _back(data: bytes, at: int, width: int) -> int:
    """The position that the backward offset at `at` refers to."""
    return at - int(_number(data, at, width))


class _Map:
    """A map: a vector of values followed by their types, and preceded by the offset of the sorted keys."""

    def __init__(self, data: bytes, at: int, width: int) -> None:
        self.data, self.at, self.width = data, at, width
        self.count = int(_number(data, at - width, width))
        if self.count * width > len(data):
            _refuse()

    def numbers(self) -> dict[str, Any]:
        keys_width = int(_number(self.data, self.at - 2 * self.width, self.width))
        keys = _back(self.data, self.at - 3 * self.width, self.width)
        found: dict[str, Any] = {}
        for k in range(self.count):
            name = self._text(_back(self.data, keys + k * keys_width, keys_width))
            packed = int(_number(self.data, self.at + self.count * self.width + k, 1))
            kind, place, width = packed >> 2, self.at + k * self.width, self.width
            if kind in _INDIRECT:
                place, width, kind = _back(self.data, place, width), 1 << (packed & 3), _INDIRECT[kind]
            if kind in _LETTERS:
                value = _number(self.data, place, width, kind)
                found[name] = bool(value) if kind == _BOOL else value
        return found

    def _text(self, at: int) -> str:
        if not 0 <= at < len(self.data):
            _refuse()
        end = self.data.find(b"\0", at)
        return self.data[at : end if end >= 0 else len(self.data)].decode("utf-8", "replace")
