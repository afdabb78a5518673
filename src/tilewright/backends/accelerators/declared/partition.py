"""The partition of a network for an accelerator: the pattern table with explained refusals, and the passes in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.backends.accelerators.declared.declaration import Accelerator, Operator, Refused
from tilewright.backends.accelerators.declared.matches import Reading, tensor_of
from tilewright.backends.accelerators.declared.regions import lowered
from tilewright.backends.accelerators.declared.tiling import choose
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Sequential
from tilewright.relay.analysis.features import known_mac_number
from tilewright.relay.expr import Call, Expr, Function, Var
from tilewright.relay.op.contrib import Refusal
from tilewright.relay.qnn.unify import unified_for, with_attributes
from tilewright.relay.transform.annotate_target import AnnotateTarget
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.merge_compiler_regions import MergeCompilerRegions
from tilewright.relay.transform.merge_composite import MergeComposite
from tilewright.relay.transform.partition_graph import PartitionGraph
from tilewright.relay.visitor import calls


def pattern_table(accelerator: Accelerator) -> list[tuple[Any, ...]]:
    """Return rows (name, pattern, check), in the order of the declarations."""
    return [
        (f"{accelerator.name}.{o.name}", o.form.pattern(), _check(accelerator, o))
        for o in accelerator.operators.values()]


def _check(accelerator: Accelerator, operator: Operator) -> Callable[[Expr], bool | Refusal]:
    """Return a check that accepts a match if the operator emits instructions for it whose tiles fit."""

    def check(root: Expr) -> bool | Refusal:
        try:
            match = operator.form.read(root, Reading(accelerator, accelerator.numerics, tensor_of))
            emitted, same = lowered(operator, match)
            for e in emitted:
                choose(accelerator, e)
            if same is not None and not _stays_there(accelerator, same.source):
                raise Refused(
                    "an operator that moves no data stays with its input, which is on the CPU",
                    "move its input to the accelerator, or leave it: it costs nothing")
        except Refused as refused:
            return Refusal(refused.rule, refused.edit)
        return True

    # `registry.where` then names the user's file
    check.__name__, check.__wrapped__ = operator.lower.__name__, operator.lower  # type: ignore[attr-defined]
    return check


def _stays_there(accelerator: Accelerator, e: Expr) -> bool:
    """Whether a value is computed by the accelerator or is an input."""
    if isinstance(e, Call) and isinstance(e.op, Function):
        return str(e.op.attrs.get("Composite", "")).startswith(f"{accelerator.name}.")
    return isinstance(e, Var)


def partition_for(accelerator: Accelerator, mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """Bind parameters, bring quantized operators into one form, and move the accelerator's parts into separate
    functions.

    The types of `main` do not change.
    """
    bound = InferType()(bind_params(mod, params) if params else mod)
    prepare = accelerator.prepare or (
        lambda mod: unified_for(mod, accelerator.layout, accelerator.dtypes, accelerator.numerics))
    kept = with_attributes(bound["main"], InferType()(prepare(bound)))
    passes = (
        MergeComposite(pattern_table(accelerator)),
        AnnotateTarget(accelerator.name),
        MergeCompilerRegions(),
        PartitionGraph(str(mod.attrs.get("mod_name", "default"))),
    )
    return InferType()(Sequential((InferType(), *passes), name=f"partition_for_{accelerator.name}")(kept))


def share(mod: IRModule) -> tuple[int, int]:
    """Return the multiply-accumulates of convolutions and matrix products that accelerators compute, and their total
    number."""
    taken = left = 0
    for _, function in mod.items():
        if isinstance(function, Function):
            found = sum(map(known_mac_number, calls(function.body)))
            if function.attrs.get("Compiler"):
                taken += found
            else:
                left += found
    return taken, taken + left


__all__ = ["partition_for", "pattern_table", "share"]
