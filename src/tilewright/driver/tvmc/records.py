"""Tuning records for compiling: the form of a file's first record identifies its tuner (`search/records.py`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import Any

from tilewright.base.errors import OptionError

File = str | PathLike[str]


def is_of_auto_scheduler(path: File) -> bool:
    """Return whether `auto_scheduler` wrote a file of records.

    Raises `ModelError` for a file that cannot be read, `OptionError` for one without records.
    """
    from tilewright.search.records import read

    for record in read(path):
        return bool(record.ansor)
    raise OptionError(f"--tuning-records: '{path}' has no records; tune first, or omit the option", code="TW1102")


def advised(path: File | None) -> AbstractContextManager[Any]:
    """Return the context in which the records of a file apply. Raises the errors of reading them."""
    if path is None or not str(path):
        return nullcontext()
    from tilewright.search.autotvm.task.dispatcher import apply_history_best

    return apply_history_best(path)
