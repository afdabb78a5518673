"""The files of a session on a device, in a single folder."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from tilewright.base.errors import InputError


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tilewright-rpc-")


def file(name: Any) -> Path:
    """Return the path of a file of the session; raises `InputError` for a name that leads elsewhere."""
    if (
        not isinstance(name, str) or not name or name in (".", "..") or Path(name).name != name
        or not name.isprintable() or len(name.encode()) > 255
    ):
        raise InputError(f"'{name}' is not a valid file name in a session; use a name without folders", code="TW1206")
    return Path(_folder().name) / name


def present(name: Any) -> Path:
    """Return the path of an existing file of the session; raises `InputError` if it does not exist."""
    path = file(name)
    if not path.is_file():
        raise InputError(f"the session has no file '{name}'; upload it first", code="TW1206")
    return path
