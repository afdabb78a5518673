"""The analysis of a loop program before code is written.

`Facts` holds which buffers are register tiles (and with which slots), what each statement stores, and which values an
expression reads. A *key* names one thing that a store changes: a `Buffer` in memory, or `(buffer, offset)` for a slot
of a register tile.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from tilewright.base.errors import InternalError
from tilewright.base.graphs import reachable
from tilewright.scalar.expr import Broadcast, Buffer, Call, IntImm, Load, PrimExpr, Ramp, Var
from tilewright.scalar.walk import free_vars
from tilewright.tir.stmt import (
    PARALLEL,
    Allocate,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    Stmt,
    Store,
    While,
    bodies,
    expressions,
    handed_out,
)

Key: TypeAlias = "Buffer | tuple[Buffer, int]"
_NOTHING: Final[frozenset[Key]] = frozenset()
_MOST_SLOTS: Final = 256


class Facts:
    """The analysis of one function."""

    def __init__(self, func: PrimFunc) -> None:
        self._seen: dict[int, set[PrimExpr]] = {}
        self._homes: dict[Buffer, set[int]] = {}
        self._slots: dict[Buffer, dict[int, int]] = {}
        self._in_memory: set[Buffer] = set()
        self._reads: dict[PrimExpr, tuple[frozenset[Key], bool]] = {}
        self._effects: dict[int, frozenset[Key]] = {}
        self.stored: set[Buffer] = set()
        self.sizes: frozenset[Var] = frozenset(
            v for b in func.buffers for d in b.shape if isinstance(d, PrimExpr) for v in free_vars(d))
        self.ahead: dict[str, int] = func.attrs.get("prefetch", {})
        self._visit(func.body, 0)
        self.tiles: frozenset[Buffer] = frozenset(
            b for b, slots in self._slots.items() if b not in self._in_memory and _disjoint(slots))
        self._find_effects(func.body)

    def slot(self, access: Load | Store) -> int:
        """Return the offset of the tile slot that is read or written; the buffer must be one of `tiles`."""
        found = _slot_of(access.indices)
        assert found is not None
        return found[0]

    def slots(self, buffer: Buffer) -> dict[int, int]:
        """Return the slots of a register tile: offset -> lanes."""
        return self._slots[buffer]

    def effects(self, s: Stmt) -> frozenset[Key]:
        """Return the keys that a loop or an if stores to."""
        return self._effects[id(s)]

    def reads(self, e: PrimExpr) -> frozenset[Key]:
        """Return the keys read in `e` that the function stores to."""
        return self._about(e)[0]

    def loads(self, e: PrimExpr) -> bool:
        """Return whether evaluating `e` reads memory, so that it must stay under its condition."""
        return self._about(e)[1]

    def _about(self, e: PrimExpr) -> tuple[frozenset[Key], bool]:
        known = self._reads.get(e)
        if known is not None:
            return known
        reads, loads = _NOTHING, False
        for operand in e.operands():
            inner, touches = self._about(operand)
            reads, loads = reads | inner if inner else reads, loads or touches
        if isinstance(e, Load):
            if e.buffer in self.tiles:
                reads = reads | {(e.buffer, self.slot(e))}
            else:
                loads = True
                reads = reads | {e.buffer} if e.buffer in self.stored else reads
        self._reads[e] = (reads, loads)
        return reads, loads

    def _visit(self, s: Stmt, context: int) -> None:
        """Record every access inside `s`; `context` numbers the parallel loop that it runs in."""
        match s:
            case For() if s.kind == PARALLEL:
                context = id(s)
            case Allocate():
                self._homes.setdefault(s.buffer, set()).add(context)
                if s.buffer.scope == "local":
                    self._slots.setdefault(s.buffer, {})
            case Store():
                self.stored.add(s.buffer)
                if isinstance(s.indices[0], Broadcast):
                    self._in_memory.add(s.buffer)
                self._note(s.buffer, s.indices, context)
            case Evaluate():
                self.stored.update(handed_out(s.value, writes=True))
            case _:
                pass
        seen = self._seen.setdefault(context, set())
        for e in expressions(s):
            self._note_loads(e, seen, context)
        for inner in bodies(s):
            self._visit(inner, context)

    def _note_loads(self, e: PrimExpr, seen: set[PrimExpr], context: int) -> None:
        for x in reachable([e], lambda x: x.operands(), seen):
            if isinstance(x, Load):
                self._note(x.buffer, x.indices, context)
            elif isinstance(x, Call) and x.op.effect:  # takes an address, so the buffer must have one
                for a in x.args:
                    if isinstance(a, Load):
                        self._in_memory.add(a.buffer)

    def _note(self, buffer: Buffer, indices: tuple[PrimExpr, ...], context: int) -> None:
        if len(indices) != 1:
            raise InternalError(
                f"buffer '{buffer.name}' is accessed with {len(indices)} indices; flatten the function before "
                "generating code")
        slots = self._slots.get(buffer)
        if slots is None or buffer in self._in_memory:
            return
        slot = _slot_of(indices)
        if slot is None or context not in self._homes[
            buffer
        ] or slots.setdefault(*slot) != slot[1] or len(slots) > _MOST_SLOTS:
            self._in_memory.add(buffer)

    def _find_effects(self, s: Stmt) -> frozenset[Key]:
        if isinstance(s, Store):
            return frozenset({(s.buffer, self.slot(s)) if s.buffer in self.tiles else s.buffer})
        if isinstance(s, Evaluate):
            return frozenset(handed_out(s.value, writes=True))
        found: set[Key] = set()
        for inner in bodies(s):
            found |= self._find_effects(inner)
        result = frozenset(found) if found else _NOTHING
        if isinstance(s, (For, IfThenElse, While)):
            self._effects[id(s)] = result
        return result


def _slot_of(indices: tuple[PrimExpr, ...]) -> tuple[int, int] | None:
    """Return offset and lanes of an access whose index is known at compile time."""
    index = indices[0]
    if isinstance(index, Broadcast):
        index = index.value
    if isinstance(index, IntImm):
        return index.value, 1
    if isinstance(index, Ramp) and isinstance(index.base, IntImm) and isinstance(
        index.stride, IntImm
    ) and index.stride.value == 1:
        return index.base.value, index.dtype.lanes
    return None


def _disjoint(slots: dict[int, int]) -> bool:
    end = 0
    for offset in sorted(slots):
        if offset < end:
            return False
        end = offset + slots[offset]
    return True
