"""Search of schedules by traces, under the names of TVM's MetaSchedule, for loop programs and networks on CPUs.

    database = ms.tune_tir(mod, "llvm", work_dir="tuned", max_trials_global=64)
    sch = ms.tir_integration.compile_tir(database, mod, "llvm")
    function = tvm.build(sch.mod, target="llvm")

Rules make traces with random decisions (`schedule_rule.py`, `space_generator.py`); mutators and a cost model choose the
traces to measure (`mutator.py`, `search_strategy.py`, `cost_model.py`). Builders and runners are those of all searches.
"""

from tilewright.search.meta_schedule import (
    arg_info,
    builder,
    cost_model,
    database,
    feature_extractor,
    measure_callback,
    mutator,
    postproc,
    profiler,
    relay_integration,
    runner,
    schedule_rule,
    search_strategy,
    space_generator,
    task_scheduler,
    tir_integration,
    trace_apply,
    tune,
    tune_context,
    utils,
)
from tilewright.search.meta_schedule.builder import Builder
from tilewright.search.meta_schedule.candidates import MeasureCandidate
from tilewright.search.meta_schedule.cost_model import CostModel
from tilewright.search.meta_schedule.database import Database
from tilewright.search.meta_schedule.feature_extractor import FeatureExtractor
from tilewright.search.meta_schedule.measure_callback import MeasureCallback
from tilewright.search.meta_schedule.mutator import Mutator
from tilewright.search.meta_schedule.postproc import Postproc
from tilewright.search.meta_schedule.profiler import Profiler
from tilewright.search.meta_schedule.relay_integration import ExtractedTask
from tilewright.search.meta_schedule.runner import Runner
from tilewright.search.meta_schedule.schedule_rule import ScheduleRule
from tilewright.search.meta_schedule.search_strategy import SearchStrategy
from tilewright.search.meta_schedule.space_generator import SpaceGenerator
from tilewright.search.meta_schedule.task_scheduler import TaskScheduler
from tilewright.search.meta_schedule.tune import tune_tasks, tune_tir
from tilewright.search.meta_schedule.tune_context import TuneContext
from tilewright.search.meta_schedule.utils import derived_object

__all__ = [
    "Builder", "CostModel", "Database", "ExtractedTask", "FeatureExtractor", "MeasureCallback", "MeasureCandidate",
    "Mutator", "Postproc", "Profiler", "Runner", "ScheduleRule", "SearchStrategy", "SpaceGenerator", "TaskScheduler",
    "TuneContext", "arg_info", "builder", "cost_model", "database", "derived_object", "feature_extractor",
    "measure_callback", "mutator", "postproc", "profiler", "relay_integration", "runner", "schedule_rule",
    "search_strategy", "space_generator", "task_scheduler", "tir_integration", "trace_apply", "tune", "tune_context",
    "tune_tasks", "tune_tir", "utils",
]
