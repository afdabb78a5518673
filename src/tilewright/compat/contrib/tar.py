"""TVM's `tvm.contrib.tar`: archives of files.

    tar("model.tar", ["lib0.o", "devc.o"])
    untar("model.tar", "directory")
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.base.errors import ArtifactError

__all__ = ["tar", "untar"]


def tar(output: str | os.PathLike[str], files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
    """Write files to an archive under their names, without folders. Raises `ArtifactError` for two equal names."""
    paths = [Path(f) for f in ([files] if isinstance(files, (str, os.PathLike)) else files)]
    names = [p.name for p in paths]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ArtifactError(f"{output}: two files are named '{twice}'; rename one of them", code="TW0807")
    with tarfile.open(output, "w") as archive:
        for p in paths:
            archive.add(p, p.name)


def untar(tar_file: str | os.PathLike[str], directory: str | os.PathLike[str]) -> None:
    """Extract an archive into a folder. Raises `tarfile.TarError` for files that would be outside of it."""
    with tarfile.open(tar_file) as archive:
        archive.extractall(directory, filter="data")
