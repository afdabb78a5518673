"""Task schedulers: which task is measured next."""

from __future__ import annotations

import logging
import random
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import OptionError
from tilewright.search.loop import share_budget
from tilewright.search.meta_schedule.candidates import BuilderInput, BuilderResult, MeasureCandidate, RunnerInput
from tilewright.search.meta_schedule.cost_model import CostModel
from tilewright.search.meta_schedule.database import MemoryDatabase
from tilewright.search.meta_schedule.measure_callback import MeasureCallback
from tilewright.search.meta_schedule.profiler import Profiler
from tilewright.search.meta_schedule.utils import Extensible

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.candidates import RunnerFuture
    from tilewright.search.meta_schedule.database import Database
    from tilewright.search.meta_schedule.tune_context import TuneContext

log: Final = logging.getLogger(__name__)


class TaskRecord:
    """The state of one task of a search."""

    def __init__(self, ctx: TuneContext, task_weight: float) -> None:
        self.ctx, self.task_weight = ctx, task_weight
        self.is_terminated = False
        self.measure_candidates: list[MeasureCandidate] | None = None
        self.builder_results: list[BuilderResult] | None = None
        self.runner_futures: list[RunnerFuture] | None = None
        self.best_times: list[float] = []
        """The best seconds after each batch."""
        self.trials = self.failures = 0


class TaskScheduler(Extensible):
    """Base of task schedulers."""

    def __init__(self) -> None:
        self.tasks_: list[TaskRecord] = []
        self.measure_callbacks_: list[MeasureCallback] = []
        self.database_: Database | None = None
        self.cost_model_: CostModel | None = None
        self.remaining_tasks_ = 0

    def next_task_id(self) -> int:
        """Return the number of the next task; -1 if all are finished."""
        raise ValueError("next_task_id is not defined")

    def tune(
        self, tasks: Sequence[TuneContext], task_weights: Sequence[float], max_trials_global: int,
        max_trials_per_task: int, num_trials_per_iter: int, builder: Any, runner: Any,
        measure_callbacks: Sequence[MeasureCallback] = (), database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Search and measure, in batches of `num_trials_per_iter`, until `max_trials_global` trials of all tasks."""
        if len(tasks) != len(task_weights):
            raise OptionError(f"there are {len(tasks)} tasks, but {len(task_weights)} weights", code="TW1104")
        self.tasks_ = [TaskRecord(t, float(w)) for t, w in zip(tasks, task_weights, strict=True)]
        self.measure_callbacks_, self.cost_model_ = list(measure_callbacks), cost_model
        self.database_ = database
        self.remaining_tasks_ = len(self.tasks_)
        for task in self.tasks_:
            with Profiler.timeit("InitializeTask"):
                spaces = task.ctx.generate_design_space()
                task.ctx.pre_tuning(
                    max_trials_per_task, num_trials_per_iter, spaces,
                    MemoryDatabase() if database is None else database, cost_model)

        def choose() -> int | None:
            task_id = self.next_task_id()
            return None if task_id < 0 else task_id

        share_budget(choose, lambda task_id, left: self._step(task_id, builder, runner), max_trials_global)
        for task_id, task in enumerate(self.tasks_):
            if task.runner_futures is not None:
                self.join_running_task(task_id)
            if not task.is_terminated:
                self.terminate_task(task_id)
            task.ctx.post_tuning()

    def _step(self, task_id: int, builder: Any, runner: Any) -> int:
        """Build and start a batch of a task; return the number of its candidates."""
        task = self.tasks_[task_id]
        with Profiler.timeit("EvoSearch"):
            candidates = task.ctx.generate_measure_candidates()
        if candidates is None:
            self.terminate_task(task_id)
            return 0
        if not candidates:
            return 0
        target: Any = task.ctx.target
        with Profiler.timeit("SendToBuilder"):
            built = builder.build([BuilderInput(c.sch.mod, target) for c in candidates])
        inputs = [
            RunnerInput(b.artifact_path, str(getattr(target, "kind", "llvm")), c.args_info or ())
            for b, c in zip(built, candidates, strict=True) if b.error_msg is None]
        with Profiler.timeit("SendToRunner"):
            running = iter(runner.run(inputs) if inputs else ())
        futures = [next(running) if b.error_msg is None else _failed(b.error_msg) for b in built]
        task.measure_candidates, task.builder_results, task.runner_futures = list(candidates), list(built), futures
        return len(candidates)

    def join_running_task(self, task_id: int) -> list[Any]:
        """Wait for the results of a task, tell them to its search and to the callbacks, and return them."""
        task = self.tasks_[task_id]
        candidates, built, futures = task.measure_candidates, task.builder_results, task.runner_futures
        if candidates is None or built is None or futures is None:
            raise OptionError(f"task {task_id} is not running", code="TW1104")
        with Profiler.timeit("JoinRunnerFutures"):
            results = [f.result() for f in futures]
        task.measure_candidates = task.builder_results = task.runner_futures = None
        task.ctx.notify_runner_results(candidates, results)
        for callback in self.measure_callbacks_:
            with Profiler.timeit(f"MeasureCallback/{type(callback).__name__}"):
                callback.apply(self, task_id, candidates, built, results)
        for result in results:
            task.trials += 1
            if result.error_msg is not None or not result.run_secs:
                task.failures += 1
        best = min((statistics.fmean(r.run_secs) for r in results if r.run_secs), default=float("inf"))
        task.best_times.append(min([best, *task.best_times[-1:]]))
        log.info("%s: %d trials, %d failed, best %.4g ms", task.ctx.task_name, task.trials, task.failures,
                 1e3 * task.best_times[-1])
        return results

    def terminate_task(self, task_id: int) -> None:
        """Mark a task as finished."""
        task = self.tasks_[task_id]
        if not task.is_terminated:
            task.is_terminated = True
            self.remaining_tasks_ -= 1

    def touch_task(self, task_id: int) -> None:
        """Fetch the results of a task if all of them are there."""
        task = self.tasks_[task_id]
        if task.runner_futures is not None and all(f.done() for f in task.runner_futures):
            self.join_running_task(task_id)

    def print_tuning_statistics(self) -> None:
        """Print a row for each task: its name, its trials, its failures and its best time."""
        for task in self.tasks_:
            best = task.best_times[-1] if task.best_times else float("inf")
            print(f"{task.ctx.task_name:40} {task.trials:6} trials {task.failures:5} failed {1e3 * best:10.4g} ms")

    @staticmethod
    def create(kind: TaskScheduler | str = "gradient", **options: Any) -> TaskScheduler:
        """Return a scheduler for its name, or for itself. Raises `OptionError` for another name."""
        if isinstance(kind, TaskScheduler):
            return kind
        kinds: dict[str, Any] = {"gradient": GradientBased, "round-robin": RoundRobin}
        if kind not in kinds:
            raise OptionError(f"there is no task scheduler '{kind}'; there are {', '.join(kinds)}", code="TW1103")
        made: TaskScheduler = kinds[kind](**options)
        return made


class PyTaskScheduler(TaskScheduler):
    """Base of schedulers that programs define."""


class RoundRobin(TaskScheduler):
    """Takes the tasks in turn."""

    def __init__(self) -> None:
        super().__init__()
        self._last = -1

    def next_task_id(self) -> int:
        for k in range(len(self.tasks_)):
            task_id = (self._last + 1 + k) % len(self.tasks_)
            task = self.tasks_[task_id]
            if task.is_terminated:
                continue
            if task.runner_futures is not None:
                self.join_running_task(task_id)
            self._last = task_id
            return task_id
        return -1


class GradientBased(TaskScheduler):
    """Takes the task whose weighted time fell most in its last batches; `alpha` is the share of this estimate.

    The other estimate is that a task improves by its time divided by its number of batches.
    """

    def __init__(self, *, alpha: float = 0.2, window_size: int = 3, seed: int = -1) -> None:
        super().__init__()
        self.alpha, self.window_size = alpha, window_size
        self.random = random.Random(None if seed == -1 else seed)
        self._warm = -1

    def next_task_id(self) -> int:
        for task_id, task in enumerate(self.tasks_):
            if task.runner_futures is not None:
                self.join_running_task(task_id)
        open_tasks = [k for k, task in enumerate(self.tasks_) if not task.is_terminated]
        if not open_tasks:
            return -1
        fresh = [k for k in open_tasks if k > self._warm]
        if fresh:
            self._warm = fresh[0]
            return fresh[0]
        gains = [self._gain(self.tasks_[k]) for k in open_tasks]
        if max(gains) <= 0:
            return self.random.choice(open_tasks)
        return open_tasks[max(range(len(gains)), key=lambda k: gains[k])]

    def _gain(self, task: TaskRecord) -> float:
        """Return the expected gain of another batch of a task, in weighted seconds."""
        times, n = task.best_times, len(task.best_times)
        if n == 0 or times[-1] == float("inf"):
            return 0.0
        window = min(self.window_size, n - 1)
        recent = (times[-1 - window] - times[-1]) / window if window and times[-1 - window] != float("inf") else 0.0
        return task.task_weight * (self.alpha * recent + (1 - self.alpha) * times[-1] / n)


def _failed(error: str) -> RunnerFuture:
    from tilewright.search.meta_schedule.candidates import RunnerFuture, RunnerResult

    return RunnerFuture(lambda: True, lambda: RunnerResult(None, error))
