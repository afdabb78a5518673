"""A tuner with a cost model, which learns from measurements and searches the space for faster configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError, TVMError
from tilewright.base.settings import nearest
from tilewright.search.autotvm.feature import KINDS, KnobFeatures
from tilewright.search.autotvm.measure import MeasureInput
from tilewright.search.autotvm.pretrained import PretrainedKernelModel
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.autotvm.task.task import Task
from tilewright.search.autotvm.tuner.tuner import Array, History, RandomTuner
from tilewright.search.cost_model import CostModel
from tilewright.search.features import of_loops

_EXPLORED: Final = 0.1
"""Fraction of a plan that is chosen at random."""
_LOWERED: Final = 96
"""Number of candidates of a plan that are lowered if features are those of programs."""
_CHAINS: Final = 64
_STEPS: Final = 48


class XGBTuner(RandomTuner):
    """Boosted trees over features of configurations (`knob`) or programs (`itervar`, `curve`), and the pretrained
    scores.

    Every `plan_size` trials the model learns anew and chooses the next `plan_size`: simulated annealing over its scores
    finds candidates, of which the best are taken; with `diversity_filter_ratio` r, the most different of r times as
    many.
    """

    def __init__(
        self, task: Task, plan_size: int = 64, feature_type: str = "itervar", loss_type: str = "reg",
        num_threads: int | None = None, optimizer: str = "sa", diversity_filter_ratio: float | None = None,
        log_interval: int = 50, *, model: str = "auto", seed: int = 0, prior: bool = True,
    ) -> None:
        """`model` is "numpy", "xgboost" or "auto". `prior`: the pretrained model scores candidates of kernels.

        Raises `OptionError` for unknown names.
        """
        super().__init__(task, seed=seed)
        if feature_type not in KINDS:
            hint = nearest(feature_type, KINDS) or f"; they are {', '.join(KINDS)}"
            raise OptionError(f"there are no features '{feature_type}'{hint}", code="TW1103")
        if optimizer != "sa":
            raise OptionError(f"there is no optimizer '{optimizer}'; 'sa' is simulated annealing", code="TW1103")
        if plan_size < 1 or (diversity_filter_ratio is not None and diversity_filter_ratio < 1):
            raise OptionError(
                f"plan_size={plan_size} and diversity_filter_ratio={diversity_filter_ratio} must be at least 1",
                code="TW1104")
        self.plan_size, self.feature_type, self.diversity = plan_size, feature_type, diversity_filter_ratio or 1.0
        self.cost_model = CostModel(loss_type, model, seed)
        self._knobs = KnobFeatures(self.space)
        self._prior = PretrainedKernelModel(task) if prior and isinstance(task, KernelTask) else None
        self._programs: dict[int, Array] = {}
        self.xs: list[int] = []
        self.ys: list[float] = []
        self._old: tuple[Array, Array] | None = None
        self._plan: list[int] = []
        self._learnt = 0

    def next_indices(self, count: int) -> list[int]:
        if len(self.xs) - self._learnt >= min(self.plan_size, 16 + self._learnt):
            self._fit()
            self._plan = []
        if not self._plan and (self.cost_model.rows or self._prior is not None):
            self._plan = self._planned()
        explored = sum(int(x) for x in self.rng.random(count) < _EXPLORED) if self._plan else count
        chosen = [i for i in dict.fromkeys(self._plan) if i not in self.visited][: count - explored]
        self._plan = [i for i in self._plan if i not in chosen]
        return self.filled(chosen, count)

    def learn(self, indices: Sequence[int], speeds: Array) -> None:
        self.xs += list(indices)
        self.ys += list(map(float, speeds))

    def load_history(self, data_set: History, min_seed_records: int = 500) -> None:
        """Learn from records of tasks of the same operators; speeds count as fractions of each task's best."""
        related = [(i, r) for i, r in data_set if i.task.name == self.task.name]
        if len(related) < min_seed_records:
            return
        best: dict[Any, float] = {}
        for i, r in related:
            best[i.task.workload] = max(best.get(i.task.workload, 0.0), i.task.speed(r))
        rows, ys = [], []
        for i, r in related:
            row = self._row_of(i)
            if row is not None:
                rows.append(row)
                ys.append(i.task.speed(r) / max(best[i.task.workload], 1e-9))
        if rows:
            self._old = np.stack(rows), np.asarray(ys)
            self._fit()

    def _row_of(self, i: MeasureInput) -> Array | None:
        """Return the features of a record of another task; None if they mean nothing here."""
        index = self.space.index_of(i.config.entity_map)
        if self.feature_type == "knob":
            return None if index is None else np.asarray(self._features([index])[0])
        try:
            row = _program_features(i.task, i.config, self.feature_type)
        except TVMError:
            return None
        if self._prior is None:
            return row
        return np.append(row, np.float32(0.0 if index is None else self._prior([index])[0]))

    def _fit(self) -> None:
        """Learn from all measurements, and from loaded records."""
        rows, ys = self._features(self.xs), np.asarray(self.ys)
        if len(ys) and ys.max() > 0:
            ys = ys / ys.max()
        if self._old is not None:
            rows = np.concatenate([rows, self._old[0]]) if len(rows) else self._old[0]
            ys = np.concatenate([ys, self._old[1]])
        self.cost_model.fit(rows, ys)
        self._learnt = len(self.xs)

    def _features(self, indices: Sequence[int]) -> Array:
        """Return a row for each: the features of the configuration or its program, then its pretrained score."""
        found = self._described(indices)
        if self._prior is None or not len(indices):
            return found
        return np.concatenate([found, self._prior(indices)[:, None].astype(np.float32)], axis=1)

    def _scores(self, indices: Sequence[int]) -> Array:
        """Return the scores of the model; of the pretrained one before anything was learnt."""
        if self.cost_model.rows:
            return self.cost_model.predict(self._features(indices))
        assert self._prior is not None
        return self._prior(indices)

    def _described(self, indices: Sequence[int]) -> Array:
        if self.feature_type == "knob":
            return self._knobs(indices)
        for i in indices:
            if i not in self._programs:
                try:
                    self._programs[i] = _program_features(self.task, self.space.get(i), self.feature_type)
                except TVMError:
                    self._programs[i] = np.zeros(0, np.float32)  # no program: it is measured as a failure
        rows = [self._programs[i] for i in indices]
        width = max(map(len, rows), default=0)
        return np.stack(
            [r if len(r) else np.zeros(width, np.float32) for r in rows]
        ) if rows else np.zeros((0, 0), np.float32)

    def _planned(self) -> list[int]:
        """Return candidates that should be fast, the best first."""
        wanted = int(self.plan_size * self.diversity)
        if self.feature_type == "knob" or not self.cost_model.rows:  # neither needs programs
            found, scores = self._annealed()
        else:
            found = self._sampled()
            scores = self._scores(found)
        ranked = [found[k] for k in np.argsort(-scores, kind="stable")][:wanted]
        return ranked if self.diversity <= 1 else self._diverse(ranked)

    def _annealed(self) -> tuple[list[int], Array]:
        """Run many chains of simulated annealing over the scores; return all new candidates and their scores."""
        points = [int(i) for i in self.space.sample_ints(_CHAINS, self.rng)]
        fast = [self.xs[k] for k in np.argsort(-np.asarray(self.ys), kind="stable")[: _CHAINS // 8]]
        points[: len(fast)] = fast[: len(points)]
        scores = self._scores(points)
        seen = dict(zip(points, scores, strict=True))
        for step in range(_STEPS):
            moved = [self.space.neighbour(p, self.rng) for p in points]
            new = self._scores(moved)
            seen.update(zip(moved, new, strict=True))
            heat = max(1e-6, (1 - step / _STEPS) * float(np.std(scores) + 1e-9))
            accepted = self.rng.random(len(points)) < np.exp(np.minimum(0.0, (new - scores) / heat))
            points = [m if ok else p for p, m, ok in zip(points, moved, accepted, strict=True)]
            scores = np.where(accepted, new, scores)
        left = [i for i in seen if i not in self.visited]
        return left, np.asarray([seen[i] for i in left])

    def _sampled(self) -> list[int]:
        """Return candidates near fast ones and at random, few enough to lower their programs."""
        order: Array = np.argsort(-np.asarray(self.ys), kind="stable")[:8]
        near = [self.space.neighbour(self.xs[int(k)], self.rng, far=0.0) for k in order for _ in range(_LOWERED // 16)]
        found = dict.fromkeys([*near, *self.space.sample_ints(_LOWERED // 2, self.rng)])
        return [i for i in found if i not in self.visited]

    def _diverse(self, ranked: list[int]) -> list[int]:
        """Take a plan from `ranked`: each time the one that differs most from those taken, the faster first."""
        points = {i: self.space.point(i) for i in ranked}
        taken, left = ranked[:1], ranked[1:]
        apart = {i: _distance(points[i], points[taken[0]]) for i in left} if taken else {}
        while left and len(taken) < self.plan_size:
            chosen = max(left, key=lambda i: apart[i])
            left.remove(chosen)
            taken.append(chosen)
            for i in left:
                apart[i] = min(apart[i], _distance(points[i], points[chosen]))
        return taken


def _distance(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))


def _program_features(task: Task, config: Any, kind: str) -> Array:
    return of_loops(task.lowered(config).func if isinstance(task, KernelTask) else task.lower(config), kind)
