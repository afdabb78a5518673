"""Analyses of Relay programs."""

import importlib
from typing import TYPE_CHECKING, Any

from tilewright.relay.analysis.call_graph import CallGraph
from tilewright.relay.analysis.check_kind import check_kind
from tilewright.relay.analysis.features import (
    Feature,
    check_basic_block_normal_form,
    detect_feature,
    get_total_mac_number,
)
from tilewright.relay.analysis.operators import (
    all_dtypes,
    check_constant,
    count_layers,
    extract_fused_functions,
    extract_intermediate_expr,
    get_calibration_data,
    list_fake_quantized_op_freqs,
    list_op_freqs,
)
from tilewright.relay.analysis.purity import Effect, Effects, is_pure
from tilewright.relay.analysis.regions import AnnotatedRegionSet
from tilewright.relay.analysis.unmatched_cases import unmatched_cases
from tilewright.relay.analysis.variables import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    free_type_vars,
    post_order_visit,
)
from tilewright.relay.analysis.well_formed import check_well_formed, well_formed
from tilewright.relay.visitor import calls, consumers, free_vars, post_order

if TYPE_CHECKING:
    from tilewright.relay.offload import explain_offload


def __getattr__(name: str) -> Any:
    if name == "_ffi_api":  # it imports the passes, too
        return importlib.import_module("tilewright.relay.analysis._ffi_api")
    if name == "explain_offload":  # offloading imports the passes, which import this package
        from tilewright.relay.offload import explain_offload

        return explain_offload
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)


extract_intermdeiate_expr = extract_intermediate_expr
"""TVM's spelling."""

__all__ = [
    "AnnotatedRegionSet", "CallGraph", "Effect", "Effects", "Feature", "all_dtypes", "all_type_vars", "all_vars",
    "bound_type_vars", "bound_vars", "calls", "check_basic_block_normal_form", "check_constant", "check_kind",
    "check_well_formed", "consumers", "count_layers", "detect_feature", "explain_offload",
    "extract_fused_functions", "extract_intermdeiate_expr", "extract_intermediate_expr", "free_type_vars",
    "free_vars", "get_calibration_data", "get_total_mac_number", "is_pure", "list_fake_quantized_op_freqs",
    "list_op_freqs", "post_order", "post_order_visit", "unmatched_cases", "well_formed",
]
