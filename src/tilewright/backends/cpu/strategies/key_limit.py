"""The number of keys that a block of queries needs: up to the last key that its mask does not hide.

    rows[b, h, t]   = 1 + the last key s with mask[b, h, s, t] >= HIDDEN                 keys, if there is none
    limit[b, h, j]  = max over the queries t of block j of rows[b, h, t]                 keys, if weights may differ

A hidden key has a weight of exactly zero: its score is at most HIDDEN plus a product of a query and a key, a visible
key has a score of at least VISIBLE minus such a product, and sums of squares bound the products. So the results are the
same, bit for bit, as without a limit. All keys are needed by

- a query that has no visible key, or whose mask has a value between HIDDEN and VISIBLE, or a NaN;
- a head with infinite, undefined or huge queries, keys or values, because they make its results so, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright import te
from tilewright.base.types import INT64
from tilewright.scalar.expr import PrimExpr, Var, add, as_expr, cast, const, floordiv, if_then_else, mul

_HIDDEN: Final = -1e30
"""A mask below this hides a key: a sum with a product is below it, too, within the precision of float32."""
_VISIBLE: Final = -1e29
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
    rows: te.Tensor
    """Number of keys [b, h, t] that a query needs; 0 for a query without visible keys."""
    most: te.Tensor
    """Maximum of `rows` [b, h, j] over the queries of a block."""

    def needs(self, b: PrimExpr, h: PrimExpr, s: PrimExpr, t: PrimExpr) -> PrimExpr:
        """Return the condition that query t needs key s."""
        return s < self.keys(b, h, floordiv(t, self.block))


def limit(
    turned: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor, sizes: tuple[int, int],
    starts: tuple[int, int], block: int, queries: int,
) -> KeyLimit:
    """Return the limit for blocks of `block` of the queries `turned` [b, h, d, t], which are padded at the end.

    `sizes` are the columns of one head in `key` and `value`, `starts` the first columns of all heads.
    """
    batch, count, deep, padded = turned.extents
    blocks, keys = padded // block, key.extents[1]
    rows = _rows(mask, batch, count, padded, keys, queries)
    r = te.reduce_axis((0, block), "r")

    def needed(b: Var, h: Var, j: Var) -> PrimExpr:
        own = rows(b, h, add(mul(j, block), r.var))
        return te.max(if_then_else(own < 1, cast("int32", as_expr(keys)), own), axis=r)

    most = te.compute((batch, count, blocks), needed, name="farthest", axis_names=("b", "h", "j"))
    squares = (
        _squares(key, count, sizes[0], starts[0], "key_squares"),
        _squares(value, count, sizes[1], starts[1], "value_squares"))
    d, q = te.reduce_axis((0, deep), "d"), te.reduce_axis((0, block), "q")

    def square(b: Var, h: Var, j: Var) -> PrimExpr:
        x = turned(b, h, d.var, add(mul(j, block), q.var))
        return te.sum(x * x, axis=[d, q])

    of_queries = te.compute(most.shape, square, name="query_squares", axis_names=("b", "h", "j"))

    def found(b: Var, h: Var, j: Var) -> PrimExpr:
        total = of_queries(b, h, j) + squares[0](b, h) + squares[1](b, h)
        return if_then_else(
            total < const(_MOST_SQUARES, "float32"), cast(INT64, most(b, h, j)), as_expr(keys))

    whole = te.compute(most.shape, found, name="limit", inline=False, axis_names=("b", "h", "j"))
    return KeyLimit(whole, block, squares, of_queries, rows, most)


def _rows(mask: te.Tensor, batch: int, heads: int, padded: int, keys: int, queries: int) -> te.Tensor:
    """Return one more than the last key that a query needs; 0 without visible keys, 1 beyond the queries."""
    s = te.reduce_axis((0, keys), "s")
    sizes = mask.extents
    all_keys = cast("int32", as_expr(keys))

    def row(b: Var, h: Var, t: Var) -> PrimExpr:
        x = mask(*(i if size > 1 else 0 for i, size in zip((b, h, s.var, t), sizes, strict=True)))
        one = cast("int32", s.var + 1)
        own = if_then_else(x < _HIDDEN, const(0, "int32"), if_then_else(x >= _VISIBLE, one, all_keys))
        return te.max(if_then_else(t < queries, own, const(1, "int32")) if sizes[3] > 1 else own, axis=s)

    return te.compute((batch, heads, padded), row, name="needed", axis_names=("b", "h", "t"))


def _squares(x: te.Tensor, heads: int, size: int, start: int, name: str) -> te.Tensor:
    """Return the sums of the squares [b, h] of the columns of a head."""
    batch, tokens, _ = x.extents
    s, d = te.reduce_axis((0, tokens), "s"), te.reduce_axis((0, size), "d")

    def square(b: Var, h: Var) -> PrimExpr:
        e = x(b, s.var, add(add(mul(h, size), d.var), start))
        return te.sum(e * e, axis=[s, d])

    return te.compute((batch, heads), square, name=name, axis_names=("b", "h"))
