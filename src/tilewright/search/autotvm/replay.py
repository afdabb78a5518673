"""Tuning without the device: what records say of a network's kernels, and where they say nothing, models, as far as they are right about what is recorded.

    outcome = replay(tasks, Records("records.json"))
    for choice in outcome.choices: …          # where each configuration comes from
    outcome.lines()                           # records for `compile(…, records=)`

Two models are asked: the cycles that a processor should take (`auto_scheduler/prior.py`), and the one that ships (`autotvm/prior.py`). Both order the recorded
configurations of each task; the rank correlation with the recorded times says how sure they are. A model that is not sure chooses nothing.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.backends.target import Target
from tilewright.base.errors import OptionError, TVMError
from tilewright.search.auto_scheduler import features
from tilewright.search.auto_scheduler.prior import cycles
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.autotvm.prior import KernelPrior
from tilewright.search.autotvm.task.kernels import KernelTask, is_kernel
from tilewright.search.autotvm.task.space import ConfigEntity
from tilewright.search.certainty import rank_correlation
from tilewright.search.measure import Measured
from tilewright.search.records import Record, Records, encode

SURE: Final = 0.5
"""The rank correlation from which on a model chooses."""
ENOUGH: Final = 8
"""Recorded configurations of a task from which on they say something of a model."""
_MOST: Final = 48
_JUDGED: Final = 24
"""Recorded configurations of a task, and tasks, at least those of the network, that models are asked about."""
_SAMPLED: Final = 512
_LOOKED_AT: Final = 12
"""Configurations drawn, and of these, those that the shipped model puts first."""
_WORTH: Final = 0.95
"""A choice has to take at most this part of the time of the compiler's own."""
MODELS: Final = ("cycles", "trained")
PREDICTED: Final = "predicted by a model, not measured"
_CLOCK: Final = 2.5e9
"""Cycles a second, where nothing recorded says how long a kernel takes."""
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is taken for a task: `source` is "recorded", "cycles" or "trained" (the model), or "own" (what the compiler takes by itself)."""

    task: KernelTask
    calls: int
    recorded: int
    correlations: Mapping[str, float]
    """For each model, how it orders what is recorded; NaN where too little is."""
    source: str
    config: ConfigEntity
    ratio: float
    """The part of the time of the compiler's own choice that it takes, measured or predicted; NaN where neither is known."""
    measured: Measured | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The choices for a network, and how sure the models are: the median of their correlations over `judged` tasks, NaN where there are none."""

    choices: tuple[Choice, ...]
    certainty: Mapping[str, float]
    judged: int

    def lines(self) -> list[str]:
        """One record for each choice; those of models say that they were not measured."""
        made = []
        for c in self.choices:
            if c.measured is not None:
                candidate = TaskCandidate.of(c.task, c.config)
                made.append(encode(Record(candidate.target, candidate.key, candidate.config, c.measured)))
        return made


def replay(tasks: Sequence[tuple[KernelTask, int]], records: Records) -> Outcome:
    """Choose for `tasks`, each with how often the network runs it. Raises `OptionError` where no record is of their target."""
    known: dict[tuple[str, str], list[Record]] = {}
    for r in records:
        name, args, _ = json.loads(r.key)
        if r.measured.ok and is_kernel(name):
            known.setdefault((name, json.dumps(args)), []).append(r)
    target = str(tasks[0][0].target) if tasks else ""
    of_target = {k: [r for r in found if r.target == target] for k, found in known.items()}
    of_target = {k: found for k, found in of_target.items() if found}
    if not of_target:
        others = ", ".join(sorted({f"'{r.target}'" for found in known.values() for r in found})) or "no kernels at all"
        raise OptionError(f"'{records.path}' has no records of kernels for '{target}'; it is of {others}: give that --target, or other records", code="TW1102")
    mine = {_key(task): task for task, _ in tasks}
    judged: dict[tuple[str, str], dict[str, float]] = {}
    for key, found in sorted(of_target.items(), key=lambda one: one[0] not in mine)[: max(_JUDGED, len(mine))]:
        task = mine.get(key) or KernelTask(key[0], json.loads(key[1]), Target(target))
        judged[key] = _correlations(task, found)
    certainty = {m: _median([c[m] for c in judged.values()]) for m in MODELS}
    choices = tuple(_chosen(task, calls, of_target.get(_key(task), []), judged.get(_key(task), {}), certainty) for task, calls in tasks)
    return Outcome(choices, certainty, sum(any(np.isfinite(x) for x in c.values()) for c in judged.values()))


def predicted_cycles(task: KernelTask, config: ConfigEntity) -> float:
    """The cycles that a configuration should take; raises what lowering it raises."""
    found = features.statements(task.lowered(config).func)
    return max(1.0, sum(cycles(found, task.target.machine)))


def _key(task: KernelTask) -> tuple[str, str]:
    return task.name, json.dumps(list(task.args))


def _places(task: KernelTask, records: Sequence[Record]) -> dict[int, Record]:
    """The fastest record of each configuration that the task has."""
    found: dict[int, Record] = {}
    for r in records:
        index = task.config_space.index_of(ConfigEntity.from_json_dict(json.loads(r.config)).entity_map)
        if index is not None and (index not in found or r.measured.cost < found[index].measured.cost):
            found[index] = r
    return found


def _speeds(task: KernelTask, model: str, indices: Sequence[int]) -> np.ndarray[Any, Any]:
    """What a model thinks of configurations, the higher the better; minus infinity of those that make no program."""
    if model == "trained":
        return KernelPrior(task)(indices)
    found = []
    for i in indices:
        try:
            found.append(-np.log(predicted_cycles(task, task.config_space.get(i))))
        except TVMError as error:
            _LOG.debug("%s: configuration %d makes no program: %s", task.title, i, error)
            found.append(-np.inf)
    return np.asarray(found)


def _correlations(task: KernelTask, records: Sequence[Record]) -> dict[str, float]:
    places = _places(task, records)
    indices = sorted(places)[:: max(1, len(places) // _MOST)]
    if len(indices) < ENOUGH:
        return dict.fromkeys(MODELS, float("nan"))
    speeds = [-places[i].measured.cost for i in indices]
    return {m: rank_correlation(_speeds(task, m, indices), speeds) for m in MODELS}


def _median(figures: Sequence[float]) -> float:
    finite = [x for x in figures if np.isfinite(x)]
    return float(np.median(finite)) if finite else float("nan")


def _chosen(task: KernelTask, calls: int, records: Sequence[Record], correlations: Mapping[str, float], certainty: Mapping[str, float]) -> Choice:
    """The best that is recorded where enough is, else what the surest model takes for better than the compiler's own choice."""
    places, own = _places(task, records), task.default_config
    nothing = dict.fromkeys(MODELS, float("nan"))
    base = places[own.index].measured if own.index in places else None
    made: Callable[..., Choice] = lambda *what: Choice(task, calls, len(places), correlations or nothing, *what)  # noqa: E731
    if base is not None and len(places) >= ENOUGH:
        index = min(places, key=lambda i: places[i].measured.cost)
        ratio = places[index].measured.cost / base.cost
        return made("recorded", task.config_space.get(index), ratio, places[index].measured) if ratio <= _WORTH else made("own", own, 1.0, base)
    sure = {m: x if np.isfinite(x) else certainty[m] for m, x in (correlations or nothing).items()}
    model = max(MODELS, key=lambda m: sure[m] if np.isfinite(sure[m]) else -1.0)
    if not sure[model] >= SURE:
        return made("own", own, float("nan") if base is None else 1.0, base)
    sampled = [i for i in map(int, task.config_space.sample_ints(min(_SAMPLED, len(task.config_space)), np.random.default_rng(0))) if i != own.index]
    first = [sampled[k] for k in np.argsort(-KernelPrior(task)(sampled), kind="stable")[:_LOOKED_AT]]
    looked_at = [own.index, *first]
    scores = _speeds(task, model, looked_at)
    best = int(np.argmax(scores))
    ratio = float(scores[0] / scores[best]) if model == "trained" else float(np.exp(scores[0] - scores[best]))
    if not 0 < ratio <= _WORTH:
        return made("own", own, 1.0, base)
    seconds = base.cost if base is not None else predicted_cycles(task, own) / _CLOCK
    predicted = Measured((seconds * ratio,), timestamp=time.time(), error=PREDICTED, noisy=True)
    return made(model, task.config_space.get(looked_at[best]), ratio, predicted)
