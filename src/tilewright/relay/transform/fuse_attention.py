"""Recognize scaled dot-product attention in exported graphs, and replace it by one operator.

    nn.batch_matmul(nn.softmax(nn.batch_matmul(q, k) * scale + mask), v)
      -> nn.attention(q, k, v, transpose(mask), heads=…, scale=…)

Reshapes, transposes and splits around it are absorbed: heads are read in place as columns of (batch, tokens, columns),
and written in the same form. If the operands are not columns of such tensors, each head becomes a separate batch.
Heads that share their keys and values (grouped-query attention) become one head, whose queries are those of the group:
keys and values are read where they are, and never repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.types import FLOAT32, OpenSize, TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, const
from tilewright.relay.op.broadcast import Add, BroadcastTo, Divide, Equal, GreaterEqual, Less, Multiply, Where
from tilewright.relay.op.create import Arange
from tilewright.relay.op.nn_attention import HIDDEN, VISIBLE, Attention
from tilewright.relay.op.nn_matmul import BatchMatmul
from tilewright.relay.op.nn_norm import Softmax
from tilewright.relay.op.reduction import Max, Min
from tilewright.relay.op.registry import Op
from tilewright.relay.op.transform import Transpose
from tilewright.relay.transform.permutations import axes_of, reshaped, transposed
from tilewright.relay.transform.simplify_expr import uniform
from tilewright.relay.transform.strides import merged, strided
from tilewright.relay.visitor import consumers, post_order, rewrite

_NEVER: Final = -1e30
"""A masked score below this has no weight."""
_SWAP: Final = Transpose(axes=(0, 2, 1))


@dataclass(frozen=True)
class FuseAttention(FunctionPass):
    """Replace products, scaling, mask and softmax of attention by `nn.attention`. Needs static shapes, floats, and
    folded constants.

    Run it after `SimplifyExpr`.
    """

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 2

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        rule = _Rule({e: len(u) for e, u in consumers(post_order(function, inside=False)).items()})
        return rewrite(function, rule.apply, origin=rule.origin)


@dataclass(frozen=True)
class _Scores:
    """The input of a softmax: `product` times `scale`, plus masks that broadcast."""

    product: Call
    scale: float
    masks: tuple[tuple[Expr, tuple[int, ...]], ...]


@dataclass(frozen=True)
class _HeadColumns:
    """Matrices of tokens as columns of `data` (batch, tokens, columns); the first starts at column `start`."""

    data: Expr
    start: int


class _Rule:
    def __init__(self, users: dict[Expr, int]) -> None:
        self.users = users
        self.origin: dict[Expr, Expr] = {}

    def apply(self, e: Expr) -> Expr | None:
        if not (isinstance(e, Call) and isinstance(e.op, BatchMatmul)) or e.attrs.transpose_a:
            return None
        kind = e.known_type()
        if not isinstance(kind, TensorType) or not kind.is_static or not kind.dtype.is_float or kind.dtype.bits < 16:
            return None
        softmax = self._behind_views(e.args[0])
        if (not (isinstance(softmax, Call) and isinstance(softmax.op, Softmax))
                or softmax.op.axis % softmax.tensor_type.ndim != softmax.tensor_type.ndim - 1):
            return None
        scores = self._scores(softmax.args[0], e.args[0].tensor_type.shape[-2:]) if self._is_private(softmax) else None
        return None if scores is None else _attention(scores, e)

    def _is_private(self, e: Expr) -> bool:
        """Return whether `e` has a single user."""
        return self.users.get(self.origin.get(e, e), 1) <= 1

    def _behind_views(self, e: Expr) -> Expr | None:
        """Return the operand of a chain of reshapes that keep the last two axes; None if a value has other users."""
        last = e.tensor_type.shape[-2:]
        while isinstance(e, Call) and isinstance(e.op, Op) and e.op.view and self._is_private(e):
            e = e.args[0]
        return e if self._is_private(e) and e.tensor_type.shape[-2:] == last else None

    def _scores(self, e: Expr, last: tuple[int, ...]) -> _Scores | None:
        """Follow the argument of a softmax down to the product."""
        scale, masks = 1.0, list[tuple[Expr, tuple[int, ...]]]()
        while True:
            found = self._behind_views(e)
            if not isinstance(found, Call) or found.tensor_type.shape[-2:] != last:
                return None
            e = found
            if isinstance(e.op, BatchMatmul):
                return None if e.attrs.transpose_a else _Scores(e, scale, tuple(masks))
            if isinstance(e.op, Divide) and (divisor := uniform(e.args[1])) is not None and float(divisor) != 0:
                scale, e = scale / float(divisor), e.args[0]
                continue
            if isinstance(e.op, Multiply):
                k = next((k for k in (0, 1) if uniform(e.args[k]) is not None), None)
                if k is None:
                    return None
                scale, e = scale * float(uniform(e.args[k])), e.args[1 - k]
                continue
            mask = self._mask(e)
            if mask is None or scale != 1.0:
                return None
            masks.append((mask[0], e.tensor_type.shape))
            e = mask[1]

    def _mask(self, e: Call) -> tuple[Expr, Expr] | None:
        """Return a mask and the value that it is added to."""
        if isinstance(e.op, Add):
            k = next((k for k in (0, 1) if e.args[k].known_type() == e.known_type()
                      and self._leads_to_product(e.args[k])), None)
            return None if k is None else (e.args[1 - k], e.args[k])
        if isinstance(e.op, Where):
            condition, scores, other = e.args
            value = uniform(other)
            if value is None or not float(value) < _NEVER or scores.known_type() != e.known_type():
                return None
            dtype = e.tensor_type.dtype.numpy()
            return Where()(condition, Constant(np.zeros((), dtype)), Constant(np.asarray(value, dtype)),
                           span=e.span), scores
        return None

    def _leads_to_product(self, e: Expr) -> bool:
        while isinstance(e, Call) and isinstance(e.op, Op) and (e.op.view
                or isinstance(e.op, (Multiply, Divide, Add, Where))):
            e = e.args[1] if isinstance(e.op, Where) or uniform(e.args[0]) is not None else e.args[0]
        return isinstance(e, Call) and isinstance(e.op, BatchMatmul)


def _attention(scores: _Scores, e: Call) -> Expr | None:
    """Return the attention operator that replaces `e`, the product with the values."""
    q, k, v = scores.product.args[0], scores.product.args[1], e.args[1]
    if not scores.product.attrs.transpose_b:
        k = Call(_SWAP, [k], span=k.span)
    if e.attrs.transpose_b:
        v = Call(_SWAP, [v], span=v.span)
    total, queries, size = q.tensor_type.shape
    keys, width = v.tensor_type.shape[1:]
    if k.tensor_type.shape[0] != total or v.tensor_type.shape[0] != total or any(d < 1
            for d in (total, queries, size, keys, width)):
        return None
    factor, q = _scaled(q)
    other, k = _scaled(k)
    group, k, v = _shared(k, v)
    if group > 1:
        q = reshaped(q, (k.tensor_type.shape[0], group * queries, size))
    batch, found = _common([_columns(x) for x in (q, k, v)])
    if not found:
        batch, found = q.tensor_type.shape[0], [_HeadColumns(_plain(x), 0) for x in (q, k, v)]
    heads = q.tensor_type.shape[0] // batch
    mask = _masks(scores.masks, batch, heads, group)
    if mask is False:
        return None
    op = Attention(heads=heads, size=size, width=width, scale=scores.scale * factor * other,
                   starts=(found[0].start, found[1].start, found[2].start))
    masks = [mask, *_ends(mask, q.tensor_type.shape[1])] if isinstance(mask, Expr) else []
    result = op(*(o.data for o in found), *masks, span=e.span)
    by_head = transposed(reshaped(result, (batch, group * queries, heads, width)), (0, 2, 1, 3))
    return reshaped(by_head, (total, queries, width))


def _shared(k: Expr, v: Expr) -> tuple[int, Expr, Expr]:
    """Return the number of consecutive heads that share their keys and values, and both without repetition."""
    first, second = _repeated(k), _repeated(v)
    if first is None or second is None or first[0] != second[0]:
        return 1, k, v
    return first[0], first[1], second[1]


def _repeated(x: Expr) -> tuple[int, Expr] | None:
    """Return `n` and the matrices of which `x` (total, tokens, size) has each `n` times in a row; None if there are
    none."""
    e, is_swapped = x, False
    while isinstance(e, Call) and e.tensor_type.ndim > 2:
        if isinstance(e.op, Transpose) and axes_of(e) == (*range(e.tensor_type.ndim - 2), e.tensor_type.ndim - 1,
                                                          e.tensor_type.ndim - 2):
            is_swapped = not is_swapped
        elif not (isinstance(e.op, Op) and e.op.view and e.args[0].tensor_type.shape[-2:] == e.tensor_type.shape[-2:]):
            break
        e = e.args[0]
    if not (isinstance(e, Call) and isinstance(e.op, BroadcastTo)):
        return None
    shape, own = e.tensor_type.shape, e.args[0].tensor_type.shape
    own = (1,) * (len(shape) - len(own)) + own
    if len(shape) < 3 or isinstance(shape[-3], OpenSize) or shape[-3] < 2 or own != (*shape[:-3], 1, *shape[-2:]):
        return None
    base = reshaped(e.args[0], (prod(shape[:-3]), *shape[-2:]))
    return int(shape[-3]), transposed(base, (0, 2, 1)) if is_swapped else base


def _scaled(x: Expr) -> tuple[float, Expr]:
    """Return a factor of all elements, moved out of reshapes and transposes, and the remaining value."""
    above: list[Call] = []
    e = x
    while isinstance(e, Call) and isinstance(e.op, Op) and (e.op.view or e.op == _SWAP):
        above.append(e)
        e = e.args[0]
    if not (isinstance(e, Call) and isinstance(e.op, (Multiply, Divide))):
        return 1.0, x
    places = (1,) if isinstance(e.op, Divide) else (0, 1)
    k = next((k for k in places if uniform(e.args[k]) is not None and e.args[1 - k].known_type() == e.known_type()),
             None)
    if k is None:
        return 1.0, x
    factor = float(uniform(e.args[k]))
    if isinstance(e.op, Divide):
        if factor == 0:
            return 1.0, x
        factor = 1 / factor
    rest = e.args[1 - k]
    for call in reversed(above):
        rest = Call(call.op, [rest, *call.args[1:]], span=call.span)
    return factor, rest


def _columns(x: Expr) -> tuple[int, _HeadColumns] | None:
    """Return the batch size, and the matrices [batch * heads, tokens, size] as columns of their base."""
    view = strided(x)
    total, tokens, size = x.tensor_type.shape
    rows, columns = merged(view.dims[1]), merged(view.dims[2])
    if len(rows) != 1 or columns != (((size, 1),) if size > 1 else ()):
        return None
    width = rows[0][1]
    elements = prod(view.base.tensor_type.shape)
    if elements % (width * tokens):
        return None
    batch = elements // (width * tokens)
    if total % batch or merged(view.dims[0]) != merged(((batch, tokens * width), (total // batch, size))):
        return None
    if view.offset + total // batch * size > width:
        return None
    return batch, _HeadColumns(reshaped(view.base, (batch, tokens, width)), view.offset)


def _common(found: list[tuple[int, _HeadColumns] | None]) -> tuple[int, list[_HeadColumns]]:
    known = [f for f in found if f is not None]
    if len(known) != len(found) or len({b for b, _ in known}) != 1:
        return 0, []
    return known[0][0], [o for _, o in known]


def _plain(x: Expr) -> Expr:
    """Return `x`, with a transpose cancelled against its inverse below."""
    return transposed(x.args[0], x.attrs.axes) if isinstance(x, Call) and x.op == _SWAP else x


def _masks(
    masks: tuple[tuple[Expr, tuple[int, ...]], ...], batch: int, heads: int, group: int
) -> Expr | bool | None:
    """Return the sum of the masks, transposed to key-major order: None without masks, False if one does not fit.

    The queries of `group` heads follow each other.
    """
    total: Expr | None = None
    for mask, shape in masks:
        own = mask.tensor_type.shape
        wide = (1,) * (len(shape) - len(own)) + own
        if wide[-1] != shape[-1]:
            return False
        if group > 1:
            by_query = _of_groups(mask, wide, shape, batch * heads, group)
        else:
            lead = _lead(wide[:-2], shape[:-2], batch, heads)
            if lead is None:
                return False
            by_query = reshaped(mask, (*lead, *wide[-2:]))
        by_key = transposed(by_query, (0, 1, 3, 2))
        total = by_key if total is None else Add()(total, by_key)
    return total


def _ends(mask: Expr, queries: Any) -> list[Expr]:
    """Return `first` and `last` of `nn.attention` for a mask by key and symbolic queries and keys; else nothing."""
    kind = mask.tensor_type
    keys = kind.shape[2]
    if kind.dtype is not FLOAT32 or not (isinstance(keys, OpenSize) and isinstance(queries, OpenSize)):
        return []
    by_query = transposed(mask, (0, 1, 3, 2))
    none, beyond = const(0, "int32"), const(np.iinfo(np.int32).max, "int32")
    index, number = (Arange(start=n, stop=keys + n, dtype="int32")() for n in (0, 1))
    first = Where()(Equal()(by_query, const(0.0, "float32")), beyond, index)
    visible = Where()(GreaterEqual()(by_query, const(VISIBLE, "float32")), number, beyond)
    last = Where()(Less()(by_query, const(HIDDEN, "float32")), none, visible)
    return [Min(axis=3)(first), Max(axis=3)(last)]


def _of_groups(mask: Expr, wide: tuple[int, ...], shape: tuple[int, ...], total: int, group: int) -> Expr:
    """Return a mask of shape `wide`, which broadcasts to `shape`, as (total or 1, 1, group * queries or 1, keys)."""
    rows, keys = wide[-2:]
    if all(d == 1 for d in wide[:-2]):
        if rows == 1:
            return reshaped(mask, (1, 1, 1, keys))
        copies = BroadcastTo(shape=(group, rows, keys))(reshaped(mask, (1, rows, keys)))
        return reshaped(copies, (1, 1, group * rows, keys))
    if wide != shape:
        mask = BroadcastTo(shape=shape)(reshaped(mask, wide))
    return reshaped(mask, (total, 1, group * shape[-2], keys))


def _lead(own: tuple[int, ...], shape: tuple[int, ...], batch: int, heads: int) -> tuple[int, int] | None:
    """Return the leading axes of a mask, which broadcasts to `shape`, as (batch, heads). Leading axes of size 1 are
    ignored."""
    while len(shape) > 2 and shape[0] == 1:
        own, shape = own[1:], shape[1:]
    if all(d == 1 for d in own):
        return 1, 1
    if own == shape:
        return batch, heads
    return (own[0], own[1]) if shape == (batch, heads) else None
