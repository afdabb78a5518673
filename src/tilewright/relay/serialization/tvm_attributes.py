"""Forms of fields in TVM's JSON: by their names, they are numbers, texts, dtypes or references.

In TVM's C++ a field is a number (`int axis`) or an object (`Integer axis`), and the JSON writes both as digits: the
number, or the index of a node. Most names have one form in all kinds of nodes; `_OBJECTS` lists the exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.base.errors import ParseError
from tilewright.ir.container import Array
from tilewright.relay.op.registry import Op
from tilewright.scalar.expr import FloatImm, IntImm

_WORDS: Final[dict[str, str]] = {
    "int": "axis batch_axis block_size bits column coord_start cubic_exclude depth deformable_groups end_column "
           "end_line explicit_quantize groups id_index index kind lanes lhs_axis line max_displacement multiplier "
           "num_groups num_hashes num_newaxis output_precision rhs_axis sample_ratio score_index shift stride1 stride2 "
           "tag top_k value_int weight_layout_bits",
    "bool": "align_corners allowzero ceil_mode center complete count_include_pad exclude force_suppress index_select "
            "invalid_to_bottom is_ascend is_multiply is_sorted keepdims return_counts return_indices scale "
            "select_last_index sorted sparse_lhs transpose_a transpose_b unbiased clip",
    "float": "a_max a_min alpha beta bias cubic_alpha dilation_value epsilon eps extrapolation_value in_scale "
             "iou_threshold mask_value max out_scale momentum min quant_scale rate scale_d scale_h scale_w "
             "spatial_scale threshold",
    "dtype": "compute_dtype dtype out_dtype weight_dtype",
    "text": "compiler compute_name coordinate_transformation_mode data_layout dst_layout equation grad_layout "
            "interpolate_method kernel_layout layout method mode name name_hint out_layout pad_mode padding_mode "
            "ret_type_name rounding rounding_method slice_mode sparse_layout src_layout weight_layout",
    "array": "",
}
_FORMS: Final = {name: form for form, names in _WORDS.items() for name in names.split()}
_OBJECTS: Final = frozenset(
    f"relay.attrs.{kind}Attrs.axis" for kind in (
        "ArgReduce", "Cumsum", "Gather", "L2Normalize", "Reduce", "Repeat", "Reverse", "Scanop", "Scatter",
        "ScatterAdd", "ScatterElements", "Squeeze", "Stack", "Take", "Variance"))
_OWN: Final = {
    "FloatImm.value": "float", "IntImm.value": "int", "relay.Constant.data": "array",
    "relay.attrs.BatchMatmulAttrs.units": "node", "relay.attrs.CorrelationAttrs.kernel_size": "int",
    "relay.attrs.LRNAttrs.size": "int", "relay.attrs.TopKAttrs.ret_type": "text",
    "relay.attrs.RequantizeAttrs.compute_dtype": "text",
    "relay.attrs.NonMaximumSuppressionAttrs.iou_threshold": "float",
}
_IGNORED: Final = frozenset({"auto_scheduler_rewritten_layout", "meta_schedule_original_shape"})


def field_form(key: str, name: str) -> str:
    """Return the form of a field of a kind of node: int, bool, float, dtype, text, array, or node for a reference."""
    full = f"{key}.{name}"
    if full in _OWN:
        return _OWN[full]
    return "node" if full in _OBJECTS else _FORMS.get(name, "node")


def operator_attributes(op: type[Op], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an operator from the fields in TVM's JSON. Fields that are null or empty keep their
    defaults. Raises `ParseError` for a field that the operator lacks."""
    found = {}
    for name, value in fields.items():
        if value is None or value == "" or name in _IGNORED:
            continue
        if name not in op.attribute_names:
            raise ParseError(f"{op.name} has no attribute '{name}', which is {value!r} here", code="TW0406")
        found[name] = plain_value(value)
    return found


def plain_value(value: Any) -> Any:
    """Return number nodes as numbers, and arrays as tuples."""
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    return tuple(map(plain_value, value)) if isinstance(value, (Array, list, tuple)) else value
