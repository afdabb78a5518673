"""The bases of the parts that make and complete a design space: rules and postprocessors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.search.meta_schedule.utils import Extensible
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext


class ScheduleRule(Extensible):
    """Base of rules."""

    is_custom = False
    """Whether the rule applies to blocks that name a rule of their own."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take what the rule needs from the task."""

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        """Return the schedules for a block; `[sch]` leaves it as it is."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    @staticmethod
    def create(kind: str) -> list[ScheduleRule]:
        """Return the rules for a kind of target: "llvm", "c" or "cuda". Raises `OptionError` for others."""
        from tilewright.search.meta_schedule.schedule_rule import default_rules

        return default_rules(kind)


PyScheduleRule = ScheduleRule


class Postproc(Extensible):
    """Base of postprocessors."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take what the postprocessor needs from the task."""

    def apply(self, sch: Schedule) -> bool:
        """Complete a schedule; return False if it is not valid."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    @staticmethod
    def create(kind: str) -> list[Postproc]:
        """Return the postprocessors for a kind of target: "llvm", "c" or "cuda". Raises `OptionError` for others."""
        from tilewright.search.meta_schedule.postproc import default_postprocs

        return default_postprocs(kind)


PyPostproc = Postproc
