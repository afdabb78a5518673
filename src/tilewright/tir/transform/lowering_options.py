"""Options of `PassContext` for the loops of `tvm.lower` and `tvm.build`, under TVM's names.

    tir.disable_vectorize                         vectorized loops become serial ones
    tir.UnrollLoop: {"auto_max_step": 16}         serial loops of at most 16 steps are unrolled
    tir.add_lower_pass: [(1, my_pass)]            passes of a script, by phase
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.settings import nearest
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import IntImm, const, number_of
from tilewright.scalar.walk import free_vars
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    AttrStmt,
    For,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    map_bodies,
    walk_stmt,
)

UNROLL: Final[Mapping[str, int]] = {
    "auto_max_step": 0, "auto_max_depth": 8, "auto_max_extent": 0, "explicit_unroll": 1, "unroll_local_access": 0}
"""The fields of `tir.UnrollLoop` with their defaults. Marked loops are unrolled while code is generated."""
PHASES: Final = 4


def with_options(func: PrimFunc) -> PrimFunc:
    """Apply `tir.disable_vectorize` and `tir.UnrollLoop` to the loops of a function."""
    context = PassContext.current()
    if context.get("tir.disable_vectorize"):
        func = func.with_body(_serial(func.body))
    return mark_unrolled(func)


def mark_unrolled(func: PrimFunc) -> PrimFunc:
    """Apply `tir.UnrollLoop` to the loops of a function."""
    unroll = unroll_options()
    hinted = any(isinstance(s, AttrStmt) and s.attr_key in _HINTS for s in walk_stmt(func.body))
    if hinted or any(unroll[k] for k in ("auto_max_step", "auto_max_extent", "unroll_local_access")):
        func = func.with_body(_Unroller(**{k: int(unroll[k]) for k in _LIMITS}).stmt(func.body)[0])
    return func


def unroll_options() -> dict[str, int]:
    """Return the fields of `tir.UnrollLoop`."""
    return {**UNROLL, **_checked(PassContext.current().get("tir.UnrollLoop"))}


def _checked(given: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in given.items():
        if name not in UNROLL or not isinstance(value, int):
            raise OptionError(
                f"tir.UnrollLoop has no field '{name}' of value {value!r}{nearest(name, UNROLL)}; the fields are "
                f"{', '.join(UNROLL)}, all integers", code="TW0207")
    return given


def _serial(s: Stmt) -> Stmt:
    new = map_bodies(s, _serial) or s
    return replace(new, kind=SERIAL) if isinstance(new, For) and new.kind == VECTORIZED else new


_LIMITS: Final = ("auto_max_step", "auto_max_depth", "auto_max_extent", "unroll_local_access")
_HINTS: Final = {"pragma_auto_unroll_max_step": "auto_max_step", "pragma_auto_unroll_max_depth": "auto_max_depth"}
"""Attributes of statements that change the limits inside."""


@dataclass(frozen=True)
class _Unroller:
    """Marks the innermost serial loops within the limits of `tir.UnrollLoop`."""

    auto_max_step: int
    auto_max_depth: int
    auto_max_extent: int
    unroll_local_access: int = 0

    def stmt(self, s: Stmt) -> tuple[Stmt, int, int]:
        """Return a statement with its number of steps and its depth of unrolled loops; -1 steps if a loop in it
        stays."""
        if isinstance(s, AttrStmt) and s.attr_key in _HINTS and isinstance(s.value, IntImm):
            return replace(self, **{_HINTS[s.attr_key]: s.value.value}).stmt(s.body)
        steps, depth, found = 0, 0, dict[int, Stmt]()
        for b in bodies(s):
            found[id(b)], inner, levels = self.stmt(b)
            steps, depth = (-1 if min(steps, inner) < 0 else steps + inner), max(depth, levels)
        new = map_bodies(s, lambda b: found.get(id(b), b)) or s
        if not isinstance(new, For):
            return new, steps + 1 if isinstance(new, Store) and steps >= 0 else steps, depth
        size = number_of(simplify(new.extent, Ranges()))
        extent = size if isinstance(size, int) else -1
        is_thread = not str(new.annotations.get(THREAD, "vthread")).startswith("vthread")
        if steps < 0 or extent < 0 or new.kind == PARALLEL or is_thread:
            return new, -1, 0
        if new.kind in (VECTORIZED, UNROLLED):
            return new, extent * steps, depth + (new.kind == UNROLLED)
        fits = extent * steps <= self.auto_max_step or extent <= self.auto_max_extent
        if (depth < self.auto_max_depth and fits) or (self.unroll_local_access and _indexes_registers(new)):
            return replace(new, extent=const(extent, new.var.dtype), kind=UNROLLED), extent * steps, depth + 1
        return new, -1, 0


def _indexes_registers(loop: For) -> bool:
    """Return whether the variable of a loop is in an index of `local` memory."""
    return any(
        isinstance(s, Store) and s.buffer.scope == "local" and any(loop.var in free_vars(i) for i in s.indices)
        for s in walk_stmt(loop.body))


def passes_of(phases: Sequence[int]) -> list[Pass]:
    """Return the passes of `tir.add_lower_pass` in these phases, in order. Raises `OptionError` for other values."""
    found = []
    for entry in PassContext.current().get("tir.add_lower_pass"):
        pair = tuple(entry) if isinstance(entry, (tuple, list)) else ()
        if len(pair) != 2 or pair[0] not in range(PHASES) or not callable(pair[1]):
            raise OptionError(
                f"tir.add_lower_pass takes pairs of a phase, 0 to {PHASES - 1}, and a pass, not {entry!r}",
                code="TW0207")
        if pair[0] in phases:
            found.append(pair[1])
    return found


def with_passes(funcs: list[PrimFunc], phases: Sequence[int]) -> list[PrimFunc]:
    """Run the passes of `tir.add_lower_pass` in these phases on functions."""
    passes = passes_of(phases)
    if not passes:
        return funcs
    mod = IRModule({f.name: f for f in funcs})
    for one in passes:
        mod = one(mod)
    return [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
