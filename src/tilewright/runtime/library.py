"""A shared library in this process, loaded from a file that was checked before."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import ArtifactError


class SharedLibrary:
    """`address(symbol)` as long as this object lives; unloaded with it."""

    def __init__(self, descriptor: int, path: Path, *, stays: bool = False) -> None:
        """Load the open file `descriptor`; `path` is for messages, or where it `stays` as long as the process, so that debuggers find it.

        The system's loader answers with the library that it loaded under the same name before, whatever the file holds
        now. So it is given a name that was never used, which leads to the very file that was checked.
        """
        try:
            if stays:
                self._library = ctypes.CDLL(str(path))
                return
            with tempfile.TemporaryDirectory(prefix="tilewright-load-") as folder:
                name = Path(folder) / path.name
                of_process = Path(f"/proc/{os.getpid()}/fd/{descriptor}")  # not /proc/self, by which a debugger would open a file of its own
                name.symlink_to(of_process if of_process.exists() else path.resolve())
                self._library = ctypes.CDLL(str(name))
        except OSError as error:
            raise ArtifactError(f"{path}: the system cannot load this library: {error}") from error
        weakref.finalize(self, _ctypes.dlclose, self._library._handle).atexit = False

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
