"""Linear algebra composed of the operators of `relay.linalg`, for the converters of all frontends.

Matrices are the last two dimensions; the dimensions before them broadcast. Shapes must be known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, fields, reshape, slice_axis, transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of


def transposed(x: Expr) -> Expr:
    """Transpose every matrix."""
    n = rank(x)
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def spread_lead(x: Expr, lead: Sequence[int]) -> Expr:
    """Broadcast matrices to a stack with leading dimensions `lead`."""
    whole = (*lead, *shape_of(x)[-2:])
    return x if shape_of(x) == whole else op.broadcast_to(x, shape=whole)


def aligned(*stacks: Expr) -> list[Expr]:
    """Broadcast stacks of matrices to the same leading dimensions."""
    lead = np.broadcast_shapes(*(shape_of(x)[:-2] for x in stacks))
    return [spread_lead(x, lead) for x in stacks]


def identity(n: int, like: Expr, lead: Sequence[int] = ()) -> Expr:
    """A stack of identity matrices with the element type of `like`."""
    return Constant(np.broadcast_to(np.eye(n, dtype=dtype_of(like).numpy()), (*lead, n, n)).copy())


def filled(shape: Sequence[int], like: Expr, value: float = 0.0) -> Expr:
    """A constant tensor filled with `value`, with the element type of `like`."""
    return Constant(np.full(tuple(shape), value, dtype_of(like).numpy()))


def product(a: Expr, b: Expr) -> Expr:
    """The matrix product of two stacks."""
    a, b = aligned(a, b)
    *lead, m, k = shape_of(a)
    n, count = shape_of(b)[-1], math.prod(lead)
    if not (count and m and n and k):
        return filled((*lead, m, n), a)
    return reshape(
        op.nn.batch_matmul(reshape(a, (count, m, k)), reshape(b, (count, k, n)), transpose_a=False, transpose_b=False),
        (*lead, m, n))


def diagonal(x: Expr) -> Expr:
    *lead, m, n = shape_of(x)
    count = min(m, n)
    if not count:
        return filled((*lead, 0), x)
    flat = reshape(x, (*lead, m * n))
    return op.strided_slice(flat, begin=(0,), end=((count - 1) * (n + 1) + 1,), strides=(n + 1,), axes=(len(lead),))


def triangle(x: Expr, upper: bool, offset: int = 0) -> Expr:
    """The upper or lower triangle of matrices from diagonal `offset`; the other elements are zero."""
    return x if not math.prod(shape_of(x)) else op.trilu(x, Constant(np.asarray(offset, np.int64)), upper=upper)


def rows_taken(x: Expr, rows: Expr) -> Expr:
    """Gather the rows of matrices: row k of the result is row `rows[..., k]` of `x`."""
    *lead, m, n = shape_of(x)
    if not math.prod(shape_of(x)):
        return x
    where = op.broadcast_to(reshape(rows, (*lead, m, 1)), shape=(*lead, m, n))
    return op.gather(x, where, axis=len(lead))


def lu(a: Expr, pivot: bool = True) -> tuple[Expr, Expr, Expr]:
    """The packed triangular factors, the pivots, and the first zero pivot."""
    packed, pivots, info = fields(op.linalg.lu(a, pivot=pivot), 3)
    return packed, pivots, info


def lu_solve(packed: Expr, pivots: Expr, b: Expr, adjoint: bool = False) -> Expr:
    """Solve A @ X = B, or with A transposed if `adjoint`, given the LU factors of A."""
    packed, b = aligned(packed, b)
    *lead, n, _ = shape_of(packed)
    order = op.linalg.permutation(pivots, size=n)
    rows = op.broadcast_to(order, shape=(*lead, n)) if shape_of(order) != (*lead, n) else order
    if not adjoint:
        y = op.linalg.solve_triangular(packed, rows_taken(b, rows), upper=False, unit=True)
        return op.linalg.solve_triangular(packed, y, upper=True)
    y = op.linalg.solve_triangular(transposed(packed), b, upper=False)
    y = op.linalg.solve_triangular(transposed(packed), y, upper=True, unit=True)
    return rows_taken(y, op.argsort(rows, axis=len(lead), dtype="int32")) if n else y


def solve(a: Expr, b: Expr) -> Expr:
    """Solve A @ X = B."""
    packed, pivots, _ = lu(a)
    return lu_solve(packed, pivots, b)


def inverse(a: Expr) -> Expr:
    """The inverse of square matrices; not finite if a matrix is singular."""
    *lead, n, _ = shape_of(a)
    return solve(a, identity(n, a, lead))


def sign_and_log(a: Expr) -> tuple[Expr, Expr]:
    """The sign of the determinant and the logarithm of its absolute value."""
    packed, pivots, _ = lu(a)
    along = (rank(a) - 2,)
    values = diagonal(packed)
    if not shape_of(a)[-1]:
        return filled(shape_of(a)[:-2], a, 1.0), filled(shape_of(a)[:-2], a)
    sign = op.multiply(swaps_sign(pivots, a), op.prod(op.sign(values), axis=along))
    return sign, op.sum(op.log(op.abs(values)), axis=along)


def swaps_sign(pivots: Expr, like: Expr) -> Expr:
    """-1 where the pivots of `lu` swap rows an odd number of times, else 1."""
    last, count = rank(pivots) - 1, shape_of(pivots)[-1]
    moved = op.not_equal(pivots, Constant(np.arange(1, count + 1, dtype=np.int32)))
    odd = op.floor_mod(op.sum(cast(moved, "int32"), axis=(last,)), Constant(np.asarray(2, np.int32)))
    return op.subtract(scalar(1, like), op.multiply(scalar(2, like), cast(odd, dtype_of(like))))


def determinant(a: Expr) -> Expr:
    return determinant_of(*lu(a)[:2])


def determinant_of(packed: Expr, pivots: Expr) -> Expr:
    """The determinants of matrices, given their LU factors."""
    if not shape_of(packed)[-1]:
        return filled(shape_of(packed)[:-2], packed, 1.0)
    return op.multiply(swaps_sign(pivots, packed), op.prod(diagonal(packed), axis=(rank(packed) - 2,)))


def qr(a: Expr, complete: bool) -> tuple[Expr, Expr]:
    """Q and R: all columns of Q and rows of R if `complete`, otherwise the first min(rows, columns)."""
    *_, m, n = shape_of(a)
    packed, factors = fields(op.linalg.geqrf(a), 2)
    count = m if complete else min(m, n)
    r = triangle(slice_axis(packed, rank(a) - 2, 0, count) if count < m else packed, True)
    return reflections(packed, factors, count), r


def reflections(packed: Expr, factors: Expr, count: int) -> Expr:
    """The first `count` columns of the product of the reflections from `linalg.geqrf`."""
    *lead, m, n = shape_of(packed)
    if count > n:
        packed = op.concatenate(Tuple((packed, filled((*lead, m, count - n), packed))), axis=len(lead) + 1)
    elif count < n:
        packed = slice_axis(packed, len(lead) + 1, 0, count)
    return op.linalg.householder_product(packed, factors)


def svd(a: Expr, full: bool = False) -> tuple[Expr, Expr, Expr]:
    """U, the singular values and V transposed; with `full`, U and V are square."""
    *lead, m, n = shape_of(a)
    if m < n:
        u, s, vh = svd(transposed(a), full)
        return transposed(vh), s, transposed(u)
    if not full or m == n:
        u, s, vh = fields(op.linalg.svd(a), 3)
        return u, s, vh
    q, r = qr(a, True)
    u, s, vh = fields(op.linalg.svd(slice_axis(r, len(lead), 0, n)), 3)
    left, rest = slice_axis(q, len(lead) + 1, 0, n), slice_axis(q, len(lead) + 1, n, m)
    return op.concatenate(Tuple((product(left, u), rest)), axis=len(lead) + 1) if n else q, s, vh


def eigh(a: Expr, lower: bool = True) -> tuple[Expr, Expr]:
    """The eigenvalues of symmetric matrices in ascending order, and the eigenvectors as columns."""
    values, vectors = fields(op.linalg.eigh(a, lower=lower), 2)
    return values, vectors


def power(a: Expr, n: int) -> Expr:
    """A to an integer power, by repeated squaring."""
    *lead, size, _ = shape_of(a)
    base, left = (inverse(a), -n) if n < 0 else (a, n)
    found: Expr | None = None
    while left:
        if left & 1:
            found = base if found is None else product(found, base)
        left >>= 1
        base = product(base, base) if left else base
    return identity(size, a, lead) if found is None else found


def kept_values(values: Expr, atol: Any, rtol: Any) -> Expr:
    """Whether each value (>= 0) of the last dimension exceeds both `atol` and `rtol` times the greatest value."""
    greatest = op.max(values, axis=(rank(values) - 1,), keepdims=True)
    bounds = [v if not isinstance(v, Expr) or not rank(v) else op.expand_dims(v, axis=rank(v)) for v in (atol, rtol)]
    absolute, relative = (cast(v, dtype_of(values)) if isinstance(v, Expr) else scalar(v, values) for v in bounds)
    return op.greater(values, op.maximum(op.multiply(greatest, relative), absolute))
