"""Tunes several tasks with one budget: the next round goes to the task with the largest expected gain.

The gradient of the objective with respect to the trials of a task has three estimates: the gain of its last rounds, an
extrapolation of its time, and the speed of similar tasks (Zheng et al., "Ansor", OSDI 2020, section 6).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.search.auto_scheduler.cost_model import RandomModel, XGBModel
from tilewright.search.auto_scheduler.measure import engines, measure_batch
from tilewright.search.auto_scheduler.search_policy import SketchPolicy
from tilewright.search.loop import INFINITE, share_budget

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.search_task import SearchTask, TuningOptions

STRATEGIES: Final = ("gradient", "round-robin")
MODELS: Final = {"default": XGBModel, "sketch.xgb": XGBModel, "sketch.random": RandomModel}
"""The cost model of each search policy, by the name of the policy."""


class PrintTableInfo:
    """A callback that prints a row for each task: its time, its speed, its trials."""

    def __call__(self, scheduler: TaskScheduler, task_id: int) -> None:
        self.pre_tune(scheduler, task_id)

    def pre_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        """Print the table before a round."""
        print(scheduler.table())

    def post_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        """Print nothing after a round."""


class TaskScheduler:
    """Tunes tasks in rounds. `task_weights` is how often each task runs.

    `objective_func` takes the seconds of all tasks, by default their weighted sum. `strategy` is "gradient" or
    "round-robin"; `load_log_file` has records to begin with; `alpha`, `beta`, `gamma` and `backward_window_size` are
    the constants of the paper.
    """

    def __init__(
        self, tasks: Sequence[SearchTask], task_weights: Sequence[float] | None = None,
        objective_func: Callable[[Sequence[float]], float] | None = None, strategy: str = "gradient",
        load_model_file: str | None = None, load_log_file: str | None = None, alpha: float = 0.2, beta: float = 2.0,
        gamma: float = 0.5, backward_window_size: int = 3, callbacks: Sequence[Any] | None = None, seed: int = 0,
    ) -> None:
        if strategy not in STRATEGIES:
            hint = nearest(strategy, STRATEGIES) or f"; they are {', '.join(STRATEGIES)}"
            raise OptionError(f"there is no strategy '{strategy}'{hint}", code="TW1103")
        if not tasks:
            raise OptionError(
                "there are no tasks to tune; extract_tasks finds none in a network without sums, see "
                "include_simple_tasks",
                code="TW1112")
        if task_weights is not None and len(task_weights) != len(tasks):
            raise OptionError(
                f"there are {len(tasks)} tasks and {len(task_weights)} weights; give one for each", code="TW1104")
        self.tasks = list(tasks)
        self.task_weights = [float(w) for w in task_weights] if task_weights is not None else [1.0] * len(self.tasks)
        self.objective_func = objective_func or self._weighted
        self.strategy, self.load_model_file, self.load_log_file = strategy, load_model_file, load_log_file
        self.alpha, self.beta, self.gamma, self.window = alpha, beta, gamma, backward_window_size
        self.callbacks = list(callbacks) if callbacks is not None else [PrintTableInfo()]
        self.policies: list[SketchPolicy] = []
        self.history: list[list[float]] = [[] for _ in self.tasks]
        """The best cost of each task after each of its rounds."""
        self.dead: set[int] = set()
        """Tasks without candidates."""
        self._random = random.Random(seed)
        self._begin = time.monotonic()

    def tune(
        self, tune_option: TuningOptions, search_policy: str | Sequence[SketchPolicy] = "default",
        search_policy_params: dict[str, Any] | None = None, adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> None:
        """Run rounds of the tasks until all trials are used up. Each task has a first round."""
        self._begin = time.monotonic()
        self.policies = self._make_policies(search_policy, search_policy_params)
        each = max(1, min(tune_option.num_measures_per_round, tune_option.num_measure_trials // len(self.tasks)))
        with engines(tune_option) as (builder, runner):

            def round_of(k: int, left: float) -> int:
                for callback in self.callbacks:
                    callback.pre_tune(self, k)
                policy = self.policies[k]
                made = policy.step(measure_batch(builder, runner), min(each, int(left)), policy.callbacks(tune_option))
                self.history[k].append(policy.best_cost)
                waited = policy.trials - policy.best_iter
                if not made or (per_task_early_stopping is not None and waited >= per_task_early_stopping):
                    self.dead.add(k)
                for callback in self.callbacks:
                    callback.post_tune(self, k)
                return made

            share_budget(self.next_task, round_of, tune_option.num_measure_trials)

    def next_task(self) -> int | None:
        """Return the task of the next round; None if no task has candidates."""
        alive = [k for k in range(len(self.tasks)) if k not in self.dead]
        if not alive:
            return None
        fresh = [k for k in alive if not self.history[k]]
        if fresh:
            return fresh[0]
        if self.strategy == "round-robin":
            return min(alive, key=lambda k: (len(self.history[k]), k))
        gains = {k: self.gradient(k) for k in alive}
        best = min(gains.values())
        return self._random.choice([k for k, g in gains.items() if g == best])

    def gradient(self, k: int) -> float:
        """Estimate how the objective changes with one more round of task `k`: the more negative, the better."""
        costs = self.history[k]
        now = costs[-1]
        if now == INFINITE:
            return -INFINITE if len(costs) < self.window else 0.0
        current = [h[-1] for h in self.history]
        step = 1e-3 * now
        finite = [c if c != INFINITE else 0.0 for c in current]
        moved = [c + step if n == k else c for n, c in enumerate(finite)]
        chain = (self.objective_func(moved) - self.objective_func(finite)) / step
        rounds = len(costs)
        backward = 0.0
        if rounds > self.window and costs[-1 - self.window] != INFINITE:
            backward = (now - costs[-1 - self.window]) / self.window
        forward = -now / rounds
        flops = [t.flop for t in self.tasks]
        similar = (n for n, c in enumerate(current) if n != k and 0 < c < INFINITE and self._similar(n, k))
        speeds = [flops[n] / current[n] for n in similar]
        if speeds:  # a speed of `1 / beta` times that of the best similar task is reachable
            reachable = self.beta * flops[k] / max(speeds)
            forward = max(forward, reachable - now) if reachable < now else forward * self.gamma
        return chain * (self.alpha * backward + (1 - self.alpha) * forward)

    def table(self) -> str:
        """Return a row for each task: its number, name, milliseconds, GFLOPS, trials, and how often it runs."""
        rows = [f"{'ID':>4} | {'task':<36} | {'ms':>9} | {'GFLOPS':>8} | {'trials':>6} | {'runs':>4}"]
        total = [h[-1] if h else INFINITE for h in self.history]
        for k, (task, cost) in enumerate(zip(self.tasks, total, strict=True)):
            known = cost != INFINITE
            time_text = f"{cost * 1e3:9.4f}" if known else f"{'-':>9}"
            speed = f"{task.flop / cost / 1e9:8.2f}" if known else f"{'-':>8}"
            trials = self.policies[k].trials if self.policies else 0
            name = task.title[:36]
            rows.append(f"{k:>4} | {name:<36} | {time_text} | {speed} | {trials:>6} | {self.task_weights[k]:>4g}")
        done = (
            "not all tasks have been measured" if INFINITE in total
            else f"{self.objective_func(total) * 1e3:.4f} ms in all")
        return "\n".join([*rows, f"{done}; {time.monotonic() - self._begin:.0f} s"])

    def _weighted(self, costs: Sequence[float]) -> float:
        return sum(w * c for w, c in zip(self.task_weights, costs, strict=True))

    def _similar(self, a: int, b: int) -> bool:
        """Return whether two tasks have the same operators."""
        return bool(self.tasks[a].desc) and self.tasks[a].desc == self.tasks[b].desc

    def _make_policies(
        self, search_policy: str | Sequence[SketchPolicy], params: dict[str, Any] | None,
    ) -> list[SketchPolicy]:
        if not isinstance(search_policy, str):
            if len(search_policy) != len(self.tasks):
                raise OptionError(
                    f"there are {len(self.tasks)} tasks and {len(search_policy)} search policies; give one for each, "
                    "or a name",
                    code="TW1104")
            return list(search_policy)
        kind = MODELS.get(search_policy)
        if kind is None:
            hint = nearest(search_policy, MODELS) or f"; they are {', '.join(MODELS)}"
            raise OptionError(f"there is no search policy '{search_policy}'{hint}", code="TW1103")
        model = kind()
        made = [SketchPolicy(t, model, params, seed=k) for k, t in enumerate(self.tasks)]
        for k, policy in enumerate(made):
            if self.load_log_file is not None and policy.preload(self.load_log_file):
                self.history[k].append(policy.best_cost)
        return made
