"""Whether a program fits into the memory of the machine that it is compiled on, asked before its kernels and constants are made."""

from __future__ import annotations

from tilewright.errors import CompileError
from tilewright.limits import machine_bytes, shown_bytes
from tilewright.relay.transform.plan_memory import MemoryPlan
from tilewright.runtime.host import host_arch
from tilewright.runtime.scratch import Scratch
from tilewright.target.target import Target
from tilewright.types import TensorType, Type


def check_memory(plan: MemoryPlan, target: Target, name: str) -> None:
    """Raise `CompileError` for a program that this machine has no memory for, naming what is largest in it; other machines are not known."""
    needed = plan.workspace_bytes + sum(t.nbytes for t in plan.outputs) + sum(c.nbytes for c in plan.constants) + sum(_nbytes(v.known_type()) for v in plan.inputs)
    there = machine_bytes()
    if needed <= there or target.mtriple.split("-")[0] not in ("", host_arch()):
        return
    values = [(_nbytes(v.known_type()), f"input '{v.name_hint}'", v.known_type()) for v in plan.inputs]
    values += [(out.type.nbytes, str((s.call and s.call.span) or "a value"), out.type) for s in plan.steps for out in s.outputs]
    size, what, kind = max(values, key=lambda v: v[0])
    raise CompileError(
        f"'{name}' needs {shown_bytes(needed)} of memory, and there are {shown_bytes(there)}; what is largest is {what}, {kind!r}, {shown_bytes(size)}: "
        "give smaller shapes, or correct the sizes in the model", code="TW0710")


def check_scratch(scratch: Scratch, target: Target) -> None:
    """Raise `CompileError` for a kernel that takes more memory of one thread than this machine has; other machines are not known."""
    if scratch.heap > (there := machine_bytes()) and target.mtriple.split("-")[0] in ("", host_arch()):
        raise CompileError(
            f"{scratch.kernel} needs {shown_bytes(scratch.heap)} of memory for each thread between its stages, and there are {shown_bytes(there)}: "
            "give smaller shapes, or correct the sizes, the padding and the windows in the model", code="TW0710")


def _nbytes(t: Type | None) -> int:
    return t.nbytes if isinstance(t, TensorType) and t.is_static else 0
