"""Where the allocated values of a function are used, and from which to which statement each is live.

Positions count statements; a loop has those of its statements. A value is live from its first to its last use; in a
loop inside its allocation, during the whole loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var
from tilewright.scalar.walk import free_vars, walk
from tilewright.tir.stmt import (
    PARALLEL,
    THREAD,
    VECTORIZED,
    Allocate,
    For,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    expressions,
)


@dataclass(slots=True)
class Use:
    """One statement that uses a value: its position, and the loops around it inside the allocation."""

    position: int
    loops: tuple[For, ...]
    stmt: Stmt


@dataclass(slots=True)
class Value:
    """An allocated buffer, the statement at whose beginning it is allocated, and its uses."""

    buffer: Buffer
    place: PrimFunc | For
    depth: int
    movable: bool = True
    uses: list[Use] = field(default_factory=list)


@dataclass(slots=True)
class Uses:
    """Collects the values of a function."""

    values: dict[Buffer, Value] = field(default_factory=dict)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    position: int = 0

    def visit(self, s: Stmt, loops: tuple[For, ...], place: PrimFunc | For) -> None:
        if isinstance(s, Allocate):
            inner = _inner_variables(loops, place)
            free = not any(isinstance(d, PrimExpr) and not inner.isdisjoint(free_vars(d)) for d in s.buffer.shape)
            self.values[s.buffer] = Value(s.buffer, place, len(loops), free)
        if isinstance(s, For):
            own = s if s.kind in (PARALLEL, VECTORIZED) or THREAD in s.annotations else place
            begin = self.position
            self.note(s, loops)
            self.visit(s.body, (*loops, s), own)
            self.spans[id(s)] = begin, self.position
            self.position += 1
            return
        self.note(s, loops)
        for b in bodies(s):
            self.visit(b, loops, place)

    def note(self, s: Stmt, loops: tuple[For, ...]) -> None:
        self.position += 1
        used = {s.buffer} if isinstance(s, Store) else set()
        used |= {e.buffer for top in expressions(s) for e in walk(top) if isinstance(e, Load)}
        for b in used & self.values.keys():
            value = self.values[b]
            value.uses.append(Use(self.position, loops[value.depth :], s))


def _inner_variables(loops: Sequence[For], place: PrimFunc | For) -> set[Var]:
    """Return the variables of the loops inside the place of an allocation."""
    inner: set[Var] = set()
    for f in reversed(loops):
        if f is place:
            break
        inner.add(f.var)
    return inner


def span_of_uses(uses: Sequence[Use], spans: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the first and the last position at which a value with these uses is live. Loops count as a whole."""
    if not uses:
        return 0, -1
    places = [spans[id(u.loops[0])] if u.loops else (u.position, u.position) for u in uses]
    return min(first for first, _ in places), max(last for _, last in places)


__all__ = ["Use", "Uses", "Value", "span_of_uses"]
