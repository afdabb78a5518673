"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.pytorch.linear import product
from tilewright.relay.frontend.pytorch.node import Node
from tilewright.relay.frontend.pytorch.registry import converter
from tilewright.relay.frontend.shaping import dtype_of, rank, scalar, shape_of, transpose
from tilewright.types import BOOL


@converter("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_attention_math")
def attention(
    query: Expr, key: Expr, value: Expr, node: Node, attn_mask: Expr | None = None, dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False, attn_bias: Expr | None = None, compute_log_sumexp: bool = False, return_debug_mask: bool = False, dropout_mask: Expr | None = None,
) -> Any:
    """softmax(query key' scale + mask) value; rows that the mask leaves nothing of are zero."""
    if dropout_p:
        node.refuse(f"dropout_p is {dropout_p}, and models are compiled to be run; call model.eval() before exporting")
    if enable_gqa:
        groups = shape_of(query)[-3] // shape_of(key)[-3]
        key, value = (op.repeat(x, repeats=groups, axis=rank(x) - 3) if groups > 1 else x for x in (key, value))
    width = shape_of(query)[-1]
    factor = 1 / math.sqrt(width) if scale is None else scale
    turned = transpose(key, [*range(rank(key) - 2), rank(key) - 1, rank(key) - 2])
    scores = op.multiply(product(query, turned), scalar(factor, query))
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
        weights = op.where(op.equal(op.max(scores, axis=(axis,), keepdims=True), scalar(-math.inf, scores)), scalar(0, weights), weights)
    found = product(weights, value)
    if node.name == "scaled_dot_product_attention":
        return found
    return (found, weights) if node.name.endswith("math") else (found, Constant(np.zeros(0, np.float32)))
