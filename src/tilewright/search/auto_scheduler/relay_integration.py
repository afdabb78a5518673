"""Extracts the tasks of a network: the computations of the kernels of its fused functions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright import te
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, NoNativeKernel
from tilewright.compiler.fused import fused_functions
from tilewright.compiler.kernel import parts_of
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.analysis.operation_counts import operator_names
from tilewright.relay.expr import Function
from tilewright.relay.transform.bind_params import bind_params
from tilewright.scalar.expr import PrimExpr
from tilewright.scalar.walk import rewrite
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.search.auto_scheduler.search_task import HardwareParams, SearchTask, check_host
from tilewright.te.create import computations
from tilewright.te.tensor import ComputeOp, Tensor, TensorElem


def extract_tasks(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: str | Target, target_host: Any = None,
    hardware_params: HardwareParams | None = None, include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | os.PathLike[str] | None = None, opt_level: int = 3,
) -> tuple[list[SearchTask], list[int]]:
    """Return the tasks of a network, and how often it runs each, in the order of the program.

    Kernels without a sum are left out, unless `include_simple_tasks` is set. The compiler packs constants before a
    kernel, so a task has them as inputs in the packed layout. `dump_workload_to_dag_log` is a file to which the text of
    each task's computations is written, as JSON by workload key. Raises `CompileError` if sizes are not known.
    """
    chosen = Target(target)
    check_host(chosen, target_host)
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    tasks: dict[str, SearchTask] = {}
    weights: dict[str, int] = {}
    with PassContext(opt_level, config=PassContext.current().config):  # the algorithm of a kernel depends on it, too
        for f in fused_functions(bind_params(module, params) if params else module, chosen):
            try:
                parts = parts_of(f.function, f.constants, chosen)
                own = parts.scheduled()
                dag = ComputeDAG(detached(parts.args, parts.outputs))
            except (NoNativeKernel, CompileError):
                continue  # no native kernel, or one whose loops the search does not support
            if not include_simple_tasks and not any(isinstance(op, ComputeOp) and op.reduce_axis for op in dag.ops):
                continue
            key = dag.hash_key()
            if key not in tasks:
                tasks[key] = SearchTask(
                    workload_key=key, compute_dag=dag, target=chosen, hardware_params=hardware_params,
                    desc="_".join(("fused", *operator_names(f.function))), own=own)
            weights[key] = weights.get(key, 0) + f.calls
    if dump_workload_to_dag_log is not None:
        texts = {key: str(task.compute_dag) for key, task in tasks.items()}
        Path(dump_workload_to_dag_log).write_text(json.dumps(texts), encoding="utf-8")
    return list(tasks.values()), list(weights.values())


def detached(args: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of the computations between `args` and `outputs`, without schedules, over placeholders for `args`.

    The result is the new arguments and outputs. A stage that packs constants before a kernel becomes one of its inputs.
    """
    given: dict[Tensor, Tensor] = {t: te.placeholder(t.shape, t.dtype, name=t.name) for t in args}
    for op in computations(args, outputs):
        if not isinstance(op, ComputeOp):
            raise CompileError(
                f"'{op.name}' is a {type(op).__name__}; the search schedules only te.compute", code="TW1109")

        def moved(e: PrimExpr) -> PrimExpr | None:  # called after the indices were moved
            return TensorElem(given[e.tensor], e.indices) if isinstance(e, TensorElem) else None

        made = ComputeOp(op.name, op.axis, tuple(rewrite(b, moved) for b in op.body), op.reduce_axis, None, None, {})
        made.tensors.extend(Tensor(made, t.index, t.shape, t.dtype) for t in op.outputs)
        given.update(zip(op.outputs, made.outputs, strict=True))
    return [given[t] for t in (*args, *outputs)]
