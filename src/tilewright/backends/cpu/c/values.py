"""The values of a statement that are computed before its expression.

A value that an expression uses several times gets a name, so that the text does not grow exponentially. Values that a
choice guards stay inside it: a choice between large values becomes an `if` that sets a variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from tilewright.backends.cpu.c.expressions import OR, Writer
from tilewright.backends.cpu.c.text import c_type
from tilewright.base.graphs import reachable
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.arith.simplify import is_index
from tilewright.scalar.expr import Load, PrimExpr

_WORTH_A_NAME: Final = 4
"""Number of parts from which on a repeated value gets a name."""
_WORTH_OF_INDEX: Final = 12
_MOST_GUARDED: Final = 60
"""Largest number of parts in one side of a choice that is written inside an expression."""


class Values:
    """Writes the names that a statement needs with `line`, at the current indentation."""

    def __init__(self, writer: Writer, line: Callable[[str], None], fresh: Callable[[str], str]) -> None:
        self.writer, self.line, self.fresh = writer, line, fresh
        self.sizes: dict[PrimExpr, int] = {}

    def prepare(self, tops: Sequence[PrimExpr]) -> None:
        """Write the values needed before `tops`; `done` forgets the names."""
        guarded, order = self._region(tops)
        uses = _uses(tops)
        for e in order:
            if e in self.writer.names:
                continue
            if isinstance(e, E.Select) and max(self.size(e.true_value), self.size(e.false_value)) > _MOST_GUARDED:
                self._choice(e)
            elif uses[e] > 1 and self._worth(e) and (e not in guarded or _is_total(e)):
                name = self.fresh("t")
                self.line(f"const {c_type(e.dtype)} {name} = {self.writer.text(e)};")
                self._name(e, name)

    def done(self) -> None:
        self.writer.names.clear()
        self.sizes.clear()

    def _name(self, e: PrimExpr, name: str) -> None:
        self.writer.names[e] = name
        self.sizes.clear()

    def _choice(self, e: E.Select) -> None:
        """Write `e` as a variable that both sides of an `if` set."""
        name, before = self.fresh("t"), dict(self.writer.names)
        self.line(f"{c_type(e.dtype)} {name};")
        for head, side in ((f"if ({self.writer.text(e.condition)}) {{", e.true_value), ("} else {", e.false_value)):
            self.line(head)
            self.prepare([side])
            self.line(f"{name} = {self.writer.text(side, OR)};")
            self.writer.names.clear()
            self.writer.names.update(before)
            self.sizes.clear()
        self.line("}")
        self._name(e, name)

    def _region(self, tops: Sequence[PrimExpr]) -> tuple[set[PrimExpr], list[PrimExpr]]:
        """Return the parts that only some choices read, and all parts, operands first."""
        order: list[PrimExpr] = []
        certain: set[PrimExpr] = set()
        seen: set[PrimExpr] = set()

        def visit(e: PrimExpr, sure: bool) -> None:
            if e in certain or (e in seen and not sure):
                return
            first = e not in seen
            seen.add(e)
            if sure:
                certain.add(e)
            if e not in self.writer.names:
                for k, o in enumerate(e.operands()):
                    visit(o, sure and not (k and isinstance(e, (E.Select, E.And, E.Or))))
            if first:
                order.append(e)

        for e in tops:
            visit(e, True)
        inside = {x for e in order if isinstance(e, E.Select) and e not in certain for x in (e,)}
        return seen - certain, [e for e in order if e not in inside]

    def _worth(self, e: PrimExpr) -> bool:
        if not isinstance(
            e, (E.Binary, E.Call, E.Cast, E.Select, Load)
        ) or e.dtype.lanes > 1 or (isinstance(e, E.Call) and e.op.effect):
            return False
        pure_index = is_index(e.dtype) and not isinstance(e, (Load, E.Call, E.Cast))
        return self.size(e) >= (_WORTH_OF_INDEX if pure_index else _WORTH_A_NAME)

    def size(self, e: PrimExpr) -> int:
        """Return the number of parts in the text of `e`."""
        known = self.sizes.get(e)
        if known is None:
            known = self.sizes[e] = 1 if e in self.writer.names else 1 + sum(map(self.size, e.operands()))
        return known


def _uses(tops: Sequence[PrimExpr]) -> Counter[PrimExpr]:
    """Return how often each part is written when the parts above it are written once."""
    found: Counter[PrimExpr] = Counter(tops)
    for e in reachable(tops, lambda e: e.operands()):
        found.update(e.operands())
    return found


def _is_total(e: PrimExpr) -> bool:
    """Return whether computing `e` is harmless when its value is not used."""
    for x in reachable([e], lambda x: x.operands()):
        outside = isinstance(x, Load) or (isinstance(x, E.Call) and (x.op.effect or isinstance(x.op, I.Extern)))
        if outside or (isinstance(x, E.Cast) and x.value.dtype.is_float and x.dtype.is_integer):
            return False
    return True
