"""Tunes networks: extracts the loop programs of their kernels, and compiles with the schedules of a database."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, NoNativeKernel, OptionError
from tilewright.compiler.build import build as relay_build
from tilewright.compiler.fused import fused_functions
from tilewright.compiler.kernel import parts_of
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.ir.transform import PassContext
from tilewright.relay.analysis.operation_counts import operator_names
from tilewright.relay.expr import Function
from tilewright.relay.transform.bind_params import bind_params
from tilewright.search.auto_scheduler.relay_integration import detached
from tilewright.search.meta_schedule.database import Database
from tilewright.search.meta_schedule.tune import tune_tasks
from tilewright.search.meta_schedule.tune_context import TuneContext
from tilewright.te.create import create_prim_func
from tilewright.tir.analysis import find_anchor_block


@dataclass(slots=True)
class ExtractedTask:
    """A kernel of a network: its Relay function `mod`, its loop program `dispatched[0]`, and how often it runs."""

    task_name: str
    mod: IRModule
    target: Target
    dispatched: list[IRModule]
    weight: int


def extract_tasks(
    mod: IRModule | Function, target: str | Target, params: Mapping[str, Any] | None = None, *,
    module_equality: str = "structural", disabled_pass: Sequence[str] | None = None,
    instruments: Sequence[Any] | None = None, pass_config: Mapping[str, Any] | None = None, opt_level: int = 3,
) -> list[ExtractedTask]:
    """Return the kernels of a network with equal ones as one, in the order of the program.

    The compiler packs constants before a kernel, so a program has them as inputs in the packed layout.
    """
    chosen = Target(target)
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    tasks: dict[str, ExtractedTask] = {}
    names: dict[str, int] = {}
    config = {**PassContext.current().config, **(pass_config or {})}
    with PassContext(opt_level, disabled_pass=disabled_pass, instruments=instruments, config=config):
        for f in fused_functions(bind_params(module, params) if params else module, chosen):
            try:
                parts = parts_of(f.function, f.constants, chosen)
                tensors = detached(parts.args, parts.outputs)
                plain = create_prim_func(tensors[: len(parts.args)], tensors[len(parts.args) :])
            except (NoNativeKernel, CompileError):
                continue  # no native kernel, or one whose loops the search does not support
            program = IRModule({"main": plain})
            anchor = find_anchor_block(program) if module_equality == "anchor-block" else None
            key = str(structural_hash(program if anchor is None else anchor))
            if key not in tasks:
                name = "_".join(("fused", *operator_names(f.function))).replace(".", "_")
                names[name] = names.get(name, -1) + 1
                suffix = f"_{names[name]}" if names[name] else ""
                tasks[key] = ExtractedTask(
                    name + suffix, IRModule({"main": f.function}), chosen, [program], 0)
            tasks[key].weight += f.calls
    return list(tasks.values())


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[ExtractedTask], work_dir: str | os.PathLike[str] = ".", space: Any = "post-order-apply",
    strategy: Any = "evolutionary", seed: int | None = None, num_tuning_cores: int | str = "physical",
) -> tuple[list[TuneContext], list[float]]:
    """Return the tasks of a search, and their weights."""
    tasks = [
        TuneContext(
            t.dispatched[0], target=t.target, space_generator=space if isinstance(space, str) else space.clone(),
            search_strategy=strategy if isinstance(strategy, str) else strategy.clone(), task_name=t.task_name,
            rand_state=-1 if seed is None else seed + k, num_threads=num_tuning_cores)
        for k, t in enumerate(extracted_tasks)]
    return tasks, [float(t.weight) for t in extracted_tasks]


def tune_relay(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: str | Target,
    work_dir: str | os.PathLike[str], max_trials_global: int, *, max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64, strategy: Any = "evolutionary", builder: Any = "local", runner: Any = "local",
    database: Any = "json", cost_model: Any = "xgb", measure_callbacks: Any = "default",
    task_scheduler: Any = "gradient", space: Any = "post-order-apply", seed: int | None = None,
    module_equality: str = "structural", num_tuning_cores: int | str = "physical",
    disabled_pass: Sequence[str] | None = None, instruments: Sequence[Any] | None = None,
) -> Database:
    """Tune the kernels of a network, and return the database of the records, which is in the folder `work_dir`."""
    found = extract_tasks(
        mod, target, params, module_equality=module_equality, disabled_pass=disabled_pass, instruments=instruments)
    tasks, weights = extracted_tasks_to_tune_contexts(found, work_dir, space, strategy, seed, num_tuning_cores)
    return tune_tasks(
        tasks=tasks, task_weights=weights, work_dir=work_dir, max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task, num_trials_per_iter=num_trials_per_iter, builder=builder,
        runner=runner, database=database, cost_model=cost_model, measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler, module_equality=module_equality)


def compile_relay(
    database: Database, mod: IRModule | Function, target: str | Target, params: Mapping[str, Any] | None, *,
    backend: str = "graph", opt_level: int = 3, pass_config: Mapping[str, Any] | None = None, executor: Any = None,
    disabled_pass: Sequence[str] | None = None, instruments: Sequence[Any] | None = None,
) -> Any:
    """Compile a network with the schedules of a database; other kernels keep their own. `backend` is "graph" or
    "vm"."""
    config = {**(pass_config or {}), Database.option: True}
    with Target(target), database, PassContext(
        opt_level, disabled_pass=disabled_pass, instruments=instruments, config=config
    ):
        if backend == "graph":
            return relay_build(mod, target=target, params=params, executor=executor)
        if backend == "vm":
            from tilewright.compiler import vm

            return vm.compile(mod, target=target, params=params)
    raise OptionError(f"backend is 'graph' or 'vm', not '{backend}'", code="TW1103")
