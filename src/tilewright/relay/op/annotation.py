"""Marks of the regions of a graph that a target computes: where values go in (`compiler_begin`) and come out (`compiler_end`).

A region is the nodes between marks of one target. `AnnotateTarget` makes them, `PartitionGraph` makes functions of them.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.relay.expr import Call, Expr
from tilewright.relay.op.registry import Fusion, Op, function, op
from tilewright.types import Type


class Mark(Op):
    """Base of the marks: the value itself, at the border of a region of the target `compiler`."""

    telling = True
    compiler: str

    def infer(self, data: Type) -> Type:
        return data

    def reference(self, data: Any) -> Any:
        return data

    def simplify(self, call: Call) -> Expr | None:
        """The value without the mark."""
        return call.args[0]


@op("annotation.compiler_begin", kind=Fusion.OPAQUE)
class CompilerBegin(Mark):
    """The value, as it goes into a region of the target `compiler`."""

    compiler: str


@op("annotation.compiler_end", kind=Fusion.OPAQUE)
class CompilerEnd(Mark):
    """The value, as it comes out of a region of the target `compiler`."""

    compiler: str


compiler_begin: Final = function(CompilerBegin)
compiler_end: Final = function(CompilerEnd)
