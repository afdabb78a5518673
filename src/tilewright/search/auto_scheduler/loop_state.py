"""A state of the search: a `te.Schedule` under construction, and the transform steps that made it.

    state = dag.get_init_state()
    outer, inner = state.split(C, state[C].iters[0], [16])
    state.parallel(C, outer)

Each method performs one step on the schedule, records it, and writes the Python call that does the same. Stages are
numbered as records number them. A stage is attached to its reader at the end (`finish`), because a loop may be fused or
split after an attachment: the stage then moves to the fused loop, or to the innermost part.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import IntImm, number_of
from tilewright.scalar.range import Range
from tilewright.search.auto_scheduler import access
from tilewright.search.auto_scheduler.transform_step import ANNOTATIONS, STEPS, THREADS, TransformStep
from tilewright.te.schedule import Schedule, create_schedule
from tilewright.te.stage import Stage as ScheduleStage
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from tilewright.te.thread import thread_axis
from tilewright.tir.block_rewrites import SCOPES
from tilewright.tir.stmt import IterVar

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.compute_dag import ComputeDAG

LOCAL_BYTES: Final = 16 << 10
"""The largest tile, in bytes, that is kept in registers and on the stack of a thread."""
_KINDS: Final = ("unroll", "vectorize", "parallel")
_MARKS: Final = {number: name for name, number in ANNOTATIONS.items() if number}
_SHORT: Final = ((".outer", "_o"), (".inner", "_i"), (".fused", "_f"), (".", "_"))


@dataclass(slots=True, eq=False)
class Iterator:
    """A loop of a stage. `kind` is `spatial` or `reduce`. `extent` is the number of iterations when the loop was split.

    `annotation` is the number of its mark in records, 0 for a plain loop. `ComputeDAG.infer_bound_from_state` gives the
    extents of attached stages.
    """

    name: str
    extent: int
    kind: str
    axis: IterVar = field(repr=False)
    annotation: int = 0

    @property
    def range(self) -> Range:
        """The values of the loop variable, from 0 on."""
        return Range(self.extent)

    @property
    def iter_kind(self) -> int:
        """The kind as TVM numbers it: 0 for spatial loops, 1 for reductions."""
        return int(self.kind == "reduce")


@dataclass(slots=True, eq=False)
class Stage:
    """A computation and its loops, outermost first. `attached` is the stage and the loop in which it is computed."""

    op: Operation
    name: str
    stage: ScheduleStage = field(repr=False)
    variable: str
    """Name of the stage in the Python text."""
    iters: list[Iterator] = field(default_factory=list)
    attached: tuple[Stage, Iterator] | None = None
    hints: dict[str, int] = field(default_factory=dict)

    COMPUTE_AT_TRANS_TABLE: ClassVar[dict[str, int]] = {"root": 0, "inlined": 1, "iter": 2}
    """The numbers of places: by itself, inside its readers, and in a loop of another stage."""

    @property
    def compute_at(self) -> int:
        """The number of the place of the stage."""
        place = "iter" if self.attached is not None else "inlined" if self.stage.inlined else "root"
        return self.COMPUTE_AT_TRANS_TABLE[place]

    @property
    def computed(self) -> Operation:
        """The computation of the stage itself: after `cache_write`, the copy of a result of another stage."""
        return self.stage.op


class State:
    """A schedule and its steps. A stage is given by number, tensor or operation; a loop as `Iterator` or number.

    States of one computation are equal if their steps are. `State(state, dag)` is a copy of a state.
    """

    ANNOTATION_TRANS_TABLE: Final = ANNOTATIONS

    def __init__(self, state_object: State | ComputeDAG, dag: ComputeDAG | None = None) -> None:
        copied = state_object if isinstance(state_object, State) else None
        self.compute_dag: ComputeDAG = (
            dag or state_object.compute_dag if isinstance(state_object, State) else state_object)
        self.transform_steps: tuple[TransformStep, ...] = ()
        self.schedule: Schedule = create_schedule(
            [op for op in self.compute_dag.ops if op in self.compute_dag.output_ops])
        self.stages: list[Stage] = []
        self._of: dict[Operation, int] = {}
        self._lines: list[str] = []
        self._known: dict[IterVar, str] = {}
        self._taken: set[str] = set()
        self._in_registers: list[ScheduleStage] = []
        for k, op in enumerate(self.compute_dag.ops):
            self._insert(k, Stage(op, op.name, self.schedule[op], op.name))
        if copied is not None:
            self._replayed(copied.transform_steps)
            self._know(copied)

    def copy(self) -> State:
        """Return another state of the same steps."""
        return State(self, self.compute_dag)

    @property
    def state_object(self) -> State:
        """The state itself, under TVM's name."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.transform_steps == other.transform_steps and (
            self.compute_dag is other.compute_dag or self.compute_dag.text == other.compute_dag.text)

    def __hash__(self) -> int:
        return hash(self.transform_steps)

    def _know(self, other: State) -> None:
        """Accept the operations of another state of the same steps as names of the stages."""
        self._of = {**other._of, **self._of}

    def apply(self, recorded: Sequence[TransformStep]) -> State:
        """Perform the steps of a record on a copy. Raises `ScheduleError` with the number of a wrong step."""
        return self.copy()._replayed(recorded)

    def _replayed(self, recorded: Sequence[TransformStep]) -> State:
        for n, step in enumerate(recorded):
            try:
                getattr(self, STEPS[step.code].method)(*step.arguments)
            except ScheduleError as error:
                raise ScheduleError(f"step {n}, {step.as_json()}: {error.message}", code="TW1113") from None
        return self

    @property
    def stage_ops(self) -> list[Operation]:
        """The operation of each stage, that of an added stage included."""
        return [s.stage.op for s in self.stages]

    def __getitem__(self, stage: Any) -> Stage:
        return self.stages[self.stage_id(stage)]

    def stage_id(self, stage: Any) -> int:
        """Return the number of a stage, given by number, tensor or operation. Raises `ScheduleError` if unknown."""
        if isinstance(stage, int):
            if 0 <= stage < len(self.stages):
                return stage
        else:
            op = stage.op if isinstance(stage, Tensor) else stage
            if op in self._of:
                return self._of[op]
        names = ", ".join(s.name for s in self.stages)
        raise ScheduleError(f"{stage!r} is not a stage of this state; the stages are {names}", code="TW1113")

    # Loops of one stage.
    def split(self, stage: Any, it: Any, lengths: Sequence[int | None], inner_to_outer: bool = True) -> list[Iterator]:
        """Split a loop into `len(lengths) + 1` loops, whose inner (or outer) ones have these trips. Returns them.

        A length None is open: the loop has one trip, and a search chooses the length.
        """
        k, at = self._loop(stage, it)
        step = TransformStep("SP", k, at, self.stages[k].iters[at].extent, tuple(lengths), inner_to_outer)
        return self._split(step, at, lengths, inner_to_outer)

    def follow_split(self, stage: Any, it: Any, src_step_id: int, n_split: int) -> list[Iterator]:
        """Split a loop as step number `src_step_id` did, into `n_split + 1` loops. Returns them."""
        k, at = self._loop(stage, it)
        step = TransformStep("FSP", k, at, src_step_id, n_split)
        return self._split(step, at, step.lengths_after(self.transform_steps), True)

    def follow_fused_split(
        self, stage: Any, it: Any, src_step_ids: Sequence[int], level: int, factor_or_nparts: bool,
    ) -> list[Iterator]:
        """Split a loop in two by the product of the factors of earlier splits at `level`. Returns both loops."""
        k, at = self._loop(stage, it)
        step = TransformStep("FFSP", k, at, tuple(src_step_ids), level, factor_or_nparts)
        return self._split(step, at, step.lengths_after(self.transform_steps), factor_or_nparts)

    def fuse(self, stage: Any, iters: Sequence[Any]) -> Iterator:
        """Fuse directly nested loops, given outermost first. Returns the fused loop."""
        k = self.stage_id(stage)
        s, at = self.stages[k], [self._loop(k, it)[1] for it in iters]
        if not at or at != list(range(at[0], at[0] + len(at))):
            raise ScheduleError(
                f"fuse of '{s.name}' takes adjacent loops, but was given {at}", code="TW1113")
        olds = s.iters[at[0] : at[-1] + 1]
        fused = s.stage.fuse(*(i.axis for i in olds))
        self._write([fused], s, f"fuse({self._names(olds)})")
        kind = "reduce" if any(i.kind == "reduce" for i in olds) else "spatial"
        made = Iterator("@".join(i.name for i in olds) + "@", prod(i.extent for i in olds), kind, fused)
        s.iters = [*s.iters[: at[0]], made, *s.iters[at[-1] + 1 :]]
        self._move(olds, made)
        self._record(TransformStep("FU", k, tuple(at)))
        return made

    def reorder(self, stage: Any, order: Sequence[Any]) -> None:
        """Put all loops of a stage into another order."""
        k = self.stage_id(stage)
        s, at = self.stages[k], tuple(self._loop(k, it)[1] for it in order)
        if len(at) != len(s.iters):
            raise ScheduleError(
                f"reorder of '{s.name}' takes all of its {len(s.iters)} loops, but was given {len(at)}", code="TW1113")
        iters = [s.iters[p] for p in at]
        s.stage.reorder(*(i.axis for i in iters))
        s.iters = iters
        self._record(TransformStep("RE", k, at), f"s[{s.variable}].reorder({self._names(iters)})")

    def parallel(self, stage: Any, it: Any) -> Iterator:
        """Share the trips of a loop between threads. Returns the loop."""
        return self.annotate(stage, it, ANNOTATIONS["parallel"])

    def bind(self, stage: Any, it: Any, thread_name: str) -> Iterator:
        """Bind a loop to threads of a GPU, such as "blockIdx.x", or to virtual threads. Returns the loop.

        Programs of such a state do not run on a CPU.
        """
        if thread_name not in THREADS.values():
            raise ScheduleError(
                f"'{thread_name}' is no axis of threads; there are {', '.join(THREADS.values())}", code="TW1113")
        return self.annotate(stage, it, ANNOTATIONS[thread_name])

    def unroll(self, stage: Any, it: Any, max_unroll: int | None = None) -> Iterator:
        """Unroll a loop, unless it has more trips than `max_unroll`. Returns the loop."""
        k, at = self._loop(stage, it)
        found = self.stages[k].iters[at]
        if max_unroll is not None and found.extent > max_unroll:
            return found
        return self.annotate(stage, it, ANNOTATIONS["unroll"])

    def vectorize(self, stage: Any, it: Any) -> Iterator:
        """Run all trips of a loop as lanes of a vector. Returns the loop."""
        return self.annotate(stage, it, ANNOTATIONS["vectorize"])

    def annotate(self, stage: Any, it: Any, annotation: int) -> Iterator:
        """Mark a loop by the number of an annotation. Returns the loop."""
        k, at = self._loop(stage, it)
        s = self.stages[k]
        kind = next((n for n, number in ANNOTATIONS.items() if number == annotation), None)
        found = s.iters[at]
        if annotation in THREADS:
            thread = THREADS[annotation]
            s.stage.bind(found.axis, thread_axis(thread))
            found.annotation = annotation
            call = f's[{s.variable}].bind({self._names([found])}, te.thread_axis("{thread}"))'
            self._record(TransformStep("AN", k, at, annotation), call)
            return found
        if kind not in _KINDS:
            names = ", ".join(f"{number} {n}" for n, number in ANNOTATIONS.items())
            raise ScheduleError(
                f"annotation {annotation} of a loop cannot be replayed; the annotations of records are {names}",
                code="TW1113")
        getattr(s.stage, kind)(found.axis)
        found.annotation = annotation
        self._record(TransformStep("AN", k, at, annotation), f"s[{s.variable}].{kind}({self._names([found])})")
        return found

    def pragma(self, stage: Any, it: Any, pragma: str) -> None:
        """Attach the hint `name$value` to a loop."""
        k, at = self._loop(stage, it)
        s = self.stages[k]
        name, _, text = pragma.partition("$")
        value = int(text) if text.lstrip("-").isdigit() else None
        hints = [(name, value, value)] + ([("unroll_explicit", 1, True)] if name == "auto_unroll_max_step" else [])
        for hint, number, written in hints:
            s.stage.pragma(s.iters[at].axis, hint, number)
            self._lines.append(f's[{s.variable}].pragma({self._names([s.iters[at]])}, "{hint}", {written})')
        s.hints[name] = value or 0
        self._record(TransformStep("PR", k, at, pragma))

    def storage_align(self, stage: Any, it: Any, factor: int, offset: int) -> None:
        """Place elements along the axis of a loop `factor * k + offset` apart."""
        k, at = self._loop(stage, it)
        s = self.stages[k]
        s.stage.storage_align(s.iters[at].axis, factor, offset)
        call = f"s[{s.variable}].storage_align({self._names([s.iters[at]])}, {factor}, {offset})"
        self._record(TransformStep("SA", k, at, factor, offset), call)

    # Positions of stages.
    def compute_at(self, stage: Any, target: Any, it: Any) -> None:
        """Compute a stage inside a loop of another."""
        k, (t, at) = self.stage_id(stage), self._loop(target, it)
        self.stages[k].attached = (self.stages[t], self.stages[t].iters[at])
        self._record(TransformStep("CA", k, t, at))

    def compute_inline(self, stage: Any) -> None:
        """Compute a stage where it is read."""
        self._detach(stage, "compute_inline", "CI")

    def compute_root(self, stage: Any) -> None:
        """Compute a whole stage before its readers."""
        self._detach(stage, "compute_root", "CR")

    def _detach(self, stage: Any, method: str, code: str) -> None:
        k = self.stage_id(stage)
        s = self.stages[k]
        getattr(s.stage, method)()
        s.attached = None
        self._record(TransformStep(code, k), f"s[{s.variable}].{method}()")

    # Added stages; each method returns the operation of the new stage.
    def cache_read(self, stage: Any, scope: str, readers: Sequence[Any]) -> Operation:
        """Add a copy of a stage, which `readers` read."""
        k, given = self.stage_id(stage), tuple(map(self.stage_id, readers))
        s = self.stages[k]
        if len(s.stage.op.outputs) != 1:
            raise ScheduleError(
                f"'{s.name}' has {len(s.stage.op.outputs)} results, but cache_read copies only one", code="TW1113")
        made = self.schedule.cache_read(s.stage.op.outputs[0], scope, [self.stages[r].stage.op for r in given])
        names = ", ".join(self.stages[r].variable for r in given)
        call = f's.cache_read({s.variable}, "{scope}", [{names}])'
        self._insert(k + 1, Stage(s.op, made.op.name, self.schedule[made], f"{s.variable}_{scope}"), call)
        self._record(TransformStep("CHR", k, scope, given))
        return made.op

    def cache_write(self, stage: Any, scope: str) -> Operation:
        """Compute a stage in a new, preceding stage in other memory, and copy the result back."""
        k = self.stage_id(stage)
        s, outputs = self.stages[k], list(self[stage].stage.op.outputs)
        found = self.schedule.cache_write(outputs if len(outputs) > 1 else outputs[0], scope)
        made = Stage(
            s.op, f"{s.name}.{scope}", self.schedule[found[0] if isinstance(found, list) else found],
            f"{s.variable}_{scope}")
        self._insert(k, made, f's.cache_write({s.variable}, "{scope}")')
        self._restart(s)
        for i, a in zip(made.iters, [*s.iters, *getattr(s.op, "reduce_axis", ())], strict=True):
            i.name = f"{a.name if isinstance(a, Iterator) else a.var.name}_c"
        self._of[s.stage.op] = k + 1
        self._record(TransformStep("CHW", k, scope))
        return made.stage.op

    def rfactor(self, stage: Any, it: Any, factor_iter_id: int) -> Operation:
        """Compute each trip of a reduction loop in a new stage before this one, along a new dimension."""
        k, at = self._loop(stage, it)
        s = self.stages[k]
        old = s.iters[at]
        if old.kind != "reduce":
            raise ScheduleError(f"'{old.name}' is not a reduction loop of '{s.name}'", code="TW1113")
        names = [i.name for i in s.iters if i.kind == "spatial"]
        left = [i for i in s.iters if i.kind == "reduce" and i is not old]
        rest = [i.name for i in sorted(left, key=lambda i: i.axis not in s.op.reduce_axis)]  # split axes come last
        found = self.schedule.rfactor(s.stage.op.outputs[0], old.axis, factor_iter_id)
        call = f"s.rfactor({s.variable}, {self._names([old])}, {factor_iter_id})"
        place = factor_iter_id % (len(names) + 1)
        made = Stage(
            s.op, f"{s.name}.rf", self.schedule[found[0] if isinstance(found, tuple) else found], f"{s.variable}_rf")
        self._insert(k, made, call)
        self._restart(s)
        for i, name in zip(made.iters, [*names[:place], old.name, *names[place:], *rest], strict=True):
            i.name = name
        s.iters[-1].name = f"{old.name}_v"
        self._of[s.stage.op] = k + 1
        self._record(TransformStep("RF", k, at, factor_iter_id))
        return made.stage.op

    # The schedule and its text.
    def finish(self) -> list[str]:
        """Attach stages to their readers and keep small tiles in registers. Returns the Python calls.

        The schedule is then complete; further steps may follow, and `finish` again.
        """
        made = [*self._lines]
        while self._in_registers:
            self._in_registers.pop().scope = ""
        for s in (s for s in self.stages if s.attached is not None):
            target, loop = s.attached  # type: ignore[misc]
            s.stage.compute_at(target.stage, loop.axis)
            made.append(f"s[{s.variable}].compute_at(s[{target.variable}], {self._names([loop])})")
            if not s.stage.scope and _tile_bytes(s.stage, target.stage, loop.axis) <= LOCAL_BYTES:
                s.stage.set_scope("local")
                self._in_registers.append(s.stage)
                made.append(f's[{s.variable}].set_scope("local")')
        return made

    def __str__(self) -> str:
        inputs = [s.name for s in self.stages if isinstance(s.stage.op, PlaceholderOp)]
        lines = ["Placeholder: " + ", ".join(inputs)] if inputs else []
        for s in self.stages:
            if s.attached is None and not s.stage.inlined and isinstance(s.stage.op, ComputeOp):
                self._print(s, 0, lines)
        return "\n".join(lines) + "\n"

    def _print(self, s: Stage, depth: int, lines: list[str]) -> None:
        for i in s.iters:
            lines.append(f"{'  ' * depth}{_MARKS.get(i.annotation, 'for')} {i.name} (0,{i.extent})")
            depth += 1
            for other in self.stages:
                if other.attached is not None and other.attached[1] is i:
                    self._print(other, depth, lines)
        lines.append(f"{'  ' * depth}{s.name} = ...")

    # Bookkeeping.
    def _record(self, step: TransformStep, call: str = "") -> None:
        self.transform_steps = (*self.transform_steps, step)
        self._lines += [call] if call else []

    def _loop(self, stage: Any, it: Any) -> tuple[int, int]:
        """Return the numbers of a stage and of a loop of it. Raises `ScheduleError` if it has no such loop."""
        k = self.stage_id(stage)
        iters = self.stages[k].iters
        same = [n for n, i in enumerate(iters) if i is it or n == it]  # else the loop of that name of another copy
        for n in same or [n for n, i in enumerate(iters) if isinstance(it, Iterator) and i.name == it.name]:
            return k, n
        names = ", ".join(i.name for i in iters)
        raise ScheduleError(
            f"{it!r} is not a loop of '{self.stages[k].name}', which has {len(iters)}: {names}", code="TW1113")

    def _split(
        self, step: TransformStep, at: int, given: Sequence[int | None], inner_to_outer: bool
    ) -> list[Iterator]:
        s, lengths = self.stages[step.stage_id], [1 if n is None else n for n in given]
        if not all(isinstance(n, int) and n > 0 for n in lengths):
            raise ScheduleError(
                f"split of '{s.name}' takes positive whole numbers, but was given {list(given)}", code="TW1113")
        old, option = s.iters[at], "factor" if inner_to_outer else "nparts"
        axes, sizes, rest = list[IterVar](), list[int](), old.axis
        for length in reversed(lengths) if inner_to_outer else lengths:
            outer, inner = s.stage.split(rest, **{option: length})
            self._write([outer, inner], s, f"split({self._known[rest]}, {option}={length})")
            made, rest = (inner, outer) if inner_to_outer else (outer, inner)
            axes.append(made)
            sizes.append(length)
        axes, sizes = [*axes, rest], [*sizes, -(-old.extent // prod(lengths))]
        if inner_to_outer:
            axes, sizes = axes[::-1], sizes[::-1]
        parts = [
            Iterator(f"{old.name}.{n}", size, old.kind, a) for n, (size, a) in enumerate(zip(sizes, axes, strict=True))]
        s.iters = [*s.iters[:at], *parts, *s.iters[at + 1 :]]
        self._move([old], parts[-1])
        self._record(step)
        return parts

    def _move(self, olds: Iterable[Iterator], new: Iterator) -> None:
        """Attach to `new` the stages that were attached to removed loops."""
        for s in self.stages:
            if s.attached is not None and any(s.attached[1] is i for i in olds):
                s.attached = (s.attached[0], new)

    def _insert(self, at: int, made: Stage, call: str = "") -> None:
        made.variable = _free(_word(made.variable), [s.variable for s in self.stages])
        self._of = {op: k + (k >= at) for op, k in self._of.items()}
        self._of.setdefault(made.stage.op, at)
        self.stages.insert(at, made)
        self._lines += [f"{made.variable} = {call}"] if call else []
        self._restart(made)

    def _restart(self, s: Stage) -> None:
        """Reset the loops of a stage to its axes."""
        s.iters = [Iterator(a.var.name, int(number_of(a.extent) or 0), a.kind, a) for a in s.stage.leaf_iter_vars]
        for i in s.iters:
            self._name(i.axis, s, i.axis.var.name)
        if s.iters:
            comma, op = "," if len(s.iters) == 1 else "", s.variable
            self._lines.append(f"{self._names(s.iters)}{comma} = tuple({op}.op.axis) + tuple({op}.op.reduce_axis)")

    def _write(self, made: Sequence[IterVar], s: Stage, call: str) -> None:
        """Write a call that makes axes."""
        for a in made:
            short = a.var.name
            for long, shorter in _SHORT:
                short = short.replace(long, shorter)
            self._name(a, s, short)
        self._lines.append(f"{', '.join(self._known[a] for a in made)} = s[{s.variable}].{call}")

    def _name(self, axis: IterVar, s: Stage, short: str) -> None:
        self._known[axis] = _free(f"{s.variable}_{_word(short)}", self._taken)
        self._taken.add(self._known[axis])

    def _names(self, iters: Sequence[Iterator]) -> str:
        return ", ".join(self._known[i.axis] for i in iters)


def check_runs_here(state: State) -> None:
    """Raise `ScheduleError` for a state with open lengths, or with threads or memory of a GPU."""
    for n, step in enumerate(state.transform_steps):
        if step.code == "SP" and None in step.lengths:
            raise ScheduleError(
                f"step {n}, {step.as_json()}, has open lengths; a SketchPolicy chooses them", code="TW1113")
        gpu = None
        if step.code == "AN" and step.annotation in THREADS:
            gpu = f"binds a loop to {THREADS[step.annotation]}"
        elif step.code in ("CHR", "CHW") and step.scope_name not in SCOPES:
            gpu = f"uses memory of the scope '{step.scope_name}'"
        if gpu is not None:
            raise ScheduleError(
                f"step {n}, {step.as_json()}, {gpu}, but schedules of a GPU do not run on a CPU", code="TW1113")


def _tile_bytes(stage: ScheduleStage, target: ScheduleStage, axis: IterVar) -> float:
    """Return the bytes of `stage` that one trip of `axis` needs; infinite unless its reader reads it point by point."""
    if isinstance(stage.op, PlaceholderOp) or not access.reads_point_by_point(target.op, stage.op):
        return float("inf")
    inner = [a.extent for a in target.leaf_iter_vars[target.leaf_iter_vars.index(axis) + 1 :] if a.kind == "spatial"]
    sizes = [e.value for e in inner if isinstance(e, IntImm)]
    return prod(sizes) * max(t.dtype.itemsize for t in stage.op.outputs) if len(sizes) == len(inner) else float("inf")


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _free(name: str, taken: Collection[str]) -> str:
    found, k = name, 1
    while found in taken:
        found, k = f"{name}_{k}", k + 1
    return found
