"""What tuners call behind each batch: `callback(tuner, inputs, results)`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.search.autotvm import record
from tilewright.search.autotvm.env import GLOBAL_SCOPE
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, TaskCandidate, measured_of
from tilewright.search.records import Records

Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], None]
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def log_to_file(file_out: Any, protocol: str = "json") -> Callback:
    """Append each result as a line to a file (whole lines, also where several processes write), or to something that is open."""
    if protocol != "json":
        raise OptionError(f"records are written as JSON, not as '{protocol}'", code="TW1115")
    kept: list[Records] = []

    def callback(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            if isinstance(file_out, (str, os.PathLike)):
                if not kept:
                    kept.append(Records(file_out))
                kept[0].add(TaskCandidate.of(inp.task, inp.config), measured_of(result))
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
    """Keeps what was measured, for a plot: GFLOPS and times of trials."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            self.scores.append(inp.task.flop / result.cost if result.error_no == 0 else 0.0)
            self.timestamps.append(result.timestamp)

    def reset(self) -> None:
        """Forget all."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> np.ndarray[Any, Any]:
        """Operations a second of each trial; 0 where it failed."""
        return np.asarray(self.scores)

    def trial_timestamps(self) -> np.ndarray[Any, Any]:
        """When each was measured, seconds since 1970."""
        return np.asarray(self.timestamps)


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """One line on the standard error: speed of the current and of the best configuration, trials of `total`, seconds. Raises `OptionError`."""
    if si_prefix not in _PREFIXES:
        raise OptionError(f"there is no prefix '{si_prefix}' of units; the prefixes are {', '.join(p for p in _PREFIXES if p)}", code="TW1103")
    unit, start = _PREFIXES[si_prefix], time.time()
    done, best = 0, 0.0

    def callback(_: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        nonlocal done, best
        current = 0.0
        for inp, result in zip(inputs, results, strict=True):
            done += 1
            current = inp.task.flop / result.cost / unit if result.error_no == 0 else 0.0
            best = max(best, current)
        if GLOBAL_SCOPE.silent:
            return
        text = f"{prefix} Current/Best: {current:7.2f}/{best:7.2f} {si_prefix}FLOPS | Progress: ({done}/{total}) | {time.time() - start:.2f} s"
        sys.stderr.write(f"\r{text}" if sys.stderr.isatty() and done < total else f"\r{text}{' Done.' if done >= total else ''}\n")
        sys.stderr.flush()

    return callback
