"""Conformance suites that are too large for the repository, and the unpacking of archives.

A suite is looked for in the folder that the environment variable `TILEWRIGHT_SUITES` names, then in `shared/suites`
beside this project.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import pytest

SHARED = Path(__file__).parent.parent.parent / "shared" / "suites"


def unpack(archive: Path, into: Path) -> None:
    """Unpack a tar or a wheel. Tar members are checked where this Python can (from 3.11.4 on); the archives are our
    own."""
    if archive.suffix == ".whl":
        shutil.unpack_archive(archive, into, "zip")
        return
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extractall(into, filter="data")
        else:
            packed.extractall(into)


@functools.cache
def suite_folder(pattern: str) -> Path:
    """The folder of the first suite, a folder or an archive, whose name matches `pattern`; skips the test where there
    is none."""
    folders = [Path(f) for f in (os.environ.get("TILEWRIGHT_SUITES"), SHARED) if f]
    for path in (p for folder in folders for p in sorted(folder.glob(pattern))):
        if path.is_dir():
            return path
        into = Path(tempfile.mkdtemp(prefix="suite-"))
        atexit.register(shutil.rmtree, into, ignore_errors=True)
        unpack(path, into)
        return into
    pytest.skip(f"there is no conformance suite {pattern}; TILEWRIGHT_SUITES names the folder of the suites")
