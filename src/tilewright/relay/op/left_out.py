"""The field's operators that are not here, and why: what asking for one says."""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import CompileError

_GRADIENT: Final = "it computes a gradient, and programs are compiled for inference; te.gradient differentiates tensor expressions"
_TRANSFORMED: Final = "it takes weights that were transformed for one algorithm; write nn.conv2d or nn.conv3d, for which the compiler chooses the algorithm and transforms constant weights"
_PLANNED: Final = "the compiler writes storage and calls of kernels itself (relay.transform.MemoryPlan, relay.vm.compile); write the operators that compute the values"
_HARDWARE: Final = "it is of one accelerator's flow; register a target with patterns of its own (relay.op.contrib.register_pattern_table)"
_TUNED: Final = "a tuner of layouts wrote it; write layout_transform"

LEFT_OUT: Final[dict[str, str]] = {
    "nn.conv2d_backward_weight": _GRADIENT,
    "nn.max_pool2d_grad": _GRADIENT,
    "nn.avg_pool2d_grad": _GRADIENT,
    "nn.contrib_conv2d_winograd_weight_transform": _TRANSFORMED,
    "nn.contrib_conv2d_winograd_without_weight_transform": _TRANSFORMED,
    "nn.contrib_conv2d_winograd_nnpack_weight_transform": _TRANSFORMED,
    "nn.contrib_conv2d_gemm_weight_transform": _TRANSFORMED,
    "nn.contrib_conv2d_gemm_without_weight_transform": _TRANSFORMED,
    "nn.contrib_conv3d_winograd_weight_transform": _TRANSFORMED,
    "nn.contrib_conv3d_winograd_without_weight_transform": _TRANSFORMED,
    "nn.internal.sparse_dense_padded": "it is nn.sparse_dense with rows filled up for the threads of one GPU; write nn.sparse_dense",
    "qnn.contrib_dense_pack": "it is qnn.dense with weights in the order of one processor; write qnn.dense, for which the compiler orders constant weights",
    "auto_scheduler_layout_transform": _TUNED,
    "meta_schedule_layout_transform": _TUNED,
    "memory.alloc_storage": _PLANNED,
    "memory.alloc_tensor": _PLANNED,
    "memory.kill": _PLANNED,
    "vm.shape_of": "the virtual machine's form of an operator; write shape_of",
    "vm.shape_func": _PLANNED,
    "vm.invoke_tvm_op": _PLANNED,
    "vm.reshape_tensor": "the virtual machine's form of an operator; write reshape",
    "call_lowered": _PLANNED,
    "debug": "it stops a program that runs; evaluate a part of it with relay.create_executor, or use the debug executor",
    "annotation.bitpack_start": _HARDWARE,
    "annotation.bitpack_end": _HARDWARE,
    "contrib.ethosu.conv2d": _HARDWARE,
    "contrib.ethosu.depthwise_conv2d": _HARDWARE,
    "contrib.ethosu.pooling": _HARDWARE,
    "contrib.ethosu.binary_elementwise": _HARDWARE,
    "contrib.ethosu.unary_elementwise": _HARDWARE,
    "contrib.ethosu.identity": _HARDWARE,
    "image.resize": "the field replaced it; write image.resize2d",
}
"""By the operator's name: why it is not here, and what to write."""


class OperatorLeftOut(CompileError, AttributeError):
    """An operator of the field is asked for that is not here on purpose. It is an `AttributeError` too, so that `hasattr` is False."""

    code = "TW0309"


def left_out(name: str) -> OperatorLeftOut | None:
    """What asking for that operator raises, or None when it is not one that was left out."""
    why = LEFT_OUT.get(name)
    return None if why is None else OperatorLeftOut(f"the operator '{name}' is not here: {why}")
