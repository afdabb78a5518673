"""Memory limits of a program, checked before its kernels and constants are made: the memory of this machine, and
`relay.backend.max_arena` for the values between kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError
from tilewright.base.limits import machine_bytes, shown_bytes
from tilewright.base.memory_placement import alive_bytes
from tilewright.base.types import TensorType, Type
from tilewright.ir.transform import PassContext
from tilewright.relay.analysis.operation_counts import operator_names
from tilewright.relay.expr import Function
from tilewright.relay.transform.plan_memory import MemoryPlan, MemorySpace, plan_memory
from tilewright.runtime.host import host_arch
from tilewright.runtime.scratch import Scratch
from tilewright.scalar.arith.open_sizes import least_size

_NAMED: Final = 6
"""Number of values that a message names."""


def planned(main: Function, name: str, symbols: Sequence[Any] = ()) -> MemoryPlan:
    """Return the memory plan of a program, with at most `relay.backend.max_arena` bytes between kernels (0: no limit).

    Raises `CompileError` if it does not fit, which names the operator at the peak and the values that are live there.
    """
    limit = PassContext.current().get("relay.backend.max_arena")
    if limit < 0:
        raise CompileError(
            f"relay.backend.max_arena is {limit}; give the limit in bytes of the values between kernels, or 0 for no "
            "limit", code="TW0209"
        )
    plan = plan_memory(main, limit or None)
    if not limit:
        return plan
    if symbols:
        raise CompileError(
            f"'{name}' has dynamic shapes, so the memory for its values is only known at run time; give numbers in "
            "shapes=, or omit the limit of the arena", code="TW0421"
        )
    if plan.workspace_bytes > limit:
        tightest = plan_memory(main, _peak(plan)[1])
        raise CompileError(_too_large(tightest, limit, name), code="TW0421")
    return plan


def _peak(plan: MemoryPlan) -> tuple[int, int]:
    """Return the step with the most live bytes, and these bytes."""
    step = max(range(len(plan.steps)), key=lambda k: alive_bytes(plan.pieces, k))
    return step, alive_bytes(plan.pieces, step)


def _too_large(plan: MemoryPlan, limit: int, name: str) -> str:
    step, peak = _peak(plan)
    alive = sorted((p for p in plan.pieces if p.birth <= step <= p.death), key=lambda p: -p.nbytes)
    lives = "; ".join(
        f"{shown_bytes(p.nbytes)} of {_maker(plan, p.birth, p.offset)}, from step {p.birth} to {p.death}"
        for p in alive[:_NAMED]
    )
    more = f"; and {len(alive) - _NAMED} more" if len(alive) > _NAMED else ""
    gaps = (
        f", {plan.workspace_bytes - peak} of them gaps between values" if plan.workspace_bytes > peak
        else ""
    )
    wide = any(
        loc.type.dtype == "float32" for s in plan.steps for loc in s.outputs if loc.place is MemorySpace.WORKSPACE
    )
    smaller = "quantize the model (a quarter of float32), compute in bfloat16 (half), " if wide else ""
    return (
        f"'{name}' needs an arena of {plan.workspace_bytes} bytes{gaps}, but the limit is {limit}: the peak is at "
        f"{_title(plan, step)}, step {step} of {len(plan.steps)}, {peak} bytes: {lives}{more}. Give smaller shapes, "
        f"{smaller}or allow {plan.workspace_bytes} bytes")


def _maker(plan: MemoryPlan, step: int, offset: int) -> str:
    """Return the node that made the value at an offset, and its type."""
    made = [loc for loc in plan.steps[step].outputs if loc.place is MemorySpace.WORKSPACE]
    at = next((loc for loc in made if loc.index == offset), made[0] if made else None)
    return f"{_title(plan, step)}{'' if at is None else f' ({at.type!r})'}"


def _title(plan: MemoryPlan, step: int) -> str:
    """Return the model's node that a step computes, or its operators if there is no model."""
    call = plan.steps[step].call
    if call is None or not isinstance(call.op, Function):
        return "a copy"
    return str(call.span or call.op.span or ", ".join(operator_names(call.op)))


def check_memory(plan: MemoryPlan, target: Target, name: str) -> None:
    """Raise `CompileError`, which names the largest value, for a program that needs more memory than this machine has.
    Dynamic sizes count as their least values, since each call checks its own.

    Programs for other machines are checked against `relay.backend.max_memory` alone.
    """
    _check_made(plan, target, name)
    needed = least_size(
        plan.workspace_bytes + sum(t.nbytes for t in plan.outputs) + sum(c.nbytes for c in plan.constants)
        + sum(_nbytes(v.known_type()) for v in plan.inputs)
    )
    there = machine_bytes()
    if needed <= there or target.mtriple.split("-")[0] not in ("", host_arch()):
        return
    values = [(least_size(_nbytes(v.known_type())), f"input '{v.name_hint}'", v.known_type()) for v in plan.inputs]
    size, what, kind = max((*values, *_made(plan)), key=lambda v: v[0])
    raise CompileError(
        f"'{name}' needs {shown_bytes(needed)} of memory, but only {shown_bytes(there)} are available; the largest "
        f"value is {what}, {kind!r}, {shown_bytes(size)}: give smaller shapes, or correct the sizes in the "
        "model", code="TW0710")


def _made(plan: MemoryPlan) -> list[tuple[int, str, Type | None]]:
    """Return the values that the steps make: bytes, node of the model, type."""
    return [
        (
            least_size(out.type.nbytes),
            str((s.call and (s.call.span or (isinstance(s.call.op, Function) and s.call.op.span))) or "a value"),
            out.type
        ) for s in plan.steps for out in s.outputs
    ]


def _check_made(plan: MemoryPlan, target: Target, name: str) -> None:
    """Raise `CompileError` if workspace and outputs take more than `relay.backend.max_memory`."""
    allowed = PassContext.current().get("relay.backend.max_memory")
    if allowed < 0:
        raise CompileError(
            f"relay.backend.max_memory is {allowed}; give the limit in bytes of the values of a program, or 0 for a "
            "quarter of the memory of the machine", code="TW0209"
        )
    made = least_size(plan.workspace_bytes + sum(t.nbytes for t in plan.outputs))
    if not allowed and target.mtriple.split("-")[0] not in ("", host_arch()):
        return
    limit = allowed or machine_bytes() // 4
    values = _made(plan)
    if made <= limit or not values:
        return
    size, what, kind = max(values, key=lambda v: v[0])
    raise CompileError(
        f"'{name}' needs {shown_bytes(made)} for its workspace and outputs; the limit is {shown_bytes(limit)}. The "
        f"largest value is {what}, {kind!r}, {shown_bytes(size)}: "
        f"give smaller shapes, correct the sizes in the model, or allow more with relay.backend.max_memory={made}",
        code="TW0710")


def check_scratch(scratch: Scratch, target: Target) -> None:
    """Raise `CompileError` for a kernel that takes more memory per thread than this machine has; other machines are not
    checked."""
    if scratch.heap > (there := machine_bytes()) and target.mtriple.split("-")[0] in ("", host_arch()):
        raise CompileError(
            f"{scratch.kernel} needs {shown_bytes(scratch.heap)} of memory for each thread between its stages, but "
            f"only {shown_bytes(there)} are available: give smaller shapes, or correct the sizes, the padding and the "
            "windows in the model", code="TW0710")


def _nbytes(t: Type | None) -> int:
    return t.nbytes if isinstance(t, TensorType) and t.is_static else 0
