"""The recorded schedule of one computation: its loops and its placement.

A `Stage` records steps; nothing changes until the schedule is lowered (`te/resolve.py`). So the order in which stages
are described does not matter: `s[B].split(…)` can precede or follow `s[B].compute_at(s[C], axis)`, and always splits
the loops of B at its final place. Within one stage, steps apply in the recorded order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import IntImm, PrimExpr, Var, add, as_expr, floordiv, mul
from tilewright.te.scan import ScanOp
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from tilewright.te.thread import ThreadAxis
from tilewright.tir.block_rewrites import check_scope
from tilewright.tir.index_map import IndexMap
from tilewright.tir.stmt import ALIGNED, IterVar
from tilewright.tir.tensorize import TensorIntrin

_KINDS: Final = {"unroll": "unrolled", "vectorize": "vectorized", "parallel": "parallel"}
_ITER_TYPES: Final = {
    "unrolled": IterVar.Unrolled, "vectorized": IterVar.Vectorized, "parallel": IterVar.Parallelized,
    "tensorized": IterVar.Tensorized,
}


@dataclass(frozen=True, slots=True)
class Split:
    """`parent` is split into `outer` and `inner`; exactly one of `factor` (trips of the inner loop) and `nparts` (of
    the outer) is set."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None


@dataclass(frozen=True, slots=True)
class Fuse:
    """`parents`, directly nested, become the loop `fused`."""

    parents: tuple[IterVar, ...]
    fused: IterVar


@dataclass(frozen=True, slots=True)
class Singleton:
    """`iter` is a new outermost loop of one trip."""

    iter: IterVar


@dataclass(frozen=True, slots=True)
class Reorder:
    axes: tuple[IterVar, ...]


Relation: TypeAlias = Split | Fuse | Singleton | Reorder


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark on one loop: `vectorized`, `unrolled`, `parallel`, or a note with a value."""

    axis: IterVar
    kind: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class IterVarAttr:
    """The marks of one loop under TVM's names; `iter_type` is a constant of `IterVar`, such as `IterVar.Unrolled`."""

    iter_type: int = IterVar.DataPar
    bind_thread: ThreadAxis | None = None
    tensor_intrin: TensorIntrin | None = None
    pragma_keys: tuple[str, ...] = ()
    pragma_values: tuple[Any, ...] = ()

    @staticmethod
    def of(marks: Sequence[Mark]) -> IterVarAttr:
        """Return the attributes for the marks of a loop."""
        kind = next((_ITER_TYPES[m.kind] for m in marks if m.kind in _ITER_TYPES), IterVar.DataPar)
        values = {m.kind: m.value for m in marks}
        notes = [m for m in marks if m.kind.startswith("pragma_")]
        return IterVarAttr(
            kind, values.get("thread"), values.get("tensorized"),
            tuple(m.kind.removeprefix("pragma_") for m in notes), tuple(m.value for m in notes))


@dataclass(frozen=True, slots=True)
class Ahead:
    """A prefetch of `tensor`, `offset` trips of `axis` ahead."""

    tensor: Tensor
    axis: IterVar
    offset: int


class Stage:
    """The schedule of one operation: `s[C]`. Its methods are steps; steps that create axes return them."""

    def __init__(self, op: Operation, *, is_output: bool = False) -> None:
        self.op = op
        self.origin_op = op
        self.is_output = is_output
        self.is_scan_update = False
        self.scope = ""
        self.inlined = False
        self.attached: tuple[Stage, IterVar] | None = None
        self.group: Group | None = None
        self.layout: IndexMap | None = None
        self.rolling = False
        self.notes: dict[str, Any] = {}
        self.predicates: list[PrimExpr] = []
        self.imports: list[str] = []
        self.prefetches: list[Ahead] = []
        self.relations: list[Relation] = []
        self.marks: list[Mark] = []
        self.restart(op)

    def restart(self, op: Operation) -> None:
        """Schedule `op` instead, from its initial axes."""
        self.op = op
        self.relations, self.marks = [], []
        self.roots = root_axes(op)
        self.leaf_iter_vars: list[IterVar] = list(self.roots)
        self.all_iter_vars: list[IterVar] = list(self.leaf_iter_vars)

    @property
    def place(self) -> tuple[Stage, IterVar] | None:
        """The stage and the loop in which this stage is computed: its own placement, or that of the innermost of its
        groups that has one."""
        found, group = self.attached, self.group
        while found is None and group is not None:
            found, group = group.attached, group.group
        return found

    @property
    def has_place(self) -> bool:
        """Whether the stage is computed inside of its readers, or in a loop of another stage."""
        return self.inlined or self.place is not None

    @property
    def attach_type(self) -> int:
        """TVM's number of the placement: 1 before the readers, 2 inlined, 4 in a loop of another stage, 5 in the step
        loop of a scan."""
        return 2 if self.inlined else 4 if self.has_place else 5 if self.is_scan_update else 1

    def loop_of(self, axis: IterVar) -> IterVar:
        """Return the loop with the trips of an axis that was split, or fused as the innermost of several: the inner
        part, or the fused loop. Other axes are returned unchanged."""
        for r in self.relations:
            if isinstance(r, Split) and r.parent is axis:
                axis = r.inner
            elif isinstance(r, Fuse) and r.parents[-1] is axis:
                axis = r.fused
        return axis

    @property
    def iter_var_attrs(self) -> dict[IterVar, IterVarAttr]:
        """The marks of the loops that have some."""
        return {a: IterVarAttr.of([m for m in self.marks if m.axis is a]) for a in {m.axis: 0 for m in self.marks}}

    # Loops.
    def split(self, parent: IterVar, factor: int | None = None, nparts: int | None = None) -> tuple[IterVar, IterVar]:
        """Split a loop into two: `factor` trips of the inner, or `nparts` of the outer one. Return outer and inner
        loop."""
        if (factor is None) == (nparts is None):
            raise ScheduleError(f"split of '{_name(parent)}' needs exactly one of factor= and nparts=")
        size = _positive(parent, factor if factor is not None else nparts)
        at = self._unmarked(parent, "split")
        rest = floordiv(add(parent.extent, size - 1), size)
        outer = IterVar(Var(f"{_name(parent)}.outer"), rest if factor is not None else _extent(size), parent.kind)
        inner = IterVar(Var(f"{_name(parent)}.inner"), _extent(size) if factor is not None else rest, parent.kind)
        self.relations.append(
            Split(parent, outer, inner, factor if factor is None else size, nparts if nparts is None else size))
        self.leaf_iter_vars[at : at + 1] = [outer, inner]
        self.all_iter_vars += [outer, inner]
        return outer, inner

    def fuse(self, *axes: IterVar) -> IterVar:
        """Fuse directly nested loops, given outermost first. Without loops, return a new outermost loop of one trip."""
        if not axes:
            self._computed("fuse")
            made = IterVar(Var("singleton"), _extent(1))
            self.relations.append(Singleton(made))
            self.leaf_iter_vars.insert(0, made)
            self.all_iter_vars.append(made)
            return made
        at = [self._unmarked(a, "fuse") for a in axes]
        if at != list(range(at[0], at[0] + len(at))):
            raise ScheduleError(
                f"fuse takes directly nested loops, outermost first; '{self.op.name}' has {self._order()}, and "
                f"{', '.join(map(_name, axes))} were given; reorder them first")
        extent: PrimExpr = axes[0].extent
        for a in axes[1:]:
            extent = mul(extent, a.extent)
        kind = "reduce" if any(a.kind == "reduce" for a in axes) else "spatial"
        fused = IterVar(Var(".".join([*map(_name, axes), "fused"])), extent, kind)
        self.relations.append(Fuse(axes, fused))
        self.leaf_iter_vars[at[0] : at[-1] + 1] = [fused]
        self.all_iter_vars.append(fused)
        return fused

    def reorder(self, *axes: IterVar) -> None:
        """Reorder loops: the given loops exchange their positions, in the given order from outermost to innermost."""
        places = sorted(self._place(a) for a in axes)
        if len(set(places)) != len(axes):
            raise ScheduleError(
                f"reorder of '{self.op.name}' was given the same axis twice: {', '.join(map(_name, axes))}"
            )
        self.relations.append(Reorder(axes))
        for k, a in zip(places, axes, strict=True):
            self.leaf_iter_vars[k] = a

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and order the parts outer, outer, inner, inner."""
        xo, xi = self.split(x_parent, x_factor)
        yo, yi = self.split(y_parent, y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def vectorize(self, var: IterVar) -> None:
        """Run all trips of a loop at once, as vector lanes."""
        self._mark(var, "vectorized")

    def unroll(self, var: IterVar) -> None:
        """Repeat the body of a loop for each trip."""
        self._mark(var, "unrolled")

    def parallel(self, var: IterVar) -> None:
        """Distribute the trips of a loop among threads."""
        self._mark(var, "parallel")

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Attach a pragma to a loop.

        `unroll`, `vectorize` and `parallel` act like the steps. `auto_unroll_max_step` and `unroll_explicit` unroll the
        innermost loops up to this number of steps. `import_llvm` adds LLVM text with functions to call; of functions of
        the same name, the last one counts. Other pragmas are notes on the loop, `pragma_` and the name, for passes of
        the caller.
        """
        value = pragma_value.value if isinstance(pragma_value, IntImm) else pragma_value
        if pragma_type in _KINDS:
            self._mark(var, _KINDS[pragma_type])
        elif pragma_type == "import_llvm" and isinstance(value, str):
            self._place(var)
            self.imports.append(value)
        elif pragma_type == "import_c":
            raise ScheduleError(
                f"pragma import_c on '{_name(var)}': C source is not supported; compile it to LLVM IR with `clang -S "
                "-emit-llvm` and use pragma import_llvm")
        else:
            self._mark(var, f"pragma_{pragma_type}", 1 if value is None else value)

    # Placement of the computation, and its memory.
    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute inside the loop `scope` of `parent`, just before the first use and only the required part."""
        self._computed("compute_at")
        if scope not in parent.all_iter_vars:
            raise ScheduleError(
                f"'{_name(scope)}' is not a loop of '{parent.op.name}'; its loops are {parent._order()}")
        self.inlined, self.attached = False, (parent, scope)

    def compute_inline(self) -> None:
        """Recompute the value at each use instead of storing it."""
        self._computed("compute_inline")
        if self.is_output:
            raise ScheduleError(
                f"'{self.op.name}' is an output of the schedule; only an intermediate value can be inlined")
        self.inlined, self.attached = True, None

    def compute_root(self) -> None:
        """Compute the whole value before its readers, which is the default."""
        self._computed("compute_root")
        self.inlined, self.attached = False, None

    def set_scope(self, scope: str) -> None:
        """Store the value in memory (`global`), or in registers and on the stack (`local`)."""
        self._computed("set_scope")
        check_scope(scope)
        self.scope = scope

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Set the stride of `axis` in memory to `factor * k + offset` elements, with padding between."""
        self._computed("storage_align")
        axes = [a for a in self.roots if a.kind == "spatial"]
        if self.is_output:
            raise ScheduleError(
                f"storage_align of '{self.op.name}': an output is in the caller's memory; align an intermediate "
                "value, for example one from cache_write")
        if axis not in axes[:-1]:
            raise ScheduleError(
                f"storage_align of '{self.op.name}' needs an axis other than the last; the choices are "
                f"{', '.join(a.var.name for a in axes[:-1]) or 'none'}")
        if factor < 1 or not 0 <= offset < factor:
            raise ScheduleError(
                f"storage_align of '{self.op.name}': the offset {offset} must be from 0 to the factor {factor}")
        self.notes[ALIGNED] = (*self.notes.get(ALIGNED, ()), (0, axes.index(axis), factor, offset))

    def double_buffer(self) -> None:
        """Record that the memory should be double-buffered: one copy is filled while the other is read. Without effect
        on a CPU."""
        self._computed("double_buffer")
        self.notes["double_buffer"] = True

    def rolling_buffer(self) -> None:
        """Keep the part that the next trip of the reader's loop needs in a ring buffer, and compute only the rest.
        Requires `compute_at`."""
        self._computed("rolling_buffer")
        if self.is_output:
            raise ScheduleError(
                f"rolling_buffer of '{self.op.name}': an output is in the caller's memory and must be stored whole")
        self.rolling = True

    def transform_layout(self, mapping_function: Any) -> list[IterVar]:
        """Store the value in another layout: `lambda i, j: (i // 4, j, i % 4)`. Return the loops over it, outermost
        first.

        For an argument, this is the layout of the array that the caller passes. Must precede the other steps of the
        stage.
        """
        is_input = isinstance(self.op, PlaceholderOp)
        if not is_input and (not isinstance(self.op, ComputeOp) or len(self.op.outputs) != 1):
            raise ScheduleError(f"transform_layout: '{self.op.name}' is not a te.compute with one result")
        if self.relations or self.marks or self.layout is not None:
            raise ScheduleError(f"'{self.op.name}' already has schedule steps; call transform_layout once, before them")
        axes = [IterVar(Var(""), as_expr(n)) for n in self.op.outputs[0].shape] if is_input else self.op.axis
        self.layout = IndexMap.of(mapping_function, len(axes))
        extents = [_known(a) for a in axes]
        sizes = self.layout.shape(extents)
        if self.layout.by_digits(extents) is None or prod(map(int, sizes)) != prod(extents):
            raise ScheduleError(
                f"the layout '{self.layout}' of '{self.op.name}' cannot be inverted: split axes by factors of their "
                "sizes, and use each part once")
        made = [IterVar(Var(n), _extent(size)) for n, size in zip(self.layout.names, sizes, strict=True)]
        if is_input:
            return made
        self.roots = (*made, *self.op.reduce_axis)
        self.leaf_iter_vars = list(self.roots)
        self.all_iter_vars += made
        return made

    def prefetch(self, tensor: Tensor, var: IterVar, offset: int) -> None:
        """Prefetch the memory of an argument `offset` trips of the loop `var` ahead."""
        self._place(var)
        self.prefetches.append(Ahead(tensor, var, offset))

    def set_store_predicate(self, predicate: PrimExpr) -> None:
        """Store only where `predicate` is true, a condition on the variables of this stage's axes and loops."""
        self._computed("set_store_predicate")
        if not isinstance(predicate, PrimExpr) or predicate.dtype != "bool":
            raise ScheduleError(
                f"set_store_predicate of '{self.op.name}' needs a condition, not {predicate!r}")
        self.predicates.append(predicate)

    # Threads and instructions.
    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """Bind a loop to an axis of threads. Virtual threads (`vthread`) become a loop; GPU threads are recorded on the
        loop."""
        if not isinstance(thread_ivar, ThreadAxis):
            raise ScheduleError(
                f"loop '{_name(ivar)}' of '{self.op.name}' can only be bound to an axis from te.thread_axis, not "
                f"{thread_ivar!r}")
        if any(m.kind == "thread" and m.value is thread_ivar for m in self.marks):
            raise ScheduleError(
                f"thread axis '{thread_ivar.thread_tag}' is already bound to a loop of '{self.op.name}'; fuse the two "
                "loops and bind the result")
        self._unmarked(ivar, "bind")
        self.marks.append(Mark(ivar, "thread", thread_ivar))

    def env_threads(self, threads: Any) -> None:
        """Record threads that are started around the whole computation; `tvm.build` for a CPU rejects them."""
        self._computed("env_threads")
        several = threads if isinstance(threads, (list, tuple)) else [threads]
        if not several or not all(isinstance(t, ThreadAxis) for t in several):
            raise ScheduleError(f"env_threads of '{self.op.name}' needs one or more axes from te.thread_axis")
        self.notes["env_threads"] = tuple(t.thread_tag for t in several)

    def tensorize(self, var: IterVar, tensor_intrin: Any) -> None:
        """Replace the loop `var` and the loops inside it by an instruction (`te.decl_tensor_intrin`); the last one
        counts."""
        if not isinstance(tensor_intrin, TensorIntrin):
            raise ScheduleError(
                f"tensorize of '{_name(var)}' in '{self.op.name}' needs a result of te.decl_tensor_intrin, not "
                f"{tensor_intrin!r}")
        self.marks = [m for m in self.marks if m.axis is not var or m.kind != "tensorized"]
        self._mark(var, "tensorized", tensor_intrin)

    # The record.
    def __repr__(self) -> str:
        return f"stage({self.op.name}: {self._order()})"

    def _order(self) -> str:
        return ", ".join(map(_name, self.leaf_iter_vars)) or "none"

    def _computed(self, step: str) -> None:
        if isinstance(self.op, PlaceholderOp):
            raise ScheduleError(
                f"{step}: '{self.op.name}' is an input, which has no loops; apply the step to a copy made by "
                "cache_read")

    def _place(self, axis: IterVar) -> int:
        """Return the position of `axis` among the loops. Raises `ScheduleError` if it is not a loop or no longer one.
        """
        self._computed(f"loop '{_name(axis)}'")
        for k, a in enumerate(self.leaf_iter_vars):
            if a is axis:
                return k
        gone = " anymore: it was split or fused" if axis in self.all_iter_vars else ""
        raise ScheduleError(
            f"'{_name(axis)}' is not a loop of '{self.op.name}'{gone}; its loops are {self._order()}", code="TW0613")

    def _unmarked(self, axis: IterVar, step: str) -> int:
        at = self._place(axis)
        for m in self.marks:
            if m.axis is axis and not m.kind.startswith("pragma_"):
                raise ScheduleError(
                    f"loop '{_name(axis)}' of '{self.op.name}' is already "
                    f"{'bound to threads' if m.kind == 'thread' else m.kind}; {step} it first")
        return at

    def _mark(self, axis: IterVar, kind: str, value: Any = None) -> None:
        """Mark a loop; the same mark again changes nothing."""
        if kind in ("vectorized", "unrolled", "parallel"):
            if any(m.axis is axis and m.kind == kind for m in self.marks):
                return
            self._unmarked(axis, "leave that out, or split")
        else:
            self._place(axis)
        self.marks.append(Mark(axis, kind, value))


class Group:
    """Stages with a common placement: `s.create_group(…)`."""

    def __init__(self, stages: Sequence[Stage], num_child_stages: int) -> None:
        self.stages = tuple(stages)
        self.num_child_stages = num_child_stages
        """Number of direct members, where a group inside counts as one."""
        self.attached: tuple[Stage, IterVar] | None = None
        self.group: Group | None = None
        """The group around this one."""

    @property
    def attach_stage(self) -> Stage | None:
        """The stage in a loop of which the group is computed; None before `compute_at`."""
        return None if self.attached is None else self.attached[0]

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute all stages of the group inside a loop of `parent`, except those with their own placement."""
        if parent in self.stages:
            raise ScheduleError(
                f"'{parent.op.name}' belongs to the group itself; choose a stage outside of it that reads it"
            )
        if scope not in parent.all_iter_vars:
            raise ScheduleError(
                f"'{_name(scope)}' is not a loop of '{parent.op.name}'; its loops are {parent._order()}")
        self.attached = (parent, scope)

    def compute_root(self) -> None:
        """Compute the stages of the group before their readers."""
        self.attached = None


def root_axes(op: Operation) -> tuple[IterVar, ...]:
    """Return the axes of a computation before any step, in loop order."""
    if isinstance(op, ScanOp):
        return (op.scan_axis,)
    return (*op.axis, *op.reduce_axis) if isinstance(op, ComputeOp) else ()


def values_of(roots: Sequence[IterVar], relations: Sequence[Relation]) -> dict[IterVar, PrimExpr]:
    """Return each root axis as an expression of the loops derived from it."""
    value: dict[IterVar, PrimExpr] = {}
    for r in reversed(relations):
        if isinstance(r, Split):
            value[r.parent] = add(mul(value.get(r.outer, r.outer.var), r.inner.extent), value.get(r.inner, r.inner.var))
        elif isinstance(r, Fuse):
            rest = value.get(r.fused, r.fused.var)
            for a in reversed(r.parents[1:]):
                value[a], rest = rest % a.extent, floordiv(rest, a.extent)
            value[r.parents[0]] = rest
    return {a: value.get(a, a.var) for a in roots}


def _name(axis: IterVar) -> str:
    if not isinstance(axis, IterVar):
        raise ScheduleError(
            f"{axis!r} is not an axis; use one of op.axis, op.reduce_axis, or a result of split or fuse")
    return axis.var.name


def _extent(n: int) -> PrimExpr:
    return IntImm("int64", n)


def _known(axis: IterVar) -> int:
    if isinstance(axis.extent, IntImm):
        return axis.extent.value
    raise ScheduleError(f"a layout needs constant sizes, but axis '{_name(axis)}' has the size {axis.extent}")


def _positive(axis: IterVar, n: Any) -> int:
    value = n.value if isinstance(n, IntImm) else n
    if not isinstance(value, int) or value < 1:
        raise ScheduleError(f"'{_name(axis)}' cannot be split by {n}; a factor must be an integer, 1 or more")
    return value
