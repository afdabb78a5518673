"""Tasks, and the spaces of their configurations."""

from tilewright.search.autotvm.task.dispatcher import (
    ApplyConfig,
    ApplyFixedConfig,
    ApplyGraphBest,
    ApplyHistoryBest,
    DispatchContext,
    FallbackContext,
    apply_graph_best,
    apply_history_best,
)
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.autotvm.task.relay_integration import extract_from_multiple_program, extract_from_program
from tilewright.search.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity
from tilewright.search.autotvm.task.task import (
    Task,
    args_to_workload,
    create,
    deserialize_args,
    get_config,
    serialize_args,
    template,
)
from tilewright.search.autotvm.task.topi_integration import get_workload, register_topi_compute, register_topi_schedule

__all__ = [
    "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "ConfigEntity", "ConfigSpace",
    "DispatchContext",
    "FallbackConfigEntity", "FallbackContext",
    "KernelTask", "Task", "apply_graph_best", "apply_history_best", "args_to_workload", "create", "deserialize_args",
    "extract_from_multiple_program", "extract_from_program",
    "get_config", "get_workload", "register_topi_compute", "register_topi_schedule", "serialize_args", "template",
]
