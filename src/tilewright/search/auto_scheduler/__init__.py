"""Search of schedules without templates, under TVM's names.

    @auto_scheduler.register_workload
    def matmul(n, m, k): …; return [A, B, C]

    task = auto_scheduler.SearchTask(func=matmul, args=(512, 512, 512), target="llvm")
    task.tune(auto_scheduler.TuningOptions(
        num_measure_trials=64, measure_callbacks=[auto_scheduler.RecordToFile("matmul.json")]))
    sch, args = task.apply_best("matmul.json")
    function = tvm.build(sch, args, "llvm")

Rules derive possible schedules from the computations (`rules.py`, `sketch.py`); evolution and a cost model choose the
settings to measure (`evolution.py`, `cost_model.py`). See docs/auto_scheduler.md.
"""

from tilewright.search.auto_scheduler import (
    _ffi_api,
    compute_dag,
    cost_model,
    dispatcher,
    feature,
    loop_state,
    measure,
    measure_record,
    search_policy,
    search_task,
    task_scheduler,
    utils,
    workload_registry,
)
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.search.auto_scheduler.cost_model import RandomModel, XGBModel
from tilewright.search.auto_scheduler.custom_rules import PreloadCustomSketchRule
from tilewright.search.auto_scheduler.dispatcher import ApplyHistoryBest, DispatchContext
from tilewright.search.auto_scheduler.measure import (
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureInput,
    MeasureResult,
    PythonBasedMeasureCallback,
    RPCRunner,
    recover_measure_input,
)
from tilewright.search.auto_scheduler.measure_record import (
    RecordReader,
    RecordToFile,
    load_best_record,
    load_records,
    save_records,
)
from tilewright.search.auto_scheduler.relay_integration import extract_tasks
from tilewright.search.auto_scheduler.search_policy import EmptyPolicy, PreloadMeasuredStates, SketchPolicy
from tilewright.search.auto_scheduler.search_task import (
    HardwareParams,
    LayoutRewriteOption,
    SearchTask,
    TuningOptions,
    create_task,
)
from tilewright.search.auto_scheduler.task_scheduler import TaskScheduler
from tilewright.search.auto_scheduler.workload_registry import make_workload_key, register_workload

__all__ = [
    "ApplyHistoryBest", "ComputeDAG", "DispatchContext", "EmptyPolicy", "HardwareParams", "LayoutRewriteOption",
    "LocalBuilder",
    "LocalRPCMeasureContext", "LocalRunner",
    "MeasureInput", "MeasureResult", "PreloadCustomSketchRule", "PreloadMeasuredStates", "PythonBasedMeasureCallback",
    "RPCRunner", "RandomModel", "RecordReader",
    "RecordToFile",
    "SearchTask", "SketchPolicy", "TaskScheduler", "TuningOptions", "XGBModel", "_ffi_api", "compute_dag", "cost_model",
    "create_task",
    "dispatcher", "extract_tasks", "feature", "load_best_record", "load_records", "loop_state", "make_workload_key",
    "measure", "measure_record", "recover_measure_input", "register_workload", "save_records", "search_policy",
    "search_task", "task_scheduler", "utils", "workload_registry",
]
