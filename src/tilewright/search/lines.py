"""A file of lines to which several processes append whole lines, even if a writer is killed.

A line counts when its end is written. Appending a line first removes the torn line of a killed writer. All writers take
a lock, so the line of a live writer is never removed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tilewright.base.errors import OptionError

_PIECE: Final = 1 << 16


class LineFile:
    """The lines of one file in an existing folder; the first line creates it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raise `OptionError` for a missing folder, or if the path is a folder."""
        self.path = Path(path)
        self._read = 0
        if not self.path.parent.is_dir() or self.path.is_dir():
            raise OptionError(f"{self.path}: records are written to a file in an existing folder", code="TW1115")

    def append(self, line: str) -> None:
        """Append one line, which is on disk when the call returns.

        Raises `OptionError` if the file cannot be written; it then contains no part of the line.
        """
        if "\n" in line:
            raise OptionError(
                f"{self.path}: a record is one line, but this one has several: {line[:80]!r}", code="TW1115")
        try:
            self._append(line)
        except OSError as error:
            raise OptionError(
                f"{self.path}: the record cannot be written: {error.strerror}; make room, or write to another file",
                code="TW1115") from error

    def _append(self, line: str) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            end = _mend(descriptor)
            data = line.encode() + b"\n"
            done = 0
            try:
                while done < len(data):
                    done += os.write(descriptor, data[done:])
            except OSError:
                os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)

    def new(self) -> Iterator[str]:
        """Yield the whole lines that were not read before; none if there is no file."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield line[:-1].decode(errors="replace")


def _mend(descriptor: int) -> int:
    """Cut off an incomplete last line; return the remaining size."""
    size = end = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - _PIECE)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            end = begin + found + 1
            break
        end = begin
    if end != size:
        os.ftruncate(descriptor, end)
    return end
