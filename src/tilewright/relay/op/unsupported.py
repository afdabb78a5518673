"""Unsupported operators of TVM, each with the reason and a replacement for the error message."""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import CompileError

_TRANSFORMED: Final = (
    "it takes weights that were transformed for one algorithm; use nn.conv2d or nn.conv3d, "
    "for which the compiler chooses the algorithm and transforms constant weights"
)
_PLANNED: Final = (
    "the compiler itself inserts storage and kernel calls (relay.transform.MemoryPlan, relay.vm.compile); "
    "use the operators that compute the values"
)
_HARDWARE: Final = ("it belongs to the compiler of one accelerator; register a target with its own patterns "
                    "(relay.op.contrib.register_pattern_table)")
_TUNED: Final = "only a layout tuner inserts it; use layout_transform"

LEFT_OUT: Final[dict[str, str]] = {
    "nn.contrib_conv2d_winograd_weight_transform": _TRANSFORMED,
    "nn.contrib_conv2d_winograd_without_weight_transform": _TRANSFORMED,
    "nn.contrib_conv2d_winograd_nnpack_weight_transform": _TRANSFORMED,
    "nn.contrib_conv2d_gemm_weight_transform": _TRANSFORMED,
    "nn.contrib_conv2d_gemm_without_weight_transform": _TRANSFORMED,
    "nn.contrib_conv3d_winograd_weight_transform": _TRANSFORMED,
    "nn.contrib_conv3d_winograd_without_weight_transform": _TRANSFORMED,
    "nn.internal.sparse_dense_padded": "it is nn.sparse_dense with rows padded for the threads of one GPU; use "
    "nn.sparse_dense",
    "qnn.contrib_dense_pack": "it is qnn.dense with weights packed for one processor; use qnn.dense, whose constant "
    "weights the compiler packs",
    "auto_scheduler_layout_transform": _TUNED,
    "meta_schedule_layout_transform": _TUNED,
    "vm.shape_func": _PLANNED,
    "vm.invoke_tvm_op": _PLANNED,
    "call_lowered": _PLANNED,
    "annotation.bitpack_start": _HARDWARE,
    "annotation.bitpack_end": _HARDWARE,
    "contrib.ethosu.conv2d": _HARDWARE,
    "contrib.ethosu.depthwise_conv2d": _HARDWARE,
    "contrib.ethosu.pooling": _HARDWARE,
    "contrib.ethosu.binary_elementwise": _HARDWARE,
    "contrib.ethosu.unary_elementwise": _HARDWARE,
    "contrib.ethosu.identity": _HARDWARE,
    "image.resize": "TVM replaced it; use image.resize2d",
}
"""The reason and the replacement, by operator name."""


class OperatorLeftOut(CompileError, AttributeError):
    """The use of an unsupported operator of TVM. It is also an `AttributeError`, so that `hasattr` returns False."""

    code = "TW0309"


def left_out(name: str) -> OperatorLeftOut | None:
    """The error for a use of the operator `name`, or None if it is not listed."""
    why = LEFT_OUT.get(name)
    return None if why is None else OperatorLeftOut(f"the operator '{name}' is not supported: {why}")
