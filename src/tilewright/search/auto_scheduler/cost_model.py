"""Cost models that rank candidates.

`XGBModel` learns from all measurements, by trees over the features of programs. Before there are enough of them,
candidates are ranked by the model of cycles, corrected by the pretrained model. `RandomModel` ranks them at random.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.errors import CompileError, ModelError
from tilewright.base.json_reading import read_json
from tilewright.search.auto_scheduler.loop_state import State
from tilewright.search.auto_scheduler.measure import MeasureInput
from tilewright.search.auto_scheduler.program import Array, Program, program_of
from tilewright.search.cost_model import BoostedTrees, CostModel, shipped
from tilewright.search.measure import Measured

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask

ENOUGH: Final = 16
"""Number of measurements of a task after which the learnt model ranks its candidates."""
_CORRECTION: Final = 0.5
_ESTIMATE_SHARE: Final = 0.03
"""Weight of the estimate that is added to the learnt score."""


class PythonBasedModel:
    """Base class of cost models. A program of the user overrides `predict`, and `update` if the model learns."""

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[Measured]) -> None:
        """Learn from results; by default, learn nothing."""

    def predict(self, task: SearchTask, states: Sequence[Any]) -> Any:
        """Return a score for each state of a task, the higher the better."""
        raise NotImplementedError

    def score(self, programs: Sequence[Program]) -> Array:
        """Return the score of each program, the higher the better."""
        scores = np.zeros(len(programs))
        for task in dict.fromkeys(p.task for p in programs):
            places = [k for k, p in enumerate(programs) if p.task is task]
            scores[places] = np.asarray(self.predict(task, [programs[k].state for k in places]), float)
        return scores


class RandomModel(PythonBasedModel):
    """Ranks candidates at random, the same for the same seed, and learns nothing."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def predict(self, task: SearchTask, states: Sequence[Any]) -> Array:
        """Return a random score for each state."""
        return self._random.random(len(states))

    def score(self, programs: Sequence[Program]) -> Array:
        return self._random.random(len(programs))


class XGBModel(PythonBasedModel):
    """Trees over features of programs, by xgboost if it is installed, else in numpy.

    `num_warmup_sample` measurements of a task are needed before it predicts by them; `model_file`, if it exists, is a
    file of records to learn from.
    """

    def __init__(
        self, verbose_eval: int = 25, num_warmup_sample: int = ENOUGH, seed: int | None = None,
        model_file: str | None = None, adaptive_training: bool = False,
    ) -> None:
        self.num_warmup_sample = num_warmup_sample
        self._model = CostModel("reg", "auto", seed or 0)
        self._rows: dict[str, list[tuple[Array, float]]] = {}
        if model_file and Path(model_file).exists():
            self.update_from_file(model_file)

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learn from the records of a file whose workloads are registered and whose steps make programs."""
        from tilewright.search.auto_scheduler.measure_record import RecordReader
        from tilewright.search.auto_scheduler.workload_registry import is_registered

        programs, used = [], []
        for inp, result in zip(*RecordReader(file_name).read_lines(n_lines), strict=True):
            if is_registered(inp.task.workload_key):
                try:
                    state = inp.task.compute_dag.init_state.apply(inp.state.transform_steps)
                    programs.append(program_of(inp.task, state))
                except CompileError:
                    continue  # a record that makes no program teaches nothing
                used.append(result)
        self.update(programs, used)

    def save(self, file_name: str) -> None:
        """Write what the model learnt from to a file of JSON."""
        rows = {key: [[*map(float, f), cost] for f, cost in found] for key, found in self._rows.items()}
        Path(file_name).write_text(json.dumps(rows), encoding="utf-8")

    def load(self, file_name: str) -> None:
        """Learn from a file that `save` wrote, and forget everything else. Raises `ModelError` for another file."""
        try:
            rows = read_json(Path(file_name).read_text(encoding="utf-8"))
            self._rows = {
                key: [(np.asarray(row[:-1], np.float32), float(row[-1])) for row in found]
                for key, found in rows.items()}
        except (OSError, ValueError, AttributeError, TypeError, IndexError) as error:
            raise ModelError(f"{file_name}: this is not a saved cost model ({error})", code="TW1101") from error
        self._fit()

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[Measured]) -> None:
        """Learn anew from all measurements: the throughput of each, as a fraction of the best of its task."""
        for p, r in zip(map(as_program, inputs), results, strict=True):
            self._rows.setdefault(p.task.workload_key, []).append((p.features, r.cost))
        self._fit()

    def _fit(self) -> None:
        x, y = [], []
        for rows in self._rows.values():
            best = min((c for _, c in rows), default=float("inf"))
            x += [f for f, _ in rows]
            y += [best / c if np.isfinite(c) else 0.0 for _, c in rows]
        if len(x) >= self.num_warmup_sample and any(y):
            self._model.fit(np.stack(x), y)

    def predict(self, task: SearchTask, states: Sequence[Any]) -> Array:
        """Return a score for each state of a task, the higher the better."""
        return self.score([program_of(task, _state_of(task, s)) for s in states])

    def score(self, programs: Sequence[Program]) -> Array:
        """Return a score for each program, the higher the better; an estimate before anything was learnt."""
        if not programs:
            return np.zeros(0)
        features = np.stack([p.features for p in programs])
        guess = corrected(-np.log([p.cycles for p in programs]), shipped("programs"), features)
        known = sum(len(self._rows.get(k, ())) for k in {p.task.workload_key for p in programs})
        if not self._model.rows or known < self.num_warmup_sample:
            return guess
        learnt: Array = self._model.predict(features)
        scores: Array = learnt + _ESTIMATE_SHARE * (guess - guess.max())
        return scores


def as_program(inp: MeasureInput) -> Program:
    """Return the program of an input. Raises `ScheduleError` if its steps make none."""
    return inp if isinstance(inp, Program) else program_of(inp.task, _state_of(inp.task, inp.state))


def _state_of(task: SearchTask, state: Any) -> State:
    """Return a state of the task with the steps of `state`, which may be that of a record."""
    if isinstance(state, State) and state.compute_dag is task.compute_dag:
        return state
    return task.compute_dag.init_state.apply(state.transform_steps)


def corrected(guess: Array, model: BoostedTrees, features: Array) -> Array:
    """Return estimates [n] (the logarithm of speed), corrected by half of the error that `model` predicts for them."""
    better: Array = guess + _CORRECTION * model.predict(features)
    return better
