"""The TIR passes as module passes under TVM's names: `tir.transform.Simplify()(mod)`. They change only TIR functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, ModulePass, Pass, PassContext, function_pass_of
from tilewright.tir.stmt import LEGACY, UNROLLED, For, PrimFunc, walk_stmt
from tilewright.tir.transform.buffer_homes import place_in_blocks
from tilewright.tir.transform.combine_context_calls import combine_context_calls
from tilewright.tir.transform.common_subexpressions import common_subexpressions
from tilewright.tir.transform.compact_buffers import compact_buffers
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.device_regions import annotate_device_regions, lift_attributes, mark_device_scope
from tilewright.tir.transform.extract_constants import extract_constants
from tilewright.tir.transform.flatten_buffers import flatten_buffers
from tilewright.tir.transform.function_attributes import annotate_entry, bind_target, filtered
from tilewright.tir.transform.hoist_conditions import hoist_conditions, hoist_expressions
from tilewright.tir.transform.inject_copy_intrin import CopyFunction, inject_copy_intrin
from tilewright.tir.transform.inject_double_buffer import inject_double_buffer
from tilewright.tir.transform.inject_rolling_buffer import inject_rolling_buffer
from tilewright.tir.transform.inject_software_pipeline import inject_software_pipeline
from tilewright.tir.transform.inject_virtual_threads import inject_virtual_threads
from tilewright.tir.transform.instrument_bounds import instrument_bounds
from tilewright.tir.transform.instrument_profile import instrument_profile
from tilewright.tir.transform.legalize_floats import (
    bf16_compute_legalize,
    bf16_storage_legalize,
    fp8_compute_legalize,
    fp8_storage_legalize,
)
from tilewright.tir.transform.legalize_packed_calls import legalize_packed_calls
from tilewright.tir.transform.loop_facts import runs_once
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.lower_builtins import lower_builtins
from tilewright.tir.transform.lower_cross_thread_reduction import lower_cross_thread_reduction
from tilewright.tir.transform.lower_init import lower_init
from tilewright.tir.transform.lower_kernel_launches import lower_kernel_launches
from tilewright.tir.transform.lower_match_buffers import lower_match_buffers
from tilewright.tir.transform.lower_math import lower_math
from tilewright.tir.transform.lower_storage_access import lower_storage_access
from tilewright.tir.transform.lower_thread_allreduce import lower_thread_allreduce
from tilewright.tir.transform.lower_warp_memory import lower_warp_memory
from tilewright.tir.transform.lowering_options import mark_unrolled, unroll_options
from tilewright.tir.transform.make_packed_api import make_packed_api
from tilewright.tir.transform.make_unpacked_api import make_unpacked_api
from tilewright.tir.transform.manifest_local_stage import manifest_local_stage
from tilewright.tir.transform.merge_shared_memory import merge_shared_memory
from tilewright.tir.transform.narrow_types import narrow_types
from tilewright.tir.transform.opaque_blocks import PARTITION_HINT, convert_blocks_to_opaque, lower_opaque_blocks
from tilewright.tir.transform.partition_loops import partition_loops
from tilewright.tir.transform.rebase_loops import rebase_loops, without_annotation
from tilewright.tir.transform.reduce_branching import reduce_branching
from tilewright.tir.transform.remove_assumptions import remove_assumptions, remove_undefined_stores
from tilewright.tir.transform.remove_layout_rewrites import remove_layout_rewrites
from tilewright.tir.transform.remove_no_op import remove_no_op
from tilewright.tir.transform.renormalize_splits import renormalize_splits
from tilewright.tir.transform.serialize_loops import serialize_loops
from tilewright.tir.transform.share_storage import share_storage
from tilewright.tir.transform.simplify_statements import simplify_statements
from tilewright.tir.transform.skip_assertions import skip_assertions
from tilewright.tir.transform.split_host_device import split_host_device
from tilewright.tir.transform.thread_sync import thread_sync
from tilewright.tir.transform.tighten_loop_bounds import tighten_loop_bounds
from tilewright.tir.transform.unify_threads import unify_threads
from tilewright.tir.transform.unroll_loops import unroll_loops
from tilewright.tir.transform.vectorize_loops import vectorize_loops

LoopPass = Callable[[PrimFunc], PrimFunc]
WholePass = Callable[[IRModule], IRModule]


class PrimFuncPass(FunctionPass):
    """A pass over single TIR functions, as made by `prim_func_pass`."""

    kind: ClassVar[type] = PrimFunc


prim_func_pass: Final = function_pass_of(PrimFuncPass)


class _LoopPass(PrimFuncPass):
    """A pass made from a function on TIR functions."""

    run: ClassVar[LoopPass]

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return type(self).run(function)


class _WholePass(ModulePass):
    """A pass made from a function on modules."""

    run: ClassVar[WholePass]

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return type(self).run(mod)


def _named(name: str, run: Callable[[Any], Any], base: type[Pass]) -> type[Pass]:
    spec = {"run": staticmethod(run), "__doc__": run.__doc__, "__module__": __name__}
    return dataclass(frozen=True)(type(name, (base,), spec))


def _flatten_buffers(func: PrimFunc) -> PrimFunc:
    """Convert the memory of a program to one dimension, or to one for each part between axis separators. Parameters
    keep their shapes, as in TVM. Programs from te schedules stay: `StorageFlatten` converts them."""
    return func if func.attrs.get(LEGACY) else flatten_buffers(func, separated=True, parameters=False)


def _partition_loops(func: PrimFunc) -> PrimFunc:
    """Split loops where the conditions inside change, and end the loops inside where a condition ends. New loops begin
    at zero; hints at loops are removed."""
    found = rebase_loops(tighten_loop_bounds(partition_loops(func, is_open=True)), func)
    return found.with_body(without_annotation(found.body, PARTITION_HINT))


def _unroll_loops(func: PrimFunc) -> PrimFunc:
    """Unroll the marked loops, and those within the limits of the option `tir.UnrollLoop`; without its field
    `explicit_unroll`, these are only marked, unless they run once."""
    marked = mark_unrolled(func)
    loops = [s for s in walk_stmt(marked.body) if isinstance(s, For) and s.kind == UNROLLED]
    explicit = unroll_options()["explicit_unroll"] or any(map(runs_once, loops))
    return unroll_loops(marked) if loops and explicit else marked


def _verify_memory(func: PrimFunc) -> PrimFunc:
    """Raise `CompileError` if `tir.analysis.verify_memory` is false; the function itself is returned unchanged."""
    from tilewright.tir.analysis import verify_memory

    if not verify_memory(func):
        raise CompileError(
            f"function '{func.name}' uses memory out of its scope, or on a GPU outside of loops bound to threads",
            func.origin, code="TW0611")
    return func


@dataclass(frozen=True)
class Apply(PrimFuncPass):
    """Replaces every TIR function by the result of `ftransform`."""

    ftransform: LoopPass

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return self.ftransform(function)


@dataclass(frozen=True)
class CommonSubexprElimTIR(PrimFuncPass):
    """Names values that are computed more than once; with `identify_equiv_terms`, also if they are written
    differently."""

    enable_cse_tir: bool = True
    identify_equiv_terms: bool = False

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return common_subexpressions(function, self.identify_equiv_terms) if self.enable_cse_tir else function


@dataclass(frozen=True)
class CompactBufferAllocation(PrimFuncPass):
    """Reduces intermediate values to the part that is used where they live. Accesses are always inside their buffers,
    so `is_strict` has no effect."""

    is_strict: bool = True

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return compact_buffers(function)


@dataclass(frozen=True)
class StorageFlatten(PrimFuncPass):
    """Removes blocks, allocates intermediate values, and converts every buffer of a program from a te schedule to one
    dimension; other programs stay. Checks of bounds are added while code is generated, so the fields have no effect."""

    cache_line_size: int
    create_bound_attributes: bool = False

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return flatten_buffers(lower_blocks(function)) if function.attrs.get(LEGACY) else function


@dataclass(frozen=True)
class NarrowDataType(PrimFuncPass):
    """Gives loops and indices integers of `target_bits` bits, where all values fit."""

    target_bits: int

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return narrow_types(function, self.target_bits)


@dataclass(frozen=True)
class HoistIfThenElse(PrimFuncPass):
    """Moves conditions of statements out of loops. The `variant` "basic" ignores the option `tir.HoistIfThenElse`."""

    variant: str | None = None

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return hoist_conditions(function, basic=self.variant == "basic")


@dataclass(frozen=True)
class LiftAttrScope(PrimFuncPass):
    """Moves attributes `attr_key` of statements outwards."""

    attr_key: str

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return lift_attributes(function, self.attr_key)


@dataclass(frozen=True)
class ThreadSync(PrimFuncPass):
    """Adds the barriers that threads need for the memory of `storage_scope` that they share."""

    storage_scope: str

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return thread_sync(function, self.storage_scope)


@dataclass(frozen=True)
class InjectCopyIntrin(PrimFuncPass):
    """Replaces copies with the pragma `pragma_key` by what `fintrin` returns for them."""

    pragma_key: str
    fintrin: CopyFunction

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return inject_copy_intrin(function, self.pragma_key, self.fintrin)


@dataclass(frozen=True)
class BindTarget(PrimFuncPass):
    """Gives the functions of a module the attribute `target`."""

    target: Any

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return bind_target(function, self.target)


@dataclass(frozen=True)
class Filter(ModulePass):
    """Removes the loop programs for which `fcond` is false."""

    fcond: Callable[[PrimFunc], bool]

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return filtered(mod, self.fcond)


@dataclass(frozen=True)
class FP8ComputeLegalize(PrimFuncPass):
    """Computes 8-bit floats in `promote_dtype_str`, float16 or float32. Raises `CompileError` for another type."""

    promote_dtype_str: str = "float32"

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return fp8_compute_legalize(function, self.promote_dtype_str)


_WITH_OPTIONS: Final[tuple[type[Pass], ...]] = (
    BindTarget, CommonSubexprElimTIR, CompactBufferAllocation, FP8ComputeLegalize, Filter, HoistIfThenElse,
    InjectCopyIntrin, LiftAttrScope, NarrowDataType, StorageFlatten, ThreadSync)
_OF_MODULES: Final[dict[str, WholePass]] = {
    "AnnotateEntryFunc": annotate_entry, "ExtractPrimFuncConstants": extract_constants,
    "LegalizePackedCalls": legalize_packed_calls, "LowerDeviceKernelLaunch": lower_kernel_launches,
    "MakePackedAPI": make_packed_api, "MakeUnpackedAPI": make_unpacked_api, "SplitHostDevice": split_host_device,
}
PASSES: Final[dict[str, type[Pass]]] = {c.__name__: c for c in _WITH_OPTIONS} | {
    name: _named(name, run, _WholePass) for name, run in _OF_MODULES.items()} | {
    name: _named(name, run, _LoopPass)
    for name, run in {
        "AnnotateDeviceRegions": annotate_device_regions, "BF16ComputeLegalize": bf16_compute_legalize,
        "BF16StorageLegalize": bf16_storage_legalize, "CombineContextCall": combine_context_calls,
        "ConvertBlocksToOpaque": convert_blocks_to_opaque, "ConvertForLoopsToSerial": serialize_loops,
        "ConvertSSA": convert_ssa, "DecorateDeviceScope": mark_device_scope, "FP8StorageLegalize": fp8_storage_legalize,
        "FlattenBuffer": _flatten_buffers, "HoistExpression": hoist_expressions,
        "InjectDoubleBuffer": inject_double_buffer, "InjectRollingBuffer": inject_rolling_buffer,
        "InjectSoftwarePipeline": inject_software_pipeline, "InjectVirtualThread": inject_virtual_threads,
        "InstrumentBoundCheckers": instrument_bounds, "InstrumentProfileIntrinsics": instrument_profile,
        "LoopPartition": _partition_loops, "LowerCrossThreadReduction": lower_cross_thread_reduction,
        "LowerDeviceStorageAccessInfo": lower_storage_access, "LowerInitBlock": lower_init, "LowerIntrin": lower_math,
        "LowerMatchBuffer": lower_match_buffers, "LowerOpaqueBlock": lower_opaque_blocks,
        "LowerTVMBuiltin": lower_builtins, "LowerThreadAllreduce": lower_thread_allreduce,
        "LowerWarpMemory": lower_warp_memory, "ManifestSharedMemoryLocalStage": manifest_local_stage,
        "MergeDynamicSharedMemoryAllocations": merge_shared_memory,
        "PlanAndUpdateBufferAllocationLocation": place_in_blocks, "ReduceBranchingThroughOvercompute": reduce_branching,
        "RemoveAssume": remove_assumptions, "RemoveNoOp": remove_no_op, "RemoveStoreUndef": remove_undefined_stores,
        "RemoveWeightLayoutRewriteBlock": remove_layout_rewrites, "RenormalizeSplitPattern": renormalize_splits,
        "Simplify": simplify_statements, "SkipAssert": skip_assertions, "StorageRewrite": share_storage,
        "TightenLoopBounds": tighten_loop_bounds, "UnifyThreadBinding": unify_threads, "UnrollLoop": _unroll_loops,
        "VectorizeLoop": vectorize_loops, "VerifyMemory": _verify_memory,
    }.items()}
"""The passes by TVM's names."""
