"""Evolutionary search: settings of sketches are sampled, changed in one knob, and crossed; the model keeps the promising ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.search.auto_scheduler.program import Program, program_of
from tilewright.search.auto_scheduler.sketch import Sketch

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask

Array = np.ndarray[Any, Any]
Score = Callable[[Sequence[Program]], Array]


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a population changes. `random_share` of what is picked for measuring is picked by chance."""

    sample: int = 64
    population: int = 32
    generations: int = 3
    mutation: float = 0.85
    random_share: float = 0.05
    tries: int = 12
    """Samples for each program wanted before the search goes on with fewer: not every setting makes a program."""

    def initial(self, task: SearchTask, sketches: Sequence[Sketch], choose: random.Random) -> list[Program]:
        """Random programs of all sketches. Settings that make no program are left out."""
        found: dict[str, Program] = {}
        for n in range(self.sample * self.tries):
            if len(found) >= self.sample:
                break
            sketch = sketches[n % len(sketches)] if n < 4 * len(sketches) else choose.choice(sketches)
            made = grown(task, sketch, sketch.sample(choose))
            if made is not None:
                found.setdefault(made.identity, made)
        return list(found.values())

    def evolve(self, task: SearchTask, population: Sequence[Program], score: Score, choose: random.Random) -> list[Program]:
        """The programs met in all generations, each once, the best first."""
        met = {p.identity: p for p in population}
        for _ in range(self.generations):
            parents = list(met.values())
            scores = score(parents)
            order = np.argsort(-scores, kind="stable")[: self.population]
            weights = [float(w) for w in np.linspace(1.0, 0.1, len(order))]
            ranked = [parents[k] for k in order if parents[k].sketch is not None]
            if not ranked:
                break
            weights = weights[: len(ranked)]
            for _ in range(self.population):
                one, other = choose.choices(ranked, weights, k=2)
                assert one.sketch is not None
                same = other.sketch is one.sketch and choose.random() > self.mutation
                setting = crossed(one.setting, other.setting, choose) if same else mutated(one.sketch, one.setting, choose)
                made = grown(task, one.sketch, setting) if one.sketch.fits(setting) else None
                if made is not None:
                    met.setdefault(made.identity, made)
        found = list(met.values())
        return [found[k] for k in np.argsort(-score(found), kind="stable")]


def grown(task: SearchTask, sketch: Sketch, setting: Mapping[str, Any]) -> Program | None:
    """The program of a setting; None where the steps contradict each other, which a sample may."""
    try:
        return program_of(task, sketch.state(setting), sketch, setting)
    except CompileError:
        return None


def mutated(sketch: Sketch, setting: Mapping[str, Any], choose: random.Random) -> dict[str, Any]:
    """One knob, or two, set to something else; a size moves to its neighbours more often than further."""
    changed = dict(setting)
    for _ in range(1 + (choose.random() < 0.3)):
        knob = choose.choice(sketch.knobs)
        at = knob.choices.index(setting[knob.name])
        others = [k for k in range(len(knob.choices)) if k != at]
        near = [k for k in others if abs(k - at) == 1]
        changed[knob.name] = knob.choices[choose.choice(near if near and choose.random() < 0.6 else others)]
    return changed


def crossed(one: Mapping[str, Any], other: Mapping[str, Any], choose: random.Random) -> dict[str, Any]:
    """Each knob as in one of the two."""
    return {k: choose.choice((v, other[k])) for k, v in one.items()}
