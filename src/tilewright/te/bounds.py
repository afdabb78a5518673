"""Ranges of the loops of te schedules: `te.schedule.InferBound`.

    xo, xi = s[B].split(B.op.axis[0], factor=8)
    s[A].compute_at(s[B], xo)
    bounds = te.schedule.InferBound(s)
    bounds[xi], bounds[A.op.axis[0]]        Range(0, 8), Range(xo * 8, xo * 8 + 8)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilewright.base.containers import Map
from tilewright.base.errors import ScheduleError
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import PrimExpr, Var
from tilewright.scalar.range import Range
from tilewright.scalar.walk import substitute
from tilewright.te.create import create_blocks
from tilewright.te.resolve import Resolver
from tilewright.te.scan import ScanOp
from tilewright.te.schedule import Rewrite, Rfactor, Schedule
from tilewright.te.stage import Fuse, Mark, Relation, Split, Stage
from tilewright.te.tensor import PlaceholderOp, Tensor
from tilewright.tir.stmt import For, IterVar, replaced, substitute_stmt


def InferBound(sch: Schedule) -> Map:
    """Return the range of each axis of the stages: the points that a trip of the loop around a stage computes.

    A range of an attached stage contains the variables of the loops around it. Inlined stages have no ranges. Raises
    `ScheduleError` if a step cannot be applied.
    """
    if sch.arrange is not None:
        raise ScheduleError(
            f"the predefined schedule of '{sch.outputs[0].name}' makes its loops when it is lowered, so they have no "
            "ranges before; begin with te.create_schedule")
    return Map(_ranges(sch, ends(sch)))


def loop_extents(s: Schedule, args: Sequence[Tensor]) -> dict[IterVar, PrimExpr]:
    """Return the extents of the loops of all stages, attached stages included, as far as `args` need the stages.

    Raises `ScheduleError` if a step cannot be applied. Memory of a GPU counts as memory.
    """
    return {axis: r.extent for axis, r in _ranges(s, args).items()}


def ends(s: Schedule) -> list[Tensor]:
    """Return the inputs of a schedule, in the order of their stages, then its outputs."""
    inputs = [t for stage in s.stages if isinstance(stage.op, PlaceholderOp) for t in stage.op.outputs]
    states = {t for stage in s.stages if isinstance(stage.op, ScanOp) for t in stage.op.state}
    return [*(t for t in inputs if t not in states), *(t for op in s.outputs for t in op.outputs)]


def _ranges(s: Schedule, args: Sequence[Tensor]) -> dict[IterVar, Range]:
    inputs = [t for t in args if isinstance(t.op, PlaceholderOp)]
    outputs = [t for t in args if not isinstance(t.op, PlaceholderOp)]
    func, blocks = create_blocks(inputs, outputs)
    buffers = dict(zip([*inputs, *outputs], func.buffers, strict=True))
    resolver = _RangeResolver(s, func, {s[op]: block for op, block in blocks.items()}, buffers)
    resolver.resolve()
    names: dict[PrimExpr, PrimExpr] = {loop: axis.var for axis, loop in resolver.loops.items()}
    return {a: Range.from_min_extent(substitute(r.min, names), substitute(r.extent, names))
            for a, r in resolver.ranges.items()}


class _RangeResolver(Resolver):
    """Notes the range of each axis when its loop is made, in terms of the loops of the program."""

    ranges: dict[IterVar, Range]

    def resolve(self) -> None:
        self.ranges = {}
        super().resolve()

    def rewrite(self, r: Rewrite) -> None:
        super().rewrite(r if isinstance(r, Rfactor) else replace(r, scope="global"))

    def set_scope(self, block: str, scope: str) -> None:
        """Leave the scope, which does not change loops."""

    def mark(self, m: Mark) -> None:
        """Leave the mark, which does not change loops. A loop inside of one that is bound to the same threads goes over
        no further points: its variable is that of the outer loop."""
        if m.kind != "thread":
            return
        node = self.engine.loop(self.loops[m.axis])
        around = (f for f in self.engine.around(node) if isinstance(f, For) and f.extent is node.extent)
        outer = next((f.var for f in around if self.bound.get(f.var) is m.value), None)
        if outer is None:
            self.bound[node.var] = m.value
        else:
            self.engine.func = replaced(self.engine.func, node, substitute_stmt(node.body, {node.var: outer}))
            self.loops[m.axis] = outer

    def arrange_scan(self, stage: Stage, op: ScanOp) -> None:
        super().arrange_scan(stage, op)
        self._note([a for a in (op.scan_axis,) if a in self.loops])

    def name_loops(self, axes: Sequence[IterVar], block: str, loops: Sequence[Var]) -> None:
        super().name_loops(axes, block, loops)
        self._note(axes)
        first: dict[PrimExpr, PrimExpr] = {v: self.engine.loop(v).min for v in loops}
        for axis, point in zip(axes, self.engine.block(block).bindings, strict=bool(axes)):
            low = simplify(substitute(point, first), Ranges())
            self.ranges[axis] = Range.from_min_extent(low, self.ranges[axis].extent)

    def relate(self, r: Relation, block: str) -> None:
        super().relate(r, block)
        self._note((r.outer, r.inner) if isinstance(r, Split) else (r.fused,) if isinstance(r, Fuse) else ())

    def _note(self, axes: Iterable[IterVar]) -> None:
        for a in axes:
            node = self.engine.loop(self.loops[a])
            self.ranges[a] = Range.from_min_extent(node.min, node.extent)
