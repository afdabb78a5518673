"""Reads numpy archives (`.npz`) from untrusted sources: without Python objects, and with no more memory than the file
declares."""

from __future__ import annotations

import math
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from tilewright.base.limits import machine_bytes

Array = np.ndarray[Any, Any]


def read_npz(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the arrays by name. Raises `ValueError` for an invalid archive, and `OSError` if it cannot be read."""
    with Path(path).open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise ValueError("it holds one array without a name")
        try:
            with zipfile.ZipFile(file) as archive:
                return _arrays(archive)
        except (
            zipfile.BadZipFile, EOFError, KeyError, NotImplementedError, RuntimeError, MemoryError, zlib.error
        ) as error:
            raise ValueError(str(error) or type(error).__name__) from error


def _arrays(archive: zipfile.ZipFile) -> dict[str, Array]:
    entries = archive.infolist()
    total, most = sum(e.file_size for e in entries), machine_bytes()
    if total > most:
        raise ValueError(f"its arrays need {total} bytes, and this machine has {most}")
    found: dict[str, Array] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name in found:
            raise ValueError(f"the array '{name}' occurs twice")
        with archive.open(entry) as stream:
            try:
                found[name] = _array(stream, entry.file_size)
            except ValueError as error:
                raise ValueError(f"the array '{name}': {error}") from error
    return found


def _array(stream: IO[bytes], size: int) -> Array:
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it has version {version} of numpy's format; supported are 1.0 and 2.0")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read(stream)
    except (tokenize.TokenError, SyntaxError, RecursionError, TypeError) as error:  # of numpy's parser
        raise ValueError("its header is damaged") from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not loaded")
    nbytes = math.prod(shape) * dtype.itemsize
    if any(d < 0 for d in shape) or stream.tell() + nbytes != size:
        raise ValueError(
            f"it has shape {shape} and type {dtype}, but the file does not contain exactly {nbytes} bytes of data")
    flat = np.empty(math.prod(shape), dtype)
    view = flat.view(np.uint8)
    done = 0
    while done < nbytes:
        chunk = stream.read(min(nbytes - done, 1 << 24))
        if not chunk:
            raise ValueError("it is truncated")
        view[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
        done += len(chunk)
    return flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)
