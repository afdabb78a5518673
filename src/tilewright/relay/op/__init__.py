"""The operators of graphs: one class each, by family. Importing this package fills the operator table.

It also provides the functions of operators that `relay` has: `relay.op.add`, `relay.op.nn.relu`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tilewright.relay.expr import const
from tilewright.relay.op import (
    annotation,
    blocks,
    broadcast,
    classic,
    complex_numbers,
    contrib,
    create,
    data_dependent,
    deferred,
    dynamic,
    einsum,
    elementwise,
    external,
    fast_math,
    fixed_point,
    image,
    image_decoding,
    image_sampling,
    indexing,
    linalg,
    lookup,
    memory,
    nn,
    nn_binary,
    nn_deformable,
    nn_displacement,
    nn_loss,
    nn_sparse,
    random,
    reduction,
    runtime_checks,
    scans,
    scattering,
    selection,
    shaping,
    signal,
    sorting,
    special,
    transform,
    vision,
    vision_maps,
    vm,
)
from tilewright.relay.op.hooks import (
    OpPattern,
    register_alter_op_layout,
    register_compute,
    register_convert_op_layout,
    register_fake_quantization_to_integer,
    register_gradient,
    register_infer_correct_layout,
    register_legalize,
    register_mixed_precision_conversion,
    register_pattern,
    register_qnn_legalize,
    register_schedule,
    register_stateful,
    register_strategy,
)
from tilewright.relay.op.registered import register
from tilewright.relay.op.registry import OPS, Fusion, Op, get, operator_names, public_function

__all__ = [
    "OPS", "Fusion", "Op", "OpPattern", "annotation", "blocks", "broadcast", "classic", "complex_numbers", "const",
    "contrib", "create", "data_dependent", "deferred", "dynamic", "einsum", "elementwise", "external", "fast_math",
    "fixed_point", "get", "image", "image_decoding", "image_sampling", "indexing", "linalg", "lookup", "memory", "nn",
    "nn_binary", "nn_deformable", "nn_displacement", "nn_loss", "nn_sparse", "random", "reduction", "register",
    "register_alter_op_layout", "register_compute", "register_convert_op_layout",
    "register_fake_quantization_to_integer", "register_gradient", "register_infer_correct_layout", "register_legalize",
    "register_mixed_precision_conversion", "register_pattern", "register_qnn_legalize", "register_schedule",
    "register_stateful", "register_strategy", "runtime_checks", "scans",
    "scattering", "selection", "shaping", "signal", "sorting", "special", "transform", "vision", "vision_maps", "vm",
]


_OF_STRATEGIES = frozenset({
    "OpImplementation", "OpSpecialization", "OpStrategy", "register_broadcast_schedule", "register_injective_schedule",
    "register_reduce_schedule",
})


def __getattr__(name: str) -> Any:
    if name == "strategy" or name in _OF_STRATEGIES:
        found = importlib.import_module("tilewright.relay.op.strategy")
        return found if name == "strategy" else getattr(found, name)
    composed: Callable[..., Any] | None = vars(importlib.import_module("tilewright.relay.compose")).get(name)
    return (public_function(name, __name__) if composed is None
            or getattr(composed, "__module__", "") != "tilewright.relay.compose" else composed)


def __dir__() -> list[str]:
    return [*__all__, *operator_names("")]
