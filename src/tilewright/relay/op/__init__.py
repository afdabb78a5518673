"""The operators of graphs: one class each, by family. Importing this package fills the operator table.

Their function forms, which `relay` has, are found here too: `relay.op.add`, `relay.op.nn.relu`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tilewright.relay.op import (
    annotation,
    blocks,
    broadcast,
    complex_numbers,
    contrib,
    coupling,
    create,
    data_dependent,
    deferred,
    dictionaries,
    dynamic,
    einsum,
    elementwise,
    ensembles,
    external,
    fast_math,
    fixed_point,
    image,
    image_decoding,
    image_sampling,
    indexing,
    linalg,
    lookup,
    native_texts,
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
    text,
    transform,
    vision,
    vision_maps,
)
from tilewright.relay.op.hooks import (
    OpPattern,
    register_alter_op_layout,
    register_convert_op_layout,
    register_legalize,
    register_mixed_precision_conversion,
    register_qnn_legalize,
)
from tilewright.relay.op.registered import register, register_compute
from tilewright.relay.op.registry import OPS, Fusion, Op, get, op, operator_names, public_function

__all__ = [
    "OPS",
    "Fusion",
    "Op",
    "OpPattern",
    "annotation",
    "blocks",
    "broadcast",
    "complex_numbers",
    "contrib",
    "coupling",
    "create",
    "data_dependent",
    "deferred",
    "dictionaries",
    "dynamic",
    "einsum",
    "elementwise",
    "ensembles",
    "external",
    "fast_math",
    "fixed_point",
    "get",
    "image",
    "image_decoding",
    "image_sampling",
    "indexing",
    "linalg",
    "lookup",
    "native_texts",
    "nn",
    "nn_binary",
    "nn_deformable",
    "nn_displacement",
    "nn_loss",
    "nn_sparse",
    "op",
    "random",
    "reduction",
    "register",
    "register_alter_op_layout",
    "register_compute",
    "register_convert_op_layout",
    "register_legalize",
    "register_mixed_precision_conversion",
    "register_qnn_legalize",
    "runtime_checks",
    "scans",
    "scattering",
    "selection",
    "shaping",
    "signal",
    "sorting",
    "special",
    "text",
    "transform",
    "vision",
    "vision_maps",
]


def __getattr__(name: str) -> Callable[..., Any]:
    composed: Callable[..., Any] | None = vars(importlib.import_module("tilewright.relay.compose")).get(name)
    return (public_function(name, __name__) if composed is None
            or getattr(composed, "__module__", "") != "tilewright.relay.compose" else composed)


def __dir__() -> list[str]:
    return [*__all__, *operator_names("")]
