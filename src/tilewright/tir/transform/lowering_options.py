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
from tilewright.scalar.expr import IntImm
from tilewright.tir.stmt import PARALLEL, SERIAL, UNROLLED, VECTORIZED, For, PrimFunc, Stmt, Store, bodies, map_bodies

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
    unroll = {**UNROLL, **_checked(PassContext.current().get("tir.UnrollLoop"))}
    if unroll["auto_max_step"] or unroll["auto_max_extent"]:
        func = func.with_body(_Unroller(**{k: int(unroll[k]) for k in _LIMITS}).stmt(func.body)[0])
    return func


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


_LIMITS: Final = ("auto_max_step", "auto_max_depth", "auto_max_extent")


@dataclass(frozen=True)
class _Unroller:
    """Marks the innermost serial loops within the limits of `tir.UnrollLoop`."""

    auto_max_step: int
    auto_max_depth: int
    auto_max_extent: int

    def stmt(self, s: Stmt) -> tuple[Stmt, int, int]:
        """Return a statement with its number of steps and its depth of unrolled loops; -1 steps if a loop in it
        stays."""
        steps, depth, found = 0, 0, dict[int, Stmt]()
        for b in bodies(s):
            found[id(b)], inner, levels = self.stmt(b)
            steps, depth = (-1 if min(steps, inner) < 0 else steps + inner), max(depth, levels)
        new = map_bodies(s, lambda b: found.get(id(b), b)) or s
        if not isinstance(new, For):
            return new, steps + 1 if isinstance(new, Store) and steps >= 0 else steps, depth
        extent = new.extent.value if isinstance(new.extent, IntImm) else -1
        if steps < 0 or extent < 0 or new.kind == PARALLEL:
            return new, -1, 0
        if new.kind in (VECTORIZED, UNROLLED):
            return new, extent * steps, depth + (new.kind == UNROLLED)
        if depth < self.auto_max_depth and (extent * steps <= self.auto_max_step or extent <= self.auto_max_extent):
            return replace(new, kind=UNROLLED), extent * steps, depth + 1
        return new, -1, 0


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
