"""Rules about shapes and axes that the type rules of the operators share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.expr import PrimExpr
from tilewright.types import TensorType

Shape = tuple[Any, ...]
"""Dimensions: ints, or integer `PrimExpr`s where the size is symbolic."""
Perm = tuple[int, ...]


def same(a: Any, b: Any) -> bool:
    """True when two dimensions are known to be equal."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def differ(a: Any, b: Any) -> bool:
    """True when two dimensions are known to be different."""
    return isinstance(a, int) and isinstance(b, int) and a != b


def axis_of(axis: int, ndim: int, what: str = "axis") -> int:
    """`axis` counted from the front; raises `ShapeError` when there is no such axis."""
    if not -ndim <= axis < ndim:
        raise ShapeError(f"{what} {axis} is outside a tensor of {ndim} dimensions; it must be in [{-ndim}, {ndim - 1}]")
    return axis % ndim if ndim else 0


def axes_of(axis: int | Sequence[int] | None, ndim: int, exclude: bool = False) -> tuple[int, ...]:
    """The axes named, counted from the front and ascending; all for None, the others with `exclude`."""
    if axis is None:
        named = tuple(range(ndim))
    else:
        named = tuple(sorted(axis_of(a, ndim) for a in ((axis,) if isinstance(axis, int) else axis)))
    if len(set(named)) != len(named):
        raise ShapeError(f"axis {axis} names a dimension twice; name each once")
    return tuple(d for d in range(ndim) if d not in named) if exclude else named


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all `shapes` broadcast to, by numpy's rule; raises `ShapeError` when they do not."""
    ndim = max(map(len, shapes))
    result: list[Any] = [1] * ndim
    for shape in shapes:
        for d, n in enumerate(shape, ndim - len(shape)):
            result[d] = _meet(result[d], n, shapes, d - ndim)
    return tuple(result)


def _meet(a: Any, b: Any, shapes: Sequence[Shape], axis: int) -> Any:
    if same(a, b) or same(b, 1):
        return a
    if same(a, 1) or (isinstance(b, int) and isinstance(a, PrimExpr)):
        return b
    if isinstance(a, int) and isinstance(b, PrimExpr):
        return a
    shown = " and ".join(map(text, shapes))
    hint = "make them equal, or one of them 1" if isinstance(a, int) else "give both the same symbol"
    raise ShapeError(f"shapes {shown} do not broadcast: dimension {axis} is {a} in one and {b} in another; {hint}")


def text(shape: Sequence[Any]) -> str:
    """A shape as the user writes it."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def require_static(t: TensorType, what: str) -> tuple[int, ...]:
    """The shape as ints; raises `ShapeError` when a dimension is symbolic."""
    if not t.is_static:
        raise ShapeError(f"the shape of {what} must be known, and it is {text(t.shape)}; give the model's inputs fixed sizes")
    return t.shape


def require_rank(t: TensorType, ndim: int, what: str) -> TensorType:
    """`t`, when it has `ndim` dimensions."""
    if t.ndim != ndim:
        raise ShapeError(f"{what} must have {ndim} dimensions, and it has {t.ndim}: {text(t.shape)}")
    return t


def require_same_dtype(types: Sequence[TensorType]) -> None:
    """All tensors have one dtype, or `ShapeError`."""
    for t in types[1:]:
        if t.dtype is not types[0].dtype:
            raise ShapeError(f"dtypes {types[0].dtype} and {t.dtype} differ; cast one of the arguments")


def product(dims: Iterable[Any]) -> Any:
    """The number of elements of a shape, as an int where it is known."""
    total: Any = 1
    for d in dims:
        total = total * d
    return total


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes `perm`."""
    order = [0] * len(perm)
    for new, old in enumerate(perm):
        order[old] = new
    return tuple(order)


def last_channels(ndim: int) -> Perm:
    """The order in which channels-first data of `ndim` dimensions are stored channels last: 4 -> (0, 2, 3, 1)."""
    return (0, *range(2, ndim), 1)
