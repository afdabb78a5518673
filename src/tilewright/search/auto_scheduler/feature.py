"""Features of programs under TVM's names: an array [stores, 164] for each (`search/store_features.py`).

The searches of this package learn from other features (`search/features.py`); these serve models trained elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.search import store_features
from tilewright.search.auto_scheduler.measure import MeasureInput
from tilewright.search.auto_scheduler.measure_record import RecordReader
from tilewright.search.auto_scheduler.search_task import SearchTask
from tilewright.search.measure import Measured
from tilewright.tir.stmt import PrimFunc

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.loop_state import State

Array = np.ndarray[Any, Any]
DEFAULT_MAX_N_BUFS = store_features.MAX_BUFFERS
DEFAULT_FEATURE_VEC_LEN = len(store_features.names())


def get_per_store_feature_names(max_n_bufs: int | None = None) -> list[str]:
    """Return the names of the features, in order; `max_n_bufs` buffers of each store are described (default 5)."""
    return store_features.names(max_n_bufs or DEFAULT_MAX_N_BUFS)


def get_per_store_features_from_states(
    states: Sequence[State], task: SearchTask, max_n_bufs: int | None = None
) -> list[Array]:
    """Return an array float32 [stores, features] for each state of a task."""
    return [_of_state(state, task, max_n_bufs) for state in states]


def get_per_store_features_from_measure_pairs(
    inputs: Sequence[MeasureInput], results: Sequence[Measured], skip_first_n_feature_extraction: int = 0,
    max_n_bufs: int | None = None,
) -> tuple[list[Array], Array, Array]:
    """Return the features, the throughput and the number of the task of each measured program.

    A throughput is the time of the fastest program of the task divided by that of the program; 0 for a failure. The
    first `skip_first_n_feature_extraction` programs have no features.
    """
    tasks: dict[tuple[str, str], tuple[int, SearchTask]] = {}
    features: list[Array] = []
    numbers: list[int] = []
    for k, inp in enumerate(inputs):
        known = tasks.setdefault((inp.task.workload_key, inp.task.target_text), (len(tasks), inp.task))
        numbers.append(known[0])
        features.append(
            np.zeros((0, 0), np.float32) if k < skip_first_n_feature_extraction
            else _of_state(inp.state, known[1], max_n_bufs))
    costs = np.asarray([r.cost for r in results], np.float64)
    ids = np.asarray(numbers, np.int32)
    best = np.full(len(tasks), np.inf)
    np.minimum.at(best, ids, costs)
    with np.errstate(invalid="ignore"):
        return features, np.where(np.isfinite(costs), best[ids] / costs, 0.0), ids


def get_per_store_features_from_file(
    filename: str | os.PathLike[str], max_lines: int, max_n_bufs: int | None = None
) -> tuple[list[Array], Array, Array]:
    """Return what `get_per_store_features_from_measure_pairs` returns, for the first records of a file."""
    inputs, results = RecordReader(filename).read_lines(max_lines)
    return get_per_store_features_from_measure_pairs(inputs, results, max_n_bufs=max_n_bufs)


def features_from_primfunc(
    func: PrimFunc, cache_line_bytes: int = store_features.CACHE_LINE, max_n_bufs: int | None = None,
    log_scale: bool = False,
) -> Array | None:
    """Return the features of a loop program, float64 [stores, features]; None if it stores nothing that is computed."""
    found = store_features.of_stores(
        func, max_buffers=max_n_bufs or DEFAULT_MAX_N_BUFS, cache_line=cache_line_bytes, log_scale=log_scale)
    return found if len(found) else None


def named_features_from_primfunc(
    func: PrimFunc, cache_line_bytes: int = store_features.CACHE_LINE, max_n_bufs: int | None = None,
    log_scale: bool = False,
) -> dict[str, Array] | None:
    """Return the features of a loop program by name, [stores] each; None if it stores nothing that is computed."""
    found = features_from_primfunc(func, cache_line_bytes, max_n_bufs, log_scale)
    if found is None:
        return None
    return dict(zip(get_per_store_feature_names(max_n_bufs), found.T, strict=True))


def _of_state(state: State, task: SearchTask, max_n_bufs: int | None) -> Array:
    made = store_features.of_stores(
        task.compute_dag.func(state), is_gpu="gpu" in task.target.keys, max_buffers=max_n_bufs or DEFAULT_MAX_N_BUFS,
        cache_line=task.hardware_params.cache_line_bytes)
    return made.astype(np.float32)
