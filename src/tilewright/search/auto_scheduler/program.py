"""A candidate of the search: a state, its loop program, and the features of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.search import features
from tilewright.search.auto_scheduler.loop_state import State
from tilewright.search.auto_scheduler.measure import MeasureInput, check_legal
from tilewright.search.cycles import cycles as estimated

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask
    from tilewright.search.auto_scheduler.sketch import Sketch
    from tilewright.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Program(MeasureInput):
    """A candidate. `cycles` is its estimated time; `sketch` and `setting` are its origin, if it can be mutated."""

    func: PrimFunc = field(repr=False)
    features: Array = field(repr=False)
    cycles: float
    sketch: Sketch | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """A text that is equal for programs of the same steps."""
        return str(self.state.transform_steps)


def program_of(
    task: SearchTask, state: State, sketch: Sketch | None = None, setting: Mapping[str, Any] | None = None,
) -> Program:
    """Return the program of a state. Raises `ScheduleError` if the steps make none, or a wrong one."""
    func = task.own if task.own is not None and not state.transform_steps else task.compute_dag.func(state)
    check_legal(func)
    found = features.statements(func)
    cycles = estimated(found, task.machine)
    row = features.vector_of(found, task.machine, cycles)
    return Program(task, state, func, row, max(1.0, sum(cycles)), sketch, dict(setting or {}))
