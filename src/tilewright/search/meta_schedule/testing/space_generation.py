"""Checks of design spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.structural import assert_structural_equal, structural_equal
from tilewright.search.meta_schedule.schedule_rule import ScheduleRule
from tilewright.search.meta_schedule.space_generator import PostOrderApply
from tilewright.search.meta_schedule.tune_context import TuneContext
from tilewright.search.meta_schedule.utils import normalized_module
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule_trace import Trace
from tilewright.tir.stmt import PrimFunc


def get_rules(kind: str, types: type[Any] | tuple[type[Any], ...]) -> list[ScheduleRule]:
    """Return the default rules of a kind of target that are of some classes."""
    return [rule for rule in ScheduleRule.create(kind) if isinstance(rule, types)]


def generate_design_space(
    kind: str, mod: PrimFunc | IRModule, target: Target | str, types: Any,
    sch_rules: Sequence[ScheduleRule] | None = None
) -> list[Schedule]:
    """Return the design space of a program by rules, or by the default rules of some classes."""
    rules = get_rules(kind, types) if sch_rules is None else list(sch_rules)
    space = PostOrderApply(sch_rules=rules, postprocs=[], mutator_probs={})
    return TuneContext(mod, target=target, space_generator=space, task_name="test").generate_design_space()


def check_sketches(
    mod: PrimFunc | IRModule, sketches: Sequence[Schedule], expected_mods: Sequence[PrimFunc | IRModule],
    expected_decisions: Sequence[Sequence[tuple[str, Any]]], *, debug_mask: str | int = "all"
) -> None:
    """Raise `AssertionError` unless each schedule gives one of the expected programs with its decisions, and vice
    versa."""
    assert len(expected_mods) == len(expected_decisions)
    assert len(sketches) == len(expected_mods), f"there are {len(sketches)} schedules, not {len(expected_mods)}"
    left = list(sketches)
    for expected, decisions in zip(map(normalized_module, expected_mods), expected_decisions, strict=True):
        made = [(s, _decided(mod, s.trace, decisions)) for s in left]
        fits = [(s, new) for s, new in made if new is not None and structural_equal(new.mod, expected)]
        if not fits:
            near = [new for _, new in made if new is not None]
            shown = "\n\n".join(f"{new.mod}\n{_difference(new.mod, expected)}" for new in near[:3])
            raise AssertionError(f"no schedule gives the program\n{expected}\nwith the decisions {decisions}:\n{shown}")
        left.remove(fits[0][0])
        assert_structural_equal(fits[0][1].mod, expected)


def _decided(mod: PrimFunc | IRModule, trace: Trace, decisions: Sequence[tuple[str, Any]]) -> Schedule | None:
    """Return the schedule of a trace with other decisions; None if the samples are others."""
    samples = [i for i in trace.insts if i.kind.is_sampled]
    if [i.kind.name for i in samples] != [name for name, _ in decisions]:
        return None
    new = Trace(trace.insts, {i: d for i, (_, d) in zip(samples, decisions, strict=True)})
    sch = Schedule(normalized_module(mod))
    new.apply_to_schedule(sch)
    return sch


def _difference(made: IRModule, expected: IRModule) -> str:
    """Return where two programs differ."""
    try:
        assert_structural_equal(made, expected)
    except CompileError as error:
        return str(error)
    return ""


def print_sketches(sketches: Sequence[Schedule]) -> None:
    """Print the programs and the decisions of schedules."""
    for number, sch in enumerate(sketches):
        print(f"# schedule {number}\n{sch.mod}")
        print([(i.kind.name, d) for i, d in sch.trace.decisions.items()])
