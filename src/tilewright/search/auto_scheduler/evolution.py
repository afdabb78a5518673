"""Evolutionary search: settings of sketches are sampled, mutated in one knob, and crossed; the cost model ranks
them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.search.auto_scheduler.program import Array, Program, program_of
from tilewright.search.auto_scheduler.sketch import Sketch
from tilewright.search.loop import children

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask

Score = Callable[[Sequence[Program]], Array]
_DERIVED_SHARE: Final = 4
"""One of this number of programs comes from a derived sketch."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a population changes. `random_share` is the fraction of measured programs that are chosen at random."""

    sample: int = 64
    population: int = 32
    generations: int = 3
    mutation: float = 0.85
    random_share: float = 0.05
    tries: int = 12
    """Largest number of samples per requested program, because some settings give no program."""

    def initial(
        self, task: SearchTask, sketches: Sequence[Sketch], choose: random.Random, derived: Sequence[Sketch] = (),
    ) -> list[Program]:
        """Return random programs of all sketches; every fourth is one of the `derived` sketches, if there are some.

        Settings that make no program are left out.
        """
        found: dict[str, Program] = {}
        for n in range(self.sample * self.tries):
            if len(found) >= self.sample:
                break
            own = sketches if sketches and (n % _DERIVED_SHARE or not derived) else derived
            sketch = own[n % len(own)] if n < 4 * len(own) else choose.choice(own)
            made = grown(task, sketch, sketch.sample(choose))
            if made is not None:
                found.setdefault(made.identity, made)
        return list(found.values())

    def evolve(
        self, task: SearchTask, population: Sequence[Program], score: Score, choose: random.Random,
    ) -> list[Program]:
        """Return the programs of all generations, each once, the best first."""

        def child(one: Program, other: Program) -> Program | None:
            sketch = one.sketch
            assert sketch is not None
            same = other.sketch is sketch and choose.random() > self.mutation
            setting = crossed(one.setting, other.setting, choose) if same else mutated(sketch, one.setting, choose)
            return grown(task, sketch, setting) if sketch.fits(setting) else None

        met = {p.identity: p for p in population}
        for _ in range(self.generations):
            parents = list(met.values())
            order = np.argsort(-score(parents), kind="stable")[: self.population]
            ranked = [parents[k] for k in order if parents[k].sketch is not None]
            if not ranked:
                break
            weights = [float(w) for w in np.linspace(1.0, 0.1, len(order))][: len(ranked)]
            for made in children(ranked, weights, self.population, child, choose):
                met.setdefault(made.identity, made)
        found = list(met.values())
        return [found[k] for k in np.argsort(-score(found), kind="stable")]


def grown(task: SearchTask, sketch: Sketch, setting: Mapping[str, Any]) -> Program | None:
    """Return the program of a setting; None if its steps contradict each other."""
    try:
        return program_of(task, sketch.state(setting), sketch, setting)
    except CompileError:
        return None


def mutated(sketch: Sketch, setting: Mapping[str, Any], choose: random.Random) -> dict[str, Any]:
    """Change one knob, or two; a size moves to its neighbours more often than further."""
    changed = dict(setting)
    if not sketch.knobs:
        return changed
    for _ in range(1 + (choose.random() < 0.3)):
        knob = choose.choice(sketch.knobs)
        at = knob.choices.index(setting[knob.name])
        others = [k for k in range(len(knob.choices)) if k != at]
        near = [k for k in others if abs(k - at) == 1]
        changed[knob.name] = knob.choices[choose.choice(near if near and choose.random() < 0.6 else others)]
    return changed


def crossed(one: Mapping[str, Any], other: Mapping[str, Any], choose: random.Random) -> dict[str, Any]:
    """Take each knob from one of the two settings."""
    return {k: choose.choice((v, other[k])) for k, v in one.items()}
