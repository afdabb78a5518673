"""Sections of 64-bit little-endian ELF files: a manifest inside of an object file, which linkers keep.

    gcc -shared -o functions.so functions.o    the library has the section of the object file; objects of several
                                               modules give one section with all their manifests
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

MANIFEST: Final = ".tilewright.manifest"
"""Name of the section with a manifest: JSON, then a zero byte. It is not loaded into memory."""
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_CONTENTS: Final = 1


def add_manifest(image: bytes, text: str) -> bytes:
    """Return an object file with one more section, `MANIFEST`; a file of another form is returned unchanged."""
    if image[:6] != b"\x7fELF\x02\x01":
        return image
    *head, start, flags, size, program_size, programs, section_size, count, names = _HEADER.unpack_from(image)
    sections = [list(_SECTION.unpack_from(image, start + k * section_size)) for k in range(count)]
    data = text.encode() + b"\0"
    table = sections[names]
    strings = image[table[4] : table[4] + table[5]] + MANIFEST.encode() + b"\0"
    place = len(image)
    sections.append([table[5], _CONTENTS, 0, 0, place, len(data), 0, 0, 1, 0])
    table[4], table[5] = place + len(data), len(strings)
    body = image + data + strings
    body += bytes(-len(body) % 8)
    header = _HEADER.pack(
        *head, len(body), flags, size, program_size, programs, section_size, count + 1, names)
    return header + body[_HEADER.size :] + b"".join(_SECTION.pack(*s) for s in sections)


def manifests(image: bytes | memoryview) -> list[str]:
    """Return the texts of the section `MANIFEST` of an object file or a library; none for other files."""
    parts = (part for data in _contents(image) for part in bytes(data).split(b"\0"))
    return [part.decode(errors="replace") for part in parts if part]


def _contents(image: bytes | memoryview) -> Iterator[memoryview]:
    view = memoryview(image)
    if len(view) < _HEADER.size or bytes(view[:6]) != b"\x7fELF\x02\x01":
        return
    *_, start, _, _, _, _, size, count, names = _HEADER.unpack_from(view)
    if size != _SECTION.size or start + count * size > len(view) or names >= count:
        return
    found = [_SECTION.unpack_from(view, start + k * size) for k in range(count)]
    strings = view[found[names][4] : found[names][4] + found[names][5]]
    for name, *_, place, length, _, _, _, _ in found:
        end = name + len(MANIFEST)
        if bytes(strings[name:end]) == MANIFEST.encode() and bytes(strings[end : end + 1]) == b"\0":
            yield view[place : place + length]
