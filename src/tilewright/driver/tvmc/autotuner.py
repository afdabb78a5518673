"""`tvmc tune`: measures a model's kernels by `autotvm` or `auto_scheduler`, and appends each result to a file of
records.

`tvmc compile --tuning-records` uses the best of them. `tilewright tune` also proves that the whole model becomes
faster.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import OptionError, RunError
from tilewright.driver.measuring import MeasuringOptions
from tilewright.driver.tune import measurable
from tilewright.driver.tvmc.records import is_of_auto_scheduler
from tilewright.runtime.files import temporary_folder

if TYPE_CHECKING:
    from tilewright.backends.targets.target import Target
    from tilewright.driver.tvmc.model import TVMCModel
    from tilewright.ir.module import IRModule
    from tilewright.search.measure import Builder, Runner

_WIDTH: Final = 100
"""Longest description of a task in a list of tasks, in characters."""
_MIN_REPEAT_MS: Final = 1000.0
"""Milliseconds of a measurement on processors other than x86."""
_RANGE: Final = re.compile(r"(\d*)(-?)(\d*)", re.ASCII)
_LISTS: Final = ("list", "help")


class TaskFilterError(OptionError, AssertionError):
    """A task that `--tasks` names does not exist. TVM's `filter_tasks` raises an `AssertionError`."""

    code = "TW0202"


def tune_model(
    tvmc_model: TVMCModel,
    target: str | Mapping[str, Any] | Target,
    tuning_records: str | PathLike[str] | None = None,
    prior_records: str | PathLike[str] | None = None,
    enable_autoscheduler: bool = False,
    trials: int = 1000,
    tuner: str = "xgb",
    min_repeat_ms: float | None = None,
    early_stopping: int | None = None,
    timeout: float = 10,
    repeat: int = 1,
    number: int = 10,
    parallel: int = 4,
    tasks_filter: str = "all",
    rpc_key: str | None = None,
    hostname: str | None = None,
    port: int | str | None = None,
) -> str:
    """Measure, append the results to `tuning_records` (by default a temporary file), and return its path.

    `trials` is the maximum for all tasks. With `autotvm` each task has an equal share. With `auto_scheduler` the next
    trials go to the task with the largest expected gain. Records of the file are not measured again; a new file begins
    as a copy of `prior_records`. `timeout` is in seconds; `min_repeat_ms` is by default 0 on x86, else 1000; `parallel`
    candidates are built at once. `tuner` is a name of `autotvm.tuner.get_tuner`; `tasks_filter` is read by `selected`.
    With `rpc_key`, candidates run on devices of that key of the tracker at `hostname` and `port`.

    Raises `OptionError` for unknown options, `TargetError` for a target that does not run here, and `RPCError` for a
    silent tracker. Raises `RunError` if no candidate could be measured, and the errors of reading model and records.
    """
    from tilewright.search.autotvm.tuner import tuner_named
    from tilewright.search.lines import LineFile

    place = MeasuringOptions(tracker=f"{hostname}:{port}" if hostname else "", rpc_key=rpc_key or "")
    chosen = measurable(target, place)
    tuner_named(tuner)  # report an unknown name before slow steps
    if trials < 1:
        raise OptionError(f"--trials is {trials}; it must be at least 1", code="TW1104")
    place.reach()
    records = LineFile(tuning_records or temporary_folder("tvmc-") / "records.json").path
    if prior_records:
        _begin_with(prior_records, records, enable_autoscheduler)
    found = tasks_of(tvmc_model, chosen, enable_autoscheduler)
    tasks, weights = zip(*(found[k] for k in selected(tasks_filter, len(found))), strict=True)
    outcome = Outcome()
    least = min_repeat_ms if min_repeat_ms is not None else 0.0 if chosen.family == "x86" else _MIN_REPEAT_MS
    with ExitStack() as stack:
        builder, runner = place.builder(timeout, parallel), place.runner(timeout, number, repeat, least)
        for part in (builder, runner):
            if hasattr(part, "close"):
                stack.callback(part.close)
        if enable_autoscheduler:
            _search(tasks, weights, builder, runner, records, trials, early_stopping, outcome)
        else:
            _tune(tasks, builder, runner, records, trials, tuner, early_stopping, outcome)
    outcome.check()
    return str(records)


class Outcome:
    """A callback of both tuners that counts measured candidates, and keeps the last error."""

    def __init__(self) -> None:
        self.measured, self.failed, self.reason = 0, 0, ""

    def __call__(self, tuner: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        failed = [r for r in results if r.error_no]
        self.measured += len(results) - len(failed)
        self.failed += len(failed)
        self.reason = next((r.error for r in reversed(failed) if r.error), self.reason)

    def check(self) -> None:
        """Raise `RunError` if candidates were tried and none could be measured."""
        if self.failed and not self.measured:
            raise RunError(
                f"none of {self.failed} candidates could be measured; the last one failed because: {self.reason}",
                code="TW1116")


def tasks_of(model: TVMCModel, target: Target, enable_autoscheduler: bool = False) -> list[tuple[Any, int]]:
    """Return the tasks of a model, and how often it runs the kernel of each. Raises `OptionError` if there are none."""
    found: list[tuple[Any, int]]
    if enable_autoscheduler:
        from tilewright.search.auto_scheduler.relay_integration import extract_tasks

        found = list(zip(*extract_tasks(model.mod, model.params, target), strict=True))
    else:
        from tilewright.search.autotvm.task import relay_integration

        found = [*relay_integration.tasks_of(model.mod, model.params, target)]
    if not found:
        raise OptionError("the model has no tunable kernel; there is nothing to tune", code="TW1112")
    return found


def selected(text: str, count: int) -> list[int]:
    """Return the tasks that `--tasks` names: `all`, or numbers and ranges, as `0,2`, `3-5`, `-5` or `16-`. Raises
    `OptionError`."""
    chosen: list[int] = []
    for word in map(str.strip, text.split(",")):
        if word not in _LISTS:
            chosen += _tasks_named(word, count)
    return list(dict.fromkeys(chosen))


def _tasks_named(word: str, count: int) -> Sequence[int]:
    """Return the tasks of one number or range. Raises `OptionError`."""
    if word == "all":
        return range(count)
    match = _RANGE.fullmatch(word)
    if match is None or not word:
        kind = "Malformed range expression: " if "-" in word else ""
        raise TaskFilterError(
            f"--tasks: {kind}cannot read '{word}'; write all, list, or numbers as in 0,2 and 3-5", code="TW0202")
    first, dash, last = match.groups()
    if not (first or last):
        raise TaskFilterError(
            f"--tasks: Missing lhs or rhs for range expression '{word}'; write a number on one side, as in 16-",
            code="TW0202")
    begin, end = int(first or 0), int(last or count - 1) if dash else int(first)
    if not begin <= end < count:
        side = "Right-hand side expression" if last else "Task index"
        raise TaskFilterError(
            f"--tasks: {side} out of range: '{word}' is not within the tasks, 0 to {count - 1}; --tasks list shows "
            "them", code="TW0202")
    return range(begin, end + 1)


def filter_tasks(tasks: Sequence[Any], expr: str) -> tuple[list[Any], bool]:
    """Return the tasks that an expression names (see `selected`), and whether it asks for their list. Raises
    `OptionError`, which is an `AssertionError` too."""
    chosen = [tasks[k] for k in selected(expr, len(tasks))]
    return chosen, any(word.strip() in _LISTS for word in expr.split(","))


def gen_task_list(tasks: Sequence[Any], enable_autoscheduler: bool) -> str:
    """Return the list of tasks that `tvmc tune --tasks list` shows in TVM, a task on each line."""

    def line(task: Any) -> str:
        if enable_autoscheduler:
            return _shortened(task.desc or "Unnamed")
        try:
            count: Any = len(task.config_space)
        except OptionError:  # no template of that name
            count = "?"
        return f"{_shortened(str(task))} (len={count})"

    return "\n".join(["Available Tasks for tuning:", *(f"  {k}. {line(t)}" for k, t in enumerate(tasks))])


def _shortened(text: str) -> str:
    return text if len(text) < _WIDTH else f"{text[:_WIDTH - 3]}..."


def autotvm_get_tuning_tasks(mod: IRModule, params: Mapping[str, Any], target: str | Target) -> list[Any]:
    """Return the tasks of AutoTVM of a network."""
    from tilewright.search.autotvm.task import extract_from_program

    return list(extract_from_program(mod, params, target))


def autoscheduler_get_tuning_tasks(
    mod: IRModule, params: Mapping[str, Any], target: str | Target, include_simple_tasks: bool = False
) -> tuple[list[Any], list[int]]:
    """Return the tasks of the auto-scheduler of a network, and how often it runs each."""
    from tilewright.search.auto_scheduler.relay_integration import extract_tasks

    tasks, weights = extract_tasks(mod, params, target, include_simple_tasks=include_simple_tasks)
    return list(tasks), list(weights)


def tune_tasks(
    tasks: Sequence[Any], log_file: str | PathLike[str], measure_option: Mapping[str, Any], tuner: str, trials: int,
    early_stopping: int | None = None, tuning_records: str | PathLike[str] | None = None,
) -> None:
    """Tune tasks of AutoTVM, one after another, with up to `trials` of each, and append the results to `log_file`.

    `tuning_records` are earlier results. Raises `OptionError` for an unknown tuner, and `RunError` if no candidate
    could be measured.
    """
    from tilewright.search.autotvm.tuner import tuner_named

    tuner_named(tuner)
    outcome = Outcome()
    if tasks:
        builder, runner = measure_option["builder"], measure_option["runner"]
        if tuning_records:
            _begin_with(tuning_records, Path(log_file), False)
        _tune(tasks, builder, runner, Path(log_file), trials * len(tasks), tuner, early_stopping, outcome)
    outcome.check()


def _begin_with(prior: str | PathLike[str], records: Path, enable_autoscheduler: bool) -> None:
    """Copy the records of an earlier call to a new file. Raises `OptionError` for records of the other tuner."""
    if is_of_auto_scheduler(prior) != enable_autoscheduler:
        other, change = ("auto_scheduler", "add --enable-autoscheduler")
        if enable_autoscheduler:
            other, change = ("autotvm", "omit --enable-autoscheduler")
        raise OptionError(
            f"--tuning-records: '{prior}' has records of {other}; {change}, or give other records", code="TW1101")
    if not records.exists():
        shutil.copyfile(prior, records)


def _tune(
    tasks: Sequence[Any], builder: Builder, runner: Runner, records: Path, trials: int, tuner: str,
    early_stopping: int | None, outcome: Outcome,
) -> None:
    """Tune one task after another, with a tuner of `autotvm`."""
    from tilewright.search import autotvm

    option = autotvm.measure_option(builder, runner)
    known = list(autotvm.record.load_from_file(records)) if records.exists() else []
    log = autotvm.callback.log_to_file(records)
    for k, task in enumerate(tasks):
        made = autotvm.tuner.get_tuner(tuner, task)
        made.resume(known)
        count = min(trials // len(tasks) + (k < trials % len(tasks)), len(task.config_space))
        progress = autotvm.callback.progress_bar(count, f"[Task {k + 1:2d}/{len(tasks):2d}]")
        made.tune(count, option, early_stopping, [progress, log, outcome])


def _search(
    tasks: Sequence[Any], weights: Sequence[int], builder: Builder, runner: Runner, records: Path, trials: int,
    early_stopping: int | None, outcome: Outcome,
) -> None:
    """Tune all tasks together, with the scheduler of `auto_scheduler`."""
    from tilewright.search import auto_scheduler

    scheduler = auto_scheduler.TaskScheduler(tasks, weights, load_log_file=str(records) if records.exists() else None)
    callbacks = [auto_scheduler.RecordToFile(records), outcome]
    options = auto_scheduler.TuningOptions(
        trials, early_stopping, builder=builder, runner=runner, measure_callbacks=callbacks)
    scheduler.tune(options, per_task_early_stopping=early_stopping)
