"""Sketches that rules derive (`sketch_rules.py`), and those of a program: steps with open lengths.

Knobs are the lengths of the open splits and the number of unrolled steps. The rest follows from the loops: the outer
loops of each stage run in parallel, and the innermost one as a vector.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from tilewright.backends.machine import Machine
from tilewright.base.forks import lazy_attribute
from tilewright.scalar.arith.divisors import divisors
from tilewright.search.auto_scheduler.loop_state import State
from tilewright.search.auto_scheduler.sketch import Knob, Setting, Sketch
from tilewright.search.auto_scheduler.transform_step import TransformStep
from tilewright.te.tensor import ComputeOp

MAX_INNERMOST: Final = 64
"""Largest length of an innermost tile."""
_UNROLLED: Final = (0, 16, 64, 512)
"""Choices of the steps to unroll in sums."""
_JOBS: Final = 16
"""Number of parallel iterations per core above which no further loop is fused."""


class FixedSketch(Sketch):
    """A sketch of one state, without knobs."""

    knobs = ()

    def __init__(self, found: State) -> None:
        self._found = found

    def sample(self, choose: random.Random) -> dict[str, Any]:
        return {}

    def fits(self, setting: Setting) -> bool:
        return True

    def state(self, setting: Mapping[str, Any]) -> State:
        return self._found.copy()


class DerivedSketch(FixedSketch):
    """A sketch of a state with open lengths, for a machine."""

    def __init__(self, found: State, machine: Machine) -> None:
        super().__init__(found)
        self.machine = machine

    @lazy_attribute
    def knobs(self) -> tuple[Knob, ...]:  # type: ignore[override]
        """The lengths of each open split, and the steps to unroll."""
        found = [
            Knob(f"split{n}", lengths(int(step.extent), len(step.lengths))) for n, step in self._splits()]
        found.append(Knob("unroll", _UNROLLED))
        return tuple(k for k in found if len(k.choices) > 1)

    def sample(self, choose: random.Random) -> dict[str, Any]:
        return {k.name: choose.choice(k.choices) for k in self.knobs}

    def state(self, setting: Mapping[str, Any]) -> State:
        dag, steps = self._found.compute_dag, list(self._found.transform_steps)
        for n, step in self._splits():
            chosen = setting.get(f"split{n}") or (1,) * len(step.lengths)
            steps[n] = TransformStep("SP", step.stage_id, step.iter_id, step.extent, chosen, step.inner_to_outer)
        made = dag.init_state.apply(steps)
        for k, stage in reversed(list(enumerate(made.stages))):
            if isinstance(stage.computed, ComputeOp) and not stage.stage.inlined and stage.iters:
                self._annotate(made, k, int(setting.get("unroll", 0)))
        return made

    def _splits(self) -> Iterator[tuple[int, TransformStep]]:
        """Iterate over the open splits with their numbers."""
        for n, step in enumerate(self._found.transform_steps):
            if step.code == "SP" and None in step.lengths:
                yield n, step

    def _annotate(self, state: State, k: int, unrolled: int) -> None:
        """Vectorize, share and unroll the loops of a stage."""
        stage = state.stages[k]
        last, lanes = stage.iters[-1], self.machine.lanes(stage.computed.outputs[0].dtype)
        if last.kind == "spatial" and not last.annotation and last.extent > 1:
            if last.extent > MAX_INNERMOST and last.extent % lanes == 0:
                last = state.split(k, last, [lanes])[-1]
            if last.extent <= MAX_INNERMOST:
                state.vectorize(k, last)
        if stage.attached is None:
            self._share(state, k)
        if unrolled and any(it.kind == "reduce" for it in stage.iters):  # of a loop that is not fused any more
            state.pragma(k, 0, f"auto_unroll_max_step${unrolled}")

    def _share(self, state: State, k: int) -> None:
        """Run outer loops of a stage in parallel: up to one with another stage inside, or until they suffice."""
        stage, jobs, outer = state.stages[k], 1, 0
        for it in stage.iters:
            if it.kind != "spatial" or it.annotation or jobs >= _JOBS * self.machine.cores:
                break
            jobs, outer = jobs * it.extent, outer + 1
            if any(s.attached is not None and s.attached[1] is it for s in state.stages):
                break
        if jobs > 1:
            state.parallel(k, state.fuse(k, stage.iters[:outer]) if outer > 1 else stage.iters[0])


@lru_cache(maxsize=1024)
def lengths(extent: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Return the lengths of `count` inner loops whose product divides an extent; the innermost is at most 64."""
    if count == 1:
        return tuple((d,) for d in divisors(extent) if d <= MAX_INNERMOST)
    return tuple((d, *rest) for d in divisors(extent) for rest in lengths(extent // d, count - 1))


def sketches_of(found: Sequence[Any], machine: Machine) -> list[FixedSketch]:
    """Return the sketches of derived states; those of a program without open lengths stay as they are."""
    made: list[FixedSketch] = []
    for derived in found:
        is_open = any(s.code == "SP" and None in s.lengths for s in derived.state.transform_steps)
        fixed = derived.is_custom and not is_open
        made.append(FixedSketch(derived.state) if fixed else DerivedSketch(derived.state, machine))
    return made
