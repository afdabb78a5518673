"""Outlines a part of a graph given by the numbers of its nodes: TVM's `relay.collage.PartitionForTesting`.

    %0 = add(%a, %b); subtract(%0, %c)    ->    %0 = (fn (%x, %y, Compiler="foo") { add(%x, %y) })(%a, %b); …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.base.global_functions import register_func
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.collage.sub_graph import composed, sub_graph, with_call
from tilewright.relay.expr import Expr, Function
from tilewright.relay.transform.spans import indices


def partitioned(function: Function, nodes: Mapping[Expr, str], compiler: str, most: int, taps: bool) -> Function:
    """Return a function with the part `nodes` as a function with the attribute `Compiler`; nodes with the same label,
    other than "", are a composite function inside. The function itself is returned for a part that is not convex, has
    more than `most` results, or reads one of its results, unless `taps` are allowed."""
    part = sub_graph(function.body, nodes)
    if not part.is_convex or len(part.results) > most or (part.has_taps and not taps):
        return function
    groups = [
        (label, [e for e, own in nodes.items() if own == label])
        for label in dict.fromkeys(filter(None, nodes.values()))]
    body, _ = with_call(part, composed(part, groups, {"Compiler": compiler} if compiler else {}))
    return Function(
        function.params, body, function.declared_ret_type, function.type_params, function.attrs, function.span)


@dataclass(frozen=True)
class PartitionByIndex(FunctionPass):
    """Outlines the part of each function whose nodes have the post-order `indexes`, with a label for each, as
    `CapturePostDfsIndexInSpans` counts them. Raises `OptionError` for an index that no node has."""

    max_exits: int
    allow_taps: bool
    compiler: str
    indexes: Sequence[int]
    labels: Sequence[str]
    kind: ClassVar[type] = Function

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        found = {k: e for e, k in indices(function).items()}
        unknown = [k for k in self.indexes if k not in found]
        if unknown:
            raise OptionError(
                f"no value of the function has the index {unknown[0]}; the values have "
                f"{', '.join(map(str, sorted(found)))}", code="TW0204")
        nodes = {found[int(k)]: str(label) for k, label in zip(self.indexes, self.labels, strict=True)}
        return partitioned(function, nodes, self.compiler, self.max_exits, self.allow_taps)


register_func("relay.collage.PartitionForTesting", PartitionByIndex)

__all__ = ["PartitionByIndex", "partitioned"]
