"""Models that say which candidates are worth measuring.

`XGBModel` learns from all that was measured, by trees over the features of programs. Before there is enough to learn from, candidates are ordered by the guess
from the processor alone, corrected by the model that ships (`tuning/forests.py`). `RandomModel` orders them by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.search.auto_scheduler.measure import MeasureResult
from tilewright.search.auto_scheduler.program import Program, program_of
from tilewright.search.cost_model import BoostedTrees, CostModel
from tilewright.search.forests import shipped

Array = np.ndarray[Any, Any]
ENOUGH: Final = 16
"""Measurements of a task from which the model is asked."""
_CORRECTION: Final = 0.5


class ProgramModel(Protocol):
    """Scores programs, the higher the better, and learns from results."""

    def update(self, programs: Sequence[Program], results: Sequence[MeasureResult]) -> None: ...

    def predict(self, programs: Sequence[Program]) -> Array: ...


class RandomModel:
    """Orders candidates by chance, the same for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def update(self, programs: Sequence[Program], results: Sequence[MeasureResult]) -> None:
        """Learns nothing."""

    def predict(self, programs: Sequence[Program]) -> Array:
        return self._random.random(len(programs))


class XGBModel:
    """Trees over features; with xgboost where that is installed, else our own in numpy.

    `verbose_eval`, `model_file` and `adaptive_training` are accepted as the field has them: training is silent and takes some hundredths of a
    second each time, so nothing is kept in a file; a file that exists is one of records to learn from.
    """

    def __init__(
        self, verbose_eval: int = 25, num_warmup_sample: int = ENOUGH, seed: int | None = None, model_file: str | None = None, adaptive_training: bool = False,
    ) -> None:
        self.num_warmup_sample = num_warmup_sample
        self._model = CostModel("reg", "auto", seed or 0)
        self._rows: dict[str, list[tuple[Array, float]]] = {}
        if model_file and Path(model_file).exists():
            self.update_from_file(model_file)

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learn from the records of a file whose workloads are registered and whose steps make programs; others are passed over."""
        from tilewright.search.auto_scheduler.measure_record import RecordReader
        from tilewright.search.auto_scheduler.workload_registry import is_registered

        inputs, results = RecordReader(file_name).read_lines(n_lines)
        programs, used = [], []
        for inp, result in zip(inputs, results, strict=True):
            if is_registered(inp.task.workload_key):
                try:
                    programs.append(program_of(inp.task, inp.task.compute_dag.init_state.apply(inp.state.transform_steps)))
                except CompileError:
                    continue  # a record that makes no program teaches nothing
                used.append(result)
        self.update(programs, used)

    def update(self, programs: Sequence[Program], results: Sequence[MeasureResult]) -> None:
        """Learn anew from all that has been measured: the throughput of each, as a part of the best of its task."""
        for p, r in zip(programs, results, strict=True):
            self._rows.setdefault(p.workload_key, []).append((p.features, r.cost))
        x, y = [], []
        for rows in self._rows.values():
            best = min((c for _, c in rows), default=float("inf"))
            x += [f for f, _ in rows]
            y += [best / c if np.isfinite(c) else 0.0 for _, c in rows]
        if len(x) >= self.num_warmup_sample and any(y):
            self._model.fit(np.stack(x), y)

    def predict(self, programs: Sequence[Program]) -> Array:
        """Scores; those of programs that nothing is known of yet are guesses."""
        if not programs:
            return np.zeros(0)
        guess = corrected(-np.log([p.cycles for p in programs]), shipped("programs"), np.stack([p.features for p in programs]))
        known = sum(len(self._rows.get(k, ())) for k in {p.workload_key for p in programs})
        if not self._model.rows or known < self.num_warmup_sample:
            return guess
        learnt: Array = self._model.predict(np.stack([p.features for p in programs]))
        scores: Array = learnt + 0.03 * (guess - guess.max())
        return scores


def corrected(guess: Array, model: BoostedTrees, features: Array) -> Array:
    """Guesses [n], the logarithm of speed by the model of cycles, with half of what they were off by for programs like these."""
    better: Array = guess + _CORRECTION * model.predict(features)
    return better


def costs(results: Iterable[MeasureResult]) -> list[float]:
    """Seconds of each result, infinite for those that failed."""
    return [r.cost for r in results]
