"""Finds where a program with control flow and Python objects (strings, dictionaries) must be cut.

    (%texts, %n) { if (less(%n, 0)) { … } else { … } and string_upper(%texts) }    -> operators on strings are
        held back

Control flow is native code that cannot call back into Python, which creates all objects. So a program with both is cut
between them even if all sizes are known. A branch that contains objects is selected when its condition is known.
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
"""Expression kinds that no stage contains."""


def mixes_control_and_objects(function: Function) -> bool:
    """Return whether a function has both control flow and operators on Python objects that can be cut apart."""
    return bool(held_back_by_objects(post_order(function.body, inside=False)))


def held_back_by_objects(order: Sequence[Expr]) -> set[Expr]:
    """Return the expressions of a body that belong to a later stage: operators on objects if control flow can run
    first, else control flow.

    `order` lists the nodes of the body, without those of inner functions.
    """
    objects: set[Expr] = {
        e for e in order if isinstance(e, Call) and isinstance(e.op, Op) and any(map(has_objects, (e, *e.args)))}
    control: set[Expr] = {
        e for e in order if isinstance(e, (If, Match)) or (isinstance(e, Call) and not is_kernel(e))
    } if objects else set()
    if not objects or not control:
        return set()
    for held_back, first in ((objects, control), (control, objects)):
        after = _readers(order, held_back)
        if first - after and not any(isinstance(e, NOT_IN_STAGES) for e in after):
            return held_back
    return set()


def choices_of_objects(order: Sequence[Expr]) -> set[Expr]:
    """Return the branches in `order` that contain objects."""
    branches = [e for e in order if isinstance(e, If)]
    if not branches or not any(map(has_objects, order)):
        return set()
    return {e for e in branches if any(map(has_objects, post_order(e.true_branch, e.false_branch)))}


def has_objects(e: Expr) -> bool:
    """Return whether a value has Python objects among its tensors."""
    return any(t.dtype.is_object for t in tensors_of(e.known_type()))


def _readers(order: Sequence[Expr], values: set[Expr]) -> set[Expr]:
    """Return the values and everything computed from them."""
    found: set[Expr] = set()
    for e in order:
        if e in values or any(o in found for o in operands(e)):
            found.add(e)
    return found
