"""The tasks of a network: its fused functions that leave something open."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.backends.target import Target
from tilewright.base.errors import CompileError, NoNativeCompute, OptionError
from tilewright.compiler.fused import fused_functions
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.visitor import post_order
from tilewright.search.autotvm.env import GLOBAL_SCOPE
from tilewright.search.autotvm.task.kernels import KernelTask

_LEVEL = 3
Progress = Callable[[int, int], None]


def extract_from_program(
    mod: IRModule | Function, params: Mapping[str, Any] | None, target: str | Target, target_host: Any = None, ops: Sequence[Any] | None = None,
) -> list[KernelTask]:
    """The tasks of a network with these parameters, in the order of the program; equal kernels are one task.

    `ops` leaves out kernels without one of these operators: `relay.op.get("nn.conv2d")`, or names. How far it is stands on the
    standard error. Raises `CompileError` where sizes are only known while the program runs.
    """
    return extract_from_multiple_program([mod], [params], target, target_host, ops)


def extract_from_multiple_program(
    mods: Sequence[IRModule | Function], params: Sequence[Mapping[str, Any] | None], target: str | Target, target_host: Any = None,
    ops: Sequence[Any] | None = None,
) -> list[KernelTask]:
    """The tasks of several networks; those that they share once."""
    if len(mods) != len(params):
        raise OptionError(f"{len(mods)} programs were given, but parameters for {len(params)}; give one dictionary, or None, for each program", code="TW0211")
    chosen, begin = Target(target), time.perf_counter()
    wanted = None if ops is None else {str(getattr(o, "name", o)) for o in ops}
    found: dict[Any, KernelTask] = {}
    kernels = 0
    for k, (mod, given) in enumerate(zip(mods, params, strict=True)):
        _say(f"[{k + 1}/{len(mods)}] optimizing the program …")
        module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
        for task, _ in tasks_of(module, given, chosen, wanted, lambda done, total: _say(f"[{k + 1}/{len(mods)}] looking at kernel {done} of {total}")):  # noqa: B023
            kernels += 1
            found.setdefault(task.workload, task)
    _say(f"{len(found)} tasks extracted in {time.perf_counter() - begin:.1f} s", last=True)
    return list(found.values())


def tasks_of(mod: IRModule, params: Mapping[str, Any] | None, target: Target, ops: set[str] | None = None, progress: Progress | None = None) -> list[tuple[KernelTask, int]]:
    """The tasks of a network, and how many times it runs the kernel of each."""
    with PassContext(_LEVEL, config=PassContext.current().config):
        functions = fused_functions(bind_params(mod, params) if params else mod, target)
    found = []
    for k, f in enumerate(functions):
        if progress is not None:
            progress(k + 1, len(functions))
        names = {e.op.name for e in post_order(f.function.body) if isinstance(e, Call) and not isinstance(e.op, Expr)}
        if ops is not None and not names & ops:
            continue
        task = KernelTask.of(f.function, f.constants, target.processor)
        try:
            tunable = task.is_tunable
        except (NoNativeCompute, CompileError):
            continue  # no native kernel, or one of values that are no tensors: nothing to decide
        if tunable:
            found.append((task, f.calls))
    return found


def _say(text: str, last: bool = False) -> None:
    if GLOBAL_SCOPE.silent or not (last or sys.stderr.isatty()):
        return
    sys.stderr.write(f"\r{text:<70}" + ("\n" if last else ""))
    sys.stderr.flush()
