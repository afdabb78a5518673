"""Passes over relay graphs, one a file."""

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
from tilewright.relay.transform.annotate_target import AnnotateTarget
from tilewright.relay.transform.canonicalize import CanonicalizeOps
from tilewright.relay.transform.convert_layout import ConvertLayout
from tilewright.relay.transform.dead_code import DeadCodeElimination
from tilewright.relay.transform.dedup import DeDup
from tilewright.relay.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from tilewright.relay.transform.eta_expand import EtaExpand
from tilewright.relay.transform.fake_quantization_to_integer import FakeQuantizationToInteger
from tilewright.relay.transform.fold_constant import FoldConstant
from tilewright.relay.transform.fold_explicit_padding import FoldExplicitPadding
from tilewright.relay.transform.fold_gate import FoldGate
from tilewright.relay.transform.fold_input_transpose import FoldInputTranspose
from tilewright.relay.transform.fold_scale_axis import FoldScaleAxis
from tilewright.relay.transform.fuse_attention import FuseAttention
from tilewright.relay.transform.fuse_ops import FuseOps
from tilewright.relay.transform.infer_type import InferType, InferTypeLocal, infer_types
from tilewright.relay.transform.inline import Inline
from tilewright.relay.transform.lambda_lift import LambdaLift
from tilewright.relay.transform.merge_compiler_regions import MergeCompilerRegions
from tilewright.relay.transform.merge_composite import MergeComposite
from tilewright.relay.transform.partial_evaluate import PartialEvaluate
from tilewright.relay.transform.partition_graph import PartitionGraph
from tilewright.relay.transform.pipeline import graph_passes, optimize
from tilewright.relay.transform.plan_memory import Location, MemoryPlan, Place, Step, plan_memory
from tilewright.relay.transform.remove_unused_functions import RemoveUnusedFunctions
from tilewright.relay.transform.simplify_expr import SimplifyExpr
from tilewright.relay.transform.simplify_inference import SimplifyInference
from tilewright.relay.transform.sink_reshape import SinkReshape
from tilewright.relay.transform.split_batch import SplitBatch
from tilewright.relay.transform.to_a_normal_form import ToANormalForm
from tilewright.relay.transform.to_basic_block_normal_form import ToBasicBlockNormalForm
from tilewright.relay.transform.to_cps import ToCPS, to_cps, un_cps
from tilewright.relay.transform.to_graph_normal_form import ToGraphNormalForm
from tilewright.relay.transform.to_mixed_precision import ToMixedPrecision


class _RelayFunctionPass(FunctionPass):
    """A pass over relay functions."""

    kind: ClassVar[type] = Function


function_pass: Final = function_pass_of(_RelayFunctionPass)

__all__ = [
    "AnnotateTarget",
    "CanonicalizeOps",
    "ConvertLayout",
    "DeDup",
    "DeadCodeElimination",
    "EliminateCommonSubexpr",
    "EtaExpand",
    "FakeQuantizationToInteger",
    "FoldConstant",
    "FoldExplicitPadding",
    "FoldGate",
    "FoldInputTranspose",
    "FoldScaleAxis",
    "FuseAttention",
    "FuseOps",
    "InferType",
    "InferTypeLocal",
    "Inline",
    "LambdaLift",
    "Location",
    "MemoryPlan",
    "MergeCompilerRegions",
    "MergeComposite",
    "PartialEvaluate",
    "PartitionGraph",
    "Pass",
    "PassContext",
    "PassInfo",
    "Place",
    "PrintIR",
    "RemoveUnusedFunctions",
    "Sequential",
    "SimplifyExpr",
    "SimplifyInference",
    "SinkReshape",
    "SplitBatch",
    "Step",
    "ToANormalForm",
    "ToBasicBlockNormalForm",
    "ToCPS",
    "ToGraphNormalForm",
    "ToMixedPrecision",
    "function_pass",
    "graph_passes",
    "infer_types",
    "module_pass",
    "optimize",
    "plan_memory",
    "to_cps",
    "un_cps",
]
