"""Which tuner wrote a file of records, told by the first of them, and what it says of the programs that are compiled.

    autotvm            {"input": ["llvm", task, args, kwargs], "config": …, "result": …, "version": 0.2, …}
    auto_scheduler     {"i": [[workload, "llvm", …], [[], steps]], "r": …, "v": "v0.6"}
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import Any

from tilewright.base.errors import OptionError
from tilewright.base.json_reading import read_json

File = str | PathLike[str]


def is_of_auto_scheduler(path: File) -> bool:
    """Whether the records are of `auto_scheduler`, and not of `autotvm`. Raises `ModelError` for a file that cannot be
    read, `OptionError` for one without records."""
    from tilewright.search.records import is_ansor, lines

    for row, _ in lines(path):
        try:
            first = read_json(row)
        except ValueError:
            return False  # autotvm's reader says where, and what a record is
        return is_ansor(first)
    raise OptionError(f"--tuning-records: '{path}' has no records; tune first, or leave it out", code="TW1102")


def advised(path: File | None) -> tuple[AbstractContextManager[Any], dict[str, Any]]:
    """Who says how kernels are made, for what is compiled inside, and the switches that he needs. Raises what reading
    the records raises."""
    if path is None or not str(path):
        return nullcontext(), {}
    if is_of_auto_scheduler(path):
        from tilewright.search.auto_scheduler.dispatcher import OPTION, ApplyHistoryBest

        return ApplyHistoryBest(path), {OPTION: True}
    from tilewright.search.autotvm.task.dispatcher import apply_history_best

    return apply_history_best(path), {}
