"""Tensors of strings as native code reads them: one block of bytes.

    six 64-bit integers: begin and end of the strings as they are, in lower case, and in upper case
    the strings in UTF-8, each followed by a zero byte; once, or once for each of the three forms

A zero character inside a string is C0 80, which is otherwise invalid in UTF-8 (as in Java's class files).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

FORMS: Final[dict[str, Callable[[str], str]]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
"""The packed forms of a string, in order: unchanged, lower case, upper case."""
_HEADER: Final = struct.Struct("<6q")
_LONGEST: Final = 1 << 32


def placeholder_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return a placeholder shape for the bytes of strings of `shape`; the size in memory is known only at run time."""
    return (*shape, _LONGEST)


def text_bytes(text: str) -> bytes:
    """Return a string in UTF-8 without zero bytes: a zero character is C0 80, which encodes no other character."""
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def pack_texts(texts: Sequence[str]) -> bytes:
    """Return the block that native code reads: begin and end of the strings in each of `FORMS`, then the strings, each
    followed by a zero byte.

    ASCII strings are stored once for all forms, because readers can change the case of a byte cheaply. Raises
    `TypeError` for elements other than strings.
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
