"""The TIR passes as module passes under TVM's names: `tir.transform.Simplify()(mod)`. They change only TIR functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext, function_pass_of
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.transform.common_subexpressions import common_subexpressions
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.flatten_buffers import flatten_buffers
from tilewright.tir.transform.hoist_conditions import hoist_conditions
from tilewright.tir.transform.inject_double_buffer import inject_double_buffer
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.lower_math import lower_math
from tilewright.tir.transform.lowering_options import mark_unrolled
from tilewright.tir.transform.opaque_blocks import convert_blocks_to_opaque, lower_opaque_blocks
from tilewright.tir.transform.partition_loops import partition_loops
from tilewright.tir.transform.remove_no_op import remove_no_op
from tilewright.tir.transform.share_storage import share_storage
from tilewright.tir.transform.simplify_statements import simplify_statements
from tilewright.tir.transform.tighten_loop_bounds import tighten_loop_bounds
from tilewright.tir.transform.unroll_loops import unroll_loops
from tilewright.tir.transform.vectorize_loops import vectorize_loops

LoopPass = Callable[[PrimFunc], PrimFunc]


class PrimFuncPass(FunctionPass):
    """A pass over single TIR functions, as made by `prim_func_pass`."""

    kind: ClassVar[type] = PrimFunc


prim_func_pass: Final = function_pass_of(PrimFuncPass)


class _LoopPass(PrimFuncPass):
    """A pass made from a function on TIR functions."""

    run: ClassVar[LoopPass]

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return type(self).run(function)


def _named(name: str, run: LoopPass) -> type[_LoopPass]:
    spec = {"run": staticmethod(run), "__doc__": run.__doc__, "__module__": __name__}
    return dataclass(frozen=True)(type(name, (_LoopPass,), spec))


def _partition_loops(func: PrimFunc) -> PrimFunc:
    """Split loops where the conditions inside change, and end the loops inside where a condition ends."""
    return tighten_loop_bounds(partition_loops(func))


def _unroll_loops(func: PrimFunc) -> PrimFunc:
    """Unroll the marked loops, and those within the limits of the option `tir.UnrollLoop`."""
    return unroll_loops(mark_unrolled(func))


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


PASSES: Final[dict[str, type[_LoopPass]]] = {
    name: _named(name, run)
    for name, run in {
        "CommonSubexprElimTIR": common_subexpressions, "ConvertBlocksToOpaque": convert_blocks_to_opaque,
        "ConvertSSA": convert_ssa, "FlattenBuffer": flatten_buffers,
        "HoistIfThenElse": hoist_conditions, "InjectDoubleBuffer": inject_double_buffer,
        "LoopPartition": _partition_loops, "LowerInitBlock": lower_blocks, "LowerIntrin": lower_math,
        "LowerOpaqueBlock": lower_opaque_blocks,
        "RemoveNoOp": remove_no_op, "Simplify": simplify_statements, "StorageRewrite": share_storage,
        "TightenLoopBounds": tighten_loop_bounds,
        "UnrollLoop": _unroll_loops, "VectorizeLoop": vectorize_loops, "VerifyMemory": _verify_memory,
    }.items()}
"""The passes by TVM's names. `LowerInitBlock` also removes blocks and allocates intermediate values."""
