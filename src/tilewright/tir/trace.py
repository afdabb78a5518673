"""The trace of a schedule: its steps as data, to print, store and replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tilewright.base.errors import ScheduleError
from tilewright.tir.steps import Recorder, ScheduleStep

POSTPROC: Final = "enter_postproc"
Decide = Callable[[ScheduleStep, Any], Any]


class Trace:
    """Steps in order. The text is the sequence of calls; `as_json` returns data for `json.dumps`."""

    def __init__(self, steps: Iterable[ScheduleStep] = ()) -> None:
        self.steps = tuple(steps)

    def __iter__(self) -> Iterator[ScheduleStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    def show(self) -> None:
        """Print the calls."""
        print(self)

    def as_python(self) -> list[str]:
        """Return the calls on a schedule `sch`, one per line."""
        return [str(s) for s in self.steps]

    def as_json(self) -> list[dict[str, Any]]:
        return [s.as_json() for s in self.steps]

    @staticmethod
    def from_json(data: Any) -> Trace:
        """Return the trace for the output of `as_json`. Raises `ScheduleError` for any other object."""
        if not isinstance(data, list):
            raise ScheduleError(f"a trace must be a list of steps, not {type(data).__name__}")
        return Trace(map(ScheduleStep.from_json, data))

    @property
    def decisions(self) -> list[tuple[ScheduleStep, Any]]:
        """Return the samples with their decisions."""
        return [(s, s.options["decision"]) for s in self.steps if "decision" in s.options]

    def with_decision(self, sample: ScheduleStep, decision: Any) -> Trace:
        """Return the trace with another decision of one sample; later steps are unchanged."""
        if not any(s is sample for s in self.steps):
            raise ScheduleError(f"{sample} is not in this trace")
        return Trace(
            ScheduleStep(s.name, s.args, {**s.options, "decision": decision}) if s is sample else s for s in self.steps)

    def simplified(self, remove_postproc: bool) -> Trace:
        """Return the trace without samples, whose values are part of the later steps; `remove_postproc` also drops all
        steps from `enter_postproc` on."""
        kept: list[ScheduleStep] = []
        for s in self.steps:
            if s.name == POSTPROC and remove_postproc:
                break
            if "decision" not in s.options:
                kept.append(s)
        return Trace(kept)

    def apply_to_schedule(self, sch: Recorder, remove_postproc: bool = False) -> None:
        """Apply the steps to `sch`; with `remove_postproc`, only those before `enter_postproc`."""
        names = [s.name for s in self.steps]
        sch.apply(self.steps[: names.index(POSTPROC)] if remove_postproc and POSTPROC in names else self.steps)
