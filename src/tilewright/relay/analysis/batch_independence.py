"""Determines whether an operator or a function is independent per image: image n of its result depends only on image n
of its inputs.

A tensor of `images` images consists of `images` equal groups of consecutive rows along its first axis: both `(8, 3,
224, 224)` and `(8 * 128, 768)` have eight images. The analysis follows the tensor expressions of the operator from its
results back to its inputs:

    out[i, j] = sum(a[i // 128, i % 128, k] * w[k, j])    with i = 128 * image + row, row < 128
        reads a[image, row, k]    images of `a` lie along axis 0, and no other index or condition depends on `image`
        reads w[k, j]             the same for every image
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tilewright import te
from tilewright.base.errors import NoNativeKernel
from tilewright.base.node import node
from tilewright.base.types import OpenSize, TensorType, TupleType, Type, tensors_of
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.create import NdarraySize, ShapeOf
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order
from tilewright.scalar import expr as scalar
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Interval, Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import PrimExpr, add, as_expr, mul, sub
from tilewright.scalar.walk import free_vars, rewrite
from tilewright.te.create import computations
from tilewright.te.tensor import ComputeOp, Tensor, TensorElem

Reads: TypeAlias = tuple[tuple[bool | None, ...], ...]
SHARED: Final = -1
"""Replaces the axis of the images for tensors that every image reads identically."""


@node
class Batch:
    """The result for a function that treats its `images` independently. `apart` states for every tensor of each value
    whether it holds images; `own` are the constants of which each image reads its own rows."""

    images: int
    apart: Mapping[Expr, tuple[bool, ...]]
    own: frozenset[Expr]


def batch_of(function: Function) -> Batch | None:
    """Analyze how a function treats the images along the first axis of all its parameters.

    None for fewer than two images, and if a value mixes images, has none, or cannot be analyzed (closures, conditions).
    """
    images = images_of(function)
    if images < 2:
        return None
    found = _Values(images)
    for e in post_order(function.body, inside=False):
        flags = found.flags(e)
        if flags is None:
            return None
        found.apart[e] = flags
    kept = all(found.apart[function.body]) and not any(isinstance(e, Constant) for e in found.apart if found.own.get(e)
        and _differs(e, images))
    return Batch(images, found.apart, frozenset(e for e, own in found.own.items() if own)) if kept else None


def images_of(function: Function) -> int:
    """Return the first dimension common to all parameters; 0 if they differ or it is unknown."""
    types = [p.checked_type for p in function.params]
    leading = {t.shape[0] if isinstance(t, TensorType) and t.ndim and t.is_static and not t.is_open else None
               for t in types}
    images = leading.pop() if len(leading) == 1 else None
    return images if isinstance(images, int) else 0


def _differs(constant: Expr, images: int) -> bool:
    """Return whether a constant has different rows for different images."""
    rows = constant.value.reshape(images, -1)  # type: ignore[attr-defined]
    return bool((rows != rows[:1]).any())


def may_read_size(function: Function, size: scalar.Var) -> bool:
    """Return whether the values that a typed function computes may depend on an open `size`, and not only their shapes:
    a number made of it is an operand or a result (`multiply(%x, cast(take(shape_of(%x), 0)))`), or a value has it in
    two dimensions, as `topk` with this number of elements."""
    made: dict[Expr, bool] = {}  # what is made of shapes and constants alone -> whether `size` is in it

    def count(t: TensorType) -> int:
        return sum(isinstance(d, OpenSize) and size in free_vars(as_expr(d)) for d in t.shape)

    def is_in(kind: Type) -> bool:
        return any(map(count, tensors_of(kind)))

    for e in post_order(function.body, inside=False):
        below = operands(e)
        if isinstance(e, Call) and isinstance(e.op, (ShapeOf, NdarraySize)):
            made[e] = is_in(e.args[0].checked_type)
        elif not isinstance(e, Var) and all(o in made for o in below):
            made[e] = is_in(e.checked_type) or any(made[o] for o in below)
        elif any(made.get(o) for o in below) or any(count(t) > 1 for t in tensors_of(e.checked_type)):
            return True
    return made.get(function.body, False)


class _Values:
    """For every tensor of every value: whether it holds images (True), or is the same for all of them (False)."""

    def __init__(self, images: int) -> None:
        self.images = images
        self.apart: dict[Expr, tuple[bool, ...]] = {}
        self.own: dict[Expr, bool] = {}
        self.known: dict[Any, Reads | None] = {}

    def flags(self, e: Expr) -> tuple[bool, ...] | None:
        match e:
            case Var():
                return (True,)
            case Constant():
                return (False,)
            case Tuple():
                return tuple(flag for f in e.fields for flag in self.apart[f])
            case TupleGetItem() if all(isinstance(t, TensorType)
                                       for t in e.tuple_value.checked_type.fields):  # type: ignore[attr-defined]
                return (self.apart[e.tuple_value][e.index],)
            case Call() if isinstance(e.op, Op):
                return self._results(e, e.op)
            case _:
                return None

    def _results(self, e: Call, op: Op) -> tuple[bool, ...] | None:
        kind = e.checked_type
        results = kind.fields if isinstance(kind, TupleType) else (kind,)
        types = [a.checked_type for a in e.args]
        if not all(isinstance(t, TensorType) and t.is_static for t in (*results, *_tensors(types))):
            return None
        if not any(flag for a in e.args for flag in self.apart[a]):
            return (False,) * len(results) if op.pure else None
        key = (op, *types)
        if key not in self.known:
            self.known[key] = images_read(op, types, self.images)
        reads = self.known[key]
        if reads is None or not all(self._fits(a, flags) for a, flags in zip(e.args, reads, strict=True)):
            return None
        return (True,) * len(results)

    def _fits(self, argument: Expr, reads: tuple[bool | None, ...]) -> bool:
        """Return whether an argument has what the operator reads, and record constants of which each image reads its
        own rows."""
        fields = argument.fields if isinstance(argument, Tuple) else (argument,)
        for k, (own, apart) in enumerate(zip(reads, self.apart[argument], strict=True)):
            if own is None or own == apart:
                continue
            if apart or k >= len(fields) or not isinstance(fields[k], Constant):
                return False
        constants = [(f, own) for f, own in zip(fields, reads, strict=False) if isinstance(f, Constant)
                     and own is not None]
        return all(self.own.setdefault(f, own) == own for f, own in constants)


def _tensors(types: Sequence[Type]) -> list[Type]:
    return [f for t in types for f in (t.fields if isinstance(t, TupleType) else (t,))]


def images_read(op: Op, types: Sequence[Type], images: int) -> Reads | None:
    """Return, for each tensor of each argument, what image n of the results reads of it.

    True: image n; False: the same elements for every image; None: nothing. The result is None if results mix images, if
    the first axis of a result does not hold whole images, or without a tensor expression.
    """
    arguments = [_placeholders(t) for t in types]
    given = [t for a in arguments for t in a]
    try:
        result = op.compute(
            *(tuple(a) if isinstance(t, TupleType) else a[0] for a, t in zip(arguments, types, strict=True)))
    except NoNativeKernel:
        return None
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    axes = _Walk(images).axes_of(given, outputs)
    if axes is None or any(axes.get(t, SHARED) > 0 for t in given):
        return None
    return tuple(tuple(axes[t] == 0 if t in axes else None for t in a) for a in arguments)


def _placeholders(kind: Type) -> list[Tensor]:
    fields: Sequence[Any] = kind.fields if isinstance(kind, TupleType) else (kind,)
    return [te.placeholder(t.shape, t.dtype) for t in fields if isinstance(t, TensorType)]


class _Walk:
    """A walk from the results to their inputs; `axes` maps tensors to the axis of their images."""

    def __init__(self, images: int) -> None:
        self.images = images
        self.image = scalar.Var("image")
        self.axes: dict[Tensor, int] = {}

    def axes_of(self, given: Sequence[Tensor], outputs: Sequence[Tensor]) -> Mapping[Tensor, int] | None:
        """Return the axis of the images in `outputs` (axis 0) and in every tensor that they read; None if images are
        mixed."""
        if not all(t.extents and self._each(t, 0) for t in outputs):
            return None
        self.axes.update(dict.fromkeys(outputs, 0))
        for op in reversed(computations(given, outputs)):
            if not isinstance(op, ComputeOp) or not self._apart(op):
                return None
        return self.axes

    def _each(self, t: Tensor, axis: int) -> int:
        """Return the number of rows of an image along `axis`; 0 if the axis does not hold whole images."""
        each, left = divmod(t.extents[axis], self.images)
        return 0 if left else each

    def _apart(self, op: ComputeOp) -> bool:
        """Record the reads of a computation; return False if an image of its results needs other images."""
        axis = {self.axes[t] for t in op.outputs if t in self.axes}
        if len(axis) != 1:
            return False
        (along,) = axis
        known: dict[scalar.Var, Interval] = {self.image: (0, self.images - 1)}
        for a in (*op.axis, *op.reduce_axis):
            known[a.var] = (0, bounds(a.extent, Ranges())[1] - 1)  # type: ignore[operator]
        mapping: dict[PrimExpr, PrimExpr] = {}
        if along != SHARED:
            row, each = scalar.Var("row"), self._each(op.outputs[0], along)
            known[row] = (0, each - 1)
            mapping[op.axis[along].var] = add(mul(self.image, each), row)
        reads = _Reads(self, Ranges(known), mapping)
        memo: dict[PrimExpr, PrimExpr] = {}
        return not any(reads.names_image(rewrite(b, reads.rule, memo)) for b in op.body) and not reads.mixed


class _Reads:
    """The elements that the body of a computation reads. `mixed`: an image reads other images."""

    def __init__(self, walk: _Walk, ranges: Ranges, mapping: Mapping[PrimExpr, PrimExpr]) -> None:
        self.walk, self.ranges, self.mapping = walk, ranges, mapping
        self.mixed = False

    def rule(self, e: PrimExpr) -> PrimExpr | None:
        """Split the axis of the images into image and row, and replace a read element by an unknown value."""
        if type(e) is not TensorElem:
            return self.mapping.get(e)
        axis = self._axis(e)
        if axis is None or self.walk.axes.setdefault(e.tensor, axis) != axis:
            self.mixed = True
        return scalar.Var("element", e.dtype)

    def _axis(self, e: TensorElem) -> int | None:
        """Return the axis that is read at the image's own rows, if no other index depends on the image; else None."""
        naming = [k for k, i in enumerate(e.indices) if self.names_image(i)]
        if len(naming) != 1:
            return None if naming else SHARED
        each = self.walk._each(e.tensor, naming[0])
        row = simplify(sub(e.indices[naming[0]], mul(self.walk.image, each)), self.ranges)
        lo, hi = bounds(row, self.ranges)
        inside = each and lo is not None and hi is not None and lo >= 0 and hi < each
        return naming[0] if inside and self.walk.image not in free_vars(row) else None

    def names_image(self, e: PrimExpr) -> bool:
        """Return whether the value of `e` depends on the image index."""
        image = self.walk.image
        return image in free_vars(e) and image in free_vars(simplify(e, self.ranges))
