"""Passes over Relay graphs, one per file."""

import sys
from typing import ClassVar, Final

from tilewright.ir.transform import (
    FunctionPass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    function_pass_of,
    module_pass,
)
from tilewright.relay.expr import Function
from tilewright.relay.transform.alter_op_layout import AlterOpLayout
from tilewright.relay.transform.annotate_target import AnnotateTarget
from tilewright.relay.transform.batching_ops import BatchingOps
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.byte_arithmetic import ByteArithmetic
from tilewright.relay.transform.canonicalize import CanonicalizeOps
from tilewright.relay.transform.canonicalize_cast import CanonicalizeCast
from tilewright.relay.transform.change_batch import ChangeBatch
from tilewright.relay.transform.chosen_layouts import LayoutConfig
from tilewright.relay.transform.chosen_sweep import InferCorrectLayoutOutput
from tilewright.relay.transform.collage_partition import CollagePartition
from tilewright.relay.transform.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from tilewright.relay.transform.combine_parallel_conv2d import CombineParallelConv2D
from tilewright.relay.transform.combine_parallel_dense import CombineParallelDense
from tilewright.relay.transform.conv2d_to_sparse import Conv2dToSparse, Conv2dToSparse2
from tilewright.relay.transform.convert_layout import ConvertLayout
from tilewright.relay.transform.dead_code import DeadCodeElimination
from tilewright.relay.transform.dedup import DeDup
from tilewright.relay.transform.defunctionalize import Defunctionalization, Defunctionalize
from tilewright.relay.transform.defuse_ops import DefuseOps
from tilewright.relay.transform.dense_to_sparse import DenseToSparse
from tilewright.relay.transform.div_to_mul import DivToMul
from tilewright.relay.transform.dynamic_to_static import DynamicToStatic
from tilewright.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from tilewright.relay.transform.eta_expand import EtaExpand
from tilewright.relay.transform.external_functions import (
    InlineCompilerFunctionsBoundTo,
    MarkCompilerFunctionsAsExtern,
    OutlineCompilerFunctionsWithExistingGlobalSymbols,
)
from tilewright.relay.transform.fake_quantization_to_integer import FakeQuantizationToInteger
from tilewright.relay.transform.fast_math import FastMath
from tilewright.relay.transform.flatten_atrous_conv import FlattenAtrousConv
from tilewright.relay.transform.flexible_shape import FlexibleShapeDispatch
from tilewright.relay.transform.fold_constant import FoldConstant
from tilewright.relay.transform.fold_explicit_padding import FoldExplicitPadding
from tilewright.relay.transform.fold_gate import FoldGate
from tilewright.relay.transform.fold_input_transpose import FoldInputTranspose
from tilewright.relay.transform.fold_scale_axis import BackwardFoldScaleAxis, FoldScaleAxis, ForwardFoldScaleAxis
from tilewright.relay.transform.fuse_attention import FuseAttention
from tilewright.relay.transform.fuse_ops import FuseOps
from tilewright.relay.transform.gradient import FirstOrderGradient, LazyGradientInit, gradient
from tilewright.relay.transform.infer_type import InferType, InferTypeLocal, infer_types
from tilewright.relay.transform.inline import Inline
from tilewright.relay.transform.lambda_lift import LambdaLift
from tilewright.relay.transform.legalize import Legalize
from tilewright.relay.transform.manifest_lifetimes import ManifestLifetimes
from tilewright.relay.transform.merge_compiler_regions import MergeCompilerRegions
from tilewright.relay.transform.merge_composite import MergeComposite
from tilewright.relay.transform.native_texts import NativeTexts
from tilewright.relay.transform.partial_evaluate import PartialEvaluate
from tilewright.relay.transform.partition_graph import PartitionGraph
from tilewright.relay.transform.pipeline import graph_passes, optimize
from tilewright.relay.transform.plan_devices import PlanDevices
from tilewright.relay.transform.plan_memory import Location, MemoryPlan, MemorySpace, PlanStep, plan_memory
from tilewright.relay.transform.recast import recast
from tilewright.relay.transform.remove_standalone_reshapes import RemoveStandaloneReshapes
from tilewright.relay.transform.remove_unused_functions import RemoveUnusedFunctions
from tilewright.relay.transform.simplify_expr import SimplifyExpr, SimplifyExprPostAlterOp
from tilewright.relay.transform.simplify_fc_transpose import SimplifyFCTranspose
from tilewright.relay.transform.simplify_inference import SimplifyInference
from tilewright.relay.transform.sink_reshape import SinkReshape
from tilewright.relay.transform.spans import AnnotateSpans, CapturePostDfsIndexInSpans, SpanCheck, tag_span_suffixes
from tilewright.relay.transform.split_args import SplitArgs
from tilewright.relay.transform.split_batch import SplitBatch
from tilewright.relay.transform.to_a_normal_form import ToANormalForm
from tilewright.relay.transform.to_basic_block_normal_form import ToBasicBlockNormalForm
from tilewright.relay.transform.to_cps import ToCPS, to_cps, un_cps
from tilewright.relay.transform.to_graph_normal_form import ToGraphNormalForm
from tilewright.relay.transform.to_mixed_precision import ToMixedPrecision
from tilewright.relay.transform.used_memory import AnnotateUsedMemory


class _RelayFunctionPass(FunctionPass):
    """A pass over relay functions."""

    kind: ClassVar[type] = Function


function_pass: Final = function_pass_of(_RelayFunctionPass)
_ffi_api: Final = sys.modules[__name__]
"""TVM's name of the module in which the passes are created."""

__all__ = [
    "AlterOpLayout", "AnnotateSpans", "AnnotateTarget", "AnnotateUsedMemory", "BackwardFoldScaleAxis", "BatchingOps",
    "ByteArithmetic", "CanonicalizeCast", "CanonicalizeOps", "CapturePostDfsIndexInSpans", "ChangeBatch",
    "CollagePartition", "CombineParallelBatchMatmul", "CombineParallelConv2D", "CombineParallelDense", "Conv2dToSparse",
    "Conv2dToSparse2", "ConvertLayout", "DeDup", "DeadCodeElimination", "Defunctionalization", "Defunctionalize",
    "DefuseOps", "DenseToSparse", "DivToMul", "DynamicToStatic", "EliminateCommonSubexpr", "EtaExpand",
    "FakeQuantizationToInteger", "FastMath", "FirstOrderGradient", "FlattenAtrousConv", "FlexibleShapeDispatch",
    "FoldConstant", "FoldExplicitPadding", "FoldGate", "FoldInputTranspose", "FoldScaleAxis", "ForwardFoldScaleAxis",
    "FuseAttention", "FuseOps", "InferCorrectLayoutOutput", "InferType", "InferTypeLocal", "Inline",
    "InlineCompilerFunctionsBoundTo", "LambdaLift", "LayoutConfig", "LazyGradientInit", "Legalize", "Location",
    "ManifestLifetimes", "MarkCompilerFunctionsAsExtern", "MemoryPlan", "MemorySpace", "MergeCompilerRegions",
    "MergeComposite", "NativeTexts", "OutlineCompilerFunctionsWithExistingGlobalSymbols", "PartialEvaluate",
    "PartitionGraph", "Pass", "PassContext", "PassInfo", "PlanDevices", "PlanStep", "PrintIR",
    "RemoveStandaloneReshapes", "RemoveUnusedFunctions", "Sequential", "SimplifyExpr", "SimplifyExprPostAlterOp",
    "SimplifyFCTranspose", "SimplifyInference", "SinkReshape", "SpanCheck", "SplitArgs", "SplitBatch", "ToANormalForm",
    "ToBasicBlockNormalForm", "ToCPS", "ToGraphNormalForm", "ToMixedPrecision", "bind_params", "function_pass",
    "gradient", "graph_passes", "infer_types", "module_pass", "optimize", "plan_memory", "recast", "tag_span_suffixes",
    "to_cps", "un_cps",
]
