"""The computations of a workload in a fixed order, with the readers of each and the amount of arithmetic.

The order is that in which records number the stages: inputs as soon as they occur, then computations whose inputs are
complete, those furthest from the results first.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.forks import lazy_attribute
from tilewright.base.global_functions import get_global_func
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var, number_of
from tilewright.scalar.walk import rewrite, text_of
from tilewright.search.auto_scheduler import access
from tilewright.search.auto_scheduler.loop_state import State, check_runs_here
from tilewright.te.bounds import loop_extents
from tilewright.te.resolve import schedule_func
from tilewright.te.schedule import Schedule
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Reduce, Tensor, TensorElem
from tilewright.tir.stmt import PrimFunc

_HASH: Final = "auto_scheduler.compute_dag.hash_func"
"""Name under which a program registers its own digest of computations."""


@dataclass(frozen=True, slots=True, eq=False)
class _Facts:
    """The operations in order, those that are outputs, and the readers of each."""

    ops: tuple[Operation, ...]
    outputs: frozenset[Operation]
    readers: dict[Operation, list[Operation]]


class ComputeDAG:
    """The computations of `tensors`, which are the arguments of the function to make: inputs and results.

    Takes tensors, a schedule, or the key of a registered workload. Raises `CompileError` for anything but `te.compute`
    of known sizes.
    """

    def __init__(self, tensors: Sequence[Tensor] | str | Schedule) -> None:
        if isinstance(tensors, str):
            from tilewright.search.auto_scheduler.workload_registry import workload_key_to_tensors

            tensors = workload_key_to_tensors(tensors)
        elif isinstance(tensors, Schedule):
            ops = tensors.stages
            tensors = [
                t for s in ops if isinstance(s.op, PlaceholderOp) or s.op in tensors.outputs for t in s.op.outputs]
        self.tensors: list[Tensor] = list(tensors)
        if not self.tensors or not all(isinstance(t, Tensor) for t in self.tensors):
            raise CompileError(
                f"a ComputeDAG is made of tensors (te.placeholder, te.compute), not of {tensors!r}",
                code="TW1109")
        self._facts = _facts(self.tensors)
        self.ops = self._facts.ops
        for op in self.ops:
            if not isinstance(op, (ComputeOp, PlaceholderOp)):
                raise CompileError(
                    f"'{op.name}' is a {type(op).__name__}; the search schedules only te.compute", code="TW1109")
            for t in op.outputs:
                t.extents  # raises for dynamic sizes  # noqa: B018
        self.flop_ct = sum(map(access.flops, self.ops)) or float(sum(map(access.trips, self.ops)))

    @property
    def output_ops(self) -> frozenset[Operation]:
        """The computations whose results the function returns."""
        return self._facts.outputs

    def readers(self, op: Operation) -> list[Operation]:
        """Return the computations that read the results of `op`, in order."""
        return self._facts.readers[op]

    @lazy_attribute
    def init_state(self) -> State:
        """The state without a step; copy it before changing it."""
        return State(self)

    def get_init_state(self) -> State:
        """Return a new state without a step."""
        return State(self)

    def infer_bound_from_state(self, state: Any) -> State:
        """Return a copy of a state, or the state of a record, with the extents of all loops, also of attached stages.

        Raises `ScheduleError` if its steps contradict each other.
        """
        made = State(state) if isinstance(state, State) else self.init_state.apply(state.transform_steps)
        made.finish()
        extents = loop_extents(made.schedule, self.tensors)
        for i in (i for s in made.stages for i in s.iters):
            extent = number_of(extents[i.axis]) if i.axis in extents else None
            i.extent = i.extent if extent is None else int(extent)
        return made

    def apply_steps_from_state(self, state: Any, layout_rewrite: Any = None) -> tuple[Schedule, list[Tensor]]:
        """Return a new schedule of the steps of `state`, and the arguments to lower or build it with. Raises
        `ScheduleError`.

        Layouts of arguments stay as they are: only `layout_rewrite=0`, no rewriting, is accepted.
        """
        if layout_rewrite not in (None, 0, False):
            raise CompileError(
                "layout_rewrite changes the arguments of a function; constants of networks are packed by relay.build, "
                "so omit it here", code="TW1109")
        replayed = self.init_state.apply(state.transform_steps)
        replayed.finish()
        return replayed.schedule, list(self.tensors)

    def print_python_code_from_state(self, state: Any) -> str:
        """Return the calls on `s`, a schedule of the outputs, that perform the steps of `state`."""
        return "\n".join(self.init_state.apply(state.transform_steps).finish()) + "\n"

    def func(self, state: Any, name: str = "main") -> PrimFunc:
        """Return the loop program of a state, with its blocks. Raises `ScheduleError`."""
        if getattr(state, "compute_dag", None) is not self:  # the steps of a record, or of an equal workload
            state = self.init_state.apply(state.transform_steps)
        check_runs_here(state)
        state.finish()
        return schedule_func(state.schedule, self.tensors, name)

    @lazy_attribute
    def plain_script(self) -> str:
        """The text of the loop program without steps, which computes the reference results."""
        return self.func(self.init_state).script()

    @lazy_attribute
    def text(self) -> str:
        """The computations with canonical names; equal for workloads that differ only in the names of tensors."""
        ops = list(enumerate(self.ops))
        names = {t: f"t{k}_{t.index}" if len(op.outputs) > 1 else f"t{k}" for k, op in ops for t in op.outputs}
        lines = []
        for op in self.ops:
            head = ", ".join(f"{names[t]}: {t.dtype}{list(t.extents)}" for t in op.outputs)
            lines.append(f"{head} = {_body(op, names, True)}" if isinstance(op, ComputeOp) else f"{head} = input")
        return "\n".join([*lines, "of " + ", ".join(names[t] for t in self.tensors)])

    def hash_key(self) -> str:
        """Return `["<digest>", [shape], …]`: the key, as JSON, of workloads without a name.

        A registered function `auto_scheduler.compute_dag.hash_func` computes the digest, a text or an integer, from the
        text of the computations.
        """
        return self._key

    @lazy_attribute
    def _key(self) -> str:
        own = get_global_func(_HASH, allow_missing=True)
        digest = hashlib.md5(self.text.encode(), usedforsecurity=False).hexdigest() if own is None else own(self.text)
        return json.dumps([digest, *(list(t.extents) for t in self.tensors)])

    workload_key = hash_key

    def __str__(self) -> str:
        lines, names = [], {t: t.name for op in self.ops for t in op.outputs}
        for op in self.ops:
            if isinstance(op, ComputeOp):
                axes = ", ".join(a.var.name for a in op.axis)
                lines.append(f"{op.name}({axes}) = {_body(op, names, False)}")
            else:
                lines.append(f"{op.name} = PLACEHOLDER {list(op.outputs[0].extents)}")
        return "\n".join(lines) + "\n"


def _facts(tensors: Sequence[Tensor]) -> _Facts:
    rank: dict[Operation, int] = {}
    readers: dict[Operation, list[Operation]] = {}
    missing: dict[Operation, int] = {}
    stack = [t.op for t in tensors]
    while stack:
        op = stack.pop()
        if op in rank:
            continue
        rank[op] = len(rank)
        missing[op] = len(op.inputs)
        readers.setdefault(op, [])
        for t in op.inputs:
            readers.setdefault(t.op, []).append(op)
            stack.append(t.op)
    ready = [(-rank[op], k, op) for k, op in enumerate(rank) if not missing[op]]
    heapq.heapify(ready)
    order: list[Operation] = []
    while ready:
        *_, op = heapq.heappop(ready)
        order.append(op)
        for reader in readers[op]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (-rank[reader], rank[reader], reader))
    asked = {t.op for t in tensors}
    outputs = frozenset(op for op in order if not isinstance(op, PlaceholderOp) and (op in asked or not readers[op]))
    return _Facts(tuple(order), outputs, {op: list(dict.fromkeys(readers[op])) for op in order})


def _body(op: ComputeOp, names: dict[Tensor, str], canonical: bool) -> str:
    points: dict[PrimExpr, PrimExpr] = {}
    axes = (*op.axis, *op.reduce_axis)
    if canonical:
        points = {a.var: Var(f"{'r' if a.kind == 'reduce' else 'i'}{k}", a.var.dtype) for k, a in enumerate(axes)}
    buffers = {t: Buffer(n, t.shape, t.dtype) for t, n in names.items()}

    def written(e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, TensorElem):
            return Load(buffers[e.tensor], [rewrite(i, written) for i in e.indices])
        return points.get(e)

    parts = []
    for b in op.body:
        if isinstance(b, Reduce):
            over = ", ".join(f"{points.get(a.var, a.var)}:{a.extent}" for a in b.axes)
            sources = ", ".join(text_of(rewrite(s, written)) for s in b.sources)
            begin = "".join(f" from {text_of(rewrite(e, written))}" for e in b.init)
            parts.append(f"{b.combiner.name}[{b.index}]({sources} over {over}{begin})")
        else:
            parts.append(text_of(rewrite(b, written)))
    return ", ".join(parts)
