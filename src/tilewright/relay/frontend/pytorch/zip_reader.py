"""A strict reader of ZIP archives from untrusted sources.

Readers of ZIP disagree about inconsistent archives, so only unambiguous archives are accepted. Entries must fill the
file from its first byte to the central directory. Both headers of an entry must agree. Names must differ even if case
is ignored.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Final

_LOCAL, _CENTRAL, _END, _END64, _LOCATOR = b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7"
_DESCRIPTOR: Final = b"PK\7\x08"
_LOCAL_FIELDS: Final = struct.Struct("<4s5H3L2H")
_CENTRAL_FIELDS: Final = struct.Struct("<4s6H3L5H2L")
_END_FIELDS: Final = struct.Struct("<4s4H2LH")
_END64_FIELDS: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_FIELDS: Final = struct.Struct("<4sLQL")
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_STORED, _DEFLATED = 0, 8
_KNOWN_FLAGS: Final = 0x0808
"""Bit 3, a data descriptor after the contents, and bit 11, a name in UTF-8."""
_MAX_RATIO: Final = 200
_MAX_SMALL_BYTES: Final = 16 << 20
"""Size in bytes up to which entries may have any compression ratio."""
_CHUNK: Final = 1 << 20
_MAX_ENTRIES: Final = 200_000


class AmbiguousArchiveError(ValueError):
    """An archive that readers may parse differently, or that is dangerous to unpack. The text gives the reason."""


class DamagedArchiveError(ValueError):
    """A file that is not an archive, or whose contents do not match its checksums."""


@dataclass(frozen=True)
class Entry:
    """One file of an archive: its name, sizes in bytes, checksum, and the start of its packed bytes."""

    name: str
    method: int
    crc: int
    packed: int
    size: int
    flags: int
    header: int
    start: int = 0


def read_entries(file: IO[bytes]) -> list[Entry]:
    """Read the directory of an archive. Raises `AmbiguousArchiveError` and `DamagedArchiveError`."""
    length = file.seek(0, os.SEEK_END)
    try:
        count, size, offset = _directory(file, length)
        if offset + size > length or count * _CENTRAL_FIELDS.size > size:
            raise DamagedArchiveError("the central directory does not fit the file")
        if count > _MAX_ENTRIES:
            raise AmbiguousArchiveError(f"it has {count} entries; the limit is {_MAX_ENTRIES}")
        entries = _central(_at(file, offset, size), count)
        entries = _local(file, entries, offset)
    except struct.error as error:
        raise DamagedArchiveError("the archive ends within a header") from error
    _check_names(entries)
    _check_sizes(entries)
    return entries


def read_chunks(file: IO[bytes], entry: Entry) -> Iterator[bytes]:
    """Unpack an entry, and check its size and its checksum. Raises `DamagedArchiveError` if they differ."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS) if entry.method == _DEFLATED else None
    left, size, crc = entry.packed, 0, 0
    file.seek(entry.start)
    pending = chunk = b""
    # a full chunk: the decompressor may hold more of it
    while left or pending or (unpacker is not None and len(chunk) == _CHUNK):
        if not pending and left:
            pending = file.read(min(left, _CHUNK))
            if not pending:
                raise DamagedArchiveError(f"the entry {entry.name!r} is cut off")
            left -= len(pending)
        if unpacker is None:
            chunk, pending = pending, b""
        else:
            try:
                chunk = unpacker.decompress(pending, _CHUNK)
            except zlib.error as error:
                raise DamagedArchiveError(f"the entry {entry.name!r} is damaged ({error})") from error
            pending = unpacker.unconsumed_tail
            if unpacker.unused_data or (unpacker.eof and (pending or left)):
                raise AmbiguousArchiveError(f"its entry {entry.name!r} has bytes behind its contents")
        size += len(chunk)
        if size > entry.size:
            raise DamagedArchiveError(f"the entry {entry.name!r} is larger than its header says")
        crc = zlib.crc32(chunk, crc)
        file_at = file.tell()
        yield chunk
        file.seek(file_at)
    if size != entry.size or crc != entry.crc or (unpacker is not None and not unpacker.eof):
        raise DamagedArchiveError(f"the entry {entry.name!r} does not match its checksum")


def read_entry(file: IO[bytes], entry: Entry) -> bytes:
    return b"".join(read_chunks(file, entry))


def _at(file: IO[bytes], offset: int, size: int) -> bytes:
    if offset < 0:
        raise DamagedArchiveError("the archive is too short")
    file.seek(offset)
    found = file.read(size)
    if len(found) != size:
        raise DamagedArchiveError("the archive is cut off")
    return found


def _directory(file: IO[bytes], length: int) -> tuple[int, int, int]:
    """Number, size and offset of the central directory. Both end records must agree and end the file."""
    end = length - _END_FIELDS.size
    if end < 0:
        raise DamagedArchiveError("the file is too short for an archive")
    mark, disk, first_disk, here, count, size, offset, comment = _END_FIELDS.unpack(_at(file, end, _END_FIELDS.size))
    if mark != _END or comment:
        if _END not in _at(file, max(0, length - (1 << 16)), min(length, 1 << 16)):
            raise DamagedArchiveError("the file has no end record of an archive")
        raise AmbiguousArchiveError("there are bytes before or after the archive")
    if disk or first_disk or here != count:
        raise AmbiguousArchiveError("it is one of several parts")
    short = (count, size, offset)
    at = end - _LOCATOR_FIELDS.size
    if at >= 0 and _at(file, at, 4) == _LOCATOR:
        _, number, place, disks = _LOCATOR_FIELDS.unpack(_at(file, at, _LOCATOR_FIELDS.size))
        end = at - _END64_FIELDS.size
        mark, rest, _, _, disk, first_disk, here, count, size, offset = _END64_FIELDS.unpack(_at(file, end,
            _END64_FIELDS.size))
        limits = (_FULL16, _FULL32, _FULL32)
        agrees = all(s in (v, most) for s, v, most in zip(short, (count, size, offset), limits, strict=True))
        if (mark != _END64 or place != end or rest != _END64_FIELDS.size - 12 or number or disk or first_disk
                or disks > 1 or here != count or not agrees):
            raise AmbiguousArchiveError("its two end records disagree")
    if offset + size != end:
        raise AmbiguousArchiveError("there are bytes before or after the archive")
    return count, size, offset


def _central(data: bytes, count: int) -> list[Entry]:
    entries = []
    at = 0
    for _ in range(count):
        (mark, _, _, flags, method, _, _, crc, packed, size, names, extras, comments, disk, _, mode,
         header) = _CENTRAL_FIELDS.unpack_from(data, at)
        at += _CENTRAL_FIELDS.size
        name, extra = data[at : at + names], data[at + names : at + names + extras]
        at += names + extras + comments
        if mark != _CENTRAL or at > len(data):
            raise DamagedArchiveError("the central directory is damaged")
        shown = name.decode("utf-8", "replace")
        if flags & ~_KNOWN_FLAGS or method not in (_STORED, _DEFLATED) or disk:
            raise AmbiguousArchiveError(f"its entry {shown!r} is encrypted or packed in an unusual way")
        if (mode >> 16) & 0o170000 not in (0, 0o100000, 0o040000):
            raise AmbiguousArchiveError(f"its entry {shown!r} is a link or a device")
        size, packed, header = _wide(extra, (size, packed, header), shown)
        if method == _STORED and size != packed:
            raise AmbiguousArchiveError(f"its entry {shown!r} has two sizes")
        entries.append(Entry(_decoded(name), method, crc, packed, size, flags, header))
    if at != len(data):
        raise AmbiguousArchiveError("its central directory has more than its entries")
    return entries


def _wide(extra: bytes, fields: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Sizes and offsets; saturated fields are replaced by the ZIP64 extra field, which must occur once."""
    wide: list[bytes] = []
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        if at + 4 + size > len(extra):
            break
        if kind == 1:
            wide.append(extra[at + 4 : at + 4 + size])
        at += 4 + size
    wanted = fields.count(_FULL32)
    if at != len(extra) or len(wide) != (1 if wanted else 0) or (wide and len(wide[0]) != 8 * wanted):
        raise AmbiguousArchiveError(f"its entry {name!r} has two sizes")
    values = iter(struct.unpack(f"<{wanted}Q", wide[0]) if wide else ())
    return tuple(next(values) if f == _FULL32 else f for f in fields)


def _decoded(name: bytes) -> str:
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AmbiguousArchiveError(f"the name of its entry {name!r} is not valid UTF-8") from error
    parts = PurePosixPath(text.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or (len(text) > 1 and text[1] == ":"):
        raise AmbiguousArchiveError(f"its entry {text!r} points outside of the archive")
    plain = text.removesuffix("/")
    if not plain.isprintable() or "\\" in text or plain in (".", "") or plain != str(parts) or len(text) > 1024:
        raise AmbiguousArchiveError(f"its entry {text!r} has an unusual name")
    return text


def _local(file: IO[bytes], entries: list[Entry], directory: int) -> list[Entry]:
    """The entries with the start of their bytes; local headers must match the directory, without gaps."""
    found = []
    at = 0
    for entry in sorted(entries, key=lambda e: e.header):
        if entry.header != at:
            raise AmbiguousArchiveError("there are bytes before or after the archive" if at == 0
                                        else f"there are bytes before its entry {entry.name!r}")
        header = _at(file, at, _LOCAL_FIELDS.size)
        mark, _, flags, method, _, _, crc, packed, size, names, extras = _LOCAL_FIELDS.unpack(header)
        name, extra = _at(file, at + len(header), names), _at(file, at + len(header) + names, extras)
        has_descriptor = bool(flags & 8)
        if _FULL32 in (packed, size) and (extras or not has_descriptor):
            size, packed = _wide(extra, (size, packed), entry.name)
        told = ((crc, entry.crc), (packed, entry.packed), (size, entry.size))
        agrees = all(here == there or (has_descriptor and here in (0, _FULL32)) for here, there in told)
        if (mark != _LOCAL or name != entry.name.encode() or flags != entry.flags or method != entry.method
                or not agrees):
            raise AmbiguousArchiveError(f"its entry {entry.name!r} has two headers that disagree")
        start = at + len(header) + names + extras
        at = start + entry.packed
        if at > directory:
            raise DamagedArchiveError(f"the entry {entry.name!r} does not fit the file")
        at += _descriptor(file, at, entry) if has_descriptor else 0
        found.append(Entry(entry.name, entry.method, entry.crc, entry.packed, entry.size, entry.flags, entry.header,
                           start))
    if at != directory:
        raise AmbiguousArchiveError("there are bytes before or after the archive")
    return found


def _descriptor(file: IO[bytes], at: int, entry: Entry) -> int:
    """The size in bytes of the data descriptor after an entry, which must match the directory."""
    file.seek(at)
    found = file.read(24)
    values = (entry.crc, entry.packed, entry.size)
    narrow = struct.pack("<3L", *values) if max(values) <= _FULL32 else b"\0" * 25
    for form in (_DESCRIPTOR + struct.pack("<L2Q", *values), _DESCRIPTOR + narrow):
        if found.startswith(form):
            return len(form)
    raise AmbiguousArchiveError(f"its entry {entry.name!r} has a data descriptor that disagrees with its header")


def _check_names(entries: list[Entry]) -> None:
    """Raise an error for names that are equal if case is ignored, since torch ignores it."""
    seen: dict[str, str] = {}
    for entry in entries:
        folded = entry.name.casefold().removesuffix("/")
        if folded in seen:
            before = seen[folded]
            twice = ("is there twice" if before == entry.name
                     else f"is there again as {before!r}, and torch ignores case")
            raise AmbiguousArchiveError(f"its entry {entry.name!r} {twice}")
        seen[folded] = entry.name


def _check_sizes(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.size > _MAX_SMALL_BYTES and entry.size > _MAX_RATIO * max(entry.packed, 1):
            raise AmbiguousArchiveError(f"its entry {entry.name!r} unpacks to {entry.size} bytes from {entry.packed}")
    packed, size = sum(e.packed for e in entries), sum(e.size for e in entries)
    if size > 4 * _MAX_SMALL_BYTES and size > _MAX_RATIO * max(packed, 1):
        raise AmbiguousArchiveError(f"its {len(entries)} entries unpack to {size} bytes from {packed}")
