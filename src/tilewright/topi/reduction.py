"""Reductions along axes: building blocks of operators, and `topi.sum` and the like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar import expr as E
from tilewright.scalar.expr import PrimExpr, Var
from tilewright.tir.stmt import IterVar
from tilewright.topi.kinds import Reduction
from tilewright.topi.shapes import axes_of, broadcast_shapes, text
from tilewright.topi.tag import COMM_REDUCE, COMM_REDUCE_IDX
from tilewright.topi.transform import dims

Axis = int | Sequence[int] | None


def _window(x: te.Tensor, axes: Sequence[int], keepdims: bool) -> tuple[
    list[Any], list[IterVar], Callable[[Sequence[Var]], list[Any]]
]:
    """Return the remaining shape, the reduction axes, and the function from an output index to an index of `x`."""
    over = {d: te.reduce_axis((0, x.shape[d]), f"r{d}") for d in axes}
    shape = [1 if d in over else n for d, n in enumerate(x.shape) if keepdims or d not in over]

    def place(i: Sequence[Var]) -> list[Any]:
        left = iter(i)
        where: list[Any] = []
        for d in range(x.ndim):
            if d in over:
                where.append(over[d].var)
                if keepdims:
                    next(left)
            else:
                where.append(next(left))
        return where

    return shape, list(over.values()), place


def reduce(
    x: te.Tensor, axes: Sequence[int], keepdims: bool, combine: Callable[..., PrimExpr], name: str,
    term: Callable[[PrimExpr], PrimExpr] | None = None
) -> te.Tensor:
    """Return `combine` (a te reduction) of `term` of the elements along `axes`."""
    shape, over, place = _window(x, axes, keepdims)
    each = term or (lambda e: e)
    total = te.compute(
        shape, lambda *i: combine(each(x(*place(i))), axis=over), name=name, tag=COMM_REDUCE, schedule=Reduction()
    )
    return te.compute(shape, total, name=f"{name}_out", tag=COMM_REDUCE)


def arg_reduce(
    x: te.Tensor, axes: Sequence[int], keepdims: bool, greatest: bool, last: bool, dtype: str, name: str,
    scheduled: bool = True,
) -> te.Tensor:
    """Return the row-major position, along `axes`, of the greatest (or least) element; of equal ones, the first or the
    last."""
    shape, over, place = _window(x, axes, keepdims)

    def combine(a: tuple[PrimExpr, PrimExpr], b: tuple[PrimExpr, PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
        better = a[1] > b[1] if greatest else a[1] < b[1]
        same = E.compare(E.EQ, a[1], b[1])
        if a[1].dtype.is_float:  # NaN precedes all numbers
            a_is_none, b_is_none = (E.compare(E.NE, x[1], x[1]) for x in (a, b))
            better = E.logical_or(better, E.logical_and(a_is_none, E.logical_not(b_is_none)))
            same = E.logical_or(same, E.logical_and(a_is_none, b_is_none))
        earlier = a[0] > b[0] if last else a[0] < b[0]
        keep = E.logical_or(better, E.logical_and(same, E.logical_and(a[0] >= 0, E.logical_or(earlier, b[0] < 0))))
        return E.if_then_else(keep, a[0], b[0]), E.if_then_else(keep, a[1], b[1])

    def identity(index: Any, value: Any) -> tuple[PrimExpr, PrimExpr]:
        return E.const(-1, index), te.min_value(value) if greatest else te.max_value(value)

    best = te.comm_reducer(combine, identity, name=name)

    def body(*i: Var) -> tuple[PrimExpr, ...]:
        position: PrimExpr = E.const(0, dtype)
        for d, axis in zip(axes, over, strict=True):
            position = E.add(E.mul(position, E.cast(dtype, x.shape[d])), E.cast(dtype, axis.var))
        return best((position, x(*place(i))), axis=over)

    found = te.compute(
        shape, body, name=f"{name}_pair", tag=COMM_REDUCE_IDX, schedule=Reduction() if scheduled else None
    )
    return te.compute(shape, found[0], name=name, tag=COMM_REDUCE_IDX, axis_names=[f"i{d}" for d in range(len(shape))])


def _function(name: str, combine: Callable[..., PrimExpr], doc: str) -> Callable[..., te.Tensor]:
    def apply(data: te.Tensor, axis: Axis = None, keepdims: bool = False) -> te.Tensor:
        return reduce(data, axes_of(axis, data.ndim), keepdims, combine, name)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = (
        f"{doc} `axis` is one axis or several (default: all); with `keepdims` they remain, with size one."
    )
    return apply


sum = _function("sum", te.sum, "The sum; integers wrap around in their own type.")
prod = _function("prod", te.prod, "The product; integers wrap around in their own type.")
max = _function("max", te.max, "The greatest element.")
min = _function("min", te.min, "The least element.")
all = _function("all", te.min, "True when every boolean is.")
any = _function("any", te.max, "True when one boolean or more is.")


def argmax(data: te.Tensor, axis: Axis = None, keepdims: bool = False, select_last_index: bool = False) -> te.Tensor:
    """Return the int32 position of the greatest element along `axis`; of equal ones, the first or the last."""
    return arg_reduce(data, axes_of(axis, data.ndim), keepdims, True, select_last_index, "int32", "argmax")


def argmin(data: te.Tensor, axis: Axis = None, keepdims: bool = False, select_last_index: bool = False) -> te.Tensor:
    """Return the int32 position of the least element along `axis`; of equal ones, the first or the last."""
    return arg_reduce(data, axes_of(axis, data.ndim), keepdims, False, select_last_index, "int32", "argmin")


def collapse_sum(data: te.Tensor, target_shape: Sequence[int]) -> te.Tensor:
    """Sum along the dimensions repeated by broadcasting from `target_shape` to the shape of `data`. Raises
    `ShapeError`."""
    shape, target = dims(data), tuple(target_shape)
    if broadcast_shapes(shape, target) != shape:
        raise ShapeError(f"{text(shape)} cannot be collapsed to {text(target)}, which does not broadcast to it")
    lead = len(shape) - len(target)
    repeated = [d + lead for d, n in enumerate(target) if n == 1 and shape[d + lead] != 1]
    kept = reduce(data, [*range(lead), *repeated], True, te.sum, "collapse_sum")
    return te.compute(target, lambda *i: kept(*(0,) * lead, *i), name="collapsed", tag=COMM_REDUCE)


__all__ = ["all", "any", "argmax", "argmin", "collapse_sum", "max", "min", "prod", "sum"]
