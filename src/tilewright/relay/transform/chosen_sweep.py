"""Propagates requested layouts: a rule chooses the layouts of calls, and the operators between adapt.

    nn.conv2d(%x, w)
      -> %0 = nn.conv2d(layout_transform(%x, "NCHW", "NCHW8c"), w', data_layout="NCHW8c", …)
         layout_transform(%0, "NCHW8c", "NCHW")

Permuted orders are reached by transposes or `layout_transform`, blocked ones by `layout_transform`; constants are
transformed at compile time. Padded values are never stored. Only the operand of a chosen call may be padded; the rule
guarantees that the zeros do not change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import CompileError, InternalError, OptionError
from tilewright.base.types import TensorType, Type
from tilewright.ir.op_attributes import op_attr
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from tilewright.relay.op import hooks
from tilewright.relay.op.blocks import LayoutTransform
from tilewright.relay.op.nn_conv import Convolution
from tilewright.relay.op.nn_deformable import DeformableConv2d
from tilewright.relay.op.nn_matmul import BiasAdd
from tilewright.relay.op.nn_norm import BatchNorm, Dropout
from tilewright.relay.op.registry import Op, Relaid
from tilewright.relay.op.transform import Transpose
from tilewright.relay.transform.canonicalize import canonical
from tilewright.relay.transform.layout_sweep import Stored, Sweep
from tilewright.relay.transform.permutations import Perm, axes_of, is_identity
from tilewright.relay.visitor import consumers, operands
from tilewright.tir.data_layout import Layout, layout
from tilewright.topi.orders import DIMENSIONS, Order, block, fits, has_blocks, layout_of, order_of, rank, renamed
from tilewright.topi.shapes import inverse

Choice = Callable[[Call], "Op | None"]


@dataclass(frozen=True)
class InferCorrectLayoutOutput:
    """The answer of a hook of `relay.op.register_infer_correct_layout`: the layouts that the operator needs of its
    arguments, those of its results, and its attributes for them."""

    input_layouts: Sequence[Layout | str | None]
    output_layouts: Sequence[Layout | str | None]
    new_attrs: Any = None


class ChosenSweep(Sweep):
    """Sweep with a rule: `choose(call)` returns the operator with other layouts over the same arguments, or None.

    With `by_letters`, permuted orders are reached by `layout_transform`, too, where the letters of the axes are known.
    """

    by_letters: ClassVar[bool] = False

    def __init__(self, order: Sequence[Expr], choose: Choice) -> None:
        super().__init__(consumers(order))
        self.choose = choose
        self.letters: dict[tuple[Expr, int], str] = {}
        self.instead: dict[Expr, Expr] = {}
        """Calls of operators that cannot work in blocks -> equivalent calls of operators that can."""

    def rule(self, e: Call, perms: Sequence[Perm | None]) -> Relaid | None:
        chosen = self.choose(e)
        if chosen is not None:
            return self._relaid(e, chosen)
        if isinstance(e.op, Convolution):
            return (e.op, (None,) * len(perms), None)
        infer = op_attr(e.op.name, hooks.INFER_LAYOUT)
        if infer is not None and any(p is not None for p in perms):
            return self._inferred(e, perms, infer)
        if not any(map(has_blocks, perms)):
            return self._permuted(e, perms) if any(p is not None for p in perms) else None
        args = e.args[0].fields if e.op.variadic and isinstance(e.args[0], Tuple) else e.args
        types = [a.checked_type for a in args]
        if not all(isinstance(t, TensorType) for t in types):
            return None
        how: Relaid | None = e.op.reblock(perms, types)
        if how is not None:
            self._pass_letters(e, args, perms)
        return how

    def _inferred(self, e: Call, perms: Sequence[Perm | None], infer: Callable[..., Any]) -> Relaid | None:
        """Ask the hook of the operator for the layouts; None if a letter of an axis is unknown."""
        args = e.args[0].fields if e.op.variadic and isinstance(e.args[0], Tuple) else e.args
        types = [a.checked_type for a in args]
        known = [self.letters.get((a, t.ndim)) if isinstance(t, TensorType) else None
                 for a, t in zip(args, types, strict=True)]
        letters = next((k for k, p in zip(known, perms, strict=True) if p is not None and k), None)
        if letters is None or not isinstance(e.checked_type, TensorType):
            return None
        old = [layout(k or "") for k in known]
        new = [layout(layout_of(p, k) if k else "") for k, p in zip(known, perms, strict=True)]
        found = infer(e.attrs, new, old, types)
        self.letters.setdefault((e, e.checked_type.ndim), letters)
        wanted = [_asked(n, k or letters) for n, k in zip(found.input_layouts, known, strict=True)]
        op = found.new_attrs if isinstance(found.new_attrs, Op) else e.op
        return op, tuple(wanted), _asked(found.output_layouts[0], letters)

    def _permuted(self, e: Call, perms: Sequence[Perm | None]) -> Relaid | None:
        how: Relaid | None = e.op.relayout(perms)
        if how is not None and self.by_letters:
            self._pass_letters(e, e.args[0].fields if e.op.variadic and isinstance(e.args[0], Tuple) else e.args, perms)
        return how

    def _pass_letters(self, e: Expr, args: Sequence[Expr], perms: Sequence[Perm | None]) -> None:
        """Copy the letters of the axes to the arguments and results of the same rank."""
        for a, p in zip(args, perms, strict=True):
            known = self.letters.get((a, rank(p))) if p is not None and (
                self.by_letters or has_blocks(p)) else None
            if known is not None:
                for other in (*args, e):
                    self.letters.setdefault((other, len(known)), known)

    def _relaid(self, e: Call, other: Op) -> Relaid:
        """Return the operator, the orders that it needs of the arguments of `e`, and the order of its result."""
        wanted: list[Order | None] = [None] * len(e.args)
        if other == e.op:
            return e.op, tuple(wanted), None
        old, new = e.op.attributes(), other.attributes()
        name = "data_layout" if "data_layout" in old else "layout"
        own = (name, name, "kernel_layout") if isinstance(e.op, DeformableConv2d) else (name, "kernel_layout")
        for k, attr in enumerate(own):
            if attr in old:
                self.letters.setdefault((e.args[k], len(old[attr])), old[attr])
                wanted[k] = _order(old[attr], new[attr])
        before, after = _out_layout(e.op), _out_layout(other)
        self.letters[e, len(before)] = before
        result = _order(before, after)
        kind = e.checked_type
        if result is not None and isinstance(kind, TensorType) and not fits(result, kind.shape):
            raise OptionError(f"the result {kind!r} of {e.op.name} is not divisible into the blocks of {after}", e.span,
                              code="TW0410")
        return other, tuple(wanted), result

    def special(self, e: Call, perms: list[Perm | None]) -> Stored | None:
        if layout_names(e.op) and any(layout(n).blocked for n in layout_names(e.op)):
            return self._from_blocks(e)
        first = perms[0]
        if first is None:
            return None
        if not has_blocks(first):
            return self.movement(e, first)
        if isinstance(e.op, Transpose):
            back = inverse(axes_of(e))
            order = renamed(first, back)
            known = self.letters.get((e.args[0], rank(first)))
            if known is not None:
                self.letters[e, len(known)] = "".join(known[a] for a in axes_of(e))
            return Stored(self.stored[e.args[0]].expr, order)
        return self._simpler(e, first)

    def _from_blocks(self, e: Call) -> Stored | None:
        """Change a blocked call to other blocks: transform its arguments, and transform its result back."""
        other = self.choose(e)
        if other is None or other == e.op:
            return self._plain(e)
        old, new = layout_names(e.op), layout_names(other)
        args = [self.logical(a) for a in e.args]
        args[: len(old)] = [_transformed(a, s, d) for a, s, d in zip(args, old, new, strict=False)]
        found = Call(other, args, span=e.span)
        return Stored(_transformed(found, _out_layout(other), _out_layout(e.op)), None)

    def _simpler(self, e: Call, order: Order) -> Stored | None:
        """Replace operators with one value for each blocked channel by operators that broadcast."""
        if isinstance(e.op, BiasAdd) and block(order, e.op.axis % rank(order)) > 1:
            simpler = canonical(e)
        elif isinstance(e.op, (BatchNorm, Dropout)):
            simpler = e.op.simplify(e)
        else:
            return None
        if simpler is None:
            return None
        self.instead[e] = simpler
        self._visit_new(simpler)
        return self.stored[simpler]

    def _visit_new(self, e: Expr) -> None:
        """Visit the new nodes below a call that was just made; they are a few calls deep."""
        if e not in self.stored:
            for o in operands(e):
                self._visit_new(o)
            self.visit(e)

    def _field(self, e: TupleGetItem) -> Stored:
        kind = e.checked_type
        if isinstance(kind, TensorType) and (known := self.letters.get((e.tuple_value, kind.ndim))):
            self.letters.setdefault((e, kind.ndim), known)
        simpler = self.instead.get(e.tuple_value)
        return self.stored[simpler.fields[e.index]] if isinstance(simpler, Tuple) else super()._field(e)

    def turn(self, x: Expr, stored: Perm | None, wanted: Perm | None, kind: Type, e: Expr) -> Expr:
        known = self.letters.get((e, kind.ndim)) if isinstance(kind, TensorType) else None
        if not (has_blocks(stored) or has_blocks(wanted) or (self.by_letters and known)):
            return super().turn(x, stored, wanted, kind, e)
        if not isinstance(kind, TensorType):
            raise InternalError(f"a value of type {kind!r} cannot be stored in the order {stored}")
        letters = known or DIMENSIONS.get(kind.ndim,
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: kind.ndim])
        return _transformed(x, layout_of(stored, letters), layout_of(wanted, letters))


def layout_names(op: Op) -> list[str]:
    """Return the layouts of an operator's arguments from its attributes; empty for most operators."""
    attrs = op.attributes()
    return [attrs[n] for n in ("data_layout", "layout", "kernel_layout") if isinstance(attrs.get(n), str) and attrs[n]]


def _asked(name: Layout | str | None, letters: str) -> Order | None:
    """Return the order of a layout that a hook returned, for a value whose axes have these letters."""
    return _order(letters, str(name)) if name is not None and layout(str(name)) else None


def _out_layout(op: Op) -> str:
    return op.attributes().get("out_layout") or layout_names(op)[0]


def _order(before: str, after: str) -> Order | None:
    if sorted(before) != sorted(layout(after).plain):
        raise CompileError(f"layout '{after}' is not valid here; it must be a permutation of the "
                           f"letters {', '.join(before)}, for example {before}, and blocks of them", code="TW0410")
    order = order_of(before, after)
    return None if is_identity_order(order) else order


def is_identity_order(order: Order) -> bool:
    return not has_blocks(order) and is_identity(order)


def _transformed(x: Expr, source: str, target: str) -> Expr:
    """Return `x` in another layout: unchanged, a new constant, or a call."""
    if source == target:
        return x
    how = LayoutTransform(source, target)
    return Constant(how.reference(x.value), x.span) if isinstance(x, Constant) else Call(how, [x])
