"""Selects an implementation of an operator: `tvm.relay.backend.te_compiler`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.backends.targets.target import Target
from tilewright.base.types import Type
from tilewright.compiler import tuning_advisor
from tilewright.compiler.functions import build
from tilewright.compiler.kernel import parts_of
from tilewright.ir.structural import structural_equal, structural_hash
from tilewright.relay.expr import Function
from tilewright.relay.op.registry import Op
from tilewright.relay.op.strategy import OpImplementation, get_valid_implementations, select
from tilewright.runtime.functions import FunctionModule
from tilewright.tir.stmt import PrimFunc


def select_implementation(
    op: type[Op], attrs: Any, inputs: Sequence[te.Tensor], out_type: Type, target: Target, use_autotvm: bool = True,
) -> tuple[OpImplementation, list[te.Tensor]]:
    """Return the operator implementation that the compiler selects, and its output tensors.

    With `use_autotvm`, records of the current dispatch context take precedence for workloads that they contain.
    """
    advisor = tuning_advisor.current() if use_autotvm else None
    found = get_valid_implementations(op, attrs, inputs, out_type, target)
    return select(
        found, attrs, inputs, out_type, target,
        lambda workload: None if advisor is None else advisor.seconds(target, workload))


def lower_to_primfunc(relay_func: Function, target: str | Target) -> PrimFunc:
    """Return the loops of a primitive function, such as a fused one, before they are scheduled for the target.

    The parameters are those of the function, then the results; `tilewright.build` compiles the loops. Raises
    `NoNativeKernel` for operators without loops.
    """
    return parts_of(relay_func, [False] * len(relay_func.params), Target(target).compilable()).func


class TECompiler:
    """Lowers functions of operators, and keeps the result of each until `clear()`."""

    def __init__(self) -> None:
        self._lowered: dict[tuple[str, str], list[tuple[Function, PrimFunc]]] = {}

    def clear(self) -> None:
        """Forget all lowered functions."""
        self._lowered.clear()

    def lower(self, source_func: Function, target: str | Target) -> PrimFunc:
        """Return the loops of a function, as `lower_to_primfunc`; the same object for an equal function and target."""
        known = self._lowered.setdefault((structural_hash(source_func), str(target)), [])
        for function, loops in known:
            if structural_equal(function, source_func):
                return loops
        loops = lower_to_primfunc(source_func, target)
        known.append((source_func, loops))
        return loops

    def jit(self, source_func: Function, target: str | Target) -> FunctionModule:
        """Compile a function; the result takes the arrays of its parameters, then those of its results."""
        return build(self.lower(source_func, target), target=str(target))


@functools.cache
def get() -> TECompiler:
    """Return the compiler of operators, one for the process."""
    return TECompiler()


__all__ = ["TECompiler", "get", "get_valid_implementations", "lower_to_primfunc", "select_implementation"]
