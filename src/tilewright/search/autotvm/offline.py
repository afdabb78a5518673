"""Tuning without the device: records choose a network's kernels; without records, sufficiently reliable models choose.

    outcome = choose(tasks, Records("records.json"))
    for choice in outcome.choices: …          # the source of each configuration
    outcome.write(Records(output))            # records for `compile(…, records=)`

Two models are used: the model of cycles (`search/cycles.py`), and the pretrained one (`autotvm/pretrained.py`). Both
order the recorded configurations of each task; the rank correlation with the recorded times is their reliability.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError, TVMError
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.autotvm.pretrained import PretrainedKernelModel
from tilewright.search.autotvm.task.kernels import KernelTask, is_kernel
from tilewright.search.autotvm.task.space import ConfigEntity
from tilewright.search.comparison import rank_correlation
from tilewright.search.cycles import cycles
from tilewright.search.features import statements
from tilewright.search.measure import Measured
from tilewright.search.records import Record, Records

RELIABLE: Final = 0.5
"""Smallest rank correlation for which a model is used."""
ENOUGH: Final = 8
"""Smallest number of recorded configurations of a task by which models are judged."""
_MAX_RECORDED: Final = 48
_MAX_JUDGED: Final = 24
"""Number of recorded configurations of a task, and of tasks (at least those of the network), by which models are
judged."""
_SAMPLED: Final = 512
_RANKED: Final = 12
"""Number of random configurations, and of those that the pretrained model ranks first."""
_MAX_RATIO: Final = 0.95
"""Largest time of a chosen configuration, as a fraction of the compiler's own choice."""
MODELS: Final = ("cycles", "trained")
PREDICTED: Final = "predicted by a model, not measured"
_CLOCK: Final = 2.5e9
"""Cycles per second, if no record gives the time of a kernel."""
_UNKNOWN: Final = dict.fromkeys(MODELS, float("nan"))
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """The configuration of a task. `source` is "recorded", "cycles" or "trained" (a model), or "own" (the compiler's
    own)."""

    task: KernelTask
    calls: int
    recorded: int
    correlations: Mapping[str, float]
    """Rank correlation of each model with the records; NaN for too few records."""
    source: str
    config: ConfigEntity
    ratio: float
    """Its time as a fraction of the compiler's own choice, measured or predicted; NaN if neither is known."""
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The choices for a network, and each model's reliability: its median correlation over `judged` tasks."""

    choices: tuple[Choice, ...]
    certainty: Mapping[str, float]
    judged: int

    def write(self, records: Records) -> None:
        """Append one selected record for each choice; those of models are marked as not measured."""
        for c in self.choices:
            if c.measured is not None:
                records.add(TaskCandidate.of(c.task, c.config), c.measured, selected=True)


def choose(tasks: Sequence[tuple[KernelTask, int]], records: Records) -> Outcome:
    """Choose for `tasks`, each with how often it runs. Raises `OptionError` if no record is of their target."""
    target = str(tasks[0][0].target) if tasks else ""
    known: dict[tuple[str, ...], list[Record]] = {}
    others = set[str]()
    for r in records:
        name, args = json.loads(r.key)[:2]
        if r.measured.ok and not r.ansor and is_kernel(name):
            if r.target == target:
                known.setdefault((name, *args), []).append(r)
            else:
                others.add(f"'{r.target}'")
    if not known:
        raise OptionError(
            f"'{records.path}' has no records of kernels for '{target}'; it is of "
            f"{', '.join(sorted(others)) or 'no kernels at all'}: give that --target, or other records", code="TW1102")
    mine = {task.workload: task for task, _ in tasks}
    judged: dict[tuple[str, ...], Mapping[str, float]] = {}
    for key, found in sorted(known.items(), key=lambda one: one[0] not in mine)[: max(_MAX_JUDGED, len(mine))]:
        judged[key] = _correlations(mine.get(key) or KernelTask(key[0], key[1:], Target(target)), found)
    certainty = {m: _median([c[m] for c in judged.values()]) for m in MODELS}
    choices = tuple(
        _chosen(t, calls, known.get(t.workload, []), judged.get(t.workload, _UNKNOWN), certainty) for t, calls in tasks)
    return Outcome(choices, certainty, sum(any(np.isfinite(x) for x in c.values()) for c in judged.values()))


def predicted_cycles(task: KernelTask, config: ConfigEntity) -> float:
    """Estimate the cycles of a configuration; raises the errors of lowering it."""
    return max(1.0, sum(cycles(statements(task.lowered(config).func), task.target.machine)))


def _places(task: KernelTask, records: Sequence[Record]) -> dict[int, Measured]:
    """Return the fastest result of each configuration that the task has."""
    found: dict[int, Measured] = {}
    for r in records:
        index = task.config_space.index_of(ConfigEntity.from_json_dict(json.loads(r.config)).entity_map)
        if index is not None and (index not in found or r.measured.cost < found[index].cost):
            found[index] = r.measured
    return found


def _scores(task: KernelTask, model: str, indices: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return a model's scores of configurations, the higher the better; minus infinity of those without a program."""
    if model == "trained":
        return PretrainedKernelModel(task)(indices)
    found = []
    for i in indices:
        try:
            found.append(-np.log(predicted_cycles(task, task.config_space.get(i))))
        except TVMError as error:
            _LOG.debug("%s: configuration %d makes no program: %s", task.title, i, error)
            found.append(-np.inf)
    return np.asarray(found)


def _correlations(task: KernelTask, records: Sequence[Record]) -> Mapping[str, float]:
    places = _places(task, records)
    indices = sorted(places)[:: max(1, len(places) // _MAX_RECORDED)]
    if len(indices) < ENOUGH:
        return _UNKNOWN
    speeds = [-places[i].cost for i in indices]
    return {m: rank_correlation(_scores(task, m, indices), speeds) for m in MODELS}


def _median(figures: Sequence[float]) -> float:
    finite = [x for x in figures if np.isfinite(x)]
    return float(np.median(finite)) if finite else float("nan")


def _chosen(
    task: KernelTask, calls: int, records: Sequence[Record], correlations: Mapping[str, float],
    certainty: Mapping[str, float],
) -> Choice:
    """Choose the best of enough records, else the choice of the most reliable model, else the compiler's."""
    space, places, own = task.config_space, _places(task, records), task.default_config
    base = places.get(own.index)

    def made(source: str, config: ConfigEntity, ratio: float, measured: Measured | None) -> Choice:
        return Choice(task, calls, len(places), correlations, source, config, ratio, measured)

    if base is not None and len(places) >= ENOUGH:
        index = min(places, key=lambda i: places[i].cost)
        ratio = places[index].cost / base.cost
        return made(
            "recorded", space.get(index), ratio, places[index]
        ) if ratio <= _MAX_RATIO else made("own", own, 1.0, base)
    reliability = {m: x if np.isfinite(x) else certainty[m] for m, x in correlations.items()}
    model = max(MODELS, key=lambda m: reliability[m] if np.isfinite(reliability[m]) else -1.0)
    if not reliability[model] >= RELIABLE:
        return made("own", own, float("nan") if base is None else 1.0, base)
    drawn = space.sample_ints(min(_SAMPLED, len(space)), np.random.default_rng(0))
    sampled = [i for i in map(int, drawn) if i != own.index]
    first = [sampled[k] for k in np.argsort(-PretrainedKernelModel(task)(sampled), kind="stable")[:_RANKED]]
    scores = _scores(task, model, [own.index, *first])
    best = int(np.argmax(scores))
    ratio = float(scores[0] / scores[best]) if model == "trained" else float(np.exp(scores[0] - scores[best]))
    if not 0 < ratio <= _MAX_RATIO:
        return made("own", own, 1.0, base)
    seconds = base.cost if base is not None else predicted_cycles(task, own) / _CLOCK
    predicted = Measured((seconds * ratio,), timestamp=time.time(), error=PREDICTED, noisy=True)
    return made(model, space.get([own.index, *first][best]), ratio, predicted)
