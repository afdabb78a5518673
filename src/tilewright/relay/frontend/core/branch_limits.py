"""Least sizes that only one branch needs: a requirement of the calls that take this branch.

    If(sr == 16000): y = conv(x, 256 taps) else: y = conv(x, 128 taps)                  x: (b, n), n >= 128
    ->  if sr == 16000: y = conv(x + room for 256 samples, 256 taps), which ends the run unless n >= 256
        else: y = conv(x, 128 taps)

In such a branch the size is max(n, 256): no size in it can become negative for any `n`. A check at run time
refuses smaller sizes when the branch is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tilewright.base.errors import CompileError
from tilewright.base.types import OpenSize, TensorType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast
from tilewright.relay.types_of import scalar
from tilewright.scalar.arith.evaluate import evaluate
from tilewright.scalar.arith.open_sizes import current, greater, least_difference, limit, open_size
from tilewright.scalar.expr import IntImm, Var, as_expr
from tilewright.scalar.walk import free_vars, substitute
from tilewright.topi.shapes import is_number, same

Made = TypeVar("Made")
Least = Mapping[Var, int]
"""Least values of symbols."""


def with_own_limits(make: Callable[[], Made]) -> tuple[Made, dict[Var, int]]:
    """Return what `make` imports, and the least values of symbols that it requires, which the program then does not."""
    known = current()
    if known is None or not known.branches.are_apart:
        return make(), {}
    before = dict(known.limits)
    made = make()
    found: dict[Var, int] = {}
    for v, (low, high) in list(known.limits.items()):
        lower = before.get(v, (0, None))[0]
        if isinstance(v, Var) and low > max(lower, known.least.get(v.name, 1)):
            known.limits[v] = lower, high
            found[v] = low
            known.branches.has_limits = True
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
        symbols = set() if is_number(d) else {*free_vars(as_expr(d))}
        if not least.keys() & symbols:
            continue
        if len(symbols) != 1 or kind.dtype.is_object:
            raise CompileError(f"the dimension {d} has no form with a least value", code="TW0304")
        least_dim = evaluate(substitute(as_expr(d), {v: IntImm(v.dtype, n) for v, n in least.items()}), {})
        room = _room(d, least)
        own = op.strided_slice(op.shape_of(x, dtype="int64"), begin=(axis,), end=(axis + 1,), strides=(1,))
        wrong = op.outside(cast(op.less(own, scalar(least_dim, own)), "int32"), sizes=(1,), negative=False)
        widths = tuple((0, room if k == axis else 0) for k in range(kind.ndim))
        x = op.require_zero(op.nn.pad(x, scalar(0, x), pad_width=widths), wrong, message=message)
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


def _room(d: Any, least: Least) -> Any:
    """Return by how much a dimension grows if each symbol in it is replaced by the maximum of it and its least value.

    Raises `CompileError` if that may be negative.
    """
    larger = {v: as_expr(greater(size, n)) for v, n in least.items() if (size := open_size(v)) is not None}
    whole, own = open_size(substitute(as_expr(d), {**larger})), open_size(as_expr(d))
    if whole is None or own is None or (room := least_difference(whole, own)) is None or room < 0:
        raise CompileError(f"the dimension {d} has no form with a least value", code="TW0304")
    return whole - own if isinstance(d, OpenSize) else as_expr(whole - own)
