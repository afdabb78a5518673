"""Temporary directories for scripts: `tvm.contrib.utils.tempdir`."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

__all__ = ["TempDirectory", "tempdir"]


class TempDirectory:
    """A directory that is removed with this object, or at the end of the process."""

    def __init__(self, custom_path: str | os.PathLike[str] | None = None, keep_for_debug: bool = False) -> None:
        """`custom_path` is the directory to use, created if it does not exist; with `keep_for_debug`, it is never
        removed."""
        if custom_path is None:
            self.temp_dir = Path(tempfile.mkdtemp(prefix="tilewright-"))
        else:
            self.temp_dir = Path(custom_path)
            self.temp_dir.mkdir(parents=True, exist_ok=True)
        self._remove = None if keep_for_debug else weakref.finalize(self, shutil.rmtree, self.temp_dir, True)

    @property
    def path(self) -> Path:
        """The path of the directory."""
        return self.temp_dir

    def remove(self) -> None:
        """Remove the directory now."""
        if self._remove is not None:
            self._remove()

    def relpath(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return str(self.temp_dir / name)

    def listdir(self) -> list[str]:
        """Return the names of the files in the directory."""
        return [p.name for p in self.temp_dir.iterdir()]

    def __truediv__(self, other: str | os.PathLike[str]) -> Path:
        return self.temp_dir / other


def tempdir(custom_path: str | os.PathLike[str] | None = None, keep_for_debug: bool = False) -> TempDirectory:
    """Return a new temporary directory. `custom_path` is the directory to use; it is kept with `keep_for_debug`."""
    return TempDirectory(custom_path, keep_for_debug)
