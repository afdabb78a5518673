"""Digests of models as cache keys: of the bytes of a model, and of the data files that it refers to.

Only content counts, never names or times, so a copied model is found and a changed one is not. Large files are digested
in pieces by several threads (`hashlib` releases the interpreter's lock): half a gigabyte takes a quarter of a second on
one core. Digests of large files are cached under the inode, the size, and the change times of contents and inode, as in
version control. Programs cannot set the latter time. A file changed within the last seconds is digested again, because
the clock of a file system may be that coarse.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import ModelError
from tilewright.compiler.cache import Cache

_PIECE: Final = 16 << 20
_BUFFER: Final = 1 << 20
_MOST_THREADS: Final = 8
_KEPT_FROM: Final = 4 << 20
"""Smallest size in bytes of a file whose digest is cached; smaller files are digested faster than looked up."""
_SETTLED_NS: Final = 2_000_000_000


def digest_bytes(data: bytes | bytearray | memoryview) -> str:
    """Return the digest of `data`, equal to that of a file with these contents."""
    with memoryview(data) as view:
        return _combined(len(view), lambda begin, end: hashlib.sha256(view[begin:end]).digest())


def digest_file(path: Path) -> str:
    """Return the digest of a file's contents. Raises `OSError`, or `ModelError` when the file shrinks meanwhile."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def piece(begin: int, end: int) -> bytes:
        found, buffer = hashlib.sha256(), memoryview(bytearray(min(_BUFFER, end - begin)))
        while begin < end:
            count = os.preadv(descriptor, [buffer[: end - begin]], begin)
            if not count:
                raise ModelError(
                    f"{path}: the file became shorter while it was read; compile it when it is complete", code="TW0101")
            found.update(buffer[:count])
            begin += count
        return found.digest()

    try:
        return _combined(os.fstat(descriptor).st_size, piece)
    finally:
        os.close(descriptor)


def known_digest(path: Path, cache: Cache) -> str:
    """Return `digest_file(path)`, from `cache` if the file is unchanged."""
    before = path.stat()
    if before.st_size < _KEPT_FROM:
        return digest_file(path)
    key = Cache.key("digest", str(path.resolve()), *map(str, _identity(before)))
    kept = cache.get(key)
    if kept is not None:
        return kept.decode()
    settled = time.time_ns() - max(before.st_mtime_ns, before.st_ctime_ns) > _SETTLED_NS
    found = digest_file(path)
    if settled and _identity(path.stat()) == _identity(before):
        cache.put(key, found.encode())
    return found


def _identity(file: os.stat_result) -> tuple[int, ...]:
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns


def _combined(size: int, piece: Callable[[int, int], bytes]) -> str:
    """Return the sha256 of the size and of the sha256 of each piece."""
    starts = range(0, size, _PIECE)

    def of(begin: int) -> bytes:
        return piece(begin, min(begin + _PIECE, size))

    found = hashlib.sha256(f"{size}:".encode())
    if len(starts) < 2:
        found.update(b"".join(map(of, starts)))
    else:
        with ThreadPoolExecutor(min(_MOST_THREADS, len(starts), os.cpu_count() or 1)) as threads:
            found.update(b"".join(threads.map(of, starts)))
    return found.hexdigest()


def digest_model(model: Any, cache: Cache) -> str:
    """Return the digest of a path, bytes, a flatbuffer, or a protobuf message. Raises `OSError` for an unreadable file,
    `TypeError` for other objects."""
    if isinstance(model, (str, os.PathLike)):
        return known_digest(Path(model), cache)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return digest_bytes(model)
    if hasattr(model, "_tab"):
        return digest_bytes(bytes(model._tab.Bytes))
    if not hasattr(model, "SerializeToString"):
        raise TypeError(f"a {type(model).__name__} has no bytes")
    return digest_bytes(model.SerializeToString(deterministic=True))


def digest_external(model: Any, locations: Sequence[str], cache: Cache) -> str:
    """Return the digests of the files that hold the tensors of `model`; a missing file is reported later, by name."""
    if not locations or not isinstance(model, (str, os.PathLike)):
        return ""
    folder = Path(model).resolve().parent
    files = ((location, _file_in(folder, location)) for location in locations)
    return ";".join(f"{location}={known_digest(f, cache)}" for location, f in files if f is not None)


def _file_in(folder: Path, location: str) -> Path | None:
    """Return the file of that name in the folder, or None."""
    try:
        file = (folder / location).resolve()
        return file if file.is_relative_to(folder) and file.is_file() else None
    except (OSError, ValueError):
        return None  # the name is too long or not text
