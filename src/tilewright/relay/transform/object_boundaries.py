"""Where Python objects (texts, dictionaries) and control flow meet in a program, and it has to be cut.

    (%texts, %n) { if (less(%n, 0)) { … } else { … } beside string_upper(%texts) }    -> the operators on texts are held back

Control flow is native code that does not go back to Python, where alone objects are made. So a program with both is cut
between them, whatever is known of its sizes; and a branch with objects in it is chosen when its condition is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.types import tensors_of
from tilewright.relay.adt import Match
from tilewright.relay.analysis.branches import is_kernel
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, If, Let, RefCreate, RefRead, RefWrite
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order

NOT_IN_STAGES: Final = (Function, GlobalVar, Let, Match, RefCreate, RefRead, RefWrite)
"""Expressions that no stage has."""


def mixes_control_and_objects(function: Function) -> bool:
    """Whether a function has control flow, and beside it operators on Python objects, before or behind which it can be cut."""
    return bool(held_back_by_objects(post_order(function.body, inside=False)))


def held_back_by_objects(order: Sequence[Expr]) -> set[Expr]:
    """Return the expressions of a body that a later stage computes: operators on objects where control flow can go first, or control flow.

    `order` has the parts of the body in order, without those of functions in it.
    """
    objects: set[Expr] = {e for e in order if isinstance(e, Call) and isinstance(e.op, Op) and any(map(has_objects, (e, *e.args)))}
    control: set[Expr] = {e for e in order if isinstance(e, (If, Match)) or (isinstance(e, Call) and not is_kernel(e))} if objects else set()
    if not objects or not control:
        return set()
    for held_back, first in ((objects, control), (control, objects)):
        after = _readers(order, held_back)
        if first - after and not any(isinstance(e, NOT_IN_STAGES) for e in after):
            return held_back
    return set()


def choices_of_objects(order: Sequence[Expr]) -> set[Expr]:
    """Return the branches among these that have objects in them."""
    branches = [e for e in order if isinstance(e, If)]
    if not branches or not any(map(has_objects, order)):
        return set()
    return {e for e in branches if any(map(has_objects, post_order(e.true_branch, e.false_branch)))}


def has_objects(e: Expr) -> bool:
    """Whether a value has Python objects among its tensors."""
    return any(t.dtype.is_object for t in tensors_of(e.known_type()))


def _readers(order: Sequence[Expr], values: set[Expr]) -> set[Expr]:
    """The values, and all that is made of them."""
    found: set[Expr] = set()
    for e in order:
        if e in values or any(o in found for o in operands(e)):
            found.add(e)
    return found
