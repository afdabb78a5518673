"""Steps of records done on a `te.Schedule`, with the Python calls that do the same.

The schedule is made of the tensors of a `ComputeDAG`; its stages are numbered as the records number them. Where a stage is
attached is settled at the end, since a loop may be fused or split after another stage was attached to it: the stage then
stands in the fused loop, or in the innermost of the parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Final

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import IntImm
from tilewright.search.auto_scheduler.transform_step import ANNOTATIONS, PARALLEL, THREADS, UNROLL, VECTORIZE, TransformStep
from tilewright.te.schedule import Schedule, create_schedule
from tilewright.te.stage import Stage
from tilewright.te.tensor import Operation, PlaceholderOp, Tensor
from tilewright.tir.stmt import IterVar

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.compute_dag import ComputeDAG

_KINDS: Final = {UNROLL: "unroll", VECTORIZE: "vectorize", PARALLEL: "parallel"}
LOCAL_BYTES: Final = 16 << 10
"""The largest tile that is kept in registers and on the stack of a thread."""


class Replay:
    """A schedule of a DAG, and the stages and loops that steps name by numbers.

    `lines` are the Python calls so far, over `s` and the names of the tensors.
    """

    def __init__(self, dag: ComputeDAG) -> None:
        self.dag = dag
        self.schedule: Schedule = create_schedule([op for op in dag.ops if op in dag.output_ops])
        self.stages: list[Stage] = [self.schedule[op] for op in dag.ops]
        self.names: list[str] = _distinct([op.name for op in dag.ops])
        self.axes: list[list[IterVar]] = [list(s.leaf_iter_vars) for s in self.stages]
        self.attached: dict[Stage, tuple[Stage, IterVar]] = {}
        self.lines: list[str] = []
        self._known: dict[IterVar, str] = {}
        for k in range(len(self.stages)):
            self._name_roots(k)

    def apply(self, steps: Sequence[TransformStep]) -> None:
        """Do the steps, in order. Raises `ScheduleError`, naming the step, when one does not fit."""
        for k, step in enumerate(steps):
            try:
                step.apply(self, steps[:k])
            except ScheduleError as error:
                raise ScheduleError(f"step {k}, {step.as_json()}: {error.message}", code="TW1113") from None

    def finish(self) -> Schedule:
        """Put every stage where it stands, and the small tiles into registers. Returns the schedule."""
        for stage, (target, axis) in self.attached.items():
            stage.compute_at(target, axis)
            self.lines.append(f"s[{self._of(stage)}].compute_at(s[{self._of(target)}], {self._axis(axis)})")
            if not stage.scope and self._tile_bytes(stage, target, axis) <= LOCAL_BYTES:
                stage.set_scope("local")
                self.lines.append(f's[{self._of(stage)}].set_scope("local")')
        return self.schedule

    # Loops of one stage.
    def split(self, stage: int, loop: int, lengths: Sequence[int], inner_to_outer: bool) -> None:
        s, axis = self._loop(stage, loop)
        parts: list[IterVar] = []
        rest = axis
        for length in reversed(lengths) if inner_to_outer else lengths:
            outer, inner = s.split(rest, factor=length) if inner_to_outer else s.split(rest, nparts=length)
            self._call([outer, inner], stage, f"split({self._axis(rest)}, {'factor' if inner_to_outer else 'nparts'}={length})")
            if inner_to_outer:
                parts.insert(0, inner)
                rest = outer
            else:
                parts.append(outer)
                rest = inner
        parts.insert(0 if inner_to_outer else len(parts), rest)
        self._moved([axis], parts[-1])
        self.axes[stage][loop : loop + 1] = parts

    def fuse(self, stage: int, loops: Sequence[int]) -> None:
        s, _ = self._loop(stage, loops[0] if loops else 0)
        axes = [self._loop(stage, k)[1] for k in loops]
        if list(loops) != list(range(loops[0], loops[0] + len(loops))):
            raise ScheduleError(f"loops {list(loops)} of stage '{s.op.name}' do not follow each other", code="TW1113")
        fused = s.fuse(*axes)
        self._call([fused], stage, f"fuse({', '.join(map(self._axis, axes))})")
        self._moved(axes, fused)
        self.axes[stage][loops[0] : loops[0] + len(loops)] = [fused]

    def reorder(self, stage: int, order: Sequence[int]) -> None:
        axes = self._stage_axes(stage)
        if sorted(order) != list(range(len(axes))):
            raise ScheduleError(f"the order {list(order)} is not one of the {len(axes)} loops of stage '{self.stages[stage].op.name}'", code="TW1113")
        axes = [axes[k] for k in order]
        self.stages[stage].reorder(*axes)
        self.lines.append(f"s[{self.names[stage]}].reorder({', '.join(map(self._axis, axes))})")
        self.axes[stage] = axes

    def annotate(self, stage: int, loop: int, annotation: int) -> None:
        s, axis = self._loop(stage, loop)
        if annotation in THREADS:
            raise ScheduleError(f"loop {loop} of stage '{s.op.name}' is bound to {THREADS[annotation]}, and schedules of a GPU do not run on a CPU", code="TW1113")
        if annotation not in _KINDS:
            names = ", ".join(f"{k} {n}" for n, k in ANNOTATIONS.items())
            raise ScheduleError(f"annotation {annotation} of a loop cannot be replayed; the annotations of records are {names}", code="TW1113")
        kind = _KINDS[annotation]
        getattr(s, kind)(axis)
        self.lines.append(f"s[{self.names[stage]}].{kind}({self._axis(axis)})")

    def pragma(self, stage: int, loop: int, text: str) -> None:
        s, axis = self._loop(stage, loop)
        kind, _, value = text.partition("$")
        number = int(value) if value.lstrip("-").isdigit() else None
        s.pragma(axis, kind, number)
        self.lines.append(f's[{self.names[stage]}].pragma({self._axis(axis)}, "{kind}", {number})')
        if kind == "auto_unroll_max_step":
            s.pragma(axis, "unroll_explicit", 1)
            self.lines.append(f's[{self.names[stage]}].pragma({self._axis(axis)}, "unroll_explicit", True)')

    def storage_align(self, stage: int, loop: int, factor: int, offset: int) -> None:
        s, axis = self._loop(stage, loop)
        s.storage_align(axis, factor, offset)
        self.lines.append(f"s[{self.names[stage]}].storage_align({self._axis(axis)}, {factor}, {offset})")

    # Where stages stand.
    def compute_at(self, stage: int, target: int, loop: int) -> None:
        s = self._stage(stage)
        self.attached[s] = (self._stage(target), self._loop(target, loop)[1])

    def compute_inline(self, stage: int) -> None:
        self._stage(stage).compute_inline()
        self.attached.pop(self.stages[stage], None)
        self.lines.append(f"s[{self.names[stage]}].compute_inline()")

    def compute_root(self, stage: int) -> None:
        self._stage(stage).compute_root()
        self.attached.pop(self.stages[stage], None)
        self.lines.append(f"s[{self.names[stage]}].compute_root()")

    # Stages that are added.
    def cache_read(self, stage: int, scope: str, readers: Sequence[int]) -> None:
        tensor = _only(self._stage(stage).op)
        made = self.schedule.cache_read(tensor, _scope(scope), [self._stage(r).op for r in readers])
        readers_text = ", ".join(f"{self.names[r]}" for r in readers)
        self._insert(stage + 1, made, f'{self.names[stage]}_{_scope(scope)}', f's.cache_read({self.names[stage]}, "{_scope(scope)}", [{readers_text}])')

    def cache_write(self, stage: int, scope: str) -> None:
        several = list(self._stage(stage).op.outputs)
        made = self.schedule.cache_write(several if len(several) > 1 else several[0], _scope(scope))
        name = self.names[stage]
        self._insert(stage, made[0] if isinstance(made, list) else made, f"{name}_{_scope(scope)}", f's.cache_write({name}, "{_scope(scope)}")')
        self._restarted(stage + 1)

    def rfactor(self, stage: int, loop: int, place: int) -> None:
        s, axis = self._loop(stage, loop)
        made = self.schedule.rfactor(s.op.outputs[0], axis, place)
        name = self.names[stage]
        self._insert(stage, made[0] if isinstance(made, tuple) else made, f"{name}_rf", f"s.rfactor({name}, {self._axis(axis)}, {place})")
        self._restarted(stage + 1)

    # The record.
    def _insert(self, at: int, made: Tensor, name: str, call: str) -> None:
        stage = self.schedule[made]
        self.stages.insert(at, stage)
        self.names.insert(at, _free(name, self.names))
        self.axes.insert(at, list(stage.leaf_iter_vars))
        self.lines.append(f"{self.names[at]} = {call}")
        self._name_roots(at)

    def _restarted(self, at: int) -> None:
        """A stage that copies or adds up what another computes has new loops."""
        self.axes[at] = list(self.stages[at].leaf_iter_vars)
        self._name_roots(at)

    def _moved(self, old: Iterable[IterVar], new: IterVar) -> None:
        gone = set(old)
        for stage, (target, axis) in self.attached.items():
            if axis in gone:
                self.attached[stage] = (target, new)

    def _stage(self, stage: int) -> Stage:
        if not 0 <= stage < len(self.stages):
            raise ScheduleError(f"there is no stage {stage}; there are {len(self.stages)}: {', '.join(self.names)}", code="TW1113")
        return self.stages[stage]

    def _stage_axes(self, stage: int) -> list[IterVar]:
        self._stage(stage)
        return self.axes[stage]

    def _loop(self, stage: int, loop: int) -> tuple[Stage, IterVar]:
        axes = self._stage_axes(stage)
        if not 0 <= loop < len(axes):
            raise ScheduleError(f"stage '{self.stages[stage].op.name}' has {len(axes)} loops, and none at place {loop}", code="TW1113")
        return self.stages[stage], axes[loop]

    def _tile_bytes(self, stage: Stage, target: Stage, axis: IterVar) -> float:
        """The bytes of what one trip of `axis` needs of `stage`, where its points are those of its reader one by one; else infinite."""
        if isinstance(stage.op, PlaceholderOp) or not hasattr(stage.op, "axis") or not _pointwise(target.op, stage.op):
            return float("inf")
        at = target.leaf_iter_vars.index(axis)
        inner = [a.extent for a in target.leaf_iter_vars[at + 1 :] if a.kind == "spatial"]
        sizes = [e.value for e in inner if isinstance(e, IntImm)]
        return prod(sizes) * max(t.dtype.itemsize for t in stage.op.outputs) if len(sizes) == len(inner) else float("inf")

    # Names in the Python text.
    def _name_roots(self, stage: int) -> None:
        axes = self.axes[stage]
        if not axes:
            return
        for a in axes:
            self._known[a] = _free(f"{self.names[stage]}_{_word(a.var.name)}", self._known.values())
        op = self.names[stage]
        names = ", ".join(self._known[a] for a in axes)
        self.lines.append(f"{names}{',' if len(axes) == 1 else ''} = tuple({op}.op.axis) + tuple({op}.op.reduce_axis)")

    def _call(self, made: Sequence[IterVar], stage: int, call: str) -> None:
        for a in made:
            short = re.sub(r"\W", "_", a.var.name.replace(".outer", "_o").replace(".inner", "_i").replace(".fused", "_f").replace(".", "_"))
            self._known[a] = _free(f"{self.names[stage]}_{short}", self._known.values())
        self.lines.append(f"{', '.join(self._known[a] for a in made)} = s[{self.names[stage]}].{call}")

    def _axis(self, axis: IterVar) -> str:
        return self._known[axis]

    def _of(self, stage: Stage) -> str:
        return self.names[self.stages.index(stage)]


def _pointwise(reader: Operation, op: Operation) -> bool:
    from tilewright.search.auto_scheduler.access import reads_point_by_point

    return reads_point_by_point(reader, op)


def _only(op: Operation) -> Tensor:
    if len(op.outputs) != 1:
        raise ScheduleError(f"'{op.name}' has {len(op.outputs)} results, and a copy is made of one", code="TW1113")
    return op.outputs[0]


def _scope(name: str) -> str:
    if name == "shared":
        raise ScheduleError("scope 'shared' is memory of a GPU, and schedules of a GPU do not run on a CPU", code="TW1113")
    return name


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _free(name: str, taken: Iterable[str]) -> str:
    known, found, k = set(taken), name, 1
    while found in known:
        found, k = f"{name}_{k}", k + 1
    return found


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for n in names:
        found.append(_free(_word(n), found))
    return found
