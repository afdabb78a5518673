"""Callbacks that tuners call after each batch: `callback(tuner, inputs, results)`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.search.autotvm import record
from tilewright.search.autotvm.env import GLOBAL_SCOPE
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, TaskCandidate
from tilewright.search.loop import Callback
from tilewright.search.records import Records

PREFIXES: Final = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
"""Prefixes of units."""


def log_to_file(file_out: Any, protocol: str = "json") -> Callback:
    """Append each result as a line to a path, also from several processes at once, or to an open file."""
    if protocol != "json":
        raise OptionError(f"records are written as JSON, not as '{protocol}'", code="TW1115")
    opened: list[Records] = []

    def callback(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        if isinstance(file_out, (str, os.PathLike)) and not opened:
            opened.append(Records(file_out))
        for inp, result in zip(inputs, results, strict=True):
            if opened:
                opened[0].add(TaskCandidate.of(inp.task, inp.config), result)
            else:
                file_out.write(record.encode(inp, result) + "\n")

    return callback


def log_to_database(db: Any) -> Callback:
    """Save each result in a store with `save(input, result, extend=True)`."""

    def callback(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            db.save(inp, result, extend=True)

    return callback


class Monitor:
    """Collects operations a second and times of trials, for a plot."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all trials."""
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            self.scores.append(inp.task.speed(result))
            self.timestamps.append(result.timestamp)

    def trial_scores(self) -> np.ndarray[Any, Any]:
        """Return operations a second of each trial; 0 if it failed."""
        return np.asarray(self.scores)

    def trial_timestamps(self) -> np.ndarray[Any, Any]:
        """Return when each trial was measured, in seconds since 1970."""
        return np.asarray(self.timestamps)


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """Print the speed of the current and the best configuration, trials, seconds. Raises `OptionError` for an unknown
    `si_prefix`."""
    if si_prefix not in PREFIXES:
        known = ", ".join(p for p in PREFIXES if p)
        raise OptionError(f"there is no prefix '{si_prefix}' of units; the prefixes are {known}", code="TW1103")
    unit, start = PREFIXES[si_prefix], time.time()
    done, best = 0, 0.0

    def callback(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        nonlocal done, best
        current = 0.0
        for inp, result in zip(inputs, results, strict=True):
            done += 1
            current = inp.task.speed(result) / unit
            best = max(best, current)
        if GLOBAL_SCOPE.silent:
            return
        text = (
            f"\r{prefix} Current/Best: {current:7.2f}/{best:7.2f} {si_prefix}FLOPS | Progress: ({done}/{total}) | "
            f"{time.time() - start:.2f} s")
        sys.stderr.write(
            text if sys.stderr.isatty() and done < total else f"{text}{' Done.' if done >= total else ''}\n")
        sys.stderr.flush()

    return callback
