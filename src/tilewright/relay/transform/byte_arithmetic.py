"""Make the integer arithmetic of quantized networks cheaper, with identical results.

Signed bytes that a product reads with an offset of 128 are stored with this offset:

    %1 = cast(clip(%0, -128, 127), "int8"); nn.conv2d(bitwise_xor(cast(%1, "uint8"), 128), w); add(cast(%1, "int32"), …)
    -> %1 = cast(clip(add(%0, 128), 0, 255), "uint8"); nn.conv2d(%1, w);
       add(cast(cast(bitwise_xor(%1, 128), "int8"), "int32"), …)

A requantized function of one or two bytes has at most 65,536 cases. If one sum of two products gives the same result in
every case, it replaces the function. All cases are tested, so the replacement is exact:

    a residual sum: each operand shifted and requantized, their sum requantized
    -> cast(clip(right_shift(a * A + b * B + C, S), lo, hi))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.types import INT32, TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.broadcast import Add, BitwiseXor, LeftShift, Multiply, RightShift, Subtract
from tilewright.relay.op.elementwise import Cast, Clip
from tilewright.relay.op.fixed_point import HighProduct
from tilewright.relay.op.registry import Array
from tilewright.relay.qnn.numerics import constant
from tilewright.relay.visitor import consumers, post_order, rewrite

_BYTES: Final = ("int8", "uint8")
_STEPS: Final = (Add, Subtract, Multiply, LeftShift, RightShift, HighProduct, Cast, Clip, BitwiseXor)
_MOST_STEPS: Final = 64
_MOST_MOVES: Final = 12


@dataclass(frozen=True)
class ByteArithmetic(FunctionPass):
    """Store bytes in the type that their readers need, and replace requantized sums of two bytes by one fixed-point
    sum.

    Needs known types, and the operators of the qnn dialect lowered to plain ones. All 65,536 cases of a replaced sum
    are tested, so results are identical.
    """

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 2

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        order = post_order(function.body)
        stored = _Stored(order)
        if stored.held:
            function = rewrite(function, stored.apply, origin=stored.origin)
        if any(isinstance(e, Call) and isinstance(e.op, HighProduct) for e in order):
            function = rewrite(function, _as_one_sum)
        return function


def _moved(e: Expr) -> Expr | None:
    """Return the signed bytes x of `bitwise_xor(cast(x, "uint8"), 128)`, or None."""
    if (not isinstance(e, Call) or not isinstance(e.op, BitwiseXor) or e.known_type() is None
            or e.tensor_type.dtype != "uint8"):
        return None
    x, sign = e.args
    if (not isinstance(x, Call) or not isinstance(x.op, Cast) or not isinstance(sign, Constant)
            or not np.all(sign.value == 128)):
        return None
    return x.args[0] if x.args[0].tensor_type.dtype == "int8" else None


class _Stored:
    """Keeps stored bytes as bytes, with signed ones shifted by 128 where a reader needs that.

    `held` maps calls of clip to the type of the bytes and whether they are shifted.
    """

    def __init__(self, order: Sequence[Expr]) -> None:
        users = consumers(order)
        moved = {x for e in order if (x := _moved(e)) is not None}
        self.held: dict[Expr, tuple[str, bool]] = {}
        for e in order:
            if _is_saturated(e) and (e in moved or len(users[e.args[0]]) > 1):  # type: ignore[attr-defined]
                self.held.setdefault(e.args[0], (str(e.tensor_type.dtype), e in moved))  # type: ignore[attr-defined]
        self.origin: dict[Expr, Expr] = {}
        self.unsigned: dict[Expr, Expr] = {}

    def apply(self, e: Expr) -> Expr | None:
        found = self.held.get(self.origin.get(e, e))
        if found is not None and isinstance(e, Call):
            kind, moved = found
            stored = self._moved(e) if moved else Call(Cast(kind), [e], span=e.span)
            return Call(Cast("int32"), [stored], span=e.span)
        x = _moved(e)
        if x is not None:
            return self.unsigned.get(x)
        if (isinstance(e, Call) and isinstance(e.op, Cast) and isinstance(e.args[0], Call)
                and isinstance(e.args[0].op, Cast)):
            below = e.args[0].args[0]
            return (below if below.known_type() == e.known_type() and below.tensor_type.dtype in _BYTES
                    and e.args[0].tensor_type.dtype is INT32 else None)
        return None

    def _moved(self, held: Call) -> Expr:
        span = held.span
        limits: Any = held.op
        bytes_ = Call(Cast("uint8"),
                      [Call(Clip(limits.a_min + 128, limits.a_max + 128), [_plus(held.args[0], 128)], span=span)],
                      span=span)
        signed = Call(Cast("int8"), [Call(BitwiseXor(), [bytes_, constant(128, "uint8")], span=span)], span=span)
        self.unsigned[signed] = bytes_
        return signed


def _is_saturated(e: Expr) -> bool:
    """Return whether `e` is `cast(clip(y), …)`: an int32 y saturated to bytes."""
    if (not isinstance(e, Call) or not isinstance(e.op, Cast) or not isinstance(e.known_type(), TensorType)
            or e.tensor_type.dtype not in _BYTES):
        return False
    return _limits(e.args[0]) is not None


def _limits(e: Expr) -> tuple[int, int] | None:
    """Return the bounds of a clipped int32 value if they lie within the range of a byte; else None."""
    if (not isinstance(e, Call) or not isinstance(e.op, Clip) or not isinstance(e.known_type(), TensorType)
            or e.tensor_type.dtype is not INT32):
        return None
    if not (float(e.op.a_min).is_integer() and float(e.op.a_max).is_integer()):
        return None
    low, high = int(e.op.a_min), int(e.op.a_max)
    return (low, high) if low <= high and ((low >= -128 and high <= 127) or (low >= 0 and high <= 255)) else None


def _plus(y: Expr, number: int) -> Expr:
    """Add a number to y, and merge it with a previous offset."""
    if isinstance(y, Call) and isinstance(y.op, Add) and isinstance(y.args[1], Constant) and y.args[1].value.size == 1:
        number += int(y.args[1].value.reshape(()))
        y = y.args[0]
    return Call(Add(), [y, constant(number, "int32")], span=y.span) if number else y


def _as_one_sum(e: Expr) -> Expr | None:
    """Replace a function of one or two bytes by one sum of products if that is exact."""
    if not _is_saturated(e):
        return None
    found = _steps(e)
    if found is None:
        return None
    steps, leaves = found
    values = _evaluate(steps, leaves)
    slopes = _slopes(e.args[0].args[0], values, len(leaves))  # type: ignore[attr-defined]
    if slopes is None:
        return None
    low, high = _limits(e.args[0]) or (0, 0)  # type: ignore[attr-defined]
    inputs = [values[leaf].astype(np.int64) for leaf in leaves]
    fitted = _fitted(slopes, inputs, values[e].astype(np.int64), low, high)
    return None if fitted is None else _sum(leaves, *fitted, e)


def _steps(e: Expr) -> tuple[list[Call], list[Expr]] | None:
    """Return the calls between bytes and `e`, operands first, and these bytes: one or two, of the shape of `e`."""
    shape = e.tensor_type.shape
    leaves: list[Expr] = []
    inside: dict[Expr, None] = {}
    stack = [e]
    while stack:
        x = stack.pop()
        if x in inside or x in leaves:
            continue
        if isinstance(x, Constant):
            if x.value.size != 1:
                return None
        elif _is_byte(x) and x is not e and x is not e.args[0]:  # type: ignore[attr-defined]
            if x.tensor_type.shape != shape or len(leaves) == 2:
                return None
            leaves.append(x)
        elif isinstance(x, Call) and isinstance(x.op, _STEPS) and len(inside) < _MOST_STEPS:
            inside[x] = None
            stack.extend(x.args)
        else:
            return None
    if not leaves or not any(isinstance(x.op, HighProduct) for x in inside):  # type: ignore[attr-defined]
        return None
    return [x for x in post_order(e, without=leaves) if isinstance(x, Call)], leaves


def _is_byte(x: Expr) -> bool:
    """Return whether `x` has bytes that do not come from other bytes, or numbers clipped to a byte's range."""
    if not isinstance(x.known_type(), TensorType) or x.tensor_type.dtype not in _BYTES:
        return _limits(x) is not None
    return not isinstance(x, Call) or not isinstance(x.op, (Cast, BitwiseXor)) or any(a.tensor_type.dtype not in _BYTES
        for a in x.args)


def _evaluate(steps: list[Call], leaves: list[Expr]) -> dict[Expr, Array]:
    """Evaluate every step in every case; the first byte varies along axis 0, the second along axis 1."""
    values: dict[Expr, Array] = {}
    for k, leaf in enumerate(leaves):
        kind = leaf.tensor_type.dtype.numpy()
        low, high = _limits(leaf) or (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
        along = [1] * len(leaves)
        along[k] = -1
        values[leaf] = np.arange(low, high + 1).astype(kind).reshape(along)
    for x in steps:
        given = [a.value.reshape(()) if isinstance(a, Constant) else values[a] for a in x.args]
        values[x] = np.asarray(x.op.reference(*given))
    return values


def _slopes(x: Expr, values: dict[Expr, Array], count: int) -> list[float] | None:
    """Return the slope of the result for each byte, measured before the last product is rounded and shifted, where the
    result is nearly linear."""
    shift = 0
    while isinstance(x, Call) and isinstance(x.op, (Add, RightShift)):
        if isinstance(x.op, RightShift):
            if not isinstance(x.args[1], Constant):
                return None
            shift += int(x.args[1].value.reshape(()))
        x = x.args[0]
    if not isinstance(x, Call) or not isinstance(x.op, HighProduct) or not isinstance(x.args[1], Constant):
        return None
    factor = float(x.args[1].value.reshape(())) / 2.0 ** (shift + (31 if x.op.doubled else 32))
    before = values[x.args[0]].astype(np.float64) * factor
    return [float(np.ravel(before.take(-1, k) - before.take(0, k))[0]) / (before.shape[k] - 1) for k in range(count)]


def _fitted(slopes: list[float], inputs: list[Array], wanted: Array, low: int,
            high: int) -> tuple[tuple[int, ...], int, int] | None:
    """Return factors, an offset and a shift that give the wanted result in every case: slopes scaled to 32 bits, or
    better ones nearby.
    """
    reach = (sum(abs(s) * float(np.abs(x).max()) for s, x in zip(slopes, inputs, strict=True))
             + float(np.abs(wanted).max()) + 1)
    most = min(30, math.floor(math.log2(2.0**31 / reach)))
    for shift in range(most, max(most - 2, 8), -1):
        known: dict[tuple[int, ...], tuple[int, int]] = {}
        point = tuple(round(s * 2.0**shift) for s in slopes)
        for _ in range(_MOST_MOVES):
            least, largest = known.setdefault(point, _room(inputs, point, shift, wanted, low, high))
            offset = (least + largest) // 2
            if least <= largest and _fits(inputs, point, offset):
                return point, offset, shift
            for near in itertools.product(*((f, f + 1, f - 1) for f in point)):
                if near not in known:
                    known[near] = _room(inputs, near, shift, wanted, low, high)
            best = max(known, key=lambda f: known[f][1] - known[f][0])
            if best == point:
                break
            point = best
    return None


def _total(inputs: list[Array], factors: tuple[int, ...]) -> Array:
    return np.asarray(sum((x * f for x, f in zip(inputs, factors, strict=True)), start=np.int64(0)))


def _room(inputs: list[Array], factors: tuple[int, ...], shift: int, wanted: Array, low: int,
          high: int) -> tuple[int, int]:
    """Return the least and the greatest C for which `(sum of products + C) >> shift`, clamped to `low` and `high`, is
    the wanted result; no solution if the least is larger.
    """
    floor = (wanted << shift) - _total(inputs, factors)
    least = np.max(floor, where=wanted > low, initial=-(1 << 40))
    most = np.min(floor, where=wanted < high, initial=1 << 40) + ((1 << shift) - 1)
    return int(least), int(most)


def _fits(inputs: list[Array], factors: tuple[int, ...], offset: int) -> bool:
    """Return whether every partial sum, in any order, fits 32 bits."""
    parts = [x * f for x, f in zip(inputs, factors, strict=True)]
    lows, highs = (sum(int(limit(p)) for p in parts) for limit in (np.min, np.max))
    return all(-(1 << 31) <= n < 1 << 31 for n in (offset, lows + offset, highs + offset,
        *(int(limit(p)) + offset for p in parts for limit in (np.min, np.max))))


def _sum(leaves: list[Expr], factors: tuple[int, ...], offset: int, shift: int, e: Expr) -> Expr:
    total: Expr = constant(offset, "int32")
    for leaf, factor in zip(leaves, factors, strict=True):
        wide = leaf if leaf.tensor_type.dtype is INT32 else Call(Cast("int32"), [leaf], span=e.span)
        product = Call(Multiply(), [wide, constant(factor, "int32")], span=e.span)
        total = Call(Add(), [product, total], span=e.span)
    shifted = Call(RightShift(), [total, constant(shift, "int32")], span=e.span)
    return Call(e.op, [Call(e.args[0].op, [shifted], span=e.span)], span=e.span)  # type: ignore[attr-defined]
