"""Schedules of tensor expressions: TVM's API on top of `tir.Schedule`.

    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(C.op.axis[0], C.op.axis[1], 32, 32)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=4)
    s[C].reorder(xo, yo, ko, xi, ki, yi)
    s[C].vectorize(yi)

`s[C]` is a `Stage`, which records steps. `cache_read`, `cache_write` and `rfactor` add stages and return the tensor of
the new one; `s[C].op` is then the remaining computation of C. Lowering replays the record as steps of `tir.Schedule`
(`te/resolve.py`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import Buffer, PrimExpr, Var
from tilewright.scalar.walk import substitute
from tilewright.te.relayout import LoopOrder
from tilewright.te.scan import ScanOp
from tilewright.te.stage import Fuse, Group, Relation, Reorder, Singleton, Split, Stage, root_axes, values_of
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Reduce, Tensor, producers_first
from tilewright.tir.block_rewrites import check_scope
from tilewright.tir.stmt import IterVar, PrimFunc


@dataclass(frozen=True, slots=True)
class CacheRead:
    tensor: Tensor
    scope: str
    readers: tuple[Stage, ...]
    made: Stage


@dataclass(frozen=True, slots=True)
class CacheWrite:
    """A cache_write step. With `order`, the value is cached in the layout of the loops that `stage` had before."""

    stage: Stage
    scope: str
    made: Stage
    order: LoopOrder | None = None


@dataclass(frozen=True, slots=True)
class Rfactor:
    """An rfactor step. `roots` and `relations` are those of `stage` before the step; `rest` are the other reduction
    loops."""

    stage: Stage
    roots: tuple[IterVar, ...]
    relations: tuple[Relation, ...]
    axis: IterVar
    rest: tuple[IterVar, ...]
    factor_axis: int
    made: Stage


__all__ = ["Buffer", "Fuse", "IterVar", "Schedule", "Singleton", "Split", "create_schedule"]

Rewrite: TypeAlias = CacheRead | CacheWrite | Rfactor
Arrange: TypeAlias = Callable[[PrimFunc, Sequence[Tensor], Sequence[Tensor]], PrimFunc]
"""A function that schedules a program with a block for each computation, given its inputs and its outputs."""


class Schedule:
    """The schedule of the computations of `outputs`. `stages` are in producer order, including inputs.

    With `arrange`, that function schedules the whole program when it is lowered, and steps are not allowed.
    """

    def __init__(self, ops: Sequence[Operation], arrange: Arrange | None = None) -> None:
        self.arrange = arrange
        self.outputs = list(ops)
        order = producers_first(ops)
        self.stages = [Stage(op, is_output=op in self.outputs) for op in order]
        self.rewrites: list[Rewrite] = []
        self.stage_map: dict[Operation, Stage] = {s.op: s for s in self.stages}
        for t in (t for op in order if isinstance(op, ScanOp) for t in op.update):
            self.stage_map[t.op].is_scan_update = True

    def __getitem__(self, key: Tensor | Operation) -> Stage:
        op = key.op if isinstance(key, Tensor) else key
        found = self.stage_map.get(op) if isinstance(op, Operation) else None
        if found is None:
            names = ", ".join(s.op.name for s in self.stages)
            raise ScheduleError(
                f"{getattr(op, 'name', op)!r} is not part of this schedule; its stages are {names}", code="TW0613")
        return found

    def normalize(self) -> Schedule:
        """Return the schedule itself: a record is always normalized."""
        return self

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Group:
        """Return the group of the stages between `inputs` and `outputs`, for common placement; with `include_inputs`,
        including the inputs."""
        ends, starts = ([self[t] for t in (x if isinstance(x, (list, tuple)) else [x])] for x in (outputs, inputs))
        after = {s.op for s in starts}
        for stage in self.stages:
            if any(t.op in after for t in stage.op.inputs):
                after.add(stage.op)
        before = set(producers_first([s.op for s in ends]))
        members = [s for s in self.stages if s.op in after and s.op in before and (include_inputs or s not in starts)]
        members = [s for s in members if not isinstance(s.op, PlaceholderOp)]
        if not members:
            raise ScheduleError(
                f"no stage to group is between {', '.join(s.op.name for s in starts)} and "
                f"{', '.join(s.op.name for s in ends)}")
        groups = list(dict.fromkeys(map(_outermost, members)))
        taken = next((g for g in groups if isinstance(g, Group) and not set(g.stages) <= set(members)), None)
        if taken is not None:
            raise ScheduleError(
                f"'{taken.stages[0].op.name}' is already in a group, of which only a part is between the given ends")
        made = Group(members, len(groups))
        for inner in groups:
            inner.group = made
        return made

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of stages, each before the groups around it."""
        found: dict[Group, None] = {}
        for stage in self.stages:
            inner = stage.group
            while inner is not None:
                found.setdefault(inner)
                inner = inner.group
        return tuple(sorted(found, key=lambda g: len(g.stages)))

    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Copy `tensor` to memory of `scope`, to be read by `readers` (an operation or tensor, or several)."""
        check_scope(scope)
        several = readers if isinstance(readers, (list, tuple)) else [readers]
        stages = tuple(self[r] for r in several)
        if not stages:
            raise ScheduleError(f"cache_read of '{tensor.name}' needs a list of the operations that read the copy")
        self[tensor]
        axes = [IterVar(Var(f"ax{k}"), d) for k, d in enumerate(tensor.shape)]
        made = _copied([tensor], self._free_name(tensor.op.name, scope), axes)
        stage = self._add(made, before=min(stages, key=self.stages.index))
        self.rewrites.append(CacheRead(tensor, scope, stages, stage))
        return made.outputs[0]

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute `tensor` in memory of `scope`, and copy the result back. Return the tensor computed there.

        The results of a computation with several results are cached together: pass a list, and get a list. After
        splits, fuses and orders of the loops, the cached value is in their order, and both stages begin without steps.
        """
        check_scope(scope)
        several = isinstance(tensor, (list, tuple))
        given = list(tensor) if several else [tensor]
        if not given:
            raise ScheduleError("cache_write needs the results of one computation; the list is empty")
        stage, op = self[given[0]], self._reducible(given[0], "cache_write")
        if given != list(op.outputs):
            raise ScheduleError(
                f"cache_write needs all results of one computation: '{op.name}' has "
                f"{', '.join(t.name for t in op.outputs)}, and {', '.join(t.name for t in given)} were given")
        if stage.marks or any(_is_of_reduction(r) or _mixes_reductions(r) for r in stage.relations):
            raise ScheduleError(f"'{op.name}' already has schedule steps; call cache_write before them")
        order = LoopOrder.of(stage, op.axis) if stage.relations else None
        axis = [IterVar(Var(f"{a.var.name}.c"), a.extent) for a in op.axis] if order is None else list(order.leaves)
        points = [a.var for a in axis] if order is None else order.points
        renamed: dict[PrimExpr, PrimExpr] = {old.var: new for old, new in zip(op.axis, points, strict=True)}
        made = _computing(
            f"{op.name}.{scope}", axis, tuple(substitute(b, renamed) for b in op.body), op.reduce_axis, op)
        stage.restart(_copied(made.outputs, op.name, list(op.axis), order))
        self.stage_map[stage.op] = stage
        self.rewrites.append(CacheWrite(stage, scope, self._add(made, before=stage), order))
        return list(made.outputs) if several else made.outputs[0]

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
        """Split a reduction into two stages: each trip of the reduction loop `axis` has a separate result along a new
        dimension.

        Return the tensor of partial results (a tuple for a reduction of several values), which `tensor` then reduces.
        As in TVM, marks and the splits, fusions and orders of the other loops are dropped.
        """
        stage, op = self[tensor], self._reducible(tensor, "rfactor")
        if not op.reduce_axis:
            raise ScheduleError(f"'{op.name}' is not a reduction, so rfactor does not apply")
        if op.instruction is not None:
            raise ScheduleError(
                f"'{op.name}' is computed by the instruction '{op.instruction.intrin.name}', so rfactor does not apply")
        stage._unmarked(axis, "rfactor")
        if axis.kind != "reduce":
            raise ScheduleError(
                f"'{axis.var.name}' is not a reduction loop of '{op.name}'; split a reduction axis and pass one of "
                "the parts")
        if any(_mixes_reductions(r) for r in stage.relations):
            raise ScheduleError(
                f"rfactor of '{op.name}' must precede reorder of its reduction loops, and fuse with other loops; apply "
                "those steps to the two stages that it creates")
        rank = len(op.axis)
        if not -rank - 1 <= factor_axis <= rank:
            raise ScheduleError(
                f"rfactor of '{op.name}': factor_axis={factor_axis} is not between {-rank - 1} and {rank}")
        place = factor_axis % (rank + 1)
        made = _factored(stage, op, axis, place)
        parts = made.outputs
        last = IterVar(Var(f"{axis.var.name}.v"), axis.extent, "reduce")
        at = [a.var for a in op.axis]
        first = op.body[0]
        assert isinstance(first, Reduce)
        sources = tuple(t[(*at[:place], last.var, *at[place:])] for t in parts)
        body = tuple(Reduce(first.combiner, sources, (last,), k, first.init) for k in range(len(parts)))
        roots, relations = root_axes(op), tuple(r for r in stage.relations if _is_of_reduction(r))
        stage.restart(_computing(op.name, list(op.axis), body, (last,), op))
        self.stage_map[stage.op] = stage
        stage_of_parts = self._add(made, before=stage)
        self.rewrites.append(Rfactor(stage, roots, relations, axis, made.reduce_axis, place, stage_of_parts))
        return parts[0] if len(parts) == 1 else parts

    def _reducible(self, tensor: Tensor, step: str) -> ComputeOp:
        op = self[tensor].op
        if not isinstance(op, ComputeOp):
            raise ScheduleError(f"{step}: '{op.name}' is not a te.compute, so its loops cannot be rewritten")
        return op

    def _free_name(self, name: str, scope: str) -> str:
        """Return the name of a copy: `A.local`, and `A.d.local`, `A.d.d.local` for further ones, as in TVM."""
        while f"{name}.{scope}" in {s.op.name for s in self.stages}:
            name = f"{name}.d"
        return f"{name}.{scope}"

    def _add(self, op: ComputeOp, before: Stage) -> Stage:
        stage = self.stage_map[op] = Stage(op)
        self.stages.insert(self.stages.index(before), stage)
        return stage


def __getattr__(name: str) -> Any:
    """Return a function of TVM on a whole schedule, whose module is imported at its first use."""
    for module, names in _FUNCTIONS.items():
        if name in names:
            return getattr(importlib.import_module(f"tilewright.te.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_FUNCTIONS: Final = {
    "auto_inline": ("AutoInlineBroadcast", "AutoInlineElemWise", "AutoInlineInjective"),
    "bounds": ("InferBound",),
    "graph": ("CreateReadGraph", "PostDFSOrder", "ScanFixPointAnalysis", "ScanGetBody"),
    "producers": ("ScheduleOps", "SchedulePostProcToPrimFunc"),
}


def _outermost(stage: Stage) -> Stage | Group:
    """Return the outermost group of a stage, or the stage itself without one."""
    found: Stage | Group = stage
    while found.group is not None:
        found = found.group
    return found


def create_schedule(ops: Any) -> Schedule:
    """Return a schedule of the computations of one or several operations: separate loop nests, in producer order."""
    several = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    found = [o.op if isinstance(o, Tensor) else o for o in several]
    if not found or not all(isinstance(o, Operation) for o in found):
        raise ScheduleError(f"create_schedule takes one or more operations (C.op), not {ops!r}")
    return Schedule(list(dict.fromkeys(found)))


def _is_of_reduction(r: Relation) -> bool:
    """Return whether a relation splits or fuses loops of a reduction."""
    return (isinstance(r, Split) and r.parent.kind == "reduce") or (
        isinstance(r, Fuse) and r.parents[0].kind == "reduce")


def _mixes_reductions(r: Relation) -> bool:
    """Return whether a relation places a loop of a reduction among others, or fuses it with them."""
    kinds = {a.kind for a in (r.axes if isinstance(r, Reorder) else r.parents if isinstance(r, Fuse) else ())}
    return "reduce" in kinds and (isinstance(r, Reorder) or len(kinds) > 1)


def _computing(
    name: str, axis: list[IterVar], body: tuple[PrimExpr, ...], reduce_axis: Sequence[IterVar], like: ComputeOp
) -> ComputeOp:
    op = ComputeOp(name, tuple(axis), body, tuple(reduce_axis), attrs=like.attrs, inline=like.inline,
        instruction=like.instruction)
    op.tensors.extend(Tensor(op, k, [a.extent for a in axis], b.dtype) for k, b in enumerate(body))
    return op


def _copied(
    tensors: Sequence[Tensor], name: str, axis: list[IterVar], order: LoopOrder | None = None
) -> ComputeOp:
    at = [a.var for a in axis] if order is None else order.at([a.var for a in axis])
    op = ComputeOp(name, tuple(axis), tuple(t(*at) for t in tensors), ())
    op.tensors.extend(Tensor(op, k, [a.extent for a in axis], t.dtype) for k, t in enumerate(tensors))
    return op


def _factored(stage: Stage, op: ComputeOp, axis: IterVar, place: int) -> ComputeOp:
    """Return the first stage of an rfactor: `axis` is a dimension of its result, and the other reduction loops remain.
    """
    left = [a for a in stage.leaf_iter_vars if a.kind == "reduce" and a is not axis]
    rest = [a for a in op.reduce_axis if a in left] + [a for a in left if a not in op.reduce_axis]
    own = IterVar(Var(axis.var.name), axis.extent)
    axes = [IterVar(Var(a.var.name), a.extent) for a in op.axis]
    points: dict[PrimExpr, PrimExpr] = {old.var: new.var for old, new in zip(op.axis, axes, strict=True)}
    points.update({a.var: e for a, e in values_of(op.reduce_axis, stage.relations).items()})
    first = op.body[0]
    assert isinstance(first, Reduce)
    sources = [substitute(substitute(s, points), {axis.var: own.var}) for s in first.sources]
    body = tuple(Reduce(first.combiner, sources, rest, k) for k in range(len(sources)))
    return _computing(f"{op.name}.rf", [*axes[:place], own, *axes[place:]], body, rest, op)
