"""Masks whose lanes are known at compile time, and stores of vectors under them.

LLVM 22 merges a truncation with the masked store after it. If the mask is a constant with one active lane, it then
stores one untruncated element, over its neighbors (x86 with AVX-512). Known masks are therefore resolved here: LLVM
gets a plain store of consecutive lanes, or a masked store with at least three active lanes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tilewright.base.types import INT64, DataType
from tilewright.scalar import expr as E
from tilewright.scalar.arith.evaluate import Evaluator, typed
from tilewright.scalar.expr import PrimExpr, Var
from tilewright.scalar.walk import walk

if TYPE_CHECKING:
    from tilewright.backends.cpu.llvm.function import FunctionText
    from tilewright.backends.targets.target import Target

Lanes: TypeAlias = tuple[bool, ...]
MOST_PIECES: Final = 2
"""Largest number of plain stores that replace one masked store, if the processor has an instruction for that."""
_LITERAL: Final = re.compile(r"-?\d+")


def fixed_lanes(f: FunctionText, mask: PrimExpr) -> Lanes | None:
    """Return the lanes of `mask` as constants; None if they depend on run-time values."""
    match mask:
        case E.And() | E.Or():
            a, b = fixed_lanes(f, mask.a), fixed_lanes(f, mask.b)
            deciding = isinstance(mask, E.Or)
            for side in (a, b):
                if side is not None and all(x is deciding for x in side):
                    return side
            return (
                None if a is None or b is None
                else tuple((x or y) if deciding else (x and y) for x, y in zip(a, b, strict=True))
            )
        case E.Not():
            inner = fixed_lanes(f, mask.a)
            return None if inner is None else tuple(not x for x in inner)
        case E.Broadcast():
            one = fixed_lanes(f, mask.value)
            return None if one is None else one * mask.dtype.lanes
        case E.Comparison():
            return _evaluated(f, mask) or _of_difference(f, mask)
        case _:
            return _evaluated(f, mask)


def _evaluated(f: FunctionText, mask: PrimExpr) -> Lanes | None:
    """Return the value of `mask` if all its variables are constants here and it reads no memory."""
    env = {}
    for x in walk(mask):
        if isinstance(x, (E.Load, E.Call)):
            return None
        if isinstance(x, Var):
            number = _literal(f, x)
            if number is None:
                return None
            env[x] = typed(number, x.dtype)
    value = Evaluator(env).value(mask)
    return tuple(bool(x) for x in np.atleast_1d(value))


def _of_difference(f: FunctionText, mask: E.Comparison) -> Lanes | None:
    """Evaluate `ramp(i + 3, 1, n) < i + 7`: the difference of both sides is known although the sides are not."""
    from tilewright.backends.cpu.llvm.memory import as_ramp, linear

    lanes = mask.a.dtype.lanes
    if mask.a.dtype.element is not INT64:  # narrower numbers may wrap around
        return None
    sides = [as_ramp(s) if lanes > 1 else (s, 0) for s in (mask.a, mask.b)]
    if sides[0] is None or sides[1] is None:
        return None
    terms, rest = linear(E.sub(sides[0][0], sides[1][0]))
    for atom, factor in terms.items():
        number = _literal(f, atom) if factor else 0
        if number is None:
            return None
        rest += factor * number
    step = sides[0][1] - sides[1][1]
    return tuple(bool(type(mask).fold(rest + step * k, 0)) for k in range(lanes))


def _literal(f: FunctionText, e: PrimExpr) -> int | None:
    """Return the constant that a variable is bound to, such as that of a loop with one iteration."""
    known = f.variables.get(e) if isinstance(e, Var) else None
    return int(known[0]) if known is not None and _LITERAL.fullmatch(known[0]) else None


def pieces(lanes: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the runs of active lanes, as `(first, length)`; each length is a power of two."""
    found, k = [], 0
    while k < len(lanes):
        if not lanes[k]:
            k += 1
            continue
        end = next((j for j in range(k, len(lanes)) if not lanes[j]), len(lanes))
        length = 1 << ((end - k).bit_length() - 1)
        found.append((k, length))
        k += length
    return found


def most_pieces(target: Target, element: DataType) -> int:
    """Return the number of plain stores that cost no more than one masked store of such elements.

    It is unlimited if LLVM stores lane by lane anyway.
    """
    features = target.features
    has_instruction = ("avx512bw" if element.itemsize < 4 else "avx") in features or (
        "avx512f" in features and element.itemsize >= 4
    )
    return MOST_PIECES if target.family == "x86" and has_instruction else 1 << 16
