"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.base.types import BOOL
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.products import matrix_product
from tilewright.relay.frontend.pytorch.linear import linear
from tilewright.relay.frontend.pytorch.math import gelu
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import reshape, slice_axis, transpose
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of


@converter("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
           "_scaled_dot_product_efficient_attention", "_scaled_dot_product_attention_math")
def attention(
    query: Expr, key: Expr, value: Expr, node: Node, attn_mask: Expr | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, attn_bias: Expr | None = None,
    compute_log_sumexp: bool = False, return_debug_mask: bool = False, dropout_mask: Expr | None = None,
) -> Any:
    """softmax(query key' scale + mask) value; fully masked rows are zero."""
    if dropout_p:
        node.refuse(f"dropout_p is {dropout_p}, but only inference is supported; call model.eval() before exporting")
    if enable_gqa:
        groups = shape_of(query)[-3] // shape_of(key)[-3]
        key, value = (op.repeat(x, repeats=groups, axis=rank(x) - 3) if groups > 1 else x for x in (key, value))
    width = shape_of(query)[-1]
    factor = 1 / math.sqrt(width) if scale is None else scale
    turned = transpose(key, [*range(rank(key) - 2), rank(key) - 1, rank(key) - 2])
    scores = op.multiply(matrix_product(query, turned), scalar(factor, query))
    mask = attn_mask if attn_mask is not None else attn_bias
    nothing_left = False
    if is_causal:
        rows, columns = shape_of(query)[-2], shape_of(key)[-2]
        if not isinstance(rows, int) or not isinstance(columns, int):
            node.static(query, "query")
            node.static(key, "key")
        bound = np.where(np.tri(rows, columns, dtype=bool), 0, -np.inf).astype(dtype_of(query).numpy())
        scores = op.add(scores, Constant(bound))
    if mask is not None:
        if dtype_of(mask) is BOOL:
            known = node.known(mask)
            nothing_left = known is None or bool((~known.any(-1)).any())
            mask = op.where(mask, scalar(0, query), scalar(-math.inf, query))
        scores = op.add(scores, mask)
    axis = rank(scores) - 1
    weights = op.nn.softmax(scores, axis=axis)
    if nothing_left:
        weights = op.where(op.equal(op.max(scores, axis=(axis,), keepdims=True), scalar(-math.inf, scores)),
                           scalar(0, weights), weights)
    found = matrix_product(weights, value)
    if node.name == "scaled_dot_product_attention":
        return found
    return (found, weights) if node.name.endswith("math") else (found, Constant(np.zeros(0, np.float32)))


# Attention layers as `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call them when they are traced


@converter("_native_multi_head_attention")
def multi_head_attention(
    query: Expr, key: Expr, value: Expr, embed_dim: int, num_head: int, qkv_weight: Expr, qkv_bias: Expr,
    proj_weight: Expr, proj_bias: Expr, node: Node, mask: Expr | None = None, need_weights: bool = True,
    average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Expr, Expr]:
    """Multi-head attention on (batch, rows, embed_dim); `qkv_weight` stacks three weights; a bool mask marks
    exclusions.
    """
    def heads(x: Expr, part: int) -> Expr:
        w, b = (slice_axis(v, 0, part * embed_dim, (part + 1) * embed_dim) for v in (qkv_weight, qkv_bias))
        batch, rows, _ = shape_of(x)
        return transpose(reshape(linear(x, w, b), (batch, rows, num_head, embed_dim // num_head)), (0, 2, 1, 3))

    if mask is not None:
        mask = op.logical_not(mask) if dtype_of(mask) is BOOL else mask
        mask = reshape(mask, (shape_of(mask)[0], 1, 1, shape_of(mask)[1])) if mask_type == 1 else mask
    q, k, v = (heads(x, part) for part, x in enumerate((query, key, value)))
    found, weights = attention(q, k, v, node.renamed("_scaled_dot_product_attention_math"), mask)
    rows = reshape(transpose(found, (0, 2, 1, 3)), shape_of(query))
    if not need_weights:
        weights = Constant(np.zeros(0, np.float32))
    return (linear(rows, proj_weight, proj_bias), op.mean(weights, axis=(1,)) if need_weights and average_attn_weights
            else weights)


@converter("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: Expr, embed_dim: int, num_heads: int, qkv_weight: Expr, qkv_bias: Expr, proj_weight: Expr, proj_bias: Expr,
    use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Expr, norm_bias_1: Expr, norm_weight_2: Expr,
    norm_bias_2: Expr, ffn_weight_1: Expr, ffn_bias_1: Expr, ffn_weight_2: Expr, ffn_bias_2: Expr, node: Node,
    mask: Expr | None = None, mask_type: int | None = None,
) -> Expr:
    """Attention and a feed-forward network, both with residual additions, and normalization before or after each."""
    def attend(x: Expr) -> Expr:
        return multi_head_attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, node,
                                    mask, False, False, mask_type)[0]

    def feed(x: Expr) -> Expr:
        hidden = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(hidden) if use_gelu else op.nn.relu(hidden), ffn_weight_2, ffn_bias_2)

    x = src
    for part, weight, bias in ((attend, norm_weight_1, norm_bias_1), (feed, norm_weight_2, norm_bias_2)):
        def norm(v: Expr, weight: Expr = weight, bias: Expr = bias) -> Expr:
            return op.nn.layer_norm(v, weight, bias, axis=-1, epsilon=float(eps))

        x = op.add(part(norm(x)), x) if norm_first else norm(op.add(part(x), x))
    return x
