"""Merge adjacent regions of one target, unless that would create a cycle through other regions.

    nn.relu(compiler_begin(compiler_end(add(compiler_begin(%x, "npu"), …), "npu"), "npu"))
      -> nn.relu(add(compiler_begin(%x, "npu"), …))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base import graphs
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.analysis.regions import (
    DEFAULT,
    Region,
    is_begin,
    is_end,
    is_input,
    open_nodes,
    regions_of,
    scopes_of,
)
from tilewright.relay.expr import Expr, Function
from tilewright.relay.visitor import operands, with_operands


@dataclass(frozen=True)
class MergeCompilerRegions(FunctionPass):
    """Merge each region with the regions of the same target and scope that it reads from. Needs the marks of
    `AnnotateTarget`.
    """

    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        order = open_nodes(function)
        region = regions_of(order)
        if "Compiler" in function.attrs or not region:
            return function
        units = _Units(order, region, scopes_of(function))
        for may_merge in (lambda target: target != DEFAULT, lambda target: target == DEFAULT):
            units.merge(may_merge)
        new: dict[Expr, Expr] = {}
        for e in order:
            old = operands(e)
            if is_begin(e) and is_end(old[0]) and units.same(e, old[0]):
                inner = old[0].args[0]
                new[e] = new.get(inner, inner)
            elif any(o in new for o in old):
                new[e] = with_operands(e, [new.get(o, o) for o in old])
        return new.get(function, function)


class _Units:
    """The regions, and the nodes outside of regions, as a graph of numbers; `above` are the units that a unit reads
    from.
    """

    def __init__(self, order: list[Expr], region: dict[Expr, Region], scope: dict[Expr, int]) -> None:
        self.number: dict[Expr, int] = {}
        self.target: list[str | None] = []
        self.scope: list[int] = []
        self.above: list[set[int]] = []
        numbered: dict[Region, int] = {}
        for e in order:
            if e not in region and is_input(e):
                continue
            n = len(self.target)
            known = region.get(e)
            if known is not None:
                n = numbered.setdefault(known, n)
            if n == len(self.target):
                self.target.append(None if known is None else known.target)
                self.scope.append(scope.get(e, 0))
                self.above.append(set())
            self.number[e] = n
        for e, n in self.number.items():
            self.above[n].update(m for o in operands(e) if (m := self.number.get(o, n)) != n)
        self.into = list(range(len(self.target)))

    def find(self, n: int) -> int:
        """Return the unit that contains `n` now."""
        while self.into[n] != n:
            self.into[n] = self.into[self.into[n]]
            n = self.into[n]
        return n

    def same(self, a: Expr, b: Expr) -> bool:
        """Return whether two nodes are in one unit."""
        return self.find(self.number[a]) == self.find(self.number[b])

    def _above(self, n: int) -> list[int]:
        return [m for m in dict.fromkeys(self.find(m) for m in sorted(self.above[n])) if m != n]

    def _sorted(self) -> list[int]:
        """Return the units in topological order: each after the units that it reads from."""
        return graphs.post_order([*map(self.find, range(len(self.target)))], self._above)

    def merge(self, may_merge: Callable[[str], bool]) -> None:
        """Merge units of the same target if `may_merge` allows the target.

        `reach` maps each visited unit to a bit set of the units that it reads from, directly or indirectly. A unit can
        be merged if no other operand unit reaches it.
        """
        reach: dict[int, int] = {}
        for n in self._sorted():
            target = self.target[n]
            reach[n] = 0
            for m in self._above(n):
                reach[n] |= reach[m] | 1 << m
            if target is None or not may_merge(target):
                continue
            for m in self._above(n):
                alike = self.target[m] == target and self.scope[m] == self.scope[n]
                if alike and not any(reach[other] >> m & 1 for other in self._above(n) if other != m):
                    self._take(n, m, reach)

    def _take(self, n: int, m: int, reach: dict[int, int]) -> None:
        """Merge `m` into `n`; units that reach `m` then reach all that both read from."""
        self.into[m] = n
        self.above[n] |= self.above[m]
        reach[n] = (reach[n] | reach.pop(m)) & ~(1 << m)
        for other, bits in reach.items():
            if bits >> m & 1:
                reach[other] = (bits & ~(1 << m)) | 1 << n | reach[n]
