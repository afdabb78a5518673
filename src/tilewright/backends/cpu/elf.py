"""ELF relocatable objects of data: the constants and the manifest of a model, ready for a linker.

They are written directly, because a compiler takes minutes for hundreds of megabytes of data, and a copy less than a
second. The layout is that of the System V ABI: header, contents, symbol table, names, section table (64-bit,
little-endian).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np

from tilewright.base.errors import InternalError

DATA_OFFSET: Final = 64
"""Offset of the first contents in the file: after the header, aligned as in memory."""

_ALIGNMENT: Final = 64
_IDENTITY: Final = b"\x7fELF\x02\x01"
_X86_64: Final = 62
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC, _X86_LARGE = 2, 0x10000000
_GLOBAL_OBJECT: Final = (1 << 4) | 1
_GLOBAL_FUNCTION: Final = (1 << 4) | 2
_LOCAL_FUNCTION: Final = 2


def write_data_object(file: BinaryIO, like: bytes, contents: Sequence[tuple[str, np.ndarray[Any, Any]]]) -> None:
    """Write an object that defines one read-only global symbol per `(name, bytes)`, for the machine of the object
    `like`.

    On x86-64 the contents go into a large-model section, which linkers place last. Code then reaches all other data,
    even with gigabytes of constants.
    """
    machine, flags = _machine_of(like)
    large = machine == _X86_64
    section = ".lrodata.tilewright" if large else ".rodata.tilewright"
    offset, symbols, names = 0, [b"\0" * 24], b"\0"
    file.write(b"\0" * DATA_OFFSET)
    for name, data in contents:
        offset += _pad(file, offset)
        symbols.append(struct.pack("<IBBHQQ", len(names), _GLOBAL_OBJECT, 0, 1, offset, data.nbytes))
        names += name.encode() + b"\0"
        file.write(data.data)
        offset += data.nbytes
    size = offset
    offset += _pad(file, offset)
    table = b"".join(symbols)
    section_names = b"\0" + b"\0".join(
        s.encode() for s in (section, ".symtab", ".strtab", ".shstrtab", ".note.GNU-stack")
    ) + b"\0"
    rows, at = [struct.pack("<IIQQQQIIQQ", *[0] * 10)], DATA_OFFSET + offset
    where = section_names.index

    def row(
        name: str, kind: int, flag: int, start: int, length: int, link: int, info: int, align: int, entry: int
    ) -> None:
        rows.append(
            struct.pack("<IIQQQQIIQQ", where(name.encode()), kind, flag, 0, start, length, link, info, align, entry))

    row(section, _PROGBITS, _ALLOC | (_X86_LARGE if large else 0), DATA_OFFSET, size, 0, 0, _ALIGNMENT, 0)
    row(".symtab", _SYMTAB, 0, at, len(table), 3, 1, 8, 24)
    row(".strtab", _STRTAB, 0, at + len(table), len(names), 0, 0, 1, 0)
    row(".shstrtab", _STRTAB, 0, at + len(table) + len(names), len(section_names), 0, 0, 1, 0)
    row(".note.GNU-stack", _PROGBITS, 0, at, 0, 0, 0, 1, 0)
    tail = table + names + section_names
    tail += b"\0" * (-len(tail) % 8)
    file.write(tail + b"".join(rows))
    file.seek(0)
    identity = b"\x7fELF" + bytes((2, 1, 1)) + b"\0" * 9
    file.write(
        identity + struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, at + len(tail), flags, 64, 0, 0, 64, len(rows), 4)
    )


def is_elf64(image: bytes) -> bool:
    """Return whether an object is a 64-bit little-endian ELF file, the form of `write_data_object`."""
    return image[:6] == _IDENTITY


@dataclass(frozen=True, slots=True)
class CodeSymbol:
    """A function of an object: its section, its offset there, and its bytes; `shown` marks a global function."""

    name: str
    section: int
    offset: int
    nbytes: int
    shown: bool


def code_symbols(image: bytes) -> list[CodeSymbol]:
    """Return all functions of a 64-bit object."""
    begin, size, count = struct.unpack_from("<Q", image, 0x28)[0], *struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, begin + k * size) for k in range(count)]
    found = []
    for _, kind, _, _, at, length, link, _, _, entry in sections:
        for place in range(at, at + length, entry) if kind == _SYMTAB else ():
            name, info, _, section, offset, nbytes = struct.unpack_from("<IBBHQQ", image, place)
            if info in (_GLOBAL_FUNCTION, _LOCAL_FUNCTION) and section:
                text = sections[link][4] + name
                found.append(
                    CodeSymbol(
                        image[text : image.index(b"\0", text)].decode(), section, offset, nbytes,
                        info == _GLOBAL_FUNCTION))
    return found


def functions_of(image: bytes) -> dict[str, int]:
    """Return the global functions of a 64-bit object, and the bytes of each."""
    return {f.name: f.nbytes for f in code_symbols(image) if f.shown}


def _pad(file: BinaryIO, offset: int) -> int:
    return file.write(b"\0" * (-offset % _ALIGNMENT))


def _machine_of(image: bytes) -> tuple[int, int]:
    """Return `e_machine` and `e_flags` of a 64-bit little-endian ELF object."""
    if not is_elf64(image):
        raise InternalError("constants go into an object of LLVM where the code is not 64-bit little-endian ELF")
    machine, flags = struct.unpack_from("<H", image, 18)[0], struct.unpack_from("<I", image, 48)[0]
    return machine, flags
