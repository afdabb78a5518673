"""Cost models: which candidates are fast, from measurements of others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.ir.structural import structural_hash
from tilewright.search import cost_model as trees
from tilewright.search.meta_schedule.candidates import MeasureCandidate, RunnerResult
from tilewright.search.meta_schedule.feature_extractor import FeatureExtractor, ProgramFeatures
from tilewright.search.meta_schedule.pack_sum import PackSum, custom_callback
from tilewright.search.meta_schedule.utils import Extensible

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext

__all__ = ["CostModel", "FeatureGroup", "PackSum", "PyCostModel", "RandomModel", "XGBModel", "custom_callback"]

Array = np.ndarray[Any, Any]
_get_custom_call_back = custom_callback


class CostModel(Extensible):
    """Base of cost models."""

    def load(self, path: str) -> None:
        """Read the state of a file that `save` wrote."""
        raise NotImplementedError(f"{type(self).__name__} does not define load")

    def save(self, path: str) -> None:
        """Write the state to a file."""
        raise NotImplementedError(f"{type(self).__name__} does not define save")

    def update(
        self, context: TuneContext, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Learn from results."""
        raise NotImplementedError(f"{type(self).__name__} does not define update")

    def predict(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> Array:
        """Return a score for each candidate, the higher the better."""
        raise NotImplementedError(f"{type(self).__name__} does not define predict")

    @staticmethod
    def create(kind: CostModel | str, **options: Any) -> CostModel:
        """Return a cost model for its name, "xgb" or "random", or for itself. Raises `OptionError` for another name."""
        if isinstance(kind, CostModel):
            return kind
        kinds: dict[str, Any] = {"xgb": XGBModel, "random": RandomModel}
        if kind not in kinds:
            raise OptionError(f"there is no cost model '{kind}'; there are {', '.join(kinds)}", code="TW1103")
        made: CostModel = kinds[kind](**options)
        return made


PyCostModel = CostModel


class RandomModel(CostModel):
    """Ranks candidates at random, and learns nothing. The state of the generator is saved as a numpy file."""

    def __init__(self, *, seed: int | None = None, path: str | None = None, max_range: int = 100) -> None:
        self.max_range = max_range
        self._random = np.random.RandomState(seed)
        if path is not None:
            self.load(path)

    def load(self, path: str) -> None:
        state = json.loads(str(np.load(path)))
        self._random.set_state((state[0], np.asarray(state[1], np.uint32), *state[2:]))

    def save(self, path: str) -> None:
        name, keys, *rest = self._random.get_state(legacy=True)
        with Path(path).open("wb") as file:
            np.save(file, np.asarray(json.dumps([name, [int(k) for k in np.asarray(keys)], *rest])))

    def update(
        self, context: TuneContext, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Learn nothing."""

    def predict(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> Array:
        return self._random.rand(len(candidates)) * self.max_range


@dataclass(slots=True)
class FeatureGroup:
    """The measurements of one program: features [rows, n] and mean seconds of each candidate."""

    group_hash: str
    features: list[Array]
    costs: Array

    @property
    def min_cost(self) -> float:
        """Seconds of the fastest candidate."""
        return float(np.min(self.costs)) if len(self.costs) else 1.0


class XGBModel(CostModel):
    """Boosted trees over features of candidates, by xgboost if it is installed, else in numpy.

    `num_warmup_samples` measurements are needed before it predicts by them; before that, scores are random.
    """

    def __init__(
        self, *, extractor: FeatureExtractor | str | None = None, num_warmup_samples: int = 16,
        seed: int | None = None, path: str | None = None,
    ) -> None:
        if isinstance(extractor, str) and extractor != "per-store-feature":
            raise OptionError(f"there is no feature extractor '{extractor}'; pass an object", code="TW1103")
        self.extractor = ProgramFeatures() if extractor is None or isinstance(extractor, str) else extractor
        self.num_warmup_samples = num_warmup_samples
        self.data: dict[str, FeatureGroup] = {}
        self.data_size = 0
        self._model = trees.CostModel("reg", "auto", seed or 0)
        self._random = np.random.RandomState(seed)
        if path is not None and Path(path).exists():
            self.load(path)

    def load(self, path: str) -> None:
        with np.load(path) as file:
            names = json.loads(str(file["names"]))
            self.data = {}
            for k, name in enumerate(names):
                rows = np.split(file[f"{k}/rows"], np.cumsum(file[f"{k}/lengths"])[:-1])
                self.data[name] = FeatureGroup(name, list(rows), file[f"{k}/costs"])
        self.data_size = sum(len(g.costs) for g in self.data.values())
        self._fit()

    def save(self, path: str) -> None:
        arrays: dict[str, Array] = {"names": np.asarray(json.dumps(list(self.data)))}
        for k, group in enumerate(self.data.values()):
            arrays[f"{k}/rows"] = np.concatenate(group.features)
            arrays[f"{k}/lengths"] = np.asarray([len(f) for f in group.features])
            arrays[f"{k}/costs"] = group.costs
        with Path(path).open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def update(
        self, context: TuneContext, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        if not candidates:
            return
        name = "" if context.mod is None else str(structural_hash(context.mod))
        rows = self._features(context, candidates)
        costs = np.asarray([1e10 if not r.run_secs else float(np.median(r.run_secs)) for r in results])
        group = self.data.setdefault(name, FeatureGroup(name, [], np.zeros(0)))
        group.features, group.costs = [*group.features, *rows], np.concatenate([group.costs, costs])
        self.data_size += len(rows)
        self._fit()

    def predict(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> Array:
        if self.data_size < max(1, self.num_warmup_samples) or not self._model.rows:
            return self._random.rand(len(candidates))
        return np.asarray(self._model.predict(_summed(self._features(context, candidates))))

    def _features(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> list[Array]:
        found = self.extractor.extract_from(context, candidates)
        return [np.asarray(f.numpy() if hasattr(f, "numpy") else f, np.float32) for f in found]

    def _fit(self) -> None:
        """Learn anew from all measurements: the speed of each, as a fraction of the best of its program."""
        if self.data_size < max(1, self.num_warmup_samples):
            return
        rows = [f for group in self.data.values() for f in group.features]
        speeds = [max(group.min_cost, 1e-12) / max(c, 1e-12) for group in self.data.values() for c in group.costs]
        self._model.fit(_summed(rows), speeds)


def _summed(rows: Sequence[Array]) -> Array:
    """Return one row for each candidate: its rows added up, because statements run one after the other."""
    return np.stack([f.sum(axis=0) for f in rows])
