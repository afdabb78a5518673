"""Applies the trace of one workload to another with the same anchor block, such as a dense layer with more operators
behind it: TVM's `tvm.meta_schedule.trace_apply`.

    ms.trace_apply.schedule_using_anchor_trace(sch, trace_of_dense, Target("llvm"))
"""

from __future__ import annotations

from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import Var
from tilewright.search.meta_schedule import block_analysis as analysis
from tilewright.search.meta_schedule.schedule_rule import AutoInline, default_rules
from tilewright.search.meta_schedule.thread_rules import AutoBind
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule_trace import Instruction, Trace, is_reference
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import block_names


def schedule_using_anchor_trace(sch: Schedule, anchor_trace: Trace, target: Target) -> None:
    """Apply a trace to a schedule of a program that has the blocks of the trace's program, and others.

    Blocks that the trace does not name are inlined first where possible. Instructions on blocks that are not here are
    left out. Then the remaining blocks are inlined, or their loops distributed among cores. Raises `ScheduleError` if
    an instruction does not fit.
    """
    rules = default_rules(target.kind)
    inline = next(r for r in rules if isinstance(r, AutoInline))
    named = {i.attrs[0] for i in anchor_trace.insts if i.kind.name == "GetBlock"}
    for block in _blocks(sch):
        if block.block not in named:
            inline.apply(sch, block)
    before = {b: _loops(sch, b) for b in _blocks(sch)}
    _apply(sch, anchor_trace)
    into_reader_or_maker = AutoInline(into_producer=True, into_consumer=True)
    for block in (b for b in _blocks(sch) if b in before and _loops(sch, b) == before[b]):
        into_reader_or_maker.apply(sch, block)
    for block in (b for b in _blocks(sch) if b in before and _loops(sch, b) == before[b]):
        loops = sch.get_loops(block)
        if "gpu" in target.keys:
            next(r for r in rules if isinstance(r, AutoBind)).apply(sch, block)
        elif loops and not analysis.is_reduction(sch.get(block)):
            sch.parallel(sch.fuse(*loops))


def _blocks(sch: Schedule) -> list[BlockAt]:
    return [BlockAt(b, name) for name, f in sch.functions.items() for b in block_names(f)]


def _loops(sch: Schedule, block: BlockAt) -> list[Var]:
    return sch._engine(block.func).loops(block.block)


def _apply(sch: Schedule, trace: Trace) -> None:
    """Perform the instructions of a trace whose blocks and loops are in the program."""
    made: dict[int, Any] = {}
    foreign: set[int] = set()

    def now(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [now(v) for v in value]
        return made.get(id(value), value)

    for inst in trace.insts:
        if _is_foreign(inst, foreign) or (inst.kind.name == "GetBlock" and not _has_block(sch, *inst.attrs)):
            foreign.update(map(id, inst.outputs))
            continue
        results = sch.call(inst.kind, [now(v) for v in inst.inputs], inst.attrs, trace.get_decision(inst))
        made.update((id(old), new) for old, new in zip(inst.outputs, results, strict=False))


def _has_block(sch: Schedule, name: str, func: str) -> bool:
    try:
        sch.copy().get_block(name, func)
    except ScheduleError:
        return False
    return True


def _is_foreign(inst: Instruction, foreign: set[int]) -> bool:
    given = [x for v in inst.inputs for x in (v if isinstance(v, list) else [v])]
    return any(is_reference(v) and id(v) in foreign for v in given)


__all__ = ["schedule_using_anchor_trace"]
