"""Extracts the tasks of a network: its fused functions with open choices."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, NoNativeKernel, OptionError
from tilewright.compiler.fused import fused_functions
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.analysis.operation_counts import operator_names
from tilewright.relay.expr import Function
from tilewright.relay.op.hooks import is_replaced
from tilewright.relay.transform.bind_params import bind_params
from tilewright.search.autotvm.env import GLOBAL_SCOPE
from tilewright.search.autotvm.task.kernels import LEVEL, KernelTask
from tilewright.search.autotvm.task.task import Task

Params = Mapping[str, Any] | None


def extract_from_program(
    mod: IRModule | Function, params: Params, target: str | Target, target_host: Any = None,
    ops: Sequence[Any] | None = None,
) -> list[Task]:
    """Return the tasks of a network with these parameters, in the order of the program; equal kernels are one task.

    `ops` leaves out kernels without one of these operators: `relay.op.get("nn.conv2d")`, or names. Progress is printed
    to the standard error. Raises `CompileError` if sizes are only known while the program runs.
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[IRModule | Function], params: Sequence[Params], target: str | Target, target_host: Any = None,
    ops: Sequence[Any] | None = None,
) -> list[Task]:
    """Return the tasks of several networks; shared ones once."""
    if len(mods) != len(params):
        raise OptionError(
            f"{len(mods)} programs were given, but parameters for {len(params)}; give one dictionary, or None, for "
            "each program",
            code="TW0211")
    chosen, begin = Target(target), time.perf_counter()
    wanted = None if ops is None else {str(getattr(o, "name", o)) for o in ops}
    found: dict[Any, Task] = {}
    for k, (mod, given) in enumerate(zip(mods, params, strict=True), 1):
        prefix = f"[{k}/{len(mods)}]"
        _say(f"{prefix} optimizing the program …")
        module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)

        def progress(done: int, total: int, prefix: str = prefix) -> None:
            _say(f"{prefix} looking at kernel {done} of {total}")

        for task, _ in _all_tasks(module, given, chosen, wanted, progress):
            found.setdefault(task.workload, task)
    _say(f"{len(found)} tasks extracted in {time.perf_counter() - begin:.1f} s", last=True)
    return list(found.values())


def tasks_of(
    mod: IRModule, params: Params, target: Target, ops: set[str] | None = None,
) -> list[tuple[KernelTask, int]]:
    """Return the kernels of a network that can be tuned, and how many times it runs each."""
    return [(t, n) for t, n in _all_tasks(mod, params, target, ops) if isinstance(t, KernelTask)]


def _all_tasks(
    mod: IRModule, params: Params, target: Target, ops: set[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[Task, int]]:
    """Yield the tasks of a network, those of implementations that programs registered among them."""
    with PassContext(LEVEL, config=PassContext.current().config):
        functions = fused_functions(bind_params(mod, params) if params else mod, target)
    for k, f in enumerate(functions, 1):
        if progress is not None:
            progress(k, len(functions))
        names = operator_names(f.function)
        if ops is not None and ops.isdisjoint(names):
            continue
        task = KernelTask.of(f.function, f.constants, target.processor)
        own = task.of_program() if any(map(is_replaced, names)) else None
        if own is not None:
            yield own, f.calls
            continue
        try:
            tunable = task.is_tunable
        except (NoNativeKernel, CompileError):
            continue  # no native kernel, or one without tensors: nothing to decide
        if tunable:
            yield task, f.calls


def _say(text: str, last: bool = False) -> None:
    if not GLOBAL_SCOPE.silent and (last or sys.stderr.isatty()):
        sys.stderr.write(f"\r{text:<70}" + ("\n" if last else ""))
        sys.stderr.flush()
