"""Analyses of the memory accesses of computations, by which rules inline, tile, or factor them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Final, TypeGuard

from tilewright.scalar import expr as E
from tilewright.scalar.expr import Call, PrimExpr, Select, Var, number_of
from tilewright.scalar.walk import free_vars, walk
from tilewright.te.tensor import ComputeOp, Operation, Reduce, TensorElem
from tilewright.tir.stmt import IterVar

_ARITHMETIC: Final = (E.Add, E.Sub, E.Mul, E.Div, E.FloorDiv, E.FloorMod, E.TruncDiv, E.Min, E.Max)
_COMPARISONS: Final = (E.LT, E.LE, E.GT, E.GE, E.EQ, E.NE)


def trips(op: Operation) -> int:
    """Return the number of points of a computation, reduction included."""
    return spatial_size(op) * reduction_size(op)


def spatial_size(op: Operation) -> int:
    """Return the number of results of a computation; 0 for an input."""
    return prod(map(extent_of, op.axis)) if isinstance(op, ComputeOp) else 0


def reduction_size(op: Operation) -> int:
    """Return the number of points that each result reduces; 0 for an input."""
    return prod(map(extent_of, op.reduce_axis)) if isinstance(op, ComputeOp) else 0


def extent_of(axis: IterVar) -> int:
    """Return the known length of an axis, or 0."""
    return int(number_of(axis.extent) or 0)


def reads(reader: Operation, op: Operation) -> list[TensorElem]:
    """Return the elements of `op` that `reader` reads at a point."""
    return [e for e in elements_read(reader) if e.tensor.op is op]


@lru_cache(maxsize=4096)
def elements_read(op: Operation) -> tuple[TensorElem, ...]:
    """Return all elements that a computation reads at a point."""
    return tuple(dict.fromkeys(e for body in getattr(op, "body", ()) for e in walk(body) if isinstance(e, TensorElem)))


def reads_point_by_point(reader: Operation, op: Operation, zeros: bool = False) -> bool:
    """Return whether each point of `reader` reads one point of `op`, at the same indices: `C[i, j] = B[i, j] + …`.

    With `zeros`, the index along an axis of one element may also be 0.
    """
    if not isinstance(reader, ComputeOp) or not isinstance(op, ComputeOp) or len(reader.axis) != len(op.axis):
        return False
    found = reads(reader, op)
    same = all(
        i is a.var or (zeros and number_of(i) == 0 and number_of(a.extent) == 1)
        for e in found for i, a in zip(e.indices, reader.axis, strict=True))
    return bool(found) and same and all(a.extent is b.extent for a, b in zip(reader.axis, op.axis, strict=True))


def is_cheap(op: Operation) -> bool:
    """Return whether recomputing a value costs no more than reading it: no reduction, no function and no condition."""
    if not is_elementwise(op):
        return False
    nodes = (e for b in op.body for e in walk(b))
    return not any(isinstance(e, (Call, Select)) or e.dtype.code == "bool" for e in nodes)


def is_elementwise(op: Operation) -> TypeGuard[ComputeOp]:
    """Return whether a computation has no reduction."""
    return isinstance(op, ComputeOp) and not op.reduce_axis


def has_reuse(op: Operation) -> bool:
    """Return whether a reduction reads elements that several results need, so that a register tile saves loads."""
    if not isinstance(op, ComputeOp) or not op.reduce_axis:
        return False
    spatial = {a.var for a in op.axis if number_of(a.extent) != 1}
    return any(not spatial <= {v for i in e.indices for v in free_vars(i)} for e in elements_read(op))


def missing_axes(op: ComputeOp, element: TensorElem) -> list[int]:
    """Return the numbers of the spatial axes that an element does not depend on."""
    used = {v for i in element.indices for v in free_vars(i)}
    return [k for k, a in enumerate(op.axis) if a.var not in used and number_of(a.extent) != 1]


def stride_along(element: TensorElem, axis: Var) -> int | None:
    """Return the change of the last index per step of `axis`; None if another index changes, or it is not linear."""
    if any(axis in free_vars(i) for i in element.indices[:-1]):
        return None
    last = element.indices[-1] if element.indices else None
    if last is None or axis not in free_vars(last):
        return 0
    return _coefficient(last, axis)


def _coefficient(e: PrimExpr, axis: Var) -> int | None:
    if e is axis:
        return 1
    if axis not in free_vars(e):
        return 0
    if isinstance(e, (E.Add, E.Sub)):
        a, b = _coefficient(e.a, axis), _coefficient(e.b, axis)
        return None if a is None or b is None else a + b if isinstance(e, E.Add) else a - b
    if isinstance(e, E.Mul):
        factor = number_of(e.b) if axis in free_vars(e.a) else number_of(e.a)
        inner = _coefficient(e.a if axis in free_vars(e.a) else e.b, axis)
        return int(factor) * inner if factor is not None and inner is not None else None
    return None


def flops(op: Operation) -> float:
    """Return the arithmetic operations of a computation, without those of indices; a function counts as one.

    The number `attrs["FLOP"]` of a computation takes their place.
    """
    if not isinstance(op, ComputeOp):
        return 0.0
    if "FLOP" in op.attrs:
        return float(op.attrs["FLOP"])
    return float(trips(op)) * sum(_operations(b) for b in op.body)


def _operations(body: PrimExpr) -> int:
    sources = body.sources if isinstance(body, Reduce) else (body,)
    found = sum(1 for s in sources for e in _values(s) if isinstance(e, (*_ARITHMETIC, Call)) or _compares_values(e))
    return found + len(sources) if isinstance(body, Reduce) else found


def _compares_values(e: PrimExpr) -> bool:
    """Return whether an expression compares elements, and not indices."""
    return isinstance(e, _COMPARISONS) and any(isinstance(x, TensorElem) for x in walk(e))


def _values(e: PrimExpr) -> Iterator[PrimExpr]:
    """Iterate over the nodes of an expression, without those that compute indices and conditions of indices."""
    stack = [e]
    while stack:
        x = stack.pop()
        yield x
        if isinstance(x, Select):
            stack += [x.true_value, x.false_value, *filter(_compares_values, x.condition.operands())]
            stack += [x.condition] if _compares_values(x.condition) else []
        elif not isinstance(x, TensorElem):
            stack += x.operands()
