"""Callbacks after each batch of measurements: they store records, remove files, and train the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import OptionError
from tilewright.base.global_functions import register_func
from tilewright.search.meta_schedule.candidates import BuilderResult, MeasureCandidate, RunnerResult
from tilewright.search.meta_schedule.database import FAILED, TuningRecord
from tilewright.search.meta_schedule.utils import Extensible

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.task_scheduler import TaskScheduler


class MeasureCallback(Extensible):
    """Base of callbacks."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:
        """Use the results of the candidates of one task."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    @staticmethod
    def create(kind: Any = "default") -> list[MeasureCallback]:
        """Return callbacks: a list, one callback, or the default ones. Raises `OptionError` for another name."""
        if isinstance(kind, MeasureCallback):
            return [kind]
        if isinstance(kind, (list, tuple)):
            return list(kind)
        kinds: dict[str, list[type[MeasureCallback]]] = {
            "default": [AddToDatabase, RemoveBuildArtifact, UpdateCostModel], "add-to-database": [AddToDatabase],
            "remove-build-artifact": [RemoveBuildArtifact], "update-cost-model": [UpdateCostModel]}
        if kind not in kinds:
            raise OptionError(f"there is no callback '{kind}'; there are {', '.join(kinds)}", code="TW1103")
        return [made() for made in kinds[kind]]


PyMeasureCallback = MeasureCallback


class AddToDatabase(MeasureCallback):
    """Adds a record of each candidate to the database. A failed one has the time 1e10 s."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:
        database = task_scheduler.database_
        task = task_scheduler.tasks_[task_id].ctx
        if database is None or task.mod is None:
            return
        workload = database.commit_workload(task.mod)
        for candidate, result in zip(measure_candidates, runner_results, strict=True):
            seconds = [FAILED] if result.run_secs is None else result.run_secs
            database.commit_tuning_record(
                TuningRecord(candidate.sch.trace, workload, seconds, task.target, candidate.args_info))


class RemoveBuildArtifact(MeasureCallback):
    """Removes the files of built candidates."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:
        for result in builder_results:
            if result.artifact_path is not None:
                remove_build_dir(result.artifact_path)


class UpdateCostModel(MeasureCallback):
    """Trains the cost model by the candidates that were built."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:
        model = task_scheduler.cost_model_
        found = [
            (c, r) for c, b, r in zip(measure_candidates, builder_results, runner_results, strict=True)
            if b.error_msg is None]
        if model is not None and found:
            candidates, results = zip(*found, strict=True)
            model.update(task_scheduler.tasks_[task_id].ctx, candidates, results)


@register_func("meta_schedule.remove_build_dir")
def remove_build_dir(artifact_path: str) -> None:
    """Remove the file of a built program, and its folder if it is empty then."""
    Path(artifact_path).unlink(missing_ok=True)
    folder = Path(artifact_path).parent
    if folder.name.startswith("tilewright-artifact-") and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
