"""A batch that is too large for the caches is computed in parts, one after the other.

    fn (%x: Tensor[(32, 3, 224, 224)]) { … nn.conv2d(%x, …) /* (32, 112, 112, 32) */ … }
      -> fn (%x: Tensor[(2, 3, 224, 224)], Parts=16) { … nn.conv2d(%x, …) /* (2, 112, 112, 32) */ … }

`Parts` says that the function is to be called so many times, each time with the next images of its inputs, and that its results
follow one another. Where all kernels see all images, what one writes has left the caches when the next one reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from tilewright.errors import ShapeError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.analysis.images import Batch, batch_of
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order, with_operands
from tilewright.types import TensorType, TupleType, Type

PARTS: Final = "Parts"


@dataclass(frozen=True)
class SplitBatch(Pass):
    """Needs known types; `images` is how many are computed at once, 0 as many as the caches of the machine hold.

    A function that does not treat images apart, or not so many of them, stays as it is.
    """

    opt_level: ClassVar[int] = 2
    images: int = 0

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod.map_functions(lambda f: split_batch(f, self.images) if f is mod["main"] else f, Function)


def split_batch(function: Function, images: int) -> Function:
    """The function for `images` at once, called for all of its batch; the function itself where that cannot be."""
    if PARTS in function.attrs:
        return function
    batch = batch_of(function)
    if not images or batch is None or images >= batch.images or batch.images % images:
        return function
    return for_fewer(function, batch, images) or function


def for_fewer(function: Function, batch: Batch, images: int) -> Function | None:
    """The same function of `images`, with `Parts`; None where an operator has the number of images in itself."""
    new: dict[Expr, Expr] = {}
    for p in function.params:
        new[p] = Var(p.name_hint, _scaled(p.checked_type, (True,), batch.images, images), p.span)
    for e in post_order(function.body, inside=False):
        if e in new:
            continue
        wanted = _scaled(e.checked_type, batch.apart[e], batch.images, images)
        if isinstance(e, Constant):
            new[e] = Constant(e.value[: len(e.value) // batch.images * images], e.span) if e in batch.own else e
            continue
        rebuilt = _rebuilt(e, [new[o] for o in operands(e)], wanted)
        if rebuilt is None:
            return None
        new[e] = rebuilt
    params = tuple(new[p] for p in function.params)
    return replace(function, params=params, body=new[function.body], attrs=function.attrs | {PARTS: batch.images // images})


def _scaled(kind: Type, apart: tuple[bool, ...], images: int, fewer: int) -> Type:
    """The type of a value for fewer images."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(_scaled(t, (flag,), images, fewer) for t, flag in zip(kind.fields, apart, strict=True)))
    if not isinstance(kind, TensorType) or not apart[0]:
        return kind
    return TensorType((kind.shape[0] // images * fewer, *kind.shape[1:]), kind.dtype)


def _rebuilt(e: Expr, new: list[Expr], wanted: Type) -> Expr | None:
    """The same over new operands, if it has the wanted type then."""
    if not isinstance(e, Call) or not isinstance(e.op, Op):
        return with_operands(e, new)
    op = e.op.resized(wanted.shape) if isinstance(wanted, TensorType) else e.op
    try:
        made = Call(op, new, e.span)
    except ShapeError:  # the operator has a size of the whole batch among its attributes
        return None
    return made if made.checked_type == wanted else None
