"""Edits of a program: replacements of nodes; all users are rebuilt.

A `Change` returns the replacement of one node over its rewritten operands. Several changes are applied in one walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import CompileError, OptionError, ShapeError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass
from tilewright.relay.expr import Expr, Function
from tilewright.relay.visitor import free_vars, operands, post_order, with_operands

Now = Callable[[Expr], Expr]
"""Maps a node of the original program to its replacement."""


@dataclass(frozen=True, slots=True)
class Change:
    """The replacement, by `step`, of the node `at` over its rewritten operands; or of its operand `position`, unless
    negative."""

    at: Expr
    step: Callable[[Expr, Now], Expr]
    position: int = -1


@dataclass(frozen=True)
class Edit:
    """An edit that would off-load operators: `text` describes it, `changes` and `passes` perform it.

    `keeps_meaning`: the program computes the same. `table`: an edit of the target's pattern table instead. `needs`
    names values that the program lacks. `can_apply` is False for edits that only the author of the model or of the
    accelerator can make.
    """

    text: str
    keeps_meaning: bool = False
    changes: tuple[Change, ...] = ()
    passes: tuple[Pass, ...] = ()
    needs: tuple[str, ...] = ()
    table: Callable[[Sequence[tuple[Any, ...]]], list[tuple[Any, ...]]] | None = None

    @property
    def can_apply(self) -> bool:
        """Whether `apply` can perform the edit."""
        return bool(self.changes or self.passes or self.needs)

    def apply(self, mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
        """Return `mod`, the explained module, with the edit applied; `params` has the values in `needs`, by name.

        Raises `OptionError` if values are missing or the edit cannot be applied, and `CompileError` if the rest of the
        program does not type-check afterwards.
        """
        if not self.can_apply:
            raise OptionError(f"this edit cannot be applied automatically: {self.text}", code="TW0909")
        return applied(mod, [self], params)


def applied(mod: IRModule, edits: Iterable[Edit], params: Mapping[str, Any] | None = None) -> IRModule:
    """Return `mod` with several edits applied: the changes first, in one walk, then each pass once."""
    from tilewright.relay.transform.bind_params import bind_params

    edits = list(edits)
    missing = [n for n in dict.fromkeys(n for e in edits for n in e.needs) if n not in (params or {})]
    if missing:
        raise OptionError(f"the values of {', '.join(f'%{n}' for n in missing)} are not in the model; "
                          f"pass them: apply(params={{{missing[0]!r}: array}})", code="TW0909")
    changes = list({id(c): c for e in edits for c in e.changes}.values())
    try:
        new = mod.map_functions(lambda f: changed_function(f, changes), Function) if changes else mod
    except ShapeError as error:
        raise CompileError("the program fails type inference after the edit "
                           f"'{'; '.join(e.text for e in edits)}': {error}", code="TW0909") from None
    needed = {n: (params or {})[n] for e in edits for n in e.needs}
    new = bind_params(new, needed) if needed else new
    for p in {repr(p): p for e in edits for p in e.passes}.values():
        new = p(new)
    return new


def changed(root: Expr, changes: Sequence[Change], without: Iterable[Expr] = ()) -> Expr:
    """Return `root` after the changes; the nodes `without` are kept unless a change applies to them."""
    at: dict[Expr, list[Change]] = {}
    for c in changes:
        at.setdefault(c.at, []).append(c)
    kept = [e for e in without if e is not root]
    new: dict[Expr, Expr] = {}

    def current(e: Expr) -> Expr:
        return new.get(e, e)

    for e in [*kept, *post_order(root, without=kept)]:
        old, mine = operands(e), at.get(e, ())
        below = [new.get(o, o) for o in old]
        for c in mine:
            if c.position >= 0:
                below[c.position] = c.step(below[c.position], current)
        now = with_operands(e, below) if any(a is not b for a, b in zip(old, below, strict=True)) else e
        for c in mine:
            if c.position < 0:
                now = c.step(now, current)
        if now is not e:
            new[e] = now
    return new.get(root, root)


def changed_function(function: Function, changes: Sequence[Change]) -> Function:
    """Return a function after the changes. Its parameters are those still used, then the new ones."""
    nodes = set(post_order(function.body))
    mine = [c for c in changes if c.at in nodes or c.at in function.params]
    if not mine:
        return function
    body = changed(function.body, mine)
    after, before = free_vars(body), free_vars(function.body)
    if set(after) == set(before):
        return function.with_body(body)
    new = [v for v in after if v not in before]
    by_name = {v.name_hint: v for v in new}
    params = [p if p in after or p not in before else by_name.get(p.name_hint) for p in function.params]
    kept = [p for p in params if p is not None]
    return Function([*kept, *(v for v in new if v not in kept)], body, None, function.type_params, function.attrs,
                    function.span)


def operand_change(user: Expr, position: int, make: Callable[[Expr], Expr]) -> Change:
    """Return a change that applies `make` to operand `position` of `user`."""
    return Change(user, lambda e, now: make(e), position)


def node_change(at: Expr, make: Callable[[Expr], Expr]) -> Change:
    """Return a change that applies `make` to the node itself."""
    return Change(at, lambda e, now: make(e))


def copied(inside: Sequence[Expr]) -> Callable[[Expr, int, Expr], Change]:
    """Return a function that makes changes. Each gives a user outside of a match its own copy of an operand, made of
    copies of the nodes `inside`."""
    made_for: list[tuple[Now, dict[Expr, Expr]]] = []

    def at(user: Expr, position: int, value: Expr) -> Change:
        def step(e: Expr, now: Now) -> Expr:
            if not made_for or made_for[0][0] is not now:  # another walk
                made_for[:] = [(now, {})]
            copies = made_for[0][1]
            for n in inside:
                if n not in copies:
                    m = now(n)
                    copies[n] = with_operands(m, [copies.get(o, now(o)) for o in operands(n)]) if operands(n) else m
            return copies[value]

        return Change(user, step, position)

    return at
