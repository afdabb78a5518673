"""Builders of transposes and reshapes that omit no-ops, and arithmetic of permutations.

A value stored in the order `perm` is `transpose(value, perm)`: axis `i` of the memory is axis `perm[i]` of the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.registry import Op
from tilewright.relay.op.shaping import sized
from tilewright.relay.op.transform import Transpose
from tilewright.scalar.arith.open_sizes import is_below
from tilewright.topi.shapes import inverse

Perm = tuple[int, ...]


def is_identity(perm: Sequence[int]) -> bool:
    return all(i == p for i, p in enumerate(perm))


def compose(first: Perm, second: Perm) -> Perm:
    """`transpose(transpose(x, first), second) = transpose(x, compose(first, second))`."""
    return tuple(first[p] for p in second)


def between(stored: Perm | None, wanted: Perm | None, rank: int) -> Perm:
    """Return the permutation from one stored order to the other."""
    p = stored or tuple(range(rank))
    q = wanted or tuple(range(rank))
    return compose(inverse(p), q)


def moves_nothing(perm: Sequence[int], shape: Sequence[Any]) -> bool:
    """Return whether transposing `shape` by `perm` moves only axes of size 1, so that the memory stays as it is."""
    real = [p for p in perm if not (isinstance(shape[p], int) and shape[p] == 1)]
    return all(a < b for a, b in pairwise(real))


def transposed(x: Expr, perm: Perm) -> Expr:
    """Build `transpose(x, perm)`: `x` for the identity, a transposed constant, or a reshape if only axes of size 1
    move."""
    if is_identity(perm):
        return x
    if isinstance(x, Constant):
        return Constant(np.transpose(x.value, perm), x.span)
    shape = x.tensor_type.shape
    if moves_nothing(perm, shape):
        return reshaped(x, [shape[p] for p in perm])
    if isinstance(x, Call) and isinstance(x.op, Transpose):
        return transposed(x.args[0], compose(axes_of(x), perm))
    return Call(Transpose(axes=perm), [x], span=x.span)


def reshaped(x: Expr, shape: Sequence[Any]) -> Expr:
    """Build `reshape(x, shape)`: `x` if it has that shape; nested reshapes merge. `shape` has no wildcards."""
    while isinstance(x, Call) and isinstance(x.op, Op) and x.op.view:
        x = x.args[0]
    if x.tensor_type.shape == tuple(shape):
        return x
    if isinstance(x, Constant):
        return Constant(x.value.reshape(tuple(shape)), x.span)
    return Call(sized(tuple(shape)), [x], span=x.span)


def axes_of(call: Call) -> Perm:
    """Return the permutation of a call of `transpose`, with default and negative axes resolved."""
    rank = call.args[0].tensor_type.ndim
    axes = call.attrs.axes
    return tuple(a % rank for a in axes) if axes else tuple(reversed(range(rank)))


def groups(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[list[int], list[int]]] | None:
    """Return how a reshape matches axes: the smallest runs `(axes before, axes after)` with equal products, without
    axes of size 1.

    None if a size is symbolic, or if products of dynamic sizes cannot be compared.
    """
    if not all(isinstance(d, int) for d in (*before, *after)):
        return None
    a = [i for i, d in enumerate(before) if d != 1]
    b = [i for i, d in enumerate(after) if d != 1]
    if any(before[i] == 0 for i in a):
        return None
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        left, right = [a[i]], [b[j]]
        x, y = before[a[i]], after[b[j]]
        i, j = i + 1, j + 1
        while x != y:
            below = is_below(x, y)
            if below is None or (i if below else j) == len(a if below else b):
                return None
            if below:
                left.append(a[i])
                x, i = x * before[a[i]], i + 1
            else:
                right.append(b[j])
                y, j = y * after[b[j]], j + 1
        found.append((left, right))
    return found if i == len(a) and j == len(b) else None


def carried(perm: Perm, before: Sequence[Any], after: Sequence[Any]) -> Perm | None:
    """Return the storage order of the reshape to `after` of a value of shape `before` stored in the order `perm`.

    None if memory would have to move.
    """
    runs = groups(before, after)
    if runs is None:
        return None
    order = [p for p in perm if before[p] != 1]
    start = {left[0]: (left, right) for left, right in runs}
    result: list[int] = []
    at = 0
    while at < len(order):
        left, right = start.get(order[at], ([], []))
        if not left or order[at : at + len(left)] != left:
            return None
        result += right
        at += len(left)
    return _with_ones(result, after)


def gathered(perm: Perm, before: Sequence[Any], after: Sequence[Any]) -> Perm | None:
    """Return the order nearest to `perm` in which a value of shape `before` can be reshaped to `after` without moving
    memory.

    None if a size is symbolic.
    """
    runs = groups(before, after)
    if runs is None:
        return None
    runs.sort(key=lambda run: min(map(perm.index, run[0])))
    return _with_ones([i for left, _ in runs for i in left], before)


def _with_ones(order: list[int], shape: Sequence[Any]) -> Perm:
    """Return `order` with each axis of size 1 after its predecessor."""
    if all(a < b for a, b in pairwise(order)):
        return tuple(range(len(shape)))
    result = list(order)
    for i, d in enumerate(shape):
        if d == 1:
            result.insert(result.index(i - 1) + 1 if i else 0, i)
    return tuple(result)
