"""A candidate of the search: a state, the loop program that it makes, and its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.search.auto_scheduler import features, prior
from tilewright.search.auto_scheduler.loop_state import State
from tilewright.tir.legality import check_kind
from tilewright.tir.stmt import PARALLEL, VECTORIZED, For, Stmt, bodies

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask
    from tilewright.search.auto_scheduler.sketch import Sketch
    from tilewright.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """`cycles` is the first guess at its time; `sketch` and `setting` say where it came from, where it can be changed."""

    workload_key: str
    state: State
    func: PrimFunc = field(repr=False)
    features: Array = field(repr=False)
    cycles: float
    sketch: Sketch | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Equal for programs of the same steps."""
        return str(self.state.transform_steps)


def program_of(task: SearchTask, state: State, sketch: Sketch | None = None, setting: Mapping[str, Any] | None = None) -> Program:
    """The program of a state. Raises `ScheduleError` where the steps make none, or one that would be wrong."""
    func = task.own if task.own is not None and not state.transform_steps else task.compute_dag.func(state)
    check_legal(func)
    machine = task.machine
    found = features.statements(func)
    cycles = prior.cycles(found, machine)
    return Program(task.workload_key, state, func, features.vector_of(found, machine, cycles), max(1.0, sum(cycles)), sketch, dict(setting or {}))


def check_legal(func: PrimFunc) -> None:
    """Raise `ScheduleError` where the trips of a parallel or vectorized loop depend on each other."""
    stack: list[tuple[Stmt, list[Stmt]]] = [(func.body, [])]
    while stack:
        s, around = stack.pop()
        if isinstance(s, For) and s.kind in (PARALLEL, VECTORIZED):
            check_kind(func, s, s.kind, around)
        stack += [(b, [*around, s]) for b in bodies(s)]
