"""TVM's `tvm.contrib.download`: files from the network, kept in a folder for the next run.

    path = download_testdata("https://example.org/cat.png", "cat.png", module="data")

The folder is `$TEST_DATA_ROOT_PATH`, by default `~/.tvm_test_data`.
"""

from __future__ import annotations

import os
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO

from tilewright.base.errors import OptionError
from tilewright.runtime.files import write_atomically

__all__ = ["download", "download_testdata"]


def download(url: str, path: str | os.PathLike[str], overwrite: bool = False, size_compare: bool = False,
             retries: int = 3) -> None:
    """Copy the file at `url` to `path`, unless it is there.

    With `overwrite` it is always copied; with `size_compare`, if the server states another size. Raises `OptionError`
    after `retries` more attempts.
    """
    target = Path(path).expanduser()
    if target.is_file() and not overwrite and not (size_compare and target.stat().st_size != _size(url)):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(retries + 1):
        try:
            write_atomically(target, lambda file: _copy(url, file))
            return
        except (urllib.error.URLError, OSError, ValueError) as error:
            if attempt == retries or isinstance(error, ValueError):
                raise OptionError(
                    f"{url} cannot be downloaded: {error}; put the file at {target}", code="TW0205") from error
            time.sleep(0.1 * 2**attempt)


def download_testdata(url: str, relpath: str | os.PathLike[str], module: str | list[str] | None = None,
                      overwrite: bool = False) -> str:
    """Download a file into the folder of test data, as `module/relpath`, and return its path."""
    root = Path(os.environ.get("TEST_DATA_ROOT_PATH", "~/.tvm_test_data")).expanduser()
    folders = [module] if isinstance(module, str) else module or []
    path = root.joinpath(*folders, relpath)
    download(url, path, overwrite)
    return str(path)


def _size(url: str) -> int:
    """Return the size of a file in bytes as its server states it; -1 if it does not."""
    with urllib.request.urlopen(url) as source:
        return int(source.headers.get("Content-Length", -1))


def _copy(url: str, file: BinaryIO) -> None:
    with urllib.request.urlopen(url) as source:
        shutil.copyfileobj(source, file)
