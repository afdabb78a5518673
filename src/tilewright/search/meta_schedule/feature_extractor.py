"""Features of candidates for cost models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base.nd import NDArray, array
from tilewright.search import features
from tilewright.search.cycles import cycles
from tilewright.search.meta_schedule.candidates import MeasureCandidate
from tilewright.search.meta_schedule.utils import Extensible, only_function

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext


class FeatureExtractor(Extensible):
    """Base of feature extractors."""

    def extract_from(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> list[Any]:
        """Return an array [rows, features] for each candidate; rows add up."""
        raise NotImplementedError(f"{type(self).__name__} does not define extract_from")


PyFeatureExtractor = FeatureExtractor


class ProgramFeatures(FeatureExtractor):
    """The features of programs by which all searches of this package learn: one row for each candidate."""

    def extract_from(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> list[NDArray]:
        machine = (context.target or Target("llvm")).machine
        found = []
        for candidate in candidates:
            parts = features.statements(only_function(candidate.sch.mod))
            found.append(array(features.vector_of(parts, machine, cycles(parts, machine))[None]))
        return found


class RandomFeatureExtractor(FeatureExtractor):
    """Random features, for tests of cost models."""

    def __init__(self, *, feature_size: int = 30, max_block_num: int = 5, seed: int = 0) -> None:
        self.feature_size, self.max_block_num = feature_size, max_block_num
        self._random = np.random.RandomState(seed)

    @property
    def random_state(self) -> Any:
        """The state of the generator."""
        return self._random.get_state()

    @random_state.setter
    def random_state(self, state: Any) -> None:
        self._random.set_state(state)

    def extract_from(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> list[NDArray]:
        rows = [self._random.randint(1, self.max_block_num + 1) for _ in candidates]
        return [array(self._random.rand(n, self.feature_size).astype("float32")) for n in rows]
