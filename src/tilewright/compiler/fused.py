"""The fused functions of a program, as kernels are made of them, without compiling any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.backends.target import Target
from tilewright.base import interning
from tilewright.base.errors import CompileError
from tilewright.compiler.collection import no_garbage_collection
from tilewright.compiler.front_half import front_half, off_loaded
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.relay.expr import Call, Function
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.transform.plan_memory import MemorySpace, plan_memory
from tilewright.relay.transform.stages import needs_stages


@dataclass(slots=True)
class Fused:
    """A fused function, which of its arguments are known while compiling, and how many times the program calls it."""

    function: Function
    constants: Sequence[bool]
    calls: int = 1


def fused_functions(mod: IRModule, target: Target) -> list[Fused]:
    """The fused functions of `main`, in order, under the current `PassContext`; equal ones once.

    Raises `CompileError` where a size is only known when the program runs.
    """
    with no_garbage_collection():
        try:
            mod = off_loaded(mod, target).module
            if needs_stages(mod["main"]):
                raise CompileError("some sizes of the program are only known while it runs, and kernels are tuned for known ones; give its inputs known shapes", code="TW0303")
            found: dict[str, Fused] = {}
            for optimized in front_half(mod, target.processor).functions:
                for step in plan_memory(optimized).steps:
                    function = None if step.call is None else step.call.op
                    if not isinstance(function, Function) or (isinstance(function.body, Call) and isinstance(function.body.op, ExternalCall)):
                        continue
                    constants = [loc.place is MemorySpace.CONSTANT for loc in step.inputs]
                    key = f"{structural_hash(function)}{constants}"
                    if key in found:
                        found[key].calls += 1
                    else:
                        found[key] = Fused(function, constants)
            return list(found.values())
        finally:
            interning.release()
