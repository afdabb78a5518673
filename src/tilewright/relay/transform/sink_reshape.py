"""Move reshapes after the elementwise calls that follow a convolution or product, so that these can be fused with it.

    add(reshape(nn.dense(%x, w), (1, 128, 768)), b)     -> reshape(add(nn.dense(%x, w), b), (1, 128, 768))
    add(reshape(nn.dense(%x, w), (1, 128, 768)), %y)    -> reshape(add(nn.dense(%x, w), reshape(%y, (128, 768))), …)

A reshape is free by itself, but between a product and its bias it prevents fusion and costs a pass over memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.transform.permutations import groups, reshaped
from tilewright.relay.visitor import consumers, post_order, rewrite


@dataclass(frozen=True)
class SinkReshape(FunctionPass):
    """Move reshapes after elementwise calls if this enables a fusion. Needs known types; applies only to static shapes.
    """

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        rule = _Rule(consumers(post_order(function, inside=False)))
        return rewrite(function, rule.apply, origin=rule.origin)


class _Rule:
    def __init__(self, users: dict[Expr, list[Expr]]) -> None:
        self.users = users
        self.origin: dict[Expr, Expr] = {}
        self.anchored: dict[Expr, bool] = {}

    def apply(self, e: Expr) -> Expr | None:
        if not isinstance(e, Call) or not isinstance(e.op, Op) or e.op.kind > Fusion.BROADCAST:
            return None
        kind = e.known_type()
        if not isinstance(kind, TensorType) or not kind.is_static:
            return None
        sinkable = [k for k, a in enumerate(e.args) if self._is_sinkable(a, kind)]
        at = next((k for k in sinkable if self._only_here(e.args[k])), sinkable[0] if sinkable else None)
        if at is None or any(self._joins(a) for k, a in enumerate(e.args) if k != at):
            return None
        source = e.args[at].args[0]  # type: ignore[attr-defined]
        before = source.tensor_type.shape
        args = [source if k == at else _seen_before(a, kind.shape, before) for k, a in enumerate(e.args)]
        if any(a is None for a in args):
            return None
        inner = Call(e.op, [a for a in args if a is not None], span=e.span)
        self.anchored[inner] = True
        return reshaped(inner, kind.shape)

    def _is_sinkable(self, a: Expr, result: TensorType) -> bool:
        """Return whether `a` is a reshape of an anchor's value to the shape of the result."""
        if not (isinstance(a, Call) and isinstance(a.op, Op) and a.op.view):
            return False
        return a.tensor_type.shape == result.shape and self._is_anchored(a.args[0])

    def _only_here(self, a: Expr) -> bool:
        """Return whether a reshape and its argument have no other users, so that the call is fused with it."""
        return self._uses(a) <= 1 and self._uses(a.args[0]) <= 1  # type: ignore[attr-defined]

    def _joins(self, a: Expr) -> bool:
        """Return whether the call can be fused with the operand."""
        return self._is_anchored(a) and self._uses(a) <= 1

    def _uses(self, e: Expr) -> int:
        return len(self.users.get(self.origin.get(e, e), ()))

    def _is_anchored(self, e: Expr) -> bool:
        """Return whether an operand is a convolution, a product, or elementwise calls after one."""
        known = self.anchored.get(e)
        if known is not None:
            return known
        found, chain = False, [e]
        while isinstance(e, Call) and isinstance(e.op, Op) and not e.op.view:
            if e.op.kind >= Fusion.REDUCE:
                found = e.op.kind == Fusion.OUT_FUSABLE
                break
            if e.op.kind > Fusion.BROADCAST or not e.args or e.args[0].known_type() != e.known_type():
                break
            e = e.args[0]
            if e in self.anchored:
                found = self.anchored[e]
                break
            chain.append(e)
        self.anchored.update(dict.fromkeys(chain, found))
        return found


def _seen_before(a: Expr, after: tuple[Any, ...], before: tuple[Any, ...]) -> Expr | None:
    """Return an operand of a call of shape `after`, reshaped for the same call on the shape `before`; None if
    impossible."""
    shape = a.tensor_type.shape
    if all(d == 1 for d in shape):
        return reshaped(a, (1,) * min(len(shape), len(before)))
    if shape == after:
        return reshaped(a, before)
    wide = (1,) * (len(after) - len(shape)) + tuple(shape)
    runs = groups(before, after)
    if runs is None:
        return None
    new = [1] * len(before)
    for left, right in runs:
        full = [wide[i] for i in right]
        if full == [after[i] for i in right]:
            for i in left:
                new[i] = before[i]
        elif any(d != 1 for d in full):
            return None
    return reshaped(a, new)
