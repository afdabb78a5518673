"""A shared library in this process, loaded from a file that was checked before."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import ArtifactError


class SharedLibrary:
    """`address(symbol)` as long as this object lives; unloaded with it."""

    def __init__(self, descriptor: int, path: Path) -> None:
        """Load the open file `descriptor`, which is closed together with the library; `path` is for messages.

        The loader is given the descriptor, not the path: it would otherwise answer with the library that it loaded from
        the same path before, whatever the file holds now. The descriptor stays open so that this name stays unique.
        """
        proc = Path(f"/proc/self/fd/{descriptor}")
        try:
            self._library = ctypes.CDLL(str(proc if proc.exists() else path))
        except OSError as error:
            os.close(descriptor)
            raise ArtifactError(f"{path}: the system cannot load this library: {error}") from error
        weakref.finalize(self, _unload, self._library._handle, descriptor).atexit = False

    def address(self, symbol: str) -> int:
        """Where `symbol` is; raises `KeyError` when there is none."""
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(self._library, symbol))
        except ValueError as error:
            raise KeyError(symbol) from error

    def bytes_at(self, symbol: str, count: int) -> np.ndarray[Any, Any]:
        """The `count` bytes at `symbol`, read-only; valid as long as this object lives."""
        memory = (ctypes.c_uint8 * count).from_address(self.address(symbol))
        view = np.frombuffer(memoryview(memory), np.uint8)
        view.flags.writeable = False
        return view


def _unload(handle: int, descriptor: int) -> None:
    _ctypes.dlclose(handle)
    os.close(descriptor)
