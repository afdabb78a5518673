"""Enumerates the fused functions of a program, from which kernels are made, without compiling them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError
from tilewright.compiler.kernel_table import external_call
from tilewright.compiler.pipeline import compiling, front_half, off_loaded
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.relay.expr import Function
from tilewright.relay.transform.plan_memory import MemorySpace, plan_memory
from tilewright.relay.transform.stages import needs_stages


@dataclass(slots=True)
class Fused:
    """A fused function, which of its arguments are compile-time constants, and how many times the program calls it."""

    function: Function
    constants: Sequence[bool]
    calls: int = 0


def fused_functions(mod: IRModule, target: Target) -> list[Fused]:
    """Return the distinct fused functions of `main`, in order, under the current `PassContext`.

    Raises `CompileError` if a size is known only at run time.
    """
    with compiling():
        mod = off_loaded(mod, target).module
        if needs_stages(mod["main"]):
            raise CompileError(
                "some sizes of the program are only known at run time, but kernels are tuned for known sizes; give its "
                "inputs known shapes", code="TW0303")
        steps = [s for f in front_half(mod, target.processor).functions for s in plan_memory(f).steps]
        found: dict[str, Fused] = {}
        for step in steps:
            function = None if step.call is None else step.call.op
            if not isinstance(function, Function) or external_call(function) is not None:
                continue
            constants = [loc.place is MemorySpace.CONSTANT for loc in step.inputs]
            key = f"{structural_hash(function)}{constants}"
            found.setdefault(key, Fused(function, constants)).calls += 1
        return list(found.values())
