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
from tilewright.relay.op.registry import Op
from tilewright.relay.qnn.sources import NUMERICS
from tilewright.relay.qnn.unify import Unify
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
    prepared = InferType()((accelerator.prepare or _unified(accelerator))(bound))
    kept = _with_names(bound["main"], prepared)
    passes = (
        MergeComposite(pattern_table(accelerator)),
        AnnotateTarget(accelerator.name),
        MergeCompilerRegions(),
        PartitionGraph(str(mod.attrs.get("mod_name", "default"))),
    )
    return InferType()(Sequential((InferType(), *passes), name=f"partition_for_{accelerator.name}")(kept))


def _unified(accelerator: Accelerator) -> Callable[[IRModule], IRModule]:
    """Return a function that brings a network into the form of the patterns: quantized data of one dtype in one layout,
    with the accelerator's rounding."""

    def run(mod: IRModule) -> IRModule:
        kinds = [
            str(c.args[0].tensor_type.dtype)
            for c in calls(mod["main"].body)
            if isinstance(c.op, Op) and c.op.name in ("qnn.conv2d", "qnn.dense", "qnn.quantize", "qnn.requantize")]
        if not any(isinstance(c.op, Op) and c.op.name.startswith("qnn.") for c in calls(mod["main"].body)):
            return mod
        known = [d for d in accelerator.dtypes if d in ("int8", "uint8")]
        if not known:
            return mod
        dtype = max(known, key=kinds.count)
        return Unify(accelerator.layout, dtype, accelerator.numerics, keep_signature=True)(mod)

    return run


def _with_names(old: Function, mod: IRModule) -> IRModule:
    """Return the module with the attributes of `old` on `main`, including the names of results, and with its current
    numerics."""
    main = mod["main"]
    attrs = {**{k: v for k, v in old.attrs.items() if k != NUMERICS}, **main.attrs}
    if attrs == main.attrs:
        return mod
    result = mod.copy()
    result.update_func(
        result.get_global_var("main"),
        Function(main.params, main.body, main.declared_ret_type, main.type_params, attrs, main.span))
    return result


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
