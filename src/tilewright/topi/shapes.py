"""Rules for shapes and axes, shared by tensor expressions and operators' type rules."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tilewright.base.errors import ShapeError, UnequalSizesError
from tilewright.base.types import INT64, OpenSize, TensorType
from tilewright.scalar.arith.open_sizes import (
    clamps,
    greater,
    least_difference,
    least_within,
    limit,
    open_size,
    smaller,
    takes_open,
)
from tilewright.scalar.expr import PrimExpr, UnknownDim, as_expr, minimum, sub
from tilewright.scalar.walk import free_vars

Shape = tuple[Any, ...]
"""Dimensions: ints, or integer `PrimExpr`s where the size is symbolic."""
Perm = tuple[int, ...]


def same(a: Any, b: Any) -> bool:
    """Return whether two dimensions are known to be equal."""
    if a is b or (isinstance(a, int) and isinstance(b, int)):
        return a is b or bool(a == b)
    if not is_dynamic(a) and not is_dynamic(b):
        return False
    first, second = (open_size(x) if isinstance(x, PrimExpr) else x for x in (a, b))
    return first is not None and second is not None and first == second


def is_number(size: Any) -> bool:
    """Return whether a dimension is a number, and no symbolic size."""
    return isinstance(size, int) and not isinstance(size, OpenSize)


def differ(a: Any, b: Any) -> bool:
    """Return whether two dimensions are known to differ. Raises `UnequalSizesError` if one of them is dynamic."""
    found = not isinstance(a, PrimExpr) and not isinstance(b, PrimExpr) and bool(a != b)
    if found and (isinstance(a, OpenSize) or isinstance(b, OpenSize)):
        raise unequal(a, b, f"the dynamic sizes {a} and {b} must be equal")
    return found


def unequal(a: Any, b: Any, message: str) -> ShapeError:
    """Return the error for two sizes that must be equal; with the sizes, if one of them is dynamic."""
    if not is_dynamic(a) and not is_dynamic(b):
        return ShapeError(message)
    error = UnequalSizesError(message)
    error.sizes = as_expr(_symbolic(a), INT64), as_expr(_symbolic(b), INT64)
    return error


def must_differ(size: Any, number: int, message: str) -> bool:
    """Return whether a size is known to differ from a number that an operator requires. Raises `UnequalSizesError` with
    `message` for a dynamic size, also while a model is imported, if one program is to serve all sizes."""
    if isinstance(size, PrimExpr):
        if takes_open() and is_dynamic(size):
            raise unequal(size, number, message)
        return False
    return differ(size, number)


def is_multiple(size: Any, divisor: Any) -> bool:
    """Return whether a size is a multiple of a divisor. Raises `UnequalSizesError` if one of them is dynamic."""
    if isinstance(size, PrimExpr) or isinstance(divisor, PrimExpr):
        return True
    if isinstance(size, OpenSize) or isinstance(divisor, OpenSize):
        return not differ(size // divisor * divisor, size)
    return bool(size % divisor == 0)


def is_dynamic(size: Any) -> bool:
    """Return whether a size is an expression of the sizes of the inputs."""
    return isinstance(size, (OpenSize, PrimExpr)) and not getattr(size, "unknown", False)


def is_at_most(size: Any, most: Any) -> bool:
    """Return whether a size is at most another, which limits dynamic sizes accordingly."""
    if isinstance(size, PrimExpr) or isinstance(most, PrimExpr):
        return True
    if isinstance(size, OpenSize) or isinstance(most, OpenSize):
        limit(most - size, 0)
        return True
    return bool(size <= most)


def is_copied(size: Any, shape: Shape, axis: int) -> bool:
    """Return whether a size in a new shape is 0, which stands for dimension `axis` of `shape`.

    Limits a dynamic size to those without such a meaning, unless it is that dimension.
    """
    own = shape[axis] if axis < len(shape) else None
    if not is_dynamic(size):
        return own is not None and not isinstance(size, PrimExpr) and bool(size == 0)
    if not same(size, own):
        require_at_least(size, 1)
    return False


def require_at_least(size: Any, least: int) -> None:
    """Limit a dynamic size to values from `least` on."""
    if not is_number(least):
        size, least = size - least, 0
    is_unknown = isinstance(size, PrimExpr) and any(isinstance(v, UnknownDim) for v in free_vars(size))
    known = size if is_unknown else _known(size)
    if isinstance(known, OpenSize):
        limit(known, least)


def is_too_small(size: Any, least: int) -> bool:
    """Return whether a number is smaller than `least`. A dynamic size is limited to values from `least` on."""
    if not is_number(least):
        size, least = size - least, 0
    if is_number(size):
        return bool(size < least)
    require_at_least(size, least)
    return False


def at_least(size: Any, least: int) -> Any:
    """Return the maximum of a size and a number; for a dynamic size an expression, unless one of the two is larger for
    all inputs."""
    return greater(size, least) if isinstance(size, OpenSize) else max(size, least)


def at_most(size: Any, most: Any) -> Any:
    """Return the minimum of two sizes; for dynamic sizes an expression, unless one of the two is smaller for all
    inputs."""
    if isinstance(size, PrimExpr) or isinstance(most, PrimExpr):
        return size if same(size, most) else minimum(as_expr(size), as_expr(most))
    return smaller(size, most) if isinstance(size, OpenSize) or isinstance(most, OpenSize) else min(size, most)


def axis_of(axis: int, ndim: int, what: str = "axis") -> int:
    """Return `axis` counted from the front. Raises `ShapeError` if there is no such axis."""
    if not -ndim <= axis < ndim:
        raise ShapeError(
            f"{what} {axis} is out of range for a tensor of {ndim} dimensions; it must be in [{-ndim}, {ndim - 1}]"
        )
    return axis % ndim if ndim else 0


def axes_of(axis: int | Sequence[int] | None, ndim: int, exclude: bool = False) -> tuple[int, ...]:
    """Return the named axes, counted from the front, ascending; all for None, the others with `exclude`."""
    if axis is None:
        named = tuple(range(ndim))
    else:
        named = tuple(sorted(axis_of(a, ndim) for a in ((axis,) if isinstance(axis, int) else axis)))
    if len(set(named)) != len(named):
        raise ShapeError(f"axis {axis} names a dimension twice; name each once")
    return tuple(d for d in range(ndim) if d not in named) if exclude else named


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the common broadcast shape of all `shapes` by numpy's rules. Raises `ShapeError` if there is none."""
    ndim = max(map(len, shapes))
    result: list[Any] = [1] * ndim
    for shape in shapes:
        for d, n in enumerate(shape, ndim - len(shape)):
            result[d] = _meet(result[d], n, shapes, d - ndim)
    return tuple(result)


def require_broadcast(shape: Shape, wanted: Shape) -> Shape:
    """Return `wanted`. Raises `ShapeError` unless `shape` broadcasts to it."""
    result = broadcast_shapes(shape, wanted)
    if result != wanted:
        raise ShapeError(f"{text(shape)} cannot be broadcast to {text(wanted)}: their common shape is {text(result)}")
    return result


def _meet(a: Any, b: Any, shapes: Sequence[Shape], axis: int) -> Any:
    if same(a, b) or same(b, 1):
        return a
    if same(a, 1) or (isinstance(b, int) and isinstance(a, PrimExpr)):
        return b
    if isinstance(a, int) and isinstance(b, PrimExpr):
        return a
    if getattr(a, "unknown", False) or getattr(b, "unknown", False):
        return a if getattr(a, "unknown", False) else b
    shown = " and ".join(map(text, shapes))
    hint = "make them equal, or one of them 1" if isinstance(a, int) else "give both the same symbol"
    raise unequal(a, b, f"shapes {shown} do not broadcast: dimension {axis} is {a} in one and {b} in another; {hint}")


def text(shape: Sequence[Any]) -> str:
    """Return a shape as text: `(1, 3)`."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def require_static(t: TensorType, what: str) -> tuple[int, ...]:
    """Return the shape as ints. Raises `ShapeError` if a dimension is symbolic."""
    if not t.is_static:
        raise ShapeError(
            f"the shape {text(t.shape)} of {what} is symbolic, but must be static; give the model's inputs fixed sizes"
        )
    return t.shape


def require_rank(t: TensorType, ndim: int, what: str) -> TensorType:
    """Return `t`. Raises `ShapeError` unless it has `ndim` dimensions."""
    if t.ndim != ndim:
        raise ShapeError(f"{what} must have {ndim} dimensions; it has {t.ndim}: {text(t.shape)}")
    return t


def require_same_dtype(types: Sequence[TensorType]) -> None:
    """Raise `ShapeError` unless all tensors have one dtype."""
    for t in types[1:]:
        if t.dtype is not types[0].dtype:
            raise ShapeError(f"dtypes {types[0].dtype} and {t.dtype} differ; cast one of the arguments")


def product(dims: Iterable[Any]) -> Any:
    """Return the number of elements of a shape, as an int if it is static."""
    total: Any = 1
    for d in dims:
        total = total * d
    return total


def inverse(perm: Perm) -> Perm:
    """Return the permutation that undoes `perm`."""
    order = [0] * len(perm)
    for new, old in enumerate(perm):
        order[old] = new
    return tuple(order)


def last_channels(ndim: int) -> Perm:
    """Return the permutation from channels first to channels last for `ndim` dimensions: 4 -> (0, 2, 3, 1)."""
    return (0, *range(2, ndim), 1)


def fill_left_over(shape: Shape, result: Shape, newshape: Shape) -> Shape:
    """Return `result` with its -1 replaced by the size that gives the number of elements of `shape`. Raises
    `ShapeError` if that is not an integer."""
    unknown = [d for d, n in enumerate(result) if isinstance(n, int) and n == -1]
    if not unknown:
        return result
    if len(unknown) > 1:
        raise ShapeError(f"newshape {text(newshape)} has -1 more than once; only one dimension can be inferred")
    kept = [n for d, n in enumerate(result) if d != unknown[0]]
    rest = list(shape)
    for n in list(kept):  # symbolic sizes on both sides cancel
        match = next((k for k, m in enumerate(rest) if m is n or (isinstance(n, PrimExpr) and same(m, n))), None)
        if isinstance(n, PrimExpr) and match is not None:
            kept.remove(n)
            del rest[match]
    have, others = product(rest), product(kept)
    if same(others, 0) or not is_multiple(have, others):
        raise ShapeError(
            f"{text(shape)} has {have} elements, which {text(newshape)} cannot divide into rows of {others}"
        )
    return tuple(have // others if d == unknown[0] else n for d, n in enumerate(result))


def require_elements(shape: Shape, result: Shape, newshape: Shape) -> Shape:
    """Return `result`. Raises `ShapeError` unless it has as many elements as `shape`."""
    have, want = product(shape), product(result)
    if differ(have, want):
        raise ShapeError(
            f"{text(shape)} has {have} elements and cannot have the shape {text(newshape)}, which has {want}"
        )
    return result


def squeezed(shape: Shape, axis: int | Sequence[int] | None) -> Shape:
    """Return `shape` without dimensions of size one: the named ones, whose sizes may be unknown, or all."""
    if axis is None:
        return tuple(n for n in shape if not same(n, 1))
    gone = axes_of(axis, len(shape))
    for d in gone:
        if not isinstance(shape[d], UnknownDim) and not same(shape[d], 1):
            raise unequal(
                shape[d], 1,
                f"dimension {d} of {text(shape)} is {shape[d]} and cannot be squeezed; only dimensions of size 1 can")
    return tuple(n for d, n in enumerate(shape) if d not in gone)


def expanded(shape: Shape, axis: int, count: int) -> Shape:
    """Return `shape` with `count` dimensions of size one before dimension `axis`."""
    at = axis_of(axis, len(shape) + 1)
    return (*shape[:at], *(1,) * count, *shape[at:])


def permutation(axes: Sequence[int] | None, ndim: int) -> Perm:
    """Return the axes of a transpose, counted from the front; reversed for None."""
    if axes is None:
        return tuple(reversed(range(ndim)))
    order = tuple(axis_of(a, ndim) for a in axes)
    if sorted(order) != list(range(ndim)):
        raise ShapeError(f"axes {text(axes)} must name each of the {ndim} dimensions once")
    return order


def cuts(size: Any, wanted: int | Sequence[int]) -> list[Any]:
    """Return the start of each part of a dimension, and the end: for a number of equal parts, or for indices."""
    if isinstance(wanted, int):
        if wanted < 1 or not is_multiple(size, wanted):
            raise ShapeError(
                f"a dimension of {size} cannot be split into {wanted} equal parts; give the indices to cut at"
            )
        return [size // wanted * k for k in range(wanted + 1)]
    found = [0, *wanted, size]
    if any(isinstance(b, int) and a > b for a, b in itertools.pairwise(found)):
        raise ShapeError(f"the indices {text(wanted)} must ascend and stay within the dimension of {size}")
    return found


Slice = tuple[Any, Any, int]
"""The first index, the number of elements and the step along one dimension."""


_ENDLESS: Final = 1 << 24
"""Ends of slices from which on they mean the end of a dynamic dimension."""


def slices(
    shape: Shape, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None, axes: Sequence[int] | None,
    mode: str
) -> list[Slice]:
    """Return `[begin:end:strides]` along `axes` (default: the leading ones) as one slice for each dimension; in mode
    "size", `end` holds sizes."""
    named = range(len(begin)) if axes is None else axes
    steps = strides or (1,)
    steps = list(steps) * len(begin) if len(steps) == 1 else steps
    if not len(begin) == len(end) == len(steps) == len(named):
        raise ShapeError(
            f"begin {text(begin)}, end {text(end)}, strides {text(steps)} and axes {text(tuple(named))} differ in "
            "length"
        )
    result: list[Slice] = [(0, n, 1) for n in shape]
    for first, last, step, axis in zip(begin, end, steps, named, strict=True):
        at = axis_of(axis, len(shape))
        result[at] = _slice(shape[at], first, last, step, mode)
    return result


def _slice(size: Any, begin: Any, end: Any, step: int, mode: str) -> Slice:
    if mode == "size":
        first = begin + size if begin < 0 else begin
        count = size - first if end < 0 else end
        if all(isinstance(x, int) and not isinstance(x, OpenSize) for x in (size, first, count)):
            count = max(0, min(count, size - first))  # elements beyond the end do not exist
        return first, count, 1
    if step == 0:
        raise ShapeError("a stride must not be 0; use 1 or more, or a negative stride to slice backward")
    if any(isinstance(x, OpenSize) for x in (size, begin, end)):
        return _open_slice(_known(size), _known(begin), _known(end), step)
    if isinstance(begin, PrimExpr):
        return _slice_from(size, begin, end, step)
    if isinstance(end, PrimExpr):
        whole, last = open_size(as_expr(size)), open_size(end)
        if clamps() and whole is not None and last is not None:
            first, count, step = _open_slice(whole, begin, last, step)
            return _symbolic(first), _symbolic(count), step
        return begin, sub(_earlier(end, size), begin), 1
    if not isinstance(size, int):
        if begin == 0 and step == 1 and end >= 2**31 - 1:
            return 0, size, 1
        if getattr(size, "unknown", False):
            return begin, size, step
        known = open_size(size)
        if known is None:
            raise ShapeError(f"dimension {size} is symbolic and cannot be sliced by [{begin}:{end}:{step}]")
        first, count, step = _open_slice(known, begin, end, step)
        return _symbolic(first), _symbolic(count), step
    if step == 1 and begin >= 0 and end >= 0:  # a dynamic size is only compared here
        last = end if end <= size else size
        return (begin, last - begin, 1) if begin < last else (0, 0, 1)
    found = range(size)[begin:end:step]
    return found.start if len(found) else 0, len(found), step


def _earlier(end: PrimExpr, size: Any) -> PrimExpr:
    """Return the end of a slice within a dimension; the end itself where it limits the sizes to those within."""
    last, whole = open_size(end), open_size(as_expr(size))
    return minimum(end, size) if last is None or whole is None else as_expr(least_within(last, whole))


def _known(size: Any) -> Any:
    """Return an expression of dynamic sizes as a size, if their samples are known; other sizes as they are."""
    found = open_size(size) if isinstance(size, PrimExpr) else None
    return size if found is None else found


def symbolic_count(start: Any, stop: Any, step: Any) -> Any:
    """Return the number of elements of a sequence with symbolic bounds; it limits the sizes so that `stop` is not
    before `start`. Raises `ShapeError` for a step other than a positive or negative integer."""
    if not isinstance(step, int) or step == 0 or any(isinstance(x, float) for x in (start, stop)):
        raise ShapeError(f"a sequence from {start} to {stop} by {step} must consist of integers")
    first, last = (x if isinstance(x, int) else open_size(x) for x in (start, stop))
    if first is None or last is None:
        if step == 1:
            return stop - start
        raise ShapeError(f"the sequence from {start} to {stop} by {step} has an unknown number of elements")
    length = last - first if step > 0 else first - last
    limit(length, 0)
    count = (length + abs(step) - 1) // abs(step)
    return count if isinstance(start, OpenSize) or isinstance(stop, OpenSize) else _symbolic(count)


def _symbolic(size: Any) -> Any:
    """Return the expression of a dynamic size, and other sizes as they are."""
    return size.expr if isinstance(size, OpenSize) else size


def _slice_from(size: Any, begin: PrimExpr, end: Any, step: int) -> Slice:
    """Return a slice that begins at an expression of sizes."""
    known, first = open_size(as_expr(size)), open_size(begin)
    stop = end if isinstance(end, int) else open_size(_earlier(end, size))
    if known is None or first is None or stop is None:
        raise ShapeError(f"dimension {size} cannot be sliced by [{begin}:{end}:{step}]: the bounds are unknown")
    first, count, step = _open_slice(known, first, stop, step)
    return _symbolic(first), _symbolic(count), step


def _open_slice(size: int, begin: int, end: int, step: int) -> Slice:
    """Return a slice of a dynamic dimension, or with a dynamic bound; its assumptions become limits of the sizes."""
    if step < 0:
        if (begin != -1 and begin < _ENDLESS) or end > -_ENDLESS:
            raise ShapeError(f"a dimension of the dynamic size {size} can only be sliced backwards as a whole")
        return size - 1, (size - step - 1) // -step, step
    first = size + begin if begin < 0 else begin
    last = size + end if end < 0 else size if end >= _ENDLESS else end
    if (least_difference(last, size) or 0) > 0:  # an end beyond the dimension for all sizes
        last = size
    elif clamps() and isinstance(size, OpenSize) and not isinstance(last, OpenSize):
        last = smaller(size, last)
    if isinstance(first, OpenSize):
        limit(first, 0)
    for bound in (first, last):
        if bound is not size:
            limit(size - bound, 0)
    if last is size and end < 2**31 - 1:
        limit(end - size, 0)
    limit(last - first, 0)
    return first, (last - first + step - 1) // step, step
