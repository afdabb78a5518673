"""com.microsoft: attention with heads, masks, caches and rotary embeddings, expanded to products and softmax."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.onnx import linear
from tilewright.relay.frontend.onnx.contrib_quantized import real
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, number, reshape, slice_axis, transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

MICROSOFT: Final = "com.microsoft"


def heads_of(x: Expr, count: int) -> Expr:
    """Split (batch, tokens, heads * size) into (batch, heads, tokens, size)."""
    batch, tokens = shape_of(x)[:2]
    return transpose(reshape(x, (batch, tokens, count, -1)), (0, 2, 1, 3))


def attend(q: Expr, k: Expr, v: Expr, masks: list[Expr], scale: float, node: Node) -> tuple[Expr, Expr]:
    """softmax(q k^T scale + masks) v as (batch, tokens, heads * size), and the scores before the softmax.

    `q`, `k` and `v` are (batch, heads, tokens, size).
    """
    scores = linear.matmul(q, transpose(k, (0, 1, 3, 2)), node=node)
    scores = op.multiply(scores, scalar(scale or 1 / math.sqrt(node.static(q, "query")[3]), scores))
    for mask in masks:
        scores = op.add(scores, cast(mask, dtype_of(scores)))
    return joined(linear.matmul(op.nn.softmax(scores, axis=-1), v, node=node)), scores


def joined(x: Expr) -> Expr:
    """Merge (batch, heads, tokens, size) into (batch, tokens, heads * size)."""
    batch, heads, tokens, size = shape_of(x)
    return reshape(transpose(x, (0, 2, 1, 3)), (batch, tokens, heads * size))


def least(x: Expr) -> float:
    return float(np.finfo(dtype_of(x).numpy()).min)


def causal_mask(q: Expr, keys: int, node: Node) -> Expr:
    """A mask to add to scores that hides later tokens from each token; the last token sees all keys."""
    tokens = node.static(q, "query")[2]
    seen = np.arange(keys) <= np.arange(tokens)[:, None] + (keys - tokens)
    return Constant(np.where(seen, 0, least(q)).astype(dtype_of(q).numpy())[None, None])


def padding_mask(mask: Expr, keys: int, filler: float, like: Expr, node: Node) -> Expr:
    """Convert an integer mask to summands of the scores (batch, heads, tokens, keys): 0, or `filler` for masked keys.

    Shape (batch,) holds the number of keys; (2 * batch,) holds the ends of the keys, then their starts. Shapes (batch,
    keys), (batch, tokens, keys) and (batch, 1, most, most) hold 1 for keys to keep.
    """
    batch = shape_of(like)[0]
    place = Constant(np.arange(keys, dtype=np.int32)[None])
    if rank(mask) == 1 and shape_of(mask)[0] in (batch, 2 * batch):
        kept = op.less(place, op.expand_dims(slice_axis(mask, 0, 0, batch), axis=1))
        if shape_of(mask)[0] == 2 * batch:
            kept = op.logical_and(kept, op.greater_equal(place, op.expand_dims(slice_axis(mask, 0, batch, 2 * batch),
                axis=1)))
    elif rank(mask) in (2, 3, 4):
        if rank(mask) == 4:
            tokens = node.static(like, "query")[2]
            mask = slice_axis(slice_axis(reshape(mask, (batch, *shape_of(mask)[2:])), 1, keys - tokens, keys), 2, 0,
                              keys)
        kept = op.greater(mask, scalar(0, mask))
    else:
        node.refuse(f"a mask of shape {shape_of(mask)} is not supported; export with one of the shapes (batch,), "
                    "(batch, keys) or (batch, queries, keys)")
    kept = op.expand_dims(kept, axis=1, num_newaxis=4 - rank(kept))
    return op.where(kept, scalar(0, like), scalar(filler, like))


def _with_past(past: Expr | None, present: Expr) -> Expr:
    return present if past is None else op.concatenate(Tuple((past, present)), axis=2)


@converter("Attention", domain=MICROSOFT)
def attention(
    input: Expr, weights: Expr, bias: Expr | None = None, mask_index: Expr | None = None, past: Expr | None = None,
    attention_bias: Expr | None = None, past_sequence_length: Expr | None = None, *, do_rotary: int = 0,
    mask_filter_value: float = -10000.0, num_heads: int, past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] = (), rotary_embedding_dim: int = 0, scale: float = 0.0, unidirectional: int = 0,
    node: Node,
) -> tuple[Expr, ...]:
    """Query, key and value come from one product; `past` and the second result are (2, batch, heads, tokens, size)."""
    if do_rotary or past_present_share_buffer:
        node.refuse("do_rotary and past_present_share_buffer are not supported; export without them")
    product = linear.matmul(input, weights, node=node)
    return _self_attention(product if bias is None else op.add(product, bias), mask_index, past, attention_bias,
                           num_heads, qkv_hidden_sizes,
                           mask_filter_value, scale, bool(unidirectional), node)


def _self_attention(
    product: Expr, mask: Expr | None, past: Expr | None, bias: Expr | None, heads: int, sizes: tuple[int, ...],
    filler: float, scale: float, unidirectional: bool, node: Node,
) -> tuple[Expr, ...]:
    width = node.static(product, "input")[2]
    each = sizes or (width // 3,) * 3
    ends = np.cumsum(each)
    q, k, v = (heads_of(slice_axis(product, 2, int(end) - n, int(end)), heads)
               for end, n in zip(ends, each, strict=True))
    if past is not None:
        k, v = (_with_past(reshape(slice_axis(past, 0, j, j + 1), shape_of(past)[1:]), x) for j, x in enumerate((k, v)))
    keys = node.static(k, "key")[2]
    masks = [bias] if bias is not None else []
    if mask is not None:
        masks.append(padding_mask(mask, keys, filler, q, node))
    if unidirectional:
        masks.append(causal_mask(q, keys, node))
    present = op.stack(Tuple((k, v)), axis=0) if any(node.outputs[1:]) else Tuple(())
    return attend(q, k, v, masks, scale, node)[0], present


@converter("QAttention", domain=MICROSOFT)
def quantized_attention(
    input: Expr, weight: Expr, bias: Expr, input_scale: Expr, weight_scale: Expr, mask_index: Expr | None = None,
    input_zero_point: Expr | None = None, weight_zero_point: Expr | None = None, past: Expr | None = None, *,
    do_rotary: int = 0, mask_filter_value: float = -10000.0, num_heads: int, past_present_share_buffer: int = 0,
    scale: float = 0.0, unidirectional: int = 0, node: Node,
) -> tuple[Expr, ...]:
    if do_rotary or past_present_share_buffer:
        node.refuse("do_rotary and past_present_share_buffer are not supported; export without them")
    product = linear.matmul(real(input, input_scale, input_zero_point, node),
                            real(weight, weight_scale, weight_zero_point, node), node=node)
    return _self_attention(op.add(product, bias), mask_index, past, None, num_heads, (), mask_filter_value, scale,
                           bool(unidirectional), node)


@converter("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    query: Expr, key: Expr | None = None, value: Expr | None = None, bias: Expr | None = None,
    key_padding_mask: Expr | None = None, attention_bias: Expr | None = None, past_key: Expr | None = None,
    past_value: Expr | None = None, past_sequence_length: Expr | None = None, cache_indirection: Expr | None = None, *,
    mask_filter_value: float = -10000.0, num_heads: int, scale: float = 0.0, unidirectional: int = 0, node: Node,
) -> tuple[Expr, ...]:
    if past_sequence_length is not None or cache_indirection is not None:
        node.refuse("past_sequence_length and cache_indirection (buffers that past and present share) are not "
                    "supported; export without them")
    q, k, v = _query_key_value(query, key, value, bias, num_heads, node)
    k, v = _with_past(past_key, k), _with_past(past_value, v)
    keys = node.static(k, "key")[2]
    masks = [attention_bias] if attention_bias is not None else []
    if key_padding_mask is not None:
        masks.append(padding_mask(key_padding_mask, keys, mask_filter_value, q, node))
    if unidirectional:
        masks.append(causal_mask(q, keys, node))
    output, scores = attend(q, k, v, masks, scale, node)
    return output, k, v, scores


def _query_key_value(query: Expr, key: Expr | None, value: Expr | None, bias: Expr | None, heads: int,
                     node: Node) -> tuple[Expr, Expr, Expr]:
    """Query, key and value as (batch, heads, tokens, size), with biases added, from any packed form."""
    if rank(query) == 5:  # (batch, tokens, heads, 3, size)
        parts: list[Expr] = [_part(query, j) for j in range(3)]
    elif key is not None and rank(key) == 5:  # (batch, tokens, heads, 2, size)
        parts = [heads_of(query, heads), _part(key, 0), _part(key, 1)]
    elif key is None or value is None:
        node.refuse("an input is missing; give query, key and value, pack all three into query, or pack key and value "
                    "into key")
    else:
        parts = [x if rank(x) == 4 else heads_of(x, heads) for x in (query, key, value)]
    if bias is not None:
        start = 0
        for j, x in enumerate(parts):
            size = heads * node.static(x, "query")[3]
            row = reshape(slice_axis(bias, 0, start, start + size), (1, heads, 1, size // heads))
            parts[j], start = op.add(x, row), start + size
    return parts[0], parts[1], parts[2]


def _part(packed: Expr, j: int) -> Expr:
    batch, tokens, heads, _, size = shape_of(packed)
    return transpose(reshape(slice_axis(packed, 3, j, j + 1), (batch, tokens, heads, size)), (0, 2, 1, 3))


def rotated(x: Expr, cos: Expr, sin: Expr, interleaved: bool, node: Node) -> Expr:
    """Rotate pairs of the first elements of `x` (batch, heads, tokens, size); `cos`, `sin`: (batch or 1, tokens,
    pairs).
    """
    size, pairs = node.static(x, "input")[3], node.static(cos, "cos_cache")[2]
    c, s = (op.expand_dims(t, axis=1) for t in (cos, sin))
    head = slice_axis(x, 3, 0, 2 * pairs) if 2 * pairs < size else x
    if interleaved:
        halves = reshape(head, (*shape_of(x)[:3], pairs, 2))
        a, b = (reshape(slice_axis(halves, 4, j, j + 1), (*shape_of(x)[:3], pairs)) for j in (0, 1))
    else:
        a, b = slice_axis(head, 3, 0, pairs), slice_axis(head, 3, pairs, 2 * pairs)
    first, second = op.subtract(op.multiply(a, c), op.multiply(b, s)), op.add(op.multiply(a, s), op.multiply(b, c))
    if interleaved:
        turned = reshape(op.stack(Tuple((first, second)), axis=4), (*shape_of(x)[:3], 2 * pairs))
    else:
        turned = op.concatenate(Tuple((first, second)), axis=3)
    return turned if 2 * pairs == size else op.concatenate(Tuple((turned, slice_axis(x, 3, 2 * pairs, size))), axis=3)


@converter("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    input: Expr, position_ids: Expr, cos_cache: Expr, sin_cache: Expr, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0, node: Node,
) -> Expr:
    """Rotate by rows of the caches selected by token position; `input` is (batch, tokens, heads * size) or 4-D."""
    flat = rank(input) == 3
    width = 2 * node.static(cos_cache, "cos_cache")[1]
    if flat and rotary_embedding_dim and not num_heads:
        node.refuse("rotary_embedding_dim is set without num_heads; set both")
    x = heads_of(input, num_heads or node.static(input, "input")[2] // width) if flat else input
    tokens = node.static(x, "input")[2]
    if rank(position_ids) == 1:
        position_ids = op.expand_dims(op.add(position_ids,
                                             Constant(np.arange(tokens, dtype=dtype_of(position_ids).numpy()))), axis=0)
    cos, sin = (op.take(t, position_ids, axis=0) for t in (cos_cache, sin_cache))
    y = rotated(x, cos, sin, bool(interleaved), node)
    return joined(y) if flat else y


@converter("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    query: Expr, key: Expr | None, value: Expr | None, past_key: Expr | None, past_value: Expr | None, seqlens_k: Expr,
    total_sequence_length: Expr, cos_cache: Expr | None = None, sin_cache: Expr | None = None,
    position_ids: Expr | None = None, attention_bias: Expr | None = None, head_sink: Expr | None = None, *,
    do_rotary: int = 0, kv_num_heads: int, local_window_size: int = -1, num_heads: int, rotary_interleaved: int = 0,
    scale: float = 0.0, smooth_softmax: int = 0, softcap: float = 0.0, qk_output: int = 0, kv_cache_bit_width: int = 0,
    k_quant_type: str = "NONE", v_quant_type: str = "NONE", causal: int = 1, sliding_window_cache: int = 0,
    qk_norm_epsilon: float = 1e-6, node: Node,
) -> tuple[Expr, ...]:
    """Causal attention of `num_heads` queries to `kv_num_heads` keys; sample k has `seqlens_k[k]` + 1 keys in total."""
    if (head_sink is not None or smooth_softmax or qk_output or kv_cache_bit_width or not causal or sliding_window_cache
            or {k_quant_type, v_quant_type} != {"NONE"}):
        node.refuse("head_sink, smooth_softmax, qk_output, quantized caches, sliding_window_cache and causal=0 are not "
                    "supported; export without them")
    if key is None or value is None:
        size = node.static(query, "query")[2] // (num_heads + 2 * kv_num_heads)
        ends = [num_heads * size, (num_heads + kv_num_heads) * size, (num_heads + 2 * kv_num_heads) * size]
        query, key, value = (slice_axis(query, 2, begin, end) for begin, end in zip([0, *ends], ends, strict=False))
    q, k, v = heads_of(query, num_heads), heads_of(key, kv_num_heads), heads_of(value, kv_num_heads)
    tokens, old = node.static(q, "query")[2], 0 if past_key is None else node.static(past_key, "past_key")[2]
    total = int(node.scalar(total_sequence_length, "total_sequence_length"))
    lengths = cast(reshape(seqlens_k, (-1, 1)), "int64")
    before: Expr = op.add(lengths, number(1 - tokens))
    if not old or total == tokens:
        before = op.multiply(before, number(0))
    place = op.add(before, Constant(np.arange(tokens, dtype=np.int64)[None]))
    if do_rotary:
        at = place if position_ids is None else position_ids
        if cos_cache is None or sin_cache is None:
            node.refuse("do_rotary is set, but input cos_cache or sin_cache is missing")
        cos, sin = (op.take(t, at, axis=0) for t in (cos_cache, sin_cache))
        q, k = (rotated(x, cos, sin, bool(rotary_interleaved), node) for x in (q, k))
    keys = max(old, total)
    if past_key is not None and past_value is not None and old:
        k, v = (_placed(past, new, before, keys, old) for past, new in ((past_key, k), (past_value, v)))
    mask = _window(q, place, node.static(k, "key")[2], local_window_size)
    group = num_heads // kv_num_heads
    many_k, many_v = (x if group == 1 else op.repeat(x, repeats=group, axis=1) for x in (k, v))
    if softcap:
        return _capped(q, many_k, many_v, [mask, *([attention_bias] if attention_bias is not None else [])], scale,
                       softcap, node), k, v
    return attend(q, many_k, many_v, [*([attention_bias] if attention_bias is not None else []), mask], scale,
                  node)[0], k, v


def _capped(q: Expr, k: Expr, v: Expr, masks: list[Expr], scale: float, cap: float, node: Node) -> Expr:
    """Attention whose scores are capped to (-cap, cap) by a tanh."""
    scores = linear.matmul(q, transpose(k, (0, 1, 3, 2)), node=node)
    scores = op.multiply(scores, scalar((scale or 1 / math.sqrt(node.static(q, "query")[3])) / cap, scores))
    scores = op.multiply(op.tanh(scores), scalar(cap, scores))
    for mask in masks:
        scores = op.add(scores, cast(mask, dtype_of(scores)))
    return joined(linear.matmul(op.nn.softmax(scores, axis=-1), v, node=node))


def _placed(past: Expr, new: Expr, before: Expr, keys: int, old: int) -> Expr:
    """Write new keys (batch, heads, tokens, size) after the past ones, from `before` (batch, 1) on; zeros follow."""
    both = op.concatenate(Tuple((past, new)), axis=2)
    place = Constant(np.arange(keys, dtype=np.int64)[None])
    behind: Any = op.add(op.subtract(place, before), number(old))
    tokens = shape_of(new)[2]
    inside = op.logical_and(op.greater_equal(place, before), op.less(op.subtract(place, before), number(tokens)))
    index = op.where(inside, behind, op.minimum(place, number(old - 1)))
    rows = op.take(transpose(both, (0, 2, 1, 3)), index, axis=1, batch_dims=1)
    there = op.less(op.subtract(place, before), number(tokens))
    there = op.expand_dims(there, axis=2, num_newaxis=2)
    return transpose(op.where(there, rows, scalar(0, rows)), (0, 2, 1, 3))


def _window(q: Expr, place: Expr, keys: int, size: int) -> Expr:
    """A mask for tokens at `place` (batch, tokens) that hides later tokens, and tokens `size` or more before."""
    key = Constant(np.arange(keys, dtype=np.int64)[None, None])
    at = op.expand_dims(place, axis=2)
    seen = op.less_equal(key, at)
    if size > 0:
        seen = op.logical_and(seen, op.greater(key, op.subtract(at, number(size))))
    return op.expand_dims(op.where(seen, scalar(0, q), scalar(least(q), q)), axis=1)
