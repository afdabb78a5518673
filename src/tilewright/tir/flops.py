"""Counts the arithmetic operations of TIR programs: `tir.analysis.estimate_tir_flops`."""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Binary, Call, Comparison, Load, PrimExpr, Select, number_of
from tilewright.scalar.intrinsics import dot2, dot4, fma
from tilewright.tir.stmt import Block, Evaluate, For, IfThenElse, Let, PrimFunc, Stmt, Store, bodies

ESTIMATED: Final = "estimated_flops"
"""Attribute of a function: its number of operations, instead of a count."""

_CALLS: Final = {fma: 2, dot2: 4, dot4: 8}
"""Operations of calls that add products."""


def estimate_tir_flops(mod: IRModule | PrimFunc) -> float:
    """Return the number of arithmetic operations of a function, or of all TIR functions of a module.

    Each of `+ - * / // %`, `min` and `max` counts once for every iteration, and `fma` twice. Indices, conditions,
    conversions and other calls count nothing, and of two branches the one with more operations counts. Raises
    `CompileError` for a loop whose number of iterations is not a constant.
    """
    functions = mod.functions.values() if isinstance(mod, IRModule) else [mod]
    return float(sum(_of_function(f) for f in functions if isinstance(f, PrimFunc)))


def _of_function(func: PrimFunc) -> float:
    given = func.attrs.get(ESTIMATED)
    return _of_stmt(func.body, func.name) if given is None else float(given)


def _of_stmt(s: Stmt, name: str) -> float:
    match s:
        case For():
            trips = number_of(s.extent)
            if trips is None:
                raise CompileError(
                    f"the operations of '{name}' cannot be counted: loop '{s.var.name}' has {s.extent} iterations, a "
                    f"number known only at run time; give the function the attribute '{ESTIMATED}'", code="TW0612")
            return trips * _of_stmt(s.body, name)
        case IfThenElse():
            return max(_of_stmt(b, name) for b in bodies(s))
        case Store():
            return _of_expression(s.value)
        case Evaluate():
            return _of_expression(s.value)
        case Let():
            return _of_expression(s.value) + _of_stmt(s.body, name)
        case Block():
            return _of_stmt(s.body, name)
        case _:
            return sum(_of_stmt(b, name) for b in bodies(s))


def _of_expression(e: PrimExpr) -> int:
    if isinstance(e, Load):
        return 0
    if isinstance(e, Select):
        return max(_of_expression(e.true_value), _of_expression(e.false_value))
    below = sum(_of_expression(x) for x in e.operands())
    if isinstance(e, Call):
        return below + e.dtype.lanes * _CALLS.get(e.op, 0)
    return below + e.dtype.lanes * (isinstance(e, Binary) and not isinstance(e, Comparison))
