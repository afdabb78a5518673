"""Features of candidates for cost models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.base.nd import NDArray, array
from tilewright.search import features, store_features
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


class PerStoreFeature(FeatureExtractor):
    """TVM's features of each store: 164 numbers for each of its rows (`search/store_features.py`).

    `buffers_per_store` buffers are described; `cache_line_bytes` is the length of a cache line. The others must have
    their defaults; raises `OptionError` if they do not.
    """

    def __init__(
        self, buffers_per_store: int = 5, arith_intensity_curve_num_samples: int = 10, cache_line_bytes: int = 64,
        extract_workload: bool = False,
    ) -> None:
        if arith_intensity_curve_num_samples != 10 or extract_workload:
            raise OptionError(
                "PerStoreFeature has 10 samples of the arithmetic intensity, and no features of the workload; omit "
                "arith_intensity_curve_num_samples and extract_workload", code="TW1103")
        self.buffers_per_store, self.cache_line_bytes = buffers_per_store, cache_line_bytes

    @property
    def feature_vector_length(self) -> int:
        """Number of features of a row."""
        return len(store_features.names(self.buffers_per_store))

    def extract_from(self, context: TuneContext, candidates: Sequence[MeasureCandidate]) -> list[NDArray]:
        is_gpu = context.target is not None and "gpu" in context.target.keys
        return [array(self._rows(candidate, is_gpu)) for candidate in candidates]

    def _rows(self, candidate: MeasureCandidate, is_gpu: bool) -> Any:
        return store_features.of_stores(
            only_function(candidate.sch.mod), is_gpu=is_gpu, max_buffers=self.buffers_per_store,
            cache_line=self.cache_line_bytes)


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
