"""Products of matrices and vectors by numpy's rule, for the converters of all frontends. Shapes may be symbolic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import reshape, same_size, transpose
from tilewright.relay.types_of import rank, shape_of


def matrix_product(a: Expr, b: Expr, *, transposes: bool = False) -> Expr:
    """Numpy's matrix product: vectors become matrices, and leading dimensions broadcast.

    `transposes` gives stacks of matrices to `nn.batch_matmul` with the second one transposed.
    """
    n, m = rank(a), rank(b)
    if n == 1:
        product = matrix_product(reshape(a, (1, *shape_of(a))), b, transposes=transposes)
        dims = shape_of(product)
        return reshape(product, (*dims[:-2], *dims[-1:]) if m > 1 else dims[:-1])
    if m == 1:
        product = matrix_product(a, reshape(b, (*shape_of(b), 1)), transposes=transposes)
        return reshape(product, shape_of(product)[:-1])
    if m == 2:
        return times_matrix(a, transpose(b, (1, 0)))
    lead = broadcast_shape([shape_of(a)[:-2] or (1,), shape_of(b)[:-2]])
    left, right = _stacked(a, lead), _stacked(b, lead)
    if transposes:
        right = transpose(right, (0, 2, 1))
    product = op.nn.batch_matmul(left, right, transpose_a=False, transpose_b=transposes)
    return product if len(lead) == 1 else reshape(product, (*lead, *shape_of(product)[1:]))


def times_matrix(a: Expr, weight: Expr) -> Expr:
    """a @ weight.T; all but the last dimension of `a` count as rows."""
    units, dims = shape_of(weight)[0], shape_of(a)
    rows = a if len(dims) == 2 else reshape(a, (-1, dims[-1]))
    product = op.nn.dense(rows, weight, units=units) if isinstance(units, int) else op.nn.dense(rows, weight)
    return product if len(dims) == 2 else reshape(product, (*dims[:-1], units))


def broadcast_shape(shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The common broadcast shape."""
    found: list[Any] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for k, d in enumerate(reversed(shape), 1):
            if not (isinstance(d, int) and d == 1):
                found[-k] = d
    return tuple(found)


def _stacked(x: Expr, lead: tuple[Any, ...]) -> Expr:
    """`x` (..., m, n) with one leading dimension: 1 if it does not vary along them, else the product of `lead`."""
    *own, rows, columns = shape_of(x)
    if all(isinstance(d, int) and d == 1 for d in own):
        return reshape(x, (1, rows, columns))
    if len(own) != len(lead) or not all(map(same_size, own, lead)):
        x = op.broadcast_to(x, shape=(*lead, rows, columns))
    if len(lead) == 1:
        return x
    static = all(isinstance(d, int) for d in lead)
    return reshape(x, (math.prod(lead) if static else -1, rows, columns))
