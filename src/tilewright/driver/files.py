"""Reading and writing of the command line's files. Files are written atomically, and never executed when read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilewright.base.array_files import read_npz
from tilewright.base.errors import ArtifactError, InputError
from tilewright.base.forks import new_lock


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the block ends normally, and is removed otherwise.

    Raises `ArtifactError` if the folder is not writable.
    """
    try:
        number, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=path.suffix)
        os.close(number)
    except OSError as error:
        raise ArtifactError(
            f"cannot write '{path}': {error.strerror}; choose another place with -o", code="TW0801"
        ) from None
    try:
        yield Path(scratch)
        Path(scratch).chmod(0o666 & ~_umask())
        Path(scratch).replace(path)
    except OSError as error:
        raise ArtifactError(
            f"cannot write '{path}': {error.strerror or error}; choose another place with -o", code="TW0801"
        ) from None
    finally:
        Path(scratch).unlink(missing_ok=True)


_UMASK: Final = new_lock()


def _umask() -> int:
    """Return the umask of the process, if possible without setting it, because other threads would be affected."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).partition(":")[2], 8)
    with _UMASK:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`."""
    with replacing(path) as scratch:
        scratch.write_text(text, encoding="utf-8")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays to the numpy archive `path`."""
    with replacing(path) as scratch, scratch.open("wb") as file:
        np.savez(file, **dict(arrays))  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a numpy archive by name; raises `InputError` for other files, and for Python objects."""
    try:
        return read_npz(path)
    except (ValueError, OSError) as error:
        raise InputError(
            f"cannot read arrays from '{path}': {error}; it must be written with np.savez(path, input_name=array)",
            code="TW0716"
        ) from None
