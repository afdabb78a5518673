"""Removes attributes of statements that have no effect on a CPU.

    with T.attr(A, "storage_alignment", 128): A[0] = 1.0    ->    A[0] = 1.0
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import CompileError
from tilewright.tir.stmt import AttrStmt, PrimFunc, Stmt, map_bodies

HINTS: Final = frozenset({
    "compute_scope", "debug_skip_region", "device_id", "device_scope", "device_type", "double_buffer_scope",
    "double_buffer_write", "extern_scope", "loop_scope", "pragma", "realize_scope", "storage_alignment",
    "storage_scope", "target", "volatile_scope",
})
"""Attributes about devices, memory and speed; those that begin with `pragma_` are of this kind, too."""


def remove_attributes(func: PrimFunc) -> PrimFunc:
    """Remove the attributes of statements. Raises `CompileError` for one that changes what a device computes."""
    return func.with_body(_removed(func.body, func))


def _removed(s: Stmt, func: PrimFunc) -> Stmt:
    inner = map_bodies(s, lambda x: _removed(x, func)) or s
    if not isinstance(inner, AttrStmt):
        return inner
    if inner.attr_key not in HINTS and not inner.attr_key.startswith("pragma_"):
        raise CompileError(
            f"the attribute '{inner.attr_key}' in '{func.name}' has no meaning on a CPU; such a program can be read "
            "and changed by passes, but not compiled", code="TW0602")
    return inner.body
