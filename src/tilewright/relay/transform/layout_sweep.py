"""The sweep that tracks, for every value, the order in which it is stored: the base of the layout passes.

`Op.relayout` describes how an operator works on permuted arguments; transposes are inserted only where it cannot, and
at the results. Constants are permuted at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import InternalError
from tilewright.base.node import node
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.op.hooks import is_replaced
from tilewright.relay.op.nn_matmul import Dense, Matmul
from tilewright.relay.op.registry import Op, Relaid
from tilewright.relay.op.transform import Transpose
from tilewright.relay.transform.permutations import (
    Perm,
    axes_of,
    between,
    carried,
    gathered,
    is_identity,
    reshaped,
    transposed,
)
from tilewright.relay.visitor import operands, with_operands
from tilewright.topi.orders import rank, stored_shape
from tilewright.topi.shapes import inverse

CHANNELS_LAST: Final = ((0, 2, 3, 1), (0, 2, 3, 4, 1))
"""Storage orders of images and volumes."""


@node
class Stored:
    """A value as stored: `expr` is `transpose(value, perm)`, or the value itself without `perm`."""

    expr: Expr
    perm: Perm | None


class Sweep:
    """A sweep over a graph; `stored` has the stored form of each value seen so far. Subclasses define `rule`, `special`
    and `turn`.
    """

    def __init__(self, users: dict[Expr, list[Expr]]) -> None:
        self.users = users
        self.stored: dict[Expr, Stored] = {}
        self.moved: dict[tuple[Expr, Perm | None], Expr] = {}

    def visit(self, e: Expr) -> None:
        """Decide how `e` is stored; its operands have been decided."""
        if isinstance(e, Call) and isinstance(e.op, Op):
            self.stored[e] = self._call(e)
        elif isinstance(e, TupleGetItem):
            self.stored[e] = self._field(e)
        else:
            self.stored[e] = self._plain(e)

    def logical(self, e: Expr) -> Expr:
        """Return the value in its logical order."""
        return self.in_order(e, None)

    def in_order(self, e: Expr, perm: Perm | None) -> Expr:
        """Return the value stored in the order `perm`. Scalars have no order; tensors of lower rank get leading axes of
        size 1."""
        s = self.stored[e]
        if s.perm == perm:
            return s.expr
        known = self.moved.get((e, perm))
        if known is None:
            known = self.moved[e, perm] = self._move(e, s, perm)
        return known

    def _move(self, e: Expr, s: Stored, perm: Perm | None) -> Expr:
        kind = e.checked_type
        if isinstance(kind, TupleType):
            return (
                Tuple(tuple(self.turn(TupleGetItem(s.expr, k), s.perm, perm, f, e) for k, f in enumerate(kind.fields))))
        if perm is not None and isinstance(kind, TensorType) and kind.ndim != rank(perm):
            if kind.ndim == 0:
                return s.expr
            wide = TensorType((1,) * (rank(perm) - kind.ndim) + kind.shape, kind.dtype)
            return self.widened(self.logical(e), perm, wide, e)
        return self.turn(s.expr, s.perm, perm, kind, e)

    def widened(self, x: Expr, perm: Perm, wide: TensorType, e: Expr) -> Expr:
        """Return the value `x`, of lower rank than `wide`, with leading axes and in the order `perm`."""
        return self.turn(reshaped(x, wide.shape), None, perm, wide, e)

    def turn(self, x: Expr, stored: Perm | None, wanted: Perm | None, kind: Type, e: Expr) -> Expr:
        """Convert `x`, (a part of) the value `e` of type `kind`, from one storage order to another."""
        if not isinstance(kind, TensorType):
            raise InternalError(f"a value of type {kind!r} cannot be stored in the order {stored}")
        return transposed(x, between(stored, wanted, kind.ndim))

    def _plain(self, e: Expr) -> Stored:
        """Store any node over operands in their logical order."""
        old = operands(e)
        now = [self.logical(o) if o in self.stored else o for o in old]
        same = all(a is b for a, b in zip(old, now, strict=True))
        return Stored(e if same else with_operands(e, now), None)

    def _field(self, e: TupleGetItem) -> Stored:
        if isinstance(e.tuple_value, Tuple):
            return self.stored[e.tuple_value.fields[e.index]]
        whole = self.stored[e.tuple_value]
        if whole.expr is e.tuple_value:
            return Stored(e, whole.perm)
        return Stored(TupleGetItem(whole.expr, e.index, e.span), whole.perm)

    def _call(self, e: Call) -> Stored:
        op = e.op
        if is_replaced(op.name):
            return self._plain(e)
        args = e.args[0].fields if op.variadic and isinstance(e.args[0], Tuple) else e.args
        perms = [self.stored[a].perm for a in args]
        moved = self.special(e, perms) if perms else None
        if moved is not None:
            return moved
        how = self.rule(e, perms)
        if how is None:
            return self._plain(e)
        new_op, wanted, result = how
        if any(w is not None and a.tensor_type.ndim > rank(w) for a, w in zip(args, wanted, strict=True)):
            return self._plain(e)  # a tensor of lower rank does not determine the order of this one
        now = [self.in_order(a, w) for a, w in zip(args, wanted, strict=True)]
        if new_op is op and all(a is b for a, b in zip(args, now, strict=True)):
            return Stored(e, result)
        new = Call(new_op, now if args is e.args else [Tuple(tuple(now), e.args[0].span)], span=e.span)
        if not _is_permuted(e.known_type(), new.known_type(), result):
            raise InternalError(
                f"{op}.relayout({perms}) returned {new.known_type()!r} for {e.known_type()!r} stored as {result}"
            )
        return Stored(new, result)

    def rule(self, e: Call, perms: Sequence[Perm | None]) -> Relaid | None:
        """Return the operator for arguments in these orders, the order it needs of each, and that of its result."""
        return e.op.relayout(perms)  # type: ignore[no-any-return]

    def special(self, e: Call, perms: list[Perm | None]) -> Stored | None:
        """Return the stored form of a free movement, or of a product that can use its operands as stored; else None."""
        return self.movement(e, perms[0]) or self.product(e, perms)

    def movement(self, e: Call, perm: Perm | None) -> Stored | None:
        """Fold transposes and reshapes that move no memory, or that make an image channels last or first."""
        source = self.stored[e.args[0]].expr
        if isinstance(e.op, Transpose):
            axes = axes_of(e)
            order = compose_inverse(axes, perm or tuple(range(len(axes))))
            if perm is None and order not in CHANNELS_LAST and not (_swaps_a_matrix(order, e)
                    and self._feeds_products(e)):
                return None
            return Stored(source, None if is_identity(order) else order)
        if perm is not None and e.op.view:
            before, after = e.args[0].tensor_type.shape, e.tensor_type.shape
            kept = carried(perm, before, after)
            if kept is None:
                near = gathered(perm, before, after)
                kept = None if near is None else carried(near, before, after)
                if near is None or kept is None or kept not in CHANNELS_LAST:
                    return None
                source = transposed(source, between(perm, near, len(perm)))
            return Stored(reshaped(source, [after[p] for p in kept]), None if is_identity(kept) else kept)
        return None

    def _feeds_products(self, e: Call) -> bool:
        """Return whether `e`, possibly through views, is only the left operand of products with constants."""
        used = [u for v in self.users[e] for u in (self.users[v] if _is_view(v) else [v])]
        return bool(used) and all(_is_product_with_constant(u) for u in used)

    def product(self, e: Call, perms: list[Perm | None]) -> Stored | None:
        """A product whose left operand is stored transposed -> the product with its result stored transposed."""
        if perms != [(1, 0), None] or not _is_product_with_constant(e):
            return None
        x, w = e.args
        return Stored(
            Call(Matmul(out_dtype=e.attrs.out_dtype), [self.stored[w].expr, self.stored[x].expr], span=e.span), (1, 0))


def _is_view(e: Expr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Op) and e.op.view


def _is_product_with_constant(e: Expr) -> bool:
    return (isinstance(e, Call) and isinstance(e.op, Dense) and isinstance(e.args[1], Constant)
            and e.tensor_type.dtype.is_float)


def _swaps_a_matrix(order: Perm, e: Call) -> bool:
    """Return whether `order` swaps the last two axes of `e`, and all other axes have size 1."""
    rank = len(order)
    return order == (*range(rank - 2), rank - 1, rank - 2) and all(d == 1 for d in e.tensor_type.shape[:-2])


def compose_inverse(axes: Perm, perm: Perm) -> Perm:
    """Return the storage order of `transpose(x, axes)` for `x` stored in the order `perm`, if no memory moves."""
    back = inverse(axes)
    return tuple(back[p] for p in perm)


def _is_permuted(old: Type | None, new: Type | None, perm: Perm | None) -> bool:
    """Return whether `new` is the type of `old` stored in the order `perm`."""
    if isinstance(old, TupleType) and isinstance(new, TupleType):
        return len(old.fields) == len(new.fields) and all(_is_permuted(a, b, perm)
            for a, b in zip(old.fields, new.fields, strict=True))
    if perm is None or not isinstance(old, TensorType) or not isinstance(new, TensorType):
        return old == new
    return old.ndim == rank(perm) and new == TensorType(stored_shape(perm, old.shape), old.dtype)
