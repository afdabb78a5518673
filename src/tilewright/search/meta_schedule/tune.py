"""Tunes tasks, and the program of one task."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.ir.module import IRModule
from tilewright.search.meta_schedule.builder import Builder
from tilewright.search.meta_schedule.cost_model import CostModel
from tilewright.search.meta_schedule.database import Database
from tilewright.search.meta_schedule.measure_callback import MeasureCallback
from tilewright.search.meta_schedule.runner import create as create_runner
from tilewright.search.meta_schedule.task_scheduler import TaskScheduler
from tilewright.search.meta_schedule.tune_context import TuneContext
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.stmt import PrimFunc


def tune_tasks(
    *, tasks: Sequence[TuneContext], task_weights: Sequence[float], work_dir: str | os.PathLike[str],
    max_trials_global: int, max_trials_per_task: int | None = None, num_trials_per_iter: int = 64,
    builder: Any = "local", runner: Any = "local", database: Any = "json", cost_model: Any = "xgb",
    measure_callbacks: Any = "default", task_scheduler: Any = "gradient", module_equality: str = "structural",
) -> Database:
    """Search and measure all tasks, and return the database of the records, which is in the folder `work_dir`."""
    Path(work_dir).mkdir(parents=True, exist_ok=True)
    if database == "json":
        database = Database.create("json", work_dir=str(work_dir), module_equality=module_equality)
    else:
        database = Database.create(database)
    TaskScheduler.create(task_scheduler).tune(
        tasks, task_weights, max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_global if max_trials_per_task is None else max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter, builder=Builder.create(builder), runner=create_runner(runner),
        measure_callbacks=MeasureCallback.create(measure_callbacks), database=database,
        cost_model=CostModel.create(cost_model))
    made: Database = database
    return made


def tune_tir(
    mod: PrimFunc | IRModule, target: str | Target, work_dir: str | os.PathLike[str], max_trials_global: int, *,
    max_trials_per_task: int | None = None, num_trials_per_iter: int = 64, builder: Any = "local",
    runner: Any = "local", database: Any = "json", cost_model: Any = "xgb", measure_callbacks: Any = "default",
    task_scheduler: Any = "round-robin", space: Any = "post-order-apply", strategy: Any = "evolutionary",
    num_tuning_cores: int | str = "physical", seed: int | None = None, module_equality: str = "structural",
    task_name: str = "main",
) -> Database:
    """Tune a loop program, and return the database of the records, which is in the folder `work_dir`.

    `space`, `strategy` and the other parts are names, or objects.
    """
    context = TuneContext(
        mod, target=Target(target), space_generator=space, search_strategy=strategy, task_name=task_name,
        rand_state=-1 if seed is None else seed, num_threads=num_tuning_cores)
    return tune_tasks(
        tasks=[context], task_weights=[1.0], work_dir=work_dir, max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task, num_trials_per_iter=num_trials_per_iter, builder=builder,
        runner=runner, database=database, cost_model=cost_model, measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler, module_equality=module_equality)


def compile_tir(database: Database, mod: PrimFunc | IRModule, target: str | Target) -> Schedule | None:
    """Return the schedule of the fastest record of a loop program, or None."""
    return database.query_schedule(mod, Target(target), "main")


