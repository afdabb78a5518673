"""Scaled dot-product attention in one kernel: the scores of a block of queries never leave the cache.

    turned[b, h, d, t]  = query[b, t, h*D + d]                                        queries become lanes
    scores[b, h, s, t]  = (sum over d of key[b, s, h*D + d] * turned[b, h, d, t]) * scale + mask[b, h, s, t]
    powers[b, h, s, t]  = exp(scores - max over s)
    out[b, t, h*E + e]  = (sum over s of powers[b, h, s, t] * value[b, s, h*E + e]) / (sum over s of powers)

Scores are stored by key, with the queries along the vectors: maxima and sums then run over the keys in all lanes at
once, and keys and values are read in place. Only queries are transposed, a block at a time. In bfloat16, `turned` holds
pairs of neighbours along `d`, `powers` pairs of keys, and the values are packed in such pairs (`dots.PAIRS`); scores,
maxima and sums are float32.

Blocks of many queries of symbolic sizes stop at the last key that their mask does not hide (`key_limit.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from tilewright import te
from tilewright.backends.cpu.strategies import key_limit
from tilewright.backends.cpu.strategies.dots import Along, Dot, dot_of
from tilewright.backends.cpu.strategies.key_limit import KeyLimit
from tilewright.backends.cpu.strategies.products import rows_tile, unroll
from tilewright.backends.cpu.strategies.schedules import open_rows
from tilewright.backends.cpu.strategies.schedules.attention import AttentionSchedule
from tilewright.backends.cpu.strategies.tiles import Tile, register_tile, whole_tile
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.machine import Machine
from tilewright.base.types import DataType, OpenSize
from tilewright.scalar.expr import (
    PrimExpr,
    Var,
    add,
    as_expr,
    cast,
    const,
    floordiv,
    floormod,
    if_then_else,
    maximum,
    mul,
)
from tilewright.scalar.intrinsics import dot2, exp

_FEW_KEYS: Final = -1
_LEAST: Final = -87.0
"""An argument of exp whose result is a normal number of float32."""
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
    query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None,
    ends: tuple[te.Tensor, te.Tensor] | None, heads: Heads, scale: float, causal: bool, options: KernelOptions,
) -> te.Tensor:
    """Return softmax of scaled products of `query` [b, t, …] and `key` [b, s, …], times `value` [b, s, …], as [b, t,
    heads*width].

    `mask` [b or 1, heads or 1, s, t or 1] is added to the scaled products. `ends` are `first` and `last` of
    `nn.attention`. With `causal`, query t attends to keys up to
    index t + (number of keys - number of queries).
    """
    (batch, queries, _), keys = query.extents, key.extents[1]
    dot = dot_of(query.dtype, value.dtype, "float32", heads.size, options)
    dtype = dot.accumulator(query.dtype if query.dtype.bits > 16 else "float32")
    blocks, block = _blocks(queries, keys, options)
    padded = blocks * block
    deep, steps = heads.size // dot.width, -(-keys // dot.width)
    first = rows_tile(keys, block, deep, options)
    if isinstance(keys, OpenSize) and options.height == _FEW_KEYS:
        first = replace(first, rows=1)
    second = (
        whole_tile(block, heads.width, steps, options) if isinstance(blocks, OpenSize)
        else _second_tile(register_tile(block, heads.width, steps, options), block)
    )
    turned = _turned(query, heads, dot, padded)
    products = _products(key, turned, heads, dot, dtype)
    limit = None
    if ends is not None and _may_skip(queries, keys, scale, causal, dot, dtype, options):
        sizes = heads.size, heads.width
        limit = key_limit.limit(turned, key, value, *ends, sizes, heads.starts[1:], block, queries)
    scores = _scores(products, mask, scale, causal, queries, keys, limit)
    most, powers, total, inverse = _softmax(scores, dot, dtype, value.dtype, limit)
    packed = None if dot.width == 1 else _packed(value, heads, dot)
    schedule = AttentionSchedule(
        turned=turned, products=products, scores=scores, most=most, powers=powers, total=total, inverse=inverse,
        packed=packed, limit=limit, heads=heads.count, blocks=blocks, block=block, first=first, second=second,
        depth_unroll=unroll(deep, options),
        keys_unroll=1 if isinstance(steps, OpenSize) else unroll(steps, options),
        heights=_heights(queries, keys, options.machine),
        flops=2 * batch * heads.count * queries * keys * (heads.size + heads.width),
    )
    context = te.compute(
        (batch, padded if isinstance(queries, OpenSize) else queries, heads.count * heads.width),
        _weighted(powers, value, packed, heads, dtype, limit), name="context", axis_names=("b", "t", "c"),
        schedule=schedule,
    )
    return te.compute(
        (batch, queries, heads.count * heads.width),
        lambda b, t, c: cast(query.dtype, context(b, t, c) * inverse(b, floordiv(c, heads.width), t)), name="attention",
        axis_names=("b", "t", "c"),
    )


def _may_skip(
    queries: int, keys: int, scale: float, causal: bool, dot: Dot, dtype: DataType, options: KernelOptions
) -> bool:
    """Return whether blocks of queries look for the last key that their mask does not hide: blocks of many queries of
    symbolic sizes."""
    return (
        isinstance(queries, OpenSize) and isinstance(keys, OpenSize) and options.height in (0, _MOST_VECTORS)
        and dtype.bits == 32 and dot.width == 1 and not causal and abs(scale) <= key_limit.MOST_SCALE
    )


def _turned(query: te.Tensor, heads: Heads, dot: Dot, padded: int) -> te.Tensor:
    """Return the queries [b, h, d, t] as steps of the sum over d, with `padded` t, zero beyond the last query."""
    batch, queries, _ = query.extents

    def turn(b: Var, h: Var, d: Var, t: Var) -> PrimExpr:
        x = dot.element(lambda e: query(b, t, add(add(mul(h, heads.size), e), heads.starts[0])), d)
        return if_then_else(t < queries, x, dot.zero(query.dtype)) if padded != queries else x

    return te.compute(
        (batch, heads.count, heads.size // dot.width, padded), turn, name="turned", inline=False,
        axis_names=("b", "h", "d", "t")
    )


def _products(key: te.Tensor, turned: te.Tensor, heads: Heads, dot: Dot, dtype: DataType) -> te.Tensor:
    """Return the products [b, h, s, t] of keys and queries, summed in `dtype`."""
    batch, count, deep, padded = turned.extents
    d = te.reduce_axis((0, deep), "d")

    def product(b: Var, h: Var, s: Var, t: Var) -> PrimExpr:
        return te.sum(
            dot.product(
                lambda e: key(b, s, add(add(mul(h, heads.size), e), heads.starts[1])), d.var, turned(b, h, d.var, t),
                dtype
            ), axis=d
        )

    return te.compute(
        (batch, count, key.extents[1], padded), product, name="products", axis_names=("b", "h", "s", "t")
    )


def _scores(
    products: te.Tensor, mask: te.Tensor | None, scale: float, causal: bool, queries: int, keys: int,
    limit: KeyLimit | None,
) -> te.Tensor:
    """Return the products [b, h, s, t] scaled and masked, as a tensor; t may be padded beyond the queries."""
    dtype, filled_up = products.dtype, products.extents[3] != queries

    def score(b: Var, h: Var, s: Var, t: Var) -> PrimExpr:
        x = products(b, h, s, t) * const(scale, dtype)
        if mask is not None:
            sizes = mask.extents
            added = cast(dtype, mask(*(i if size > 1 else 0 for i, size in zip((b, h, s, t), sizes, strict=True))))
            added = if_then_else(t < queries, added, const(0, dtype)) if filled_up and sizes[3] > 1 else added
            x = if_then_else(limit.is_plain(b, h, s, t), x, x + added) if limit is not None else x + added
        return if_then_else(s <= t + (keys - queries), x, te.min_value(dtype)) if causal else x

    return te.compute(products.shape, score, name="scores", inline=False, axis_names=("b", "h", "s", "t"))


def _along_keys(dot: Dot, at: Along, s: PrimExpr, keys: int, dtype: DataType) -> PrimExpr:
    """Return the values of step `s` of the sum over keys, zero beyond the last key."""
    zero = const(0, dtype)
    return dot.element((lambda e: if_then_else(as_expr(e) < keys, at(e), zero)) if keys % dot.width else at, s)


def _softmax(
    scores: te.Tensor, dot: Dot, dtype: DataType, out_dtype: DataType, limit: KeyLimit | None
) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    """Return the maximum [b, h, t] over the keys, exp(scores - maximum) [b, h, s, t] of `out_dtype` as steps of the sum
    over keys, these sums of `dtype`, and their inverses. Keys at and after the `limit` do not count."""
    batch, heads, keys, padded = scores.extents
    steps, row = -(-keys // dot.width), ("b", "h", "t")
    r, q = te.reduce_axis((0, keys), "r"), te.reduce_axis((0, steps), "q")
    most = te.compute(
        (batch, heads, padded), lambda b, h, t: te.max(
            scores(b, h, r.var, t) if limit is None
            else if_then_else(limit.needs(b, h, r.var, t), scores(b, h, r.var, t), const(-inf, dtype)), axis=r),
        name="most", axis_names=row
    )

    weight = _exp_or_zero if isinstance(keys, OpenSize) and dtype.bits == 32 else exp

    def power(b: Var, h: Var, s: Var, t: Var) -> PrimExpr:
        return _along_keys(
            dot, lambda e: cast(out_dtype, weight(scores(b, h, e, t) - most(b, h, t))), s, keys, out_dtype)

    powers = te.compute(
        (batch, heads, steps, padded), power, name="powers", inline=False, axis_names=("b", "h", "s", "t")
    )
    total = te.compute(
        most.shape, lambda b, h, t: te.sum(
            dot.sum(powers(b, h, q.var, t), dtype) if limit is None
            else if_then_else(limit.needs(b, h, q.var, t), dot.sum(powers(b, h, q.var, t), dtype), const(0, dtype)),
            axis=q),
        name="total", axis_names=row
    )
    inverse = te.compute(
        most.shape, lambda b, h, t: const(1, dtype) / total(b, h, t), name="inverse", inline=False, axis_names=row
    )
    return most, powers, total, inverse


def _exp_or_zero(x: PrimExpr) -> PrimExpr:
    """Return exp(x), or zero where it is below the normal numbers: processors take a hundred cycles for such a result,
    and masks hide keys by scores far below the others."""
    return exp(maximum(x, _LEAST)) * cast(x.dtype, x > _LEAST)


def _packed(value: te.Tensor, heads: Heads, dot: Dot) -> te.Tensor:
    """Return the values [b, h, s, c] as steps of the sum over keys."""
    batch, keys, _ = value.extents
    return te.compute(
        (batch, heads.count, -(-keys // dot.width), heads.width),
        lambda b, h, s, c: _along_keys(
            dot, lambda e: value(b, e, add(add(mul(h, heads.width), c), heads.starts[2])), s, keys, value.dtype
        ), name="packed", inline=False, axis_names=("b", "h", "s", "c"),
    )


def _weighted(
    powers: te.Tensor, value: te.Tensor, packed: te.Tensor | None, heads: Heads, dtype: DataType,
    limit: KeyLimit | None,
) -> Callable[[Var, Var, Var], PrimExpr]:
    """Return the element [b, t, c] of the product of powers and values, a sum over keys."""
    s = te.reduce_axis((0, powers.extents[2]), "s")

    def weighted(b: Var, t: Var, c: Var) -> PrimExpr:
        h = floordiv(c, heads.width)
        power: PrimExpr = powers(b, h, s.var, t)
        if limit is not None:
            power = if_then_else(limit.needs(b, h, s.var, t), power, const(0, power.dtype))
        if packed is None:
            return te.sum(cast(dtype, power) * cast(dtype, value(b, s.var, add(c, heads.starts[2]))), axis=s)
        return te.sum(
            dot2(power, packed(b, h, s.var, floormod(c, heads.width)), const(0, dtype), dtype=dtype), axis=s
        )

    return weighted


def _blocks(queries: int, keys: int, options: KernelOptions) -> tuple[int, int]:
    """Return the number of blocks and the queries per block, in whole vectors, whose scores fit the second-level cache.
    """
    lanes = options.machine.lanes("float32")
    if isinstance(queries, OpenSize) or isinstance(keys, OpenSize):
        block = lanes * (1 if options.height == _FEW_KEYS else options.height or _MOST_VECTORS)
        return -(-queries // block), block
    vectors = -(-queries // lanes)
    blocks = -(-vectors // max(1, options.machine.l2_bytes // 4 // (4 * keys * lanes)))
    each = -(-vectors // blocks)
    return -(-vectors // each), each * lanes


def _heights(queries: int, keys: int, machine: Machine) -> open_rows.Heights:
    """Return the heights for symbolic sizes, as vectors of queries in a block; one vector for few keys."""
    if not isinstance(queries, OpenSize) and not isinstance(keys, OpenSize):
        return ()
    vectors = -(-queries // machine.lanes("float32"))
    blocks = open_rows.whole_or_single(vectors, _MOST_VECTORS) or ((_MOST_VECTORS, const(1, "bool")),)
    return (
        (_FEW_KEYS, open_rows.fewer_than(keys, open_rows.MOST_OPEN_ROWS)), *blocks
    ) if isinstance(keys, OpenSize) else blocks


def _second_tile(tile: Tile, block: int) -> Tile:
    """Return the tile with a number of rows that divides the block."""
    return Tile(next(r for r in range(tile.rows, 0, -1) if block % r == 0), tile.vectors, tile.lanes)
