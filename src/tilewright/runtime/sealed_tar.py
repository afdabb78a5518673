"""Archives that detect every damaged bit: the last member is the sha256 of all bytes before it, followed only by zeros.

    … members … · archive.sha256 · zeros up to a multiple of 10240 bytes

Headers have no time and no owner, so that equal contents give equal files.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

SEAL: Final = "archive.sha256"
_BLOCK, _DIGEST = tarfile.BLOCKSIZE, 64
_CHUNK: Final = 16 << 20


def member(name: str, size: int) -> tarfile.TarInfo:
    """Return a header without time or owner."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info


_HEADER: Final = member(SEAL, _DIGEST).tobuf(tarfile.PAX_FORMAT)


@contextlib.contextmanager
def sealed_tar(file: BinaryIO) -> Iterator[tarfile.TarFile]:
    """Yield an archive to add members to, at the current position of `file`; it is sealed at the end."""
    hashed: Any = _Hashed(file)
    with tarfile.open(fileobj=hashed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        yield archive
        archive.addfile(member(SEAL, _DIGEST), io.BytesIO(hashed.digest.hexdigest().encode()))


def is_sealed(path: Path) -> bool:
    """Whether a file is a sealed archive and undamaged."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = max(0, size - tarfile.RECORDSIZE - 4 * _BLOCK)
        file.seek(start)
        at = file.read().rfind(_HEADER) + start
        end = at + 2 * _BLOCK
        if at < start or size != -(-(end + 2 * _BLOCK) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE:
            return False
        file.seek(0)
        digest = hashlib.sha256()
        for place in range(0, at, _CHUNK):
            digest.update(file.read(min(_CHUNK, at - place)))
        file.seek(at + _BLOCK)
        return file.read() == digest.hexdigest().encode().ljust(size - at - _BLOCK, b"\0")


def plain_members(archive: tarfile.TarFile, nbytes: int) -> list[tarfile.TarInfo]:
    """Return the files and folders in an uncompressed archive of `nbytes` bytes.

    Before reading contents, it raises `tarfile.TarError` for sparse files, links, devices, unsafe or duplicate names,
    and sizes that exceed the archive.
    """
    found, total = [], 0
    names: set[str] = set()
    for info in archive:
        total += info.size
        if info.issparse() or not (info.isfile() or info.isdir()):
            raise tarfile.TarError(
                f"its member {info.name[:80]!r} is not a plain file; sparse files, links and devices are not allowed")
        parts = PurePosixPath(info.name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or not info.name.isprintable() or info.name[1:2] == ":":
            raise tarfile.TarError(f"its member {info.name[:80]!r} points outside of the archive")
        if info.isfile() and str(parts) in names:
            raise tarfile.TarError(f"its member {info.name[:80]!r} occurs twice")
        names.add(str(parts))
        if total > nbytes:
            raise tarfile.TarError(f"its member {info.name[:80]!r} has {info.size} bytes, but the archive has {nbytes}")
        found.append(info)
    return found


class _Hashed:
    """A writable file that computes the digest of the written bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest = hashlib.sha256()
        self._file = file

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()
