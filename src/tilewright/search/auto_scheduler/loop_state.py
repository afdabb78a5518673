"""A state of the search: the steps so far, and the loops that each stage then has.

    state = dag.init_state
    outer, inner = state.split(C, state[C].iters[0], [16])
    state.parallel(C, outer)

A state is changed by its methods, as scripts of the field do it; `copy()` first where the old one is needed. Sizes of loops are those
where they were split: of a stage that is computed inside another the real ones are known when it is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import number_of
from tilewright.search.auto_scheduler import transform_step as steps
from tilewright.te.stage import root_axes
from tilewright.te.tensor import ComputeOp, Operation, Tensor

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.compute_dag import ComputeDAG


@dataclass(frozen=True, slots=True, eq=False)
class Iterator:
    """A loop: its name, how many trips it has, and whether it is `spatial` or `reduce`."""

    name: str
    extent: int
    kind: str
    annotation: str = ""


@dataclass(slots=True, eq=False)
class StageState:
    """A computation and its loops, outermost first. `compute_at` is `root`, `inlined`, or the stage and loop that it stands in."""

    op: Operation
    name: str
    iters: list[Iterator]
    compute_at: str | tuple[int, int] = "root"
    hints: dict[str, int] = field(default_factory=dict)


class State:
    """Steps on a `ComputeDAG`. Stages are given by number, by tensor or by operation; loops as `Iterator` or by place."""

    def __init__(self, dag: ComputeDAG) -> None:
        self.compute_dag = dag
        self.transform_steps: tuple[steps.TransformStep, ...] = ()
        self.stages = [StageState(op, op.name, _roots(op)) for op in dag.ops]
        self._of: dict[Operation, int] = {op: k for k, op in enumerate(dag.ops)}

    def copy(self) -> State:
        made = State.__new__(State)
        made.compute_dag, made.transform_steps = self.compute_dag, self.transform_steps
        made.stages = [replace(s, iters=list(s.iters), hints=dict(s.hints)) for s in self.stages]
        made._of = dict(self._of)
        return made

    @property
    def stage_ops(self) -> list[Operation]:
        return [s.op for s in self.stages]

    def __getitem__(self, stage: Any) -> StageState:
        return self.stages[self.stage_id(stage)]

    def stage_id(self, stage: Any) -> int:
        """The number of a stage that is given by number, tensor or operation."""
        if isinstance(stage, int):
            if 0 <= stage < len(self.stages):
                return stage
        else:
            op = stage.op if isinstance(stage, Tensor) else stage
            if op in self._of:
                return self._of[op]
        raise ScheduleError(f"{stage!r} is no stage of this state; the stages are {', '.join(s.name for s in self.stages)}", code="TW1113")

    # Loops of one stage.
    def split(self, stage: Any, it: Any, lengths: Sequence[int], inner_to_outer: bool = True) -> list[Iterator]:
        k = self.stage_id(stage)
        at = self._place(k, it)
        self._note(steps.SplitStep(k, at, self.stages[k].iters[at].extent, tuple(lengths), inner_to_outer))
        return self._split(k, at, lengths, inner_to_outer)

    def follow_split(self, stage: Any, it: Any, src_step_id: int, n_split: int) -> list[Iterator]:
        k = self.stage_id(stage)
        at = self._place(k, it)
        step = steps.FollowSplitStep(k, at, src_step_id, n_split)
        lengths = step.lengths(self.transform_steps)
        self._note(step)
        return self._split(k, at, lengths, True)

    def fuse(self, stage: Any, iters: Sequence[Any]) -> Iterator:
        k = self.stage_id(stage)
        places = [self._place(k, it) for it in iters]
        self._note(steps.FuseStep(k, tuple(places)))
        return self._fuse(k, places)

    def reorder(self, stage: Any, order: Sequence[Any]) -> None:
        k = self.stage_id(stage)
        places = tuple(self._place(k, it) for it in order)
        if len(places) != len(self.stages[k].iters):
            raise ScheduleError(f"reorder of '{self.stages[k].name}' takes all of its {len(self.stages[k].iters)} loops, and was given {len(places)}", code="TW1113")
        self._note(steps.ReorderStep(k, places))
        self.stages[k].iters = [self.stages[k].iters[p] for p in places]

    def parallel(self, stage: Any, it: Any) -> Iterator:
        return self._annotate(stage, it, "parallel")

    def unroll(self, stage: Any, it: Any, max_unroll: int | None = None) -> Iterator:
        """Unroll a loop, unless it has more trips than `max_unroll`."""
        k = self.stage_id(stage)
        found = self.stages[k].iters[self._place(k, it)]
        return found if max_unroll is not None and found.extent > max_unroll else self._annotate(stage, it, "unroll")

    def vectorize(self, stage: Any, it: Any) -> Iterator:
        return self._annotate(stage, it, "vectorize")

    def pragma(self, stage: Any, it: Any, pragma: str) -> None:
        """A hint on a loop, `name$value`."""
        k = self.stage_id(stage)
        name, _, value = pragma.partition("$")
        self._note(steps.PragmaStep(k, self._place(k, it), pragma))
        self.stages[k].hints[name] = int(value or 0)

    def storage_align(self, stage: Any, it: Any, factor: int, offset: int) -> None:
        k = self.stage_id(stage)
        self._note(steps.StorageAlignStep(k, self._place(k, it), factor, offset))

    # Where stages stand.
    def compute_at(self, stage: Any, target: Any, it: Any) -> None:
        k, t = self.stage_id(stage), self.stage_id(target)
        at = self._place(t, it)
        self._note(steps.ComputeAtStep(k, t, at))
        self.stages[k].compute_at = (t, at)

    def compute_inline(self, stage: Any) -> None:
        k = self.stage_id(stage)
        self._note(steps.ComputeInlineStep(k))
        self.stages[k].compute_at = "inlined"

    def compute_root(self, stage: Any) -> None:
        k = self.stage_id(stage)
        self._note(steps.ComputeRootStep(k))
        self.stages[k].compute_at = "root"

    # Stages that are added; each returns the number of the new one.
    def cache_read(self, stage: Any, scope: str, readers: Sequence[Any]) -> int:
        k = self.stage_id(stage)
        self._note(steps.CacheReadStep(k, scope, tuple(map(self.stage_id, readers))))
        op = self.stages[k].op
        shape = op.outputs[0].extents
        self._insert(k + 1, StageState(op, f"{self.stages[k].name}.{scope}", [Iterator(f"ax{d}", n, "spatial") for d, n in enumerate(shape)]))
        return k + 1

    def cache_write(self, stage: Any, scope: str) -> int:
        k = self.stage_id(stage)
        old = self.stages[k]
        self._note(steps.CacheWriteStep(k, scope))
        made = StageState(old.op, f"{old.name}.{scope}", [replace(i, name=f"{i.name}_c") for i in _roots(old.op)])
        old.iters = [i for i in _roots(old.op) if i.kind == "spatial"]
        self._insert(k, made)
        return k

    def rfactor(self, stage: Any, it: Any, factor_iter_id: int) -> int:
        k = self.stage_id(stage)
        old = self.stages[k]
        axis = old.iters[self._place(k, it)]
        if axis.kind != "reduce":
            raise ScheduleError(f"'{axis.name}' is not a reduction loop of '{old.name}'", code="TW1113")
        self._note(steps.RfactorStep(k, self._place(k, it), factor_iter_id))
        spatial = [i for i in old.iters if i.kind == "spatial"]
        rest = [i for i in old.iters if i.kind == "reduce" and i is not axis]
        place = factor_iter_id % (len(spatial) + 1)
        own = replace(axis, kind="spatial")
        made = StageState(old.op, f"{old.name}.rf", [*spatial[:place], own, *spatial[place:], *rest])
        old.iters = [*(replace(i) for i in spatial), replace(axis, name=f"{axis.name}_v")]
        self._insert(k, made)
        return k

    # Doing recorded steps.
    def apply(self, recorded: Sequence[steps.TransformStep]) -> State:
        """The steps of a record done on a copy. Raises `ScheduleError`, naming the step, when one does not fit."""
        state = self.copy()
        for n, step in enumerate(recorded):
            try:
                state._do(step)
            except ScheduleError as error:
                raise ScheduleError(f"step {n}, {step.as_json()}: {error.message}", code="TW1113") from None
        return state

    def _do(self, step: steps.TransformStep) -> None:
        k = step.stage_id
        match step:
            case steps.SplitStep():
                self.split(k, step.iter_id, step.lengths, step.inner_to_outer)
            case steps.FollowSplitStep():
                self.follow_split(k, step.iter_id, step.src_step_id, step.n_split)
            case steps.FollowFusedSplitStep():
                sources = [s for s in (self.transform_steps[i] for i in step.src_step_ids) if isinstance(s, steps.SplitStep)]
                at = self._place(k, step.iter_id)
                self._note(step)
                self._split(k, at, [prod(s.lengths[step.level] for s in sources)], step.factor_or_nparts)
            case steps.FuseStep():
                self.fuse(k, step.fused_ids)
            case steps.ReorderStep():
                self.reorder(k, step.after_ids)
            case steps.AnnotationStep():
                name = next((n for n, v in steps.ANNOTATIONS.items() if v == step.annotation), None)
                if name is None:
                    raise ScheduleError(f"annotation {step.annotation} of a loop is unknown", code="TW1113")
                self._annotate(k, step.iter_id, name)
            case steps.PragmaStep():
                self.pragma(k, step.iter_id, step.pragma_type)
            case steps.StorageAlignStep():
                self.storage_align(k, step.iter_id, step.factor, step.offset)
            case _:
                self._move(step)

    def _move(self, step: steps.TransformStep) -> None:
        k = step.stage_id
        match step:
            case steps.ComputeAtStep():
                self.compute_at(k, step.target_stage_id, step.target_iter_id)
            case steps.ComputeInlineStep():
                self.compute_inline(k)
            case steps.ComputeRootStep():
                self.compute_root(k)
            case steps.CacheReadStep():
                self.cache_read(k, step.scope_name, step.reader_stage_ids)
            case steps.CacheWriteStep():
                self.cache_write(k, step.scope_name)
            case steps.RfactorStep():
                self.rfactor(k, step.iter_id, step.factor_iter_id)
            case _:
                raise ScheduleError(f"a state cannot do {type(step).__name__}", code="TW1113")

    def _note(self, step: steps.TransformStep) -> None:
        self.transform_steps = (*self.transform_steps, step)

    def _place(self, stage: int, it: Any) -> int:
        iters = self.stages[stage].iters
        if isinstance(it, int) and 0 <= it < len(iters):
            return it
        for k, i in enumerate(iters):
            if i is it:
                return k
        raise ScheduleError(f"{it!r} is no loop of '{self.stages[stage].name}', which has {len(iters)}: {', '.join(i.name for i in iters)}", code="TW1113")

    def _split(self, stage: int, at: int, lengths: Sequence[int], inner_to_outer: bool) -> list[Iterator]:
        old = self.stages[stage].iters[at]
        if not all(isinstance(n, int) and n > 0 for n in lengths):
            raise ScheduleError(f"split of '{self.stages[stage].name}' takes whole numbers above zero, and was given {list(lengths)}", code="TW1113")
        rest = -(-old.extent // prod(lengths))
        sizes = [rest, *lengths] if inner_to_outer else [*lengths, rest]
        made = [Iterator(f"{old.name}.{n}", size, old.kind) for n, size in enumerate(sizes)]
        self.stages[stage].iters[at : at + 1] = made
        self._shift(stage, at, len(made) - 1)
        return made

    def _fuse(self, stage: int, places: Sequence[int]) -> Iterator:
        iters = self.stages[stage].iters
        olds = [iters[p] for p in places]
        if not places or list(places) != list(range(places[0], places[0] + len(places))):
            raise ScheduleError(f"fuse of '{self.stages[stage].name}' takes loops that follow each other, and was given {list(places)}", code="TW1113")
        kind = "reduce" if any(i.kind == "reduce" for i in olds) else "spatial"
        made = Iterator("@".join(i.name for i in olds) + "@", prod(i.extent for i in olds), kind)
        iters[places[0] : places[-1] + 1] = [made]
        for s in self.stages:
            if isinstance(s.compute_at, tuple) and s.compute_at[0] == stage:
                at = s.compute_at[1]
                s.compute_at = (stage, at if at < places[0] else max(places[0], at - len(places) + 1))
        return made

    def _annotate(self, stage: Any, it: Any, annotation: str) -> Iterator:
        k = self.stage_id(stage)
        at = self._place(k, it)
        self._note(steps.AnnotationStep(k, at, steps.ANNOTATIONS[annotation]))
        made = self.stages[k].iters[at] = replace(self.stages[k].iters[at], annotation=annotation)
        return made

    def _shift(self, stage: int, at: int, by: int) -> None:
        """Loops behind `at` of a stage have moved: who stands there stands there still."""
        for s in self.stages:
            if isinstance(s.compute_at, tuple) and s.compute_at[0] == stage and s.compute_at[1] >= at:
                s.compute_at = (stage, s.compute_at[1] + by)

    def _insert(self, at: int, stage: StageState) -> None:
        for s in self.stages:
            if isinstance(s.compute_at, tuple) and s.compute_at[0] >= at:
                s.compute_at = (s.compute_at[0] + 1, s.compute_at[1])
        self._of = {op: k + (k >= at) for op, k in self._of.items()}
        self.stages.insert(at, stage)

    def __str__(self) -> str:
        lines: list[str] = []
        inside: dict[tuple[int, int], list[int]] = {}
        for k, s in enumerate(self.stages):
            if isinstance(s.compute_at, tuple):
                inside.setdefault(s.compute_at, []).append(k)
        for k, s in enumerate(self.stages):
            if s.compute_at == "root" and isinstance(s.op, ComputeOp):
                self._write(k, 0, inside, lines)
        return "\n".join(lines) + "\n"

    def _write(self, k: int, depth: int, inside: dict[tuple[int, int], list[int]], lines: list[str]) -> None:
        for n, i in enumerate(self.stages[k].iters):
            lines.append(f"{'  ' * depth}{i.annotation or 'for'} {i.name} (0,{i.extent})")
            depth += 1
            for other in inside.get((k, n), ()):
                self._write(other, depth, inside, lines)
        lines.append(f"{'  ' * depth}{self.stages[k].name} = ...")


def _roots(op: Operation) -> list[Iterator]:
    return [Iterator(a.var.name, int(number_of(a.extent) or 0), a.kind) for a in root_axes(op)]
