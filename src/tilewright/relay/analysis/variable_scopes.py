"""Is every variable used where it is bound: in its function, in the body of its let, in its clause of a match.

A value of a graph that several scopes use stands in the innermost scope around them, and what it uses must be known
there.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.base.errors import CompileError
from tilewright.relay.adt import Match, pattern_vars
from tilewright.relay.expr import Expr, Function, If, Let, Var
from tilewright.relay.node_labels import short
from tilewright.relay.scopes import ATOMS, ScopeTree
from tilewright.relay.visitor import operands, post_order


def check_variable_scopes(name: str, function: Function) -> None:
    """Raises `CompileError` for a variable of the function `name` that is used outside of what binds it; each is bound
    once.

    Linear, but for the logarithm of the depth of scopes within each other.
    """
    found = _Uses(function)
    for v, scope, user in reversed(found.uses):
        known = found.bound.get(v)
        if known is not None and not found.tree.within(scope, known[0]):
            raise CompileError(f"in '{name}' the variable '{v.name_hint}' is used in {short(user)}, outside of "
                               f"{_outside(v, known[1])}", user.span or v.span, code="TW0402")


class _Uses:
    """The scopes of a function: where each variable is bound, and by what; where each is used, and by what."""

    def __init__(self, function: Function) -> None:
        self.tree = ScopeTree(function)
        self.bound: dict[Expr, tuple[int, Expr]] = {}
        self.uses: list[tuple[Var, int, Expr]] = []
        home: dict[Expr, int] = {function: 0}
        for e in reversed(post_order(function)):
            for k, o in enumerate(operands(e)):
                scope = self._scope(e, k, o, home[e])
                if isinstance(o, Var):
                    self.uses.append((o, scope, e))
                elif not isinstance(o, ATOMS):
                    home[o] = self.tree.around(home[o], scope) if o in home else scope

    def _scope(self, e: Expr, k: int, o: Expr, home: int) -> int:
        """The scope that `e`, which stands in `home`, uses its operand number `k` in."""
        match e:
            case Function():
                return self._bind(e, 0, home, e.params)
            case Let() if k == 1 or isinstance(o, Function):  # a function may call itself by its name
                return self._bind(e, 0, home, (e.var,))
            case Match() if k:
                return self._bind(e, k, home, pattern_vars(e.clauses[k - 1].lhs))
            case If() if k:
                return self.tree.open(e, k, home)
            case _:
                return home

    def _bind(self, e: Expr, place: int, home: int, variables: Iterable[Var]) -> int:
        scope = self.tree.open(e, place, home)
        self.bound.update(dict.fromkeys(variables, (scope, e)))
        return scope


def _outside(v: Var, binder: Expr) -> str:
    """What a variable is used outside of, and what to do about it."""
    if isinstance(binder, Function):
        return f"{short(binder)}, which has it as a parameter; give its value out of that function in the result"
    if isinstance(binder, Match):
        return f"its clause of {short(binder)}; use it in that clause alone, or make it the value of the match"
    return f"the body of let %{v.name_hint}; put what uses it into the body, or the let around both"
