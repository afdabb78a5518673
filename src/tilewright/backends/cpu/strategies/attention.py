"""Scaled dot-product attention in one kernel: the scores of a block of queries never leave the cache.

    turned[b, h, d, t]  = query[b, t, h*D + d]                                        queries become lanes
    scores[b, h, s, t]  = (sum over d of key[b, s, h*D + d] * turned[b, h, d, t]) * scale + mask[b, h, s, t]
    powers[b, h, s, t]  = exp(scores - max over s)
    out[b, t, h*E + e]  = (sum over s of powers[b, h, s, t] * value[b, s, h*E + e]) / (sum over s of powers)

Scores are stored by key, with the queries along the vectors: maxima and sums then run over the keys in all lanes at
once, and keys and values are read in place. Only queries are transposed, a block at a time. In bfloat16, `turned` holds
pairs of neighbours along `d`, `powers` pairs of keys, and the values are packed in such pairs (`dots.PAIRS`); scores,
maxima and sums are float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tilewright import te
from tilewright.backends.cpu.strategies.dots import Along, dot_of
from tilewright.backends.cpu.strategies.products import rows_tile, unroll
from tilewright.backends.cpu.strategies.schedules import open_rows
from tilewright.backends.cpu.strategies.schedules.attention import AttentionSchedule
from tilewright.backends.cpu.strategies.tiles import Tile, register_tile
from tilewright.base.types import OpenSize
from tilewright.scalar.expr import PrimExpr, Var, add, as_expr, cast, const, floordiv, floormod, if_then_else, mul
from tilewright.scalar.intrinsics import dot2, exp
from tilewright.topi import machine

_FEW_KEYS: Final = -1
_MOST_VECTORS: Final = 4
"""Largest number of query vectors in a block, if the number of queries is symbolic."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Columns of the heads: head h of a query is `query[b, t, starts[0] + h*size : … + size]`; heads of values are
    `width` columns wide."""

    count: int
    size: int
    width: int
    starts: tuple[int, int, int]


def attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None, heads: Heads, scale: float, causal: bool
) -> te.Tensor:
    """Return softmax of scaled products of `query` [b, t, …] and `key` [b, s, …], times `value` [b, s, …], as [b, t,
    heads*width].

    `mask` [b or 1, heads or 1, s, t or 1] is added to the scaled products; with `causal`, query t attends to keys up to
    index t + (number of keys - number of queries).
    """
    batch, queries = query.extents[:2]
    keys, cpu = key.extents[1], machine.current()
    dot = dot_of(query.dtype, value.dtype, "float32", heads.size)
    dtype = dot.accumulator(query.dtype if query.dtype.bits > 16 else "float32")
    blocks, block = _blocks(queries, keys, cpu)
    padded = blocks * block
    deep, steps = heads.size // dot.width, -(-keys // dot.width)
    first = rows_tile(keys, block, deep)
    if isinstance(keys, OpenSize) and open_rows.current() == _FEW_KEYS:
        first = replace(first, rows=1)
    second = _second_tile(register_tile(block, heads.width, int(steps), cpu), block)
    at_query, at_key, at_value = heads.starts

    def turn(b: Var, h: Var, d: Var, t: Var) -> PrimExpr:
        x = dot.element(lambda e: query(b, t, add(add(mul(h, heads.size), e), at_query)), d)
        return if_then_else(t < queries, x, dot.zero(query.dtype)) if padded != queries else x

    turned = te.compute(
        (batch, heads.count, deep, padded), turn, name="turned", inline=False, axis_names=("b", "h", "d", "t")
    )
    d = te.reduce_axis((0, deep), "d")

    def product(b: Var, h: Var, s: Var, t: Var) -> PrimExpr:
        return te.sum(
            dot.product(
                lambda e: key(b, s, add(add(mul(h, heads.size), e), at_key)), d.var, turned(b, h, d.var, t), dtype
            ), axis=d
        )

    products = te.compute((batch, heads.count, keys, padded), product, name="products", axis_names=("b", "h", "s", "t"))

    scores = _scores(products, mask, scale, causal, queries, keys)
    r = te.reduce_axis((0, keys), "r")
    most = te.compute(
        (batch, heads.count, padded), lambda b, h, t: te.max(scores(b, h, r.var, t), axis=r), name="most",
        axis_names=("b", "h", "t")
    )

    def along_keys(at: Along, s: PrimExpr) -> PrimExpr:
        """Return the values of one step of the sum over keys, zero beyond the last key."""
        zero = const(0, value.dtype)
        return dot.element((lambda e: if_then_else(as_expr(e) < keys, at(e), zero)) if keys % dot.width else at, s)

    def power(b: Var, h: Var, s: Var, t: Var) -> PrimExpr:
        return along_keys(lambda e: cast(value.dtype, exp(scores(b, h, e, t) - most(b, h, t))), s)

    powers = te.compute(
        (batch, heads.count, steps, padded), power, name="powers", inline=False, axis_names=("b", "h", "s", "t")
    )
    q = te.reduce_axis((0, steps), "q")
    total = te.compute(
        (batch, heads.count, padded), lambda b, h, t: te.sum(dot.sum(powers(b, h, q.var, t), dtype), axis=q),
        name="total", axis_names=("b", "h", "t")
    )
    inverse = te.compute(
        total.shape, lambda b, h, t: const(1, dtype) / total(b, h, t), name="inverse", inline=False,
        axis_names=("b", "h", "t")
    )
    packed = None if dot.width == 1 else te.compute(
        (batch, heads.count, steps, heads.width),
        lambda b, h, s, c: along_keys(lambda e: value(b, e, add(add(mul(h, heads.width), c), at_value)), s),
        name="packed", inline=False, axis_names=("b", "h", "s", "c"),
    )
    s = te.reduce_axis((0, steps), "s")

    def weighted(b: Var, t: Var, c: Var) -> PrimExpr:
        h = floordiv(c, heads.width)
        if packed is None:
            return te.sum(cast(dtype, powers(b, h, s.var, t)) * cast(dtype, value(b, s.var, add(c, at_value))), axis=s)
        return te.sum(
            dot2(powers(b, h, s.var, t), packed(b, h, s.var, floormod(c, heads.width)), const(0, dtype), dtype=dtype),
            axis=s
        )

    schedule = AttentionSchedule(
        turned=turned, products=products, scores=scores, most=most, powers=powers, total=total, inverse=inverse,
        packed=packed, heads=heads.count, blocks=blocks, block=block, first=first, second=second,
        depth_unroll=unroll(deep), keys_unroll=1 if isinstance(steps, OpenSize) else unroll(steps),
        heights=_heights(queries, keys, cpu),
        flops=2 * batch * heads.count * queries * keys * (heads.size + heads.width),
    )
    context = te.compute(
        (batch, padded if isinstance(queries, OpenSize) else queries, heads.count * heads.width), weighted,
        name="context", axis_names=("b", "t", "c"), schedule=schedule,
    )
    return te.compute(
        (batch, queries, heads.count * heads.width),
        lambda b, t, c: cast(query.dtype, context(b, t, c) * inverse(b, floordiv(c, heads.width), t)), name="attention",
        axis_names=("b", "t", "c"),
    )


def _scores(
    products: te.Tensor, mask: te.Tensor | None, scale: float, causal: bool, queries: int, keys: int
) -> te.Tensor:
    """Return the products [b, h, s, t] scaled and masked, as a tensor; t may be padded beyond the queries."""
    dtype, filled_up = products.dtype, products.extents[3] != queries

    def score(b: Var, h: Var, s: Var, t: Var) -> PrimExpr:
        x = products(b, h, s, t) * const(scale, dtype)
        if mask is not None:
            sizes = mask.extents
            added = cast(dtype, mask(*(i if size > 1 else 0 for i, size in zip((b, h, s, t), sizes, strict=True))))
            x = x + (if_then_else(t < queries, added, const(0, dtype)) if filled_up and sizes[3] > 1 else added)
        return if_then_else(s <= t + (keys - queries), x, te.min_value(dtype)) if causal else x

    return te.compute(products.shape, score, name="scores", inline=False, axis_names=("b", "h", "s", "t"))


def _blocks(queries: int, keys: int, cpu: machine.Machine) -> tuple[int, int]:
    """Return the number of blocks and the queries per block, in whole vectors, whose scores fit the second-level cache.
    """
    lanes = cpu.lanes("float32")
    if isinstance(queries, OpenSize) or isinstance(keys, OpenSize):
        block = lanes * (1 if (height := open_rows.current()) == _FEW_KEYS else height or _MOST_VECTORS)
        return -(-queries // block), block
    vectors = -(-queries // lanes)
    blocks = -(-vectors // max(1, cpu.l2_bytes // 4 // (4 * keys * lanes)))
    each = -(-vectors // blocks)
    return -(-vectors // each), each * lanes


def _heights(queries: int, keys: int, cpu: machine.Machine) -> open_rows.Heights:
    """Return the heights for symbolic sizes, as vectors of queries in a block, with the minimum number of blocks; one
    vector for few keys."""
    if not isinstance(queries, OpenSize) and not isinstance(keys, OpenSize):
        return ()
    lanes = cpu.lanes("float32")
    vectors = -(-queries // lanes)
    blocks = open_rows.balanced(vectors, _MOST_VECTORS) or ((_MOST_VECTORS, const(1, "bool")),)
    return (
        (_FEW_KEYS, open_rows.fewer_than(keys, open_rows.MOST_OPEN_ROWS)), *blocks
    ) if isinstance(keys, OpenSize) else blocks


def _second_tile(tile: Tile, block: int) -> Tile:
    """Return the tile with a number of rows that divides the block."""
    return Tile(next(r for r in range(tile.rows, 0, -1) if block % r == 0), tile.vectors, tile.lanes)


