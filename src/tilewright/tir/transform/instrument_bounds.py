"""Check the indices of every access while a program runs.

    C[i] = A[i + 1]    ->    with T.attr(C, "buffer_bound", T.tvm_tuple(8)), T.attr(A, "buffer_bound", T.tvm_tuple(8)):
                                 if 0 <= i and i < 8 and 0 <= i + 1 and i + 1 < 8:
                                     C[i] = A[i + 1]
                                 else:
                                     assert False, "…"

`tvm.build` has checks of its own, which report the place in the program (`instrument_memory.py`).
"""

from __future__ import annotations

from typing import Final

from tilewright.base.types import BOOL
from tilewright.scalar.expr import GE, LT, Buffer, Call, Load, PrimExpr, all_of, as_expr, compare, const, number_of
from tilewright.scalar.intrinsics import address_of, call_opaque
from tilewright.scalar.walk import certain
from tilewright.tir.stmt import AssertStmt, AttrStmt, Evaluate, IfThenElse, PrimFunc, Stmt, Store, map_bodies

BOUND: Final = "buffer_bound"
"""Attribute of a buffer: its sizes, against which indices are checked."""


def instrument_bounds(func: PrimFunc) -> PrimFunc:
    """Run each store only if its index and those of the elements that it always reads are inside their buffers; else an
    assertion fails. Accesses of vectors, and choices between elements, are not checked."""
    return func.with_body(_stmt(func.body))


def _stmt(s: Stmt) -> Stmt:
    if not isinstance(s, Store):
        return map_bodies(s, _stmt) or s
    accesses: list[tuple[Buffer, tuple[PrimExpr, ...]]] = [(s.buffer, s.indices)]
    for top in (s.value, *s.indices):
        inside = certain(top)
        addressed = {e.args[0] for e in inside if isinstance(e, Call) and e.op is address_of}
        accesses += [(e.buffer, e.indices) for e in inside if isinstance(e, Load) and e not in addressed]
    scalar = [(b, at) for b, at in accesses if all(i.dtype.lanes == 1 for i in at)]
    conditions = dict.fromkeys(
        c for b, at in scalar for i, n in zip(at, b.shape, strict=True)
        for c in (compare(GE, i, 0), compare(LT, i, as_expr(n))))
    names = ", ".join(dict.fromkeys(f"'{b.name}'" for b, _ in scalar))
    failed = AssertStmt(const(0, BOOL), f"an index is outside of {names}", Evaluate(as_expr(0)))
    holds = all_of(*conditions)
    if number_of(holds) == 1:
        return s
    checked: Stmt = IfThenElse(holds, s, failed)
    for buffer in reversed(dict.fromkeys(b for b, _ in scalar)):
        checked = AttrStmt(buffer, BOUND, call_opaque("tvm_tuple", *map(as_expr, buffer.shape)), checked)
    return checked
