"""TVM's `tvmc.transform`: the changes of a network that `tvmc` makes before compilation, by their arguments.

    mod = apply_graph_transforms(mod, {"desired_layout": ["NHWC"], "mixed_precision": True})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import OptionError
from tilewright.driver.tvmc.transforms import LAYOUT_OPERATORS, MixedPrecision, desired_layouts
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Sequential
from tilewright.relay import transform as passes


def convert_graph_layout(
    mod: IRModule, desired_layouts_of: str | Sequence[str], ops: Sequence[str] | None = None
) -> IRModule:
    """Return the network with these layouts, `NHWC` or `NHWC:HWIO`: one for all operators of `ops`, or one for each.
    Raises `OptionError` for another number of layouts."""
    given = [desired_layouts_of] if isinstance(desired_layouts_of, str) else list(desired_layouts_of)
    wanted = desired_layouts(given, ops or LAYOUT_OPERATORS)
    return Sequential([
        passes.RemoveUnusedFunctions(), passes.ConvertLayout(wanted), passes.FoldConstant()])(mod)


def convert_to_mixed_precision(
    mod: IRModule, ops: Sequence[str] | None = None, calculation_type: str = "float16", acc_type: str = "float32"
) -> IRModule:
    """Return the network with these operators computed in `calculation_type`, and their sums in `acc_type`."""
    convert = passes.ToMixedPrecision(
        calculation_type, acc_dtype=acc_type, keep_orig_output_dtype=True, wide_kernels=True)
    with MixedPrecision(list(ops or ("nn.conv2d", "nn.dense")), acc_type):
        return Sequential([passes.InferType(), convert])(mod)


def apply_graph_transforms(mod: IRModule, args: Mapping[str, Any] | None) -> IRModule:
    """Return the network after the transformations of `args`: `desired_layout`, `desired_layout_ops`,
    `mixed_precision` and the options of the latter."""
    given = args or {}
    if given.get("desired_layout_ops") and not given.get("desired_layout"):
        raise OptionError(
            "--desired-layout-ops selects the operators for --desired-layout; give both options", code="TW0204")
    if given.get("desired_layout"):
        mod = convert_graph_layout(mod, given["desired_layout"], given.get("desired_layout_ops"))
    if given.get("mixed_precision"):
        mod = convert_to_mixed_precision(
            mod, given.get("mixed_precision_ops"), given.get("mixed_precision_calculation_type", "float16"),
            given.get("mixed_precision_acc_type", "float32"))
    return mod
