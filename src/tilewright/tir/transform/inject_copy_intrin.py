"""Replace the copies that a pragma marks by what a function of the script returns for them, such as a call for DMA.

    @ pragma_memcpy
    for i, j in T.grid(m + 2, l):                                       f(src: A from (0, 0) on, shape (m, l),
        B[i, j] = A[i - 1, j] if 1 <= i and i < m + 1 else 1.0   ->       dst: B from (0, 0) on, shape (m + 2, l),
                                                                          pad_before [1, 0], pad_after [1, 0], 1.0)

Positions must be linear in the loops of the copy. The conditions under which an element is copied must be limits of
single loops; other elements are padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.scalar.addresses import address_for
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.arith.analyzer import detect_linear_equation
from tilewright.scalar.arith.deduce import detect_clip_bound
from tilewright.scalar.expr import (
    Buffer,
    Cast,
    Load,
    PrimExpr,
    Select,
    Value,
    add,
    as_expr,
    const,
    maximum,
    minimum,
    mul,
    sub,
)
from tilewright.scalar.walk import substitute
from tilewright.tir.legality import fault
from tilewright.tir.stmt import AttrStmt, Evaluate, For, PrimFunc, Stmt, Store, map_bodies

CopyFunction = Callable[[Buffer, Buffer, list[PrimExpr], list[PrimExpr], Any], Any]
"""Returns the statement, or the call, that copies: of the parts copied from and to, the numbers of elements of padding
before and after along each dimension, both empty without padding, and the value of the padding or None."""
_SINGLE: Final = const(1, "int64")


class CopiedPart(Buffer):
    """The part of `memory`, of one or more dimensions, that a copy reads or writes: the element at `i` is `elem_offset`
    and the sum of `i * strides` elements after the address of the memory."""

    __slots__ = ("memory",)

    def __init__(
        self, memory: Buffer, shape: Sequence[PrimExpr], strides: Sequence[PrimExpr], first: PrimExpr
    ) -> None:
        super().__init__(memory.name, shape, memory.dtype, memory.scope, elem_offset=first)
        self.memory, self.strides = memory, tuple(strides)

    def access_ptr(
        self, access_mask: str | int = "rw", ptr_type: str = "handle", content_lanes: int = 1, offset: Value = 0,
        extent: Value | None = None,
    ) -> PrimExpr:
        """Return the address of the part, from `offset` elements on, for a function that reads (`r`) or writes (`w`)
        it."""
        return address_for(self.memory, access_mask, add(self.elem_offset, offset))


def inject_copy_intrin(func: PrimFunc, pragma_key: str, make: CopyFunction) -> PrimFunc:
    """Replace the loops with the pragma by the results of `make`. Raises `ScheduleError` for a loop that is not a copy.
    """
    key = f"pragma_{pragma_key}"

    def visit(s: Stmt, ranges: Ranges) -> Stmt:
        if isinstance(s, AttrStmt) and s.attr_key == key:
            return _Copy.of(s.body, func, ranges).replaced(make)
        if isinstance(s, For) and key in s.annotations:
            return _Copy.of(s, func, ranges).replaced(make)
        inner = ranges.bind_loop(s.var, s.min, s.extent) if isinstance(s, For) else ranges
        return map_bodies(s, lambda b: visit(b, inner)) or s

    return func.with_body(visit(func.body, Ranges()))


@dataclass(frozen=True, slots=True)
class _Copy:
    """Loops around a store of an element, which is read under a condition, or else is `padding`."""

    func: PrimFunc
    at: Stmt
    loops: tuple[For, ...]
    store: Store
    load: Load
    condition: PrimExpr | None
    padding: PrimExpr | None
    ranges: Ranges

    @staticmethod
    def of(s: Stmt, func: PrimFunc, ranges: Ranges) -> _Copy:
        at, loops = s, list[For]()
        while isinstance(s, For):
            loops.append(s)
            s = s.body
        value = s.value if isinstance(s, Store) and s.mask is None else None
        condition = padding = None
        if isinstance(value, Select):
            condition, padding, value = value.condition, value.false_value, value.true_value
        if isinstance(value, Cast) and isinstance(value.value, Load) and value.value.dtype is value.dtype:
            value = value.value
        if not isinstance(s, Store) or not isinstance(value, Load):
            raise fault("the loop with the pragma does not copy elements of a buffer, with a constant as padding",
                        at, func)
        return _Copy(func, at, tuple(loops), s, value, condition, padding, ranges)

    def replaced(self, make: CopyFunction) -> Stmt:
        extents = [f.extent for f in self.loops] or [_SINGLE]
        strides, first = self.linear(self.store.buffer, self.store.indices)
        steps, start = self.linear(self.load.buffer, self.load.indices)
        before, after, sizes = list[PrimExpr](), list[PrimExpr](), list[PrimExpr](extents)
        for k, (low, high) in enumerate(self.limits()):
            loop = self.loops[k]
            skipped = self.simple(sub(low, loop.min))
            before.append(skipped)
            after.append(self.simple(sub(sub(add(loop.min, loop.extent), 1), high)))
            sizes[k] = self.simple(add(sub(high, low), 1))
            start = self.simple(add(start, mul(skipped, steps[k])))
        source = CopiedPart(self.load.buffer, sizes, steps, start)
        result = CopiedPart(self.store.buffer, extents, strides, first)
        made = make(source, result, before, after, self.padding)
        return made if isinstance(made, Stmt) else Evaluate(as_expr(made))

    def linear(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> tuple[list[PrimExpr], PrimExpr]:
        """Return the distances in elements between two trips of each loop, and the position in the first trip."""
        place: PrimExpr = const(0, "int64")
        for i, n in zip(indices, buffer.strides or buffer.shape, strict=True):
            place = add(place, mul(i, n)) if buffer.strides else add(mul(place, n), i)
        variables = [f.var for f in self.loops]
        found = detect_linear_equation(place, variables) if place.dtype.lanes == 1 else []
        if not found:
            raise fault(f"the position of '{buffer.name}' is not linear in the loops of the copy", self.at, self.func)
        firsts = {f.var: f.min for f in self.loops}
        start = self.simple(substitute(place, firsts))
        return found[:-1] or [_SINGLE], start

    def limits(self) -> list[tuple[PrimExpr, PrimExpr]]:
        """Return the first and the last value of each loop for which an element is copied; nothing without padding."""
        if self.condition is None:
            return []
        variables = [f.var for f in self.loops]
        ends = detect_clip_bound(self.condition, variables)
        if not ends:
            raise fault("the condition of the copy is not a limit of each of its loops", self.at, self.func)
        found = []
        for f, low, high in zip(self.loops, ends[::2], ends[1::2], strict=True):
            least, most = f.min, sub(add(f.min, f.extent), 1)
            found.append((
                least if low is None else self.simple(maximum(low, least)),
                most if high is None else self.simple(minimum(high, most))))
        return found

    def simple(self, e: PrimExpr) -> PrimExpr:
        return simplify(e, self.ranges)


__all__ = ["CopiedPart", "inject_copy_intrin"]
