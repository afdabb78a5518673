"""Selects an implementation of an operator: `tvm.relay.backend.te_compiler`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.backends.targets.target import Target
from tilewright.base.types import Type
from tilewright.compiler import tuning_advisor
from tilewright.compiler.kernel import parts_of
from tilewright.relay.expr import Function
from tilewright.relay.op.registry import Op
from tilewright.relay.op.strategy import OpImplementation, get_valid_implementations, select
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
    """The part of TVM's compiler that lowers operators. Here no lowered functions are kept between two builds."""

    def clear(self) -> None:
        """Return at once: there are no lowered functions of earlier builds to forget."""


def get() -> TECompiler:
    """Return the compiler of operators."""
    return TECompiler()


__all__ = ["TECompiler", "get", "get_valid_implementations", "lower_to_primfunc", "select_implementation"]
