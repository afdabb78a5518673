"""Atomic writing of files, and folders that end with the process."""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

_CHUNK: Final = 16 << 20


def write_atomically(path: Path, write: Callable[[BinaryIO], None], mode: int = 0o666) -> None:
    """Call `write` with a new temporary file, then rename it to `path`. Raises `OSError`, leaving `path` unchanged."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            write(file)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically."""

    def write(file: BinaryIO) -> None:
        file.write(content)

    write_atomically(path, write)


def copy_hashed(source: BinaryIO, target: BinaryIO, last: bytes) -> bytes:
    """Append all of `source`, then `last`, to `target`; return the sha256 of the written bytes."""
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)
    digest.update(last)
    target.write(last)
    return digest.digest()


def temporary_folder(prefix: str) -> Path:
    """Return a new folder, which is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
