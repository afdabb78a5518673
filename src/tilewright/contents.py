"""The elements of an array as bytes, and back: what hashes are made of, and what texts and files keep.

Numbers are their little-endian memory; strings, which have none of their own, are a JSON list in UTF-8. Other Python objects have no bytes.
For native code that reads them strings are one block (`pack_texts`).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.errors import CompileError
from tilewright.types import DataType

Array = np.ndarray[Any, Any]
FORMS: Final[dict[str, Callable[[str], str]]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
"""How texts are packed, in order: as they are, in lower and in upper case."""
_HEADER: Final = struct.Struct("<6q")


def to_bytes(array: Array) -> bytes:
    """The elements in row-major order. Raises `CompileError` for objects that are no strings."""
    if array.dtype != object:
        return (array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array).tobytes()
    wrong = next((type(v).__name__ for v in array.flat if not isinstance(v, str)), None)
    if wrong is not None:
        raise CompileError(f"a constant holds objects of type {wrong}, which have no text; keep such values out of the module")
    return json.dumps(array.reshape(-1).tolist(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def from_bytes(raw: bytes, dtype: DataType, shape: Sequence[int]) -> Array:
    """The inverse; raises `ValueError` where the bytes are not those of such an array."""
    if not dtype.is_object:
        return np.frombuffer(raw, dtype.numpy()).reshape(tuple(shape))
    values = json.loads(raw.decode("utf-8", "surrogatepass"))
    if not isinstance(values, list) or len(values) != math.prod(shape) or not all(isinstance(v, str) for v in values):
        raise ValueError(f"these are not {math.prod(shape)} strings")
    return of_strings(values, shape)


def of_strings(values: Sequence[str], shape: Sequence[int]) -> Array:
    """An array of strings."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(tuple(shape))


def text_bytes(text: str) -> bytes:
    """A text in UTF-8 without zero bytes: a zero character is C0 80, which no other character is."""
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def pack_texts(texts: Sequence[str]) -> bytes:
    """The block in which native code reads texts: where they begin and end in each of `FORMS`, then the texts, a zero byte behind each.

    Texts of ASCII alone are there once for all forms, since to change the case of a byte is little work for whoever reads it. Raises
    `TypeError` for what is no string.
    """
    joined = "\0".join(texts)
    if joined.isascii() and joined.count("\0") == len(texts) - 1:
        begin, end = _HEADER.size, _HEADER.size + len(joined) + 1
        return b"%b%b\0" % (_HEADER.pack(begin, end, begin, end, begin, end), joined.encode())
    blocks = [b"".join(text_bytes(change(t)) + b"\0" for t in texts) for change in FORMS.values()]
    places, begin = [], _HEADER.size
    for block in blocks:
        places += [begin, begin + len(block)]
        begin += len(block)
    return b"".join((_HEADER.pack(*places), *blocks))
