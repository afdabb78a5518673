"""Texts as native code reads them: a tensor of texts is one block of bytes.

    six whole numbers of eight bytes: where the texts begin and end as they are, in lower case, and in upper case
    the texts in UTF-8, one after another, each with a zero byte behind it; once, or once for each of the three

A zero character inside a text is C0 80, which is nothing else in UTF-8 (as Java's files have it).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

FORMS: Final[dict[str, Callable[[str], str]]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
"""How texts are packed, in order: as they are, in lower and in upper case."""
_HEADER: Final = struct.Struct("<6q")
_LONGEST: Final = 1 << 32


def placeholder_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return a placeholder shape for the bytes of strings of `shape`; the size in memory is known only at run time."""
    return (*shape, _LONGEST)


def text_bytes(text: str) -> bytes:
    """A text in UTF-8 without zero bytes: a zero character is C0 80, which no other character is."""
    return text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def pack_texts(texts: Sequence[str]) -> bytes:
    """The block in which native code reads texts: where they begin and end in each of `FORMS`, then the texts, a zero
    byte behind each.

    Texts of ASCII alone are there once for all forms, since to change the case of a byte is little work for whoever
    reads it. Raises `TypeError` for what is no string.
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
