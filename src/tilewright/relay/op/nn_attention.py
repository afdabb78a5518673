"""Scaled dot-product attention (Vaswani et al., "Attention Is All You Need", 2017)."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import FLOAT32, INT32, TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, Precision, op, tensors
from tilewright.topi import definitions
from tilewright.topi.shapes import differ, is_too_small, require_rank, require_same_dtype, text

HIDDEN: Final = -1e30
"""A mask below this hides a key: a sum with a product is below it, too, within the precision of float32."""
VISIBLE: Final = -1e29
"""A key with a mask of at least this has a weight above that of any hidden key."""


@op("nn.attention", kind=Fusion.OUT_FUSABLE)
class Attention(Op):
    """softmax(query @ key.T * scale + mask) @ value for each head: (batch, queries, heads * width).

    Head h reads `size` columns of query (batch, queries, …) from `starts[0] + h * size`, of key (batch, keys, …) from
    `starts[1] + h * size`, and `width` columns of value (batch, keys, …) from `starts[2] + h * width`. One product may
    thus hold all three.

    The mask (batch or 1, heads or 1, keys, queries or 1) is stored by key and added to the scaled products. Its dtype
    is that of the others, or float32 with 16-bit tensors.

    `first` and `last` (batch or 1, heads or 1, queries or 1), int32, tell what the mask of a query does. It is zero at
    the first `first` keys. It is below `HIDDEN` at all keys after the first `last` ones, and at least `VISIBLE` at some
    key; a `last` below 1 or above the number of keys says nothing. Both save time, and do not change the result.

    Source: Vaswani et al., Attention Is All You Need, 2017.
    """

    precision = Precision.ALWAYS
    wide = (3, 4, 5)

    heads: int
    """Number of heads."""
    size: int
    """Columns of query and key in one head."""
    width: int
    """Columns of value in one head."""
    scale: float | None = None
    """Factor of the products; None means 1 / sqrt(size)."""
    causal: bool = False
    """True hides later keys from a query; the last query sees all keys."""
    starts: tuple[int, int, int] = (0, 0, 0)
    """First columns of query, key and value in their tensors."""

    def infer(
        self, query: Type, key: Type, value: Type, mask: Type | None = None, first: Type | None = None,
        last: Type | None = None,
    ) -> TensorType:
        """(batch, queries, heads * width); the common floating-point dtype of query, key and value."""
        q, k, v = tensors(query, key, value)
        require_same_dtype((q, k, v))
        if not q.dtype.is_float:
            raise ShapeError(f"floating-point tensors were expected, and these are {q.dtype}; cast them first")
        for name, t, start, size in (("query", q, 0, self.size), ("key", k, 1, self.size), ("value", v, 2, self.width)):
            require_rank(t, 3, name)
            end = self.starts[start] + self.heads * size
            if self.starts[start] < 0 or is_too_small(t.shape[2] - end, 0):
                raise ShapeError(f"the {self.heads} heads of {name} are its columns {self.starts[start]} to {end}, "
                                 f"but {text(t.shape)} has only {t.shape[2]}")
        if differ(q.shape[0], k.shape[0]) or differ(k.shape[0], v.shape[0]) or differ(k.shape[1], v.shape[1]):
            raise ShapeError(f"query {text(q.shape)}, key {text(k.shape)} and value {text(v.shape)} must have equal "
                             "batch sizes, and key and value equal numbers of keys")
        if mask is not None:
            (m,) = tensors(mask)
            require_same_dtype((q, m) if m.dtype is not FLOAT32 or q.dtype.bits > 16 else (q,))
            require_rank(m, 4, "mask")
            wanted = (q.shape[0], self.heads, k.shape[1], q.shape[1])
            if any(not (isinstance(a, int) and a == 1 and d != 2) and differ(a, b)
                   for d, (a, b) in enumerate(zip(m.shape, wanted, strict=True))):
                raise ShapeError(f"the mask {text(m.shape)} must have the shape {text(wanted)}: batch, heads, keys, "
                                 "queries; all but keys may be 1")
        if (first is None) is not (last is None):
            raise ShapeError("first and last must be given together")
        for name, given in (("first", first), ("last", last)) if first is not None and last is not None else ():
            (n,) = tensors(given)
            require_rank(n, 3, name)
            if n.dtype is not INT32 or any(
                    not (isinstance(a, int) and a == 1) and differ(a, b)
                    for a, b in zip(n.shape, (q.shape[0], self.heads, q.shape[1]), strict=True)):
                raise ShapeError(f"{name} is {n.dtype} {text(n.shape)} and must be int32 (batch, heads, queries); each "
                                 "may be 1")
        return TensorType((q.shape[0], q.shape[1], self.heads * self.width), q.dtype)

    def factor(self) -> float:
        return self.scale if self.scale is not None else 1 / self.size**0.5

    def reference(
        self, query: Array, key: Array, value: Array, mask: Array | None = None, first: Array | None = None,
        last: Array | None = None,
    ) -> Array:
        wide = np.float64 if query.dtype.itemsize == 8 else np.float32
        sizes = (self.size, self.size, self.width)
        q, k, v = (self._split(x.astype(wide), start, size)
                   for x, start, size in zip((query, key, value), self.starts, sizes, strict=True))
        scores: Array = q @ k.swapaxes(-1, -2) * wide(self.factor())
        if mask is not None:
            scores = scores + mask.astype(wide).swapaxes(-1, -2)
        if self.causal:
            allowed = np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None] + (k.shape[2] - q.shape[2])
            scores = np.where(allowed, scores, wide(-np.inf))
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        context = powers @ v / powers.sum(axis=-1, keepdims=True)
        return np.asarray(context.swapaxes(1, 2).reshape(*query.shape[:2], context.shape[1] * self.width), query.dtype)

    def _split(self, x: Array, start: int, size: int) -> Array:
        """Reshape (batch, tokens, columns) to (batch, heads, tokens, size)."""
        return x[:, :, start : start + self.heads * size].reshape(*x.shape[:2], self.heads, size).swapaxes(1, 2)

    def compute(
        self, query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None = None,
        first: te.Tensor | None = None, last: te.Tensor | None = None,
    ) -> te.Tensor:
        sizes = self.size, self.width
        return definitions.attention(query, key, value, mask, self.heads, sizes, self.starts, self.factor(),
                                     self.causal)
