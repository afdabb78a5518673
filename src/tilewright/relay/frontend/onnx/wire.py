"""Splits a serialized model into its small graph and the raw data of its weights.

Weights are most of a file; parsing them with the rest would copy them three times. Instead, only the protobuf framing
is walked (field numbers and lengths). The model is returned without the raw data of its large initializers, with the
location of each. Each is read only once, directly into its array.

Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; framing:
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_BYTES: Final = 2
"""The wire type of length-delimited fields: messages, strings, bytes."""
_LARGE: Final = 4096
_WINDOW: Final = 1 << 16


class MalformedError(Exception):
    """The bytes are not a protobuf message, or cannot be split; parsing them as a whole gives details."""


class Span(NamedTuple):
    """The bytes [begin, end) of the model's data."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


class MemoryData:
    """A model in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, begin: int, end: int) -> bytes:
        return self._data[begin:end]

    def array(self, span: Span) -> Array:
        """A copy of these bytes as an array; raises `EOFError` if the data is too short."""
        if span.end > self.size:
            raise EOFError
        return np.frombuffer(self._data, np.uint8, span.size, span.begin).copy()

    def close(self) -> None:
        """Do nothing."""


class FileData:
    """A model in a file, open until `close`."""

    def __init__(self, path: os.PathLike[str], mapped: bool = False) -> None:
        """With `mapped`, arrays are views of the file, which must not change while they are in use."""
        self._file, self._mapped = os.open(path, os.O_RDONLY), path if mapped else None
        self.size = os.fstat(self._file).st_size
        self._at, self._window = 0, b""

    def read(self, begin: int, end: int) -> bytes:
        if not (self._at <= begin and end <= self._at + len(self._window)):
            if end - begin > _WINDOW:
                return os.pread(self._file, end - begin, begin)
            self._at, self._window = begin, os.pread(self._file, _WINDOW, begin)
        return self._window[begin - self._at:end - self._at]

    def array(self, span: Span) -> Array:
        """These bytes as an array, mapped or read; raises `EOFError` if the file is too short."""
        if span.end > self.size:
            raise EOFError
        if self._mapped is not None:
            return np.memmap(self._mapped, np.uint8, "c", span.begin, (span.size,))
        result = np.empty(span.size, np.uint8)
        view, at = result.data, span.begin
        while len(view):
            count = os.preadv(self._file, [view], at)
            if not count:
                raise EOFError
            view, at = view[count:], at + count
        return result

    def close(self) -> None:
        os.close(self._file)


ModelData = MemoryData | FileData


@dataclass(slots=True)
class _Field:
    number: int
    kind: int
    begin: int
    value: Span


def split(data: ModelData) -> tuple[bytes, list[Span | None]]:
    """The model without the raw data of its large initializers, and the location of that data by initializer index."""
    pieces: list[bytes] = []
    spans: list[Span | None] | None = None
    for field in _fields(data, Span(0, data.size)):
        if field.number == _GRAPH and field.kind == _BYTES:
            if spans is not None:
                raise MalformedError("two graphs")
            graph, spans = _split_graph(data, field.value)
            pieces += _message(_GRAPH, graph)
        else:
            pieces.append(data.read(field.begin, field.value.end))
    return b"".join(pieces), spans or []


def _split_graph(data: ModelData, span: Span) -> tuple[bytes, list[Span | None]]:
    pieces: list[bytes] = []
    spans: list[Span | None] = []
    for field in _fields(data, span):
        raw = None
        if field.number == _INITIALIZER and field.kind == _BYTES:
            if field.value.size >= _LARGE:
                tensor, raw = _split_tensor(data, field.value)
            spans.append(raw)
        if raw is None:
            pieces.append(data.read(field.begin, field.value.end))
        else:
            pieces += _message(_INITIALIZER, tensor)
    return b"".join(pieces), spans


def _split_tensor(data: ModelData, span: Span) -> tuple[bytes, Span | None]:
    raw = None
    pieces: list[bytes] = []
    for field in _fields(data, span):
        if field.number == _RAW_DATA and field.kind == _BYTES and field.value.size >= _LARGE:
            if raw is not None:
                raise MalformedError("raw data twice")
            raw = field.value
        elif raw is not None or field.value.size < _LARGE:
            pieces.append(data.read(field.begin, field.value.end))
        else:
            return b"", None  # not raw data: left to the parser
    return b"".join(pieces), raw


def _fields(data: ModelData, span: Span) -> Iterator[_Field]:
    """The fields of the message in `span`; raises `MalformedError` if the framing is invalid."""
    at = span.begin
    while at < span.end:
        begin = at
        head = data.read(at, min(at + 20, span.end))
        tag, used = _varint(head, 0)
        kind = tag & 7
        if kind == 0:
            _, used = _varint(head, used)
            value = Span(at + used, at + used)
        elif kind == _BYTES:
            length, used = _varint(head, used)
            value = Span(at + used, at + used + length)
        elif kind in (1, 5):
            value = Span(at + used, at + used + (8 if kind == 1 else 4))
        else:
            raise MalformedError(f"wire type {kind}")
        if value.end > span.end or not tag >> 3:
            raise MalformedError(f"a field of {value.size} bytes at {begin}")
        yield _Field(tag >> 3, kind, begin, value)
        at = value.end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7
    raise MalformedError("a number without end")


def _message(number: int, content: bytes) -> tuple[bytes, bytes]:
    """A length-delimited field: its tag and length, and its content."""
    head = bytearray()
    for value in (number << 3 | _BYTES, len(content)):
        while value > 127:
            head.append(value & 127 | 128)
            value >>= 7
        head.append(value)
    return bytes(head), content
