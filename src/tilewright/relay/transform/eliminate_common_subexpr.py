"""Merge equal calls.

    add(nn.relu(%x), nn.relu(%x)) -> %0 = nn.relu(%x); add(%0, %0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.array_bytes import to_bytes
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from tilewright.relay.op.deferred import Waiting
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import rewrite


@dataclass(frozen=True)
class EliminateCommonSubexpr(FunctionPass):
    """Merge pure calls of equal operators on the same arguments, equal tuples and fields, and small equal constants.

    Nodes for which `fskip` returns True are kept.
    """

    fskip: Callable[[Expr], bool] | None = None
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return merge_equal(function, self.fskip)


def merge_equal(function: Function, fskip: Callable[[Expr], bool] | None = None) -> Function:
    """Merge equal calls of `function`, except those for which `fskip` returns True."""
    known: dict[Any, Expr] = {}

    def merge(e: Expr) -> Expr | None:
        key = None if fskip is not None and fskip(e) else key_of(e)
        return None if key is None else known.setdefault(key, e)

    merged = rewrite(function, merge)
    assert isinstance(merged, Function)
    return merged


def key_of(e: Expr) -> Any:
    """Return a key that equal nodes share; None for a node that is never merged. Arguments, which are merged first, are
    compared by identity."""
    match e:
        case Call() if isinstance(e.op, Op) and e.op.pure:
            return (e.op.content() if isinstance(e.op, Waiting) else e.op, e.args)
        case Tuple():
            return (Tuple, e.fields)
        case TupleGetItem():
            return (e.tuple_value, e.index)
        case Constant() if e.value.nbytes <= 256:
            return (e.value.dtype, e.value.shape, to_bytes(e.value))
        case Constant():
            return id(e.value)
        case _:
            return None
