"""Least sizes that only one branch needs: a requirement of the calls that take this branch.

    If(sr == 16000): y = conv(x, 256 taps) else: y = conv(x, 128 taps)                  x: (b, n), n >= 128
    ->  if sr == 16000: y = conv(x + room for 256 samples, 256 taps), which ends the run unless n >= 256
        else: y = conv(x, 128 taps)

In such a branch the size is max(n, 256): no size in it can become negative, whatever `n` is. A check at run time
refuses smaller sizes when the branch is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tilewright.base.errors import CompileError
from tilewright.base.types import OpenSize, TensorType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, dtype_of, scalar
from tilewright.scalar.arith.evaluate import evaluate
from tilewright.scalar.arith.open_sizes import current, greater, least_difference, limit, open_size
from tilewright.scalar.expr import IntImm, PrimExpr, Var, as_expr
from tilewright.scalar.walk import free_vars, substitute
from tilewright.topi.shapes import same

Made = TypeVar("Made")
Least = Mapping[Var, int]
"""Least values of symbols."""


def with_own_limits(make: Callable[[], Made]) -> tuple[Made, dict[Var, int]]:
    """Return what `make` imports, and the least values of symbols that it requires, which the program then does not."""
    known = current()
    if known is None:
        return make(), {}
    before = dict(known.limits)
    made = make()
    found: dict[Var, int] = {}
    for v, (low, high) in list(known.limits.items()):
        lower = before.get(v, (0, None))[0]
        if isinstance(v, Var) and low > max(lower, known.least.get(v.name, 1)):
            known.limits[v] = lower, high
            found[v] = low
    return made, found


def require(least: Least) -> None:
    """Make least values limits of the whole program."""
    for v, low in least.items():
        if (size := open_size(v)) is not None:
            limit(size, low)


def with_least(x: Expr, least: Least, message: str) -> Expr:
    """Return `x` with room for the least sizes in the place of its own; smaller sizes end the run.

    Raises `CompileError` for a dimension that has no such form.
    """
    kind = x.known_type()
    if not isinstance(kind, TensorType):
        return x
    for axis, d in enumerate(kind.shape):
        if not isinstance(d, PrimExpr) or not least.keys() & set(free_vars(d)):
            continue
        if len(set(free_vars(d))) != 1 or kind.dtype.is_object:
            raise CompileError(f"the dimension {d} has no form with a least value", code="TW0304")
        least_dim = evaluate(substitute(d, {v: IntImm(v.dtype, n) for v, n in least.items()}), {})
        room = _difference(larger(d, least), d)
        own = op.strided_slice(op.shape_of(x, dtype="int64"), begin=(axis,), end=(axis + 1,), strides=(1,))
        wrong = op.outside(cast(op.less(own, scalar(least_dim, own)), "int32"), sizes=(1,), negative=False)
        shape = [room if k == axis else n for k, n in enumerate(x.tensor_type.shape)]
        empty = op.full(scalar(0, x), shape=tuple(shape), dtype=dtype_of(x))
        x = op.require_zero(op.concatenate((x, empty), axis=axis), wrong, message=message)
    return x


def with_own_sizes(x: Expr, wanted: Expr) -> Expr:
    """Return a result of a branch for least sizes with the sizes of `wanted`."""
    kind, target = x.known_type(), wanted.known_type()
    if not isinstance(kind, TensorType) or not isinstance(target, TensorType) or kind.ndim != target.ndim:
        raise CompileError("a result of a branch is not a tensor of one rank", code="TW0304")
    for axis, (d, own) in enumerate(zip(kind.shape, target.shape, strict=True)):
        if not same(d, own):
            x = op.strided_slice(x, begin=(0,), end=(own,), strides=(1,), axes=(axis,))
    if x.known_type() != target:
        raise CompileError("a result of a branch has another type", code="TW0304")
    return x


def larger(d: PrimExpr, least: Least) -> PrimExpr:
    """Return a size with the maximum of each symbol and its least value in the place of the symbol."""
    sizes = {v: greater(size, n) for v, n in least.items() if (size := open_size(v)) is not None}
    found = open_size(substitute(d, {v: as_expr(n) for v, n in sizes.items()}))
    if found is None:
        raise CompileError(f"the size {d} is unknown", code="TW0304")
    return as_expr(found)


def _difference(a: PrimExpr, b: PrimExpr) -> Any:
    """Return the difference of two sizes, which is never negative. Raises `CompileError` if that is not known."""
    first, second = open_size(a), open_size(b)
    if (first is None or second is None
            or (room := least_difference(first, second)) is None or room < 0):
        raise CompileError(f"the sizes {a} and {b} cannot be compared", code="TW0304")
    difference = first - second
    return as_expr(difference) if isinstance(difference, OpenSize) else difference
