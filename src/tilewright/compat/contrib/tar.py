"""TVM's `tvm.contrib.tar`: archives of object files, as the `fcompile` of `export_library`, and their contents.

    tar("lib.tar", ["a.o", "b.o"])
    untar("lib.tar", "folder")
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.base.errors import ArtifactError
from tilewright.runtime.sealed_tar import plain_members

__all__ = ["normalize_file_list_by_unpacking_tars", "tar", "untar"]

Names = str | os.PathLike[str]


def tar(output: Names, files: Names | Sequence[Names]) -> None:
    """Write files to an archive, each under its name without its folder. Raises `ArtifactError` if two have the same
    name."""
    paths = [Path(f) for f in ([files] if isinstance(files, (str, os.PathLike)) else files)]
    names = [p.name for p in paths]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise ArtifactError(f"{output}: two files are named '{twice}'; rename one of them", code="TW0807")
    with tarfile.open(output, "w") as archive:
        for path in paths:
            archive.add(path, path.name)


tar.output_format = "tar"  # type: ignore[attr-defined]


def untar(tar_file: Names, directory: Names) -> None:
    """Extract an uncompressed archive of files and folders into a folder. Raises `tarfile.TarError` before it writes
    anything if a path leaves the folder, occurs twice, or is a link or a device."""
    with Path(tar_file).open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
        members = plain_members(archive, os.fstat(file.fileno()).st_size)
        for member in members:
            path, content = Path(directory) / member.name, archive.extractfile(member)
            (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
            if content is not None:
                path.write_bytes(content.read())


def normalize_file_list_by_unpacking_tars(temp: Any, file_list: Sequence[Names]) -> list[Names]:
    """Return the files of a list, in which each `.tar` is replaced by the files that it has: they are extracted into
    folders of `temp`, a `contrib.utils.TempDirectory`."""
    found: list[Names] = []
    for k, file in enumerate(file_list):
        if not str(file).endswith(".tar"):
            found.append(file)
            continue
        folder = Path(temp.relpath(f"untar{k}"))
        untar(file, folder)
        found += sorted(str(p) for p in folder.rglob("*") if p.is_file())
    return found
