"""The graph passes in order, from the imported module to the input of the kernel builder."""

from __future__ import annotations

from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext, Sequential
from tilewright.relay.qnn.choose_numerics import ChooseNumerics
from tilewright.relay.qnn.settle_numerics import SettleNumerics
from tilewright.relay.transform.byte_arithmetic import ByteArithmetic
from tilewright.relay.transform.canonicalize import CanonicalizeOps
from tilewright.relay.transform.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from tilewright.relay.transform.combine_parallel_conv2d import CombineParallelConv2D
from tilewright.relay.transform.combine_parallel_dense import CombineParallelDense
from tilewright.relay.transform.convert_layout import ConvertLayout
from tilewright.relay.transform.dead_code import DeadCodeElimination
from tilewright.relay.transform.dynamic_to_static import DynamicToStatic
from tilewright.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from tilewright.relay.transform.fake_quantization_to_integer import FakeQuantizationToInteger
from tilewright.relay.transform.fast_math import FastMath
from tilewright.relay.transform.fold_constant import FoldConstant
from tilewright.relay.transform.fold_explicit_padding import FoldExplicitPadding
from tilewright.relay.transform.fold_gate import FoldGate
from tilewright.relay.transform.fold_input_transpose import FoldInputTranspose
from tilewright.relay.transform.fold_scale_axis import FoldScaleAxis
from tilewright.relay.transform.fuse_attention import FuseAttention
from tilewright.relay.transform.fuse_ops import FuseOps
from tilewright.relay.transform.native_texts import NativeTexts
from tilewright.relay.transform.simplify_expr import SimplifyExpr
from tilewright.relay.transform.simplify_inference import SimplifyInference
from tilewright.relay.transform.sink_reshape import SinkReshape
from tilewright.relay.transform.split_batch import SplitBatch
from tilewright.relay.transform.to_graph_normal_form import ToGraphNormalForm
from tilewright.relay.transform.to_mixed_precision import ToMixedPrecision


def graph_passes(target: Any = None) -> Sequential:
    """Return the passes of `optimize` as one pass."""
    return Sequential((
        ChooseNumerics(),
        SettleNumerics(),
        ToGraphNormalForm(),
        DynamicToStatic(),
        FakeQuantizationToInteger(use_qat=True, keep_real_bias=True),
        FoldExplicitPadding(),  # while the convolutions are still quantized operators
        SimplifyInference(),
        NativeTexts(),
        DeadCodeElimination(),
        FoldConstant(fold_qnn=True),
        CanonicalizeOps(biases_only=False),
        SimplifyExpr(extended=False),
        FoldExplicitPadding(),
        ConvertLayout(),
        SimplifyExpr(extended=False),
        FuseAttention(),
        SinkReshape(),
        SimplifyExpr(extended=False),
        FoldScaleAxis(),
        SimplifyExpr(extended=False),
        FoldInputTranspose(),
        CombineParallelConv2D(compact=True),
        CombineParallelDense(compact=True),
        CombineParallelBatchMatmul(compact=True),
        FastMath(),
        FoldConstant(fold_qnn=True),
        EliminateCommonSubexpr(),
        ByteArithmetic(),
        *_mixed_precision(),
        SplitBatch(PassContext.current().get("relay.SplitBatch.images"), 0 if target is None
                   else target.machine.l2_bytes),
        FoldGate(),
        FuseOps(link_params=False),
    ), name="graph_passes")


def _mixed_precision() -> list[ToMixedPrecision]:
    """Return the conversion that the context requests; it runs after all float32 passes, on shared values."""
    context = PassContext.current()
    wanted = context.get("relay.ToMixedPrecision.type")
    if not wanted:
        return []
    return [ToMixedPrecision(wanted, missing_op_mode=2, acc_dtype=context.get("relay.ToMixedPrecision.acc_type"),
                             keep_orig_output_dtype=True, wide_kernels=True)]


def optimize(mod: IRModule, target: Any = None) -> IRModule:
    """Turn the body of every function of `mod` into calls of primitive functions, under the current `PassContext`.

    Needs known types. Constants are arguments of the calls: a program carries its constants whether or not they are
    linked.
    """
    done = graph_passes(target)(mod)
    return done if PassContext.current().pass_enabled(FuseOps().info) else FuseOps(link_params=False)(done)
