"""Computes the strides of a value that only rearranges the elements of another.

    transpose(reshape(%x, (1, 128, 12, 64)), axes=[0, 2, 1, 3])
      -> %x, offset 0, sizes and strides 1 | 12 by 64 | 128 by 768 | 64 by 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tilewright.relay.expr import Call, Expr, TupleGetItem
from tilewright.relay.op.registry import Op
from tilewright.relay.op.transform import Split, StridedSlice, Transpose
from tilewright.relay.transform.permutations import axes_of

Factors = tuple[tuple[int, int], ...]
"""Sizes and strides, in elements, outermost first."""


@dataclass(frozen=True)
class Strided:
    """A value over the row-major memory of `base`: axis d consists of the factors `dims[d]`, starting at `offset`."""

    base: Expr
    offset: int
    dims: tuple[Factors, ...]


def strided(e: Expr) -> Strided:
    """Return `e` as a strided view of the operand of its chain of reshapes, transposes, splits and slices.

    Shapes are static.
    """
    chain = [e]
    while (source := _source(chain[-1])) is not None:
        chain.append(source)
    chain.reverse()
    view = _whole(chain[0])
    for x in chain[1:]:
        view = _moved(view, x) or _whole(x)
    return view


def merged(factors: Sequence[tuple[int, int]]) -> Factors:
    """Return equivalent factors with adjacent ones merged."""
    found: list[tuple[int, int]] = []
    for size, stride in factors:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found)


def _source(e: Expr) -> Expr | None:
    """Return the value that `e` rearranges, or None."""
    if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Call) and isinstance(e.tuple_value.op, Split):
        return e.tuple_value.args[0]
    if isinstance(e, Call) and isinstance(e.op, Op) and (e.op.view or isinstance(e.op, (Transpose, StridedSlice))):
        return e.args[0]
    return None


def _whole(e: Expr) -> Strided:
    """Return a value as a view of itself."""
    dims: list[Factors] = []
    stride = 1
    for size in reversed(e.tensor_type.shape):
        dims.append(((size, stride),))
        stride *= size
    return Strided(e, 0, tuple(reversed(dims)))


def _moved(view: Strided, e: Expr) -> Strided | None:
    """Return the view of `e` on its source, which is `view`; None if `e` is not a rearrangement."""
    if isinstance(e, TupleGetItem):
        call = e.tuple_value
        assert isinstance(call, Call)
        before = call.args[0].tensor_type.shape
        axis = call.attrs.axis % len(before)
        wanted = call.attrs.indices_or_sections
        begin = before[axis] // wanted * e.index if isinstance(wanted, int) else (0, *wanted)[e.index]
        return _sliced(view, axis, begin, e.tensor_type.shape[axis])
    assert isinstance(e, Call)
    if isinstance(e.op, Transpose):
        return replace(view, dims=tuple(view.dims[a] for a in axes_of(e)))
    if isinstance(e.op, StridedSlice):
        for axis, (begin, end, step) in enumerate(e.op.slices(e.args[0].tensor_type.shape)):
            if step != 1 or not isinstance(begin, int) or not isinstance(end, int):
                return None
            found = _sliced(view, axis, begin, e.tensor_type.shape[axis])
            if found is None:
                return None
            view = found
        return view
    return _reshaped(view, e.tensor_type.shape)


def _sliced(view: Strided, axis: int, begin: int, size: int) -> Strided | None:
    factors = merged(view.dims[axis])
    if size == prod(n for n, _ in factors):
        return view
    inner = prod(n for n, _ in factors[1:])
    if begin % inner or size % inner:
        return None
    ((_, stride), *rest) = factors
    dims = list(view.dims)
    dims[axis] = ((size // inner, stride), *rest)
    return Strided(view.base, view.offset + begin // inner * stride, tuple(dims))


def _reshaped(view: Strided, shape: Sequence[int]) -> Strided | None:
    factors = [f for d in view.dims for f in d if f[0] != 1]
    dims: list[Factors] = []
    for size in shape:
        mine: list[tuple[int, int]] = []
        while size > 1:
            if not factors:
                return None
            n, stride = factors.pop(0)
            if n <= size:
                if size % n:
                    return None
                size //= n
                mine.append((n, stride))
                continue
            if n % size:
                return None
            mine.append((size, n // size * stride))
            factors.insert(0, (n // size, stride))
            size = 1
        dims.append(tuple(mine) or ((1, 1),))
    return Strided(view.base, view.offset, tuple(dims))
