"""The number of keys that a block of queries needs: up to the last key that its mask does not hide.

    plain[b, h, j]  = min over the queries t of block j of first[b, h, t]         keys whose mask is zero
    limit[b, h, j]  = max over the queries t of block j of last[b, h, t]          all keys, if the squares are too large

`nn.attention` takes `first` and `last`, which `FuseAttention` computes from the mask: the first keys of query t have a
mask of zero, a key after the last ones has a mask below `HIDDEN`, and some key has one of at least `VISIBLE`. A hidden
key then has a weight of exactly zero: its score is at most `HIDDEN` plus a product of a query and a key, a visible key
has a score of at least `VISIBLE` minus such a product, and sums of squares bound the products. So the results are the
same, bit for bit, as without a limit. Heads with infinite, undefined or huge queries, keys or values need all keys,
because these may reach their results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright import te
from tilewright.base.types import INT64
from tilewright.scalar.expr import PrimExpr, Var, add, as_expr, cast, const, floordiv, if_then_else, minimum, mul

_MOST_SQUARES: Final = 1e28
"""Largest sum of squares of the queries, the keys and the values of a head for which keys are skipped."""
MOST_SCALE: Final = 10.0
"""Largest factor of the products for which keys are skipped; products are then at most 1e29."""


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """The number of keys [b, h, j] that block j of `block` queries needs, an int64, and the stages that compute it."""

    keys: te.Tensor
    block: int
    squares: tuple[te.Tensor, te.Tensor]
    """Sums of the squares of keys and of values [b, h]; `of_queries` are those of the queries of a block."""
    of_queries: te.Tensor
    last: te.Tensor
    """Maximum of the numbers of keys [b, h, j] that the queries of a block need."""
    plain: te.Tensor
    """Number of the first keys [b, h, j] whose mask is zero for all queries of a block, an int64."""

    def needs(self, b: PrimExpr, h: PrimExpr, s: PrimExpr, t: PrimExpr) -> PrimExpr:
        """Return the condition that query t needs key s."""
        return s < self.keys(b, h, floordiv(t, self.block))

    def is_plain(self, b: PrimExpr, h: PrimExpr, s: PrimExpr, t: PrimExpr) -> PrimExpr:
        """Return a condition under which key s has a mask of zero for query t."""
        return s < self.plain(b, h, floordiv(t, self.block))


def limit(
    turned: te.Tensor, key: te.Tensor, value: te.Tensor, first: te.Tensor, last: te.Tensor, sizes: tuple[int, int],
    starts: tuple[int, int], block: int, queries: int,
) -> KeyLimit:
    """Return the limit for blocks of `block` of the queries `turned` [b, h, d, t], which are padded at the end.

    Query t needs the first `last` [b or 1, h or 1, t or 1] keys, all if that is not between 1 and their number; the
    mask of the first `first` ones is zero.
    `sizes` are the columns of one head in `key` and `value`, `starts` the first columns of all heads.
    """
    batch, count, deep, padded = turned.extents
    shape, keys = (batch, count, padded // block), as_expr(key.extents[1])

    def over_block(of: te.Tensor, combine: Callable[..., PrimExpr], beyond: PrimExpr, name: str) -> te.Tensor:
        """Combine the numbers of the queries of a block; `beyond` is that of the padding."""
        r, own = te.reduce_axis((0, block), "r"), of.extents

        def combined(b: Var, h: Var, j: Var) -> PrimExpr:
            t = add(mul(j, block), r.var)
            n = cast(INT64, of(*(i if size > 1 else 0 for i, size in zip((b, h, t), own, strict=True))))
            n = if_then_else(n < 1, const(0, INT64), minimum(n, keys)) if of is first else if_then_else(n < 1, keys, n)
            return combine(if_then_else(t < queries, n, beyond) if own[2] > 1 else n, axis=r)

        return te.compute(shape, combined, name=name, axis_names=("b", "h", "j"))

    most = over_block(last, te.max, const(1, INT64), "last_key")
    plain = over_block(first, te.min, keys, "plain")
    squares = (
        _squares(key, count, sizes[0], starts[0], "key_squares"),
        _squares(value, count, sizes[1], starts[1], "value_squares"))
    d, q = te.reduce_axis((0, deep), "d"), te.reduce_axis((0, block), "q")

    def square(b: Var, h: Var, j: Var) -> PrimExpr:
        x = turned(b, h, d.var, add(mul(j, block), q.var))
        return te.sum(x * x, axis=[d, q])

    of_queries = te.compute(shape, square, name="query_squares", axis_names=("b", "h", "j"))

    def found(b: Var, h: Var, j: Var) -> PrimExpr:
        total = of_queries(b, h, j) + squares[0](b, h) + squares[1](b, h)
        return if_then_else(
            total < const(_MOST_SQUARES, "float32"), minimum(most(b, h, j), keys), keys)

    whole = te.compute(shape, found, name="limit", inline=False, axis_names=("b", "h", "j"))
    return KeyLimit(whole, block, squares, of_queries, most, plain)


def _squares(x: te.Tensor, heads: int, size: int, start: int, name: str) -> te.Tensor:
    """Return the sums of the squares [b, h] of the columns of a head."""
    batch, tokens, _ = x.extents
    s, d = te.reduce_axis((0, tokens), "s"), te.reduce_axis((0, size), "d")

    def square(b: Var, h: Var) -> PrimExpr:
        e = x(b, s.var, add(add(mul(h, size), d.var), start))
        return te.sum(e * e, axis=[s, d])

    return te.compute((batch, heads), square, name=name, axis_names=("b", "h"))
