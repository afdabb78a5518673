"""The symbols of an ELF library by name, including internal ones (its `.symtab`)."""

from __future__ import annotations

import struct
from typing import Final

_SYMTAB: Final = 2
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")


def symbol_values(image: bytes) -> dict[str, int]:
    """Return the values of the defined symbols of a 64-bit little-endian library, relative to its load address; empty
    if it was stripped."""
    start, (entry, count) = struct.unpack_from("<Q", image, 40)[0], struct.unpack_from("<HH", image, 58)
    sections = [_SECTION.unpack_from(image, start + k * entry) for k in range(count)]
    found: dict[str, int] = {}
    for _, kind, _, _, offset, size, link, *_ in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, _SYMBOL.size):
            name, _, _, section, value, _ = _SYMBOL.unpack_from(image, at)
            if section:
                found[image[names + name : image.index(b"\0", names + name)].decode()] = value
    return found
