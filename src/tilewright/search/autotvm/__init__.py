"""AutoTVM: kernels whose schedules are found by measuring, under TVM's names.

    tasks = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    for task in tasks:
        autotvm.tuner.XGBTuner(task).tune(100, autotvm.measure_option(autotvm.LocalBuilder(), autotvm.LocalRunner()),
                                          callbacks=[autotvm.callback.log_to_file("records.json")])
    with autotvm.apply_history_best("records.json"):
        lib = relay.build(mod, "llvm", params=params)
"""

from tilewright.search.autotvm import callback, database, env, feature, measure, record, task, tophub, tuner, utils
from tilewright.search.autotvm.env import GLOBAL_SCOPE
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult, create_measure_batch, measure_option
from tilewright.search.autotvm.task import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    ConfigEntity,
    ConfigSpace,
    DispatchContext,
    FallbackContext,
    apply_graph_best,
    apply_history_best,
    args_to_workload,
    get_config,
    register_topi_compute,
    register_topi_schedule,
    template,
)
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import MeasureErrorNo
from tilewright.search.remote import RPCRunner

__all__ = [
    "GLOBAL_SCOPE",
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackContext",
    "LocalBuilder",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "RPCRunner",
    "apply_graph_best",
    "apply_history_best",
    "args_to_workload",
    "callback",
    "create_measure_batch",
    "database",
    "env",
    "feature",
    "get_config",
    "measure",
    "measure_option",
    "record",
    "register_topi_compute",
    "register_topi_schedule",
    "task",
    "template",
    "tophub",
    "tuner",
    "utils",
]
