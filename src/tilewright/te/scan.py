"""Recurrences: `te.scan`, a computation along an axis whose value at each step depends on previous steps.

    state = te.placeholder((m, n)); init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    total = te.scan(init, update, state, inputs=[X])

`init`, `update` and the state share the memory of the result. The step loop is always the outermost one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, overload

from tilewright.base.errors import CompileError
from tilewright.base.node import node
from tilewright.scalar.expr import PrimExpr, Var, sub
from tilewright.te.tensor import ComputeOp, Operation, PlaceholderOp, Tensor
from tilewright.tir.stmt import IterVar


@node
class ScanOp(Operation):
    """`update` computes each step of `scan_axis` after those of `init`, and reads earlier steps as `state`. Each of the
    three has one entry per result."""

    name: str
    scan_axis: IterVar
    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    given: tuple[Tensor, ...]
    spatial_axis_: tuple[IterVar, ...] = ()
    """The axes of the results without the steps, of all results in order."""
    tensors: list[Tensor] = field(default_factory=list)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys((*self.init, *self.update)))

    @property
    def first(self) -> PrimExpr:
        """The number of steps that `init` computes."""
        return self.init[0].shape[0]


@overload
def scan(
    init: Tensor, update: Tensor, state_placeholder: Tensor, inputs: Sequence[Tensor] | None = None, name: str = "scan",
    tag: str = "", attrs: Any = None,
) -> Tensor: ...
@overload
def scan(
    init: Sequence[Tensor], update: Sequence[Tensor], state_placeholder: Sequence[Tensor],
    inputs: Sequence[Tensor] | None = None, name: str = "scan", tag: str = "", attrs: Any = None,
) -> list[Tensor]: ...
def scan(
    init: Any, update: Any, state_placeholder: Any, inputs: Sequence[Tensor] | None = None, name: str = "scan",
    tag: str = "", attrs: Any = None,
) -> Tensor | list[Tensor]:
    """Return a tensor whose first steps (along dimension 0) are `init`, and whose other steps are `update`, a
    computation over `state_placeholder`.

    With lists, several states advance together, and a list of tensors is returned. Raises `CompileError`.
    """
    several = isinstance(update, (list, tuple))
    inits, updates, states = (
        tuple(x) if isinstance(x, (list, tuple)) else (x,) for x in (init, update, state_placeholder))
    if not len(inits) == len(updates) == len(states) or not updates:
        raise CompileError(
            f"te.scan '{name}' needs one init, one update and one state for each result, but was given "
            f"{len(inits)}, {len(updates)} and {len(states)}", code="TW0604")
    for first, each, state in zip(inits, updates, states, strict=True):
        _check(name, first, each, state)
    steps = updates[0].shape[0]
    axis = IterVar(Var(f"{name}.idx"), sub(steps, inits[0].shape[0]))
    if any(u.shape[0] is not steps or i.shape[0] is not inits[0].shape[0] for i, u in zip(inits, updates, strict=True)):
        raise CompileError(
            f"te.scan '{name}': all results must have the same number of steps, and the same number of "
            "initial steps", code="TW0604")
    spatial = tuple(
        IterVar(Var(f"{name}.out{k}.i{d}"), u.shape[d]) for k, u in enumerate(updates) for d in range(1, len(u.shape)))
    op = ScanOp(name, axis, inits, updates, states, tuple(inputs or ()), spatial)
    op.tensors.extend(Tensor(op, k, u.shape, u.dtype) for k, u in enumerate(updates))
    return list(op.tensors) if several else op.tensors[0]


def _check(name: str, init: Tensor, update: Tensor, state: Tensor) -> None:
    if not isinstance(state.op, PlaceholderOp):
        raise CompileError(
            f"te.scan '{name}': the state '{state.name}' must be a te.placeholder, which represents the result so far",
            code="TW0604")
    if not isinstance(init.op, ComputeOp) or not isinstance(update.op, ComputeOp):
        raise CompileError(f"te.scan '{name}': init and update must be results of te.compute", code="TW0604")
    same = (
        init.dtype is update.dtype is state.dtype and update.shape == state.shape and init.shape[1:] == update.shape[1:]
    )
    if not same:
        raise CompileError(
            f"te.scan '{name}': state and update must have the same shape and type; init may differ in "
            f"its number of steps only: {state!r}, {update!r}, {init!r}", code="TW0604")
