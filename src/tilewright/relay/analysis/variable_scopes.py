"""Check that every variable is used in its scope: in its function, the body of its let, or its clause of a match.

A value used in several scopes belongs to the innermost scope around them, where its operands must be available.
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
    """Raise `CompileError` for a variable of the function `name` that is used outside of its scope. Needs unique
    bindings.

    Linear time, except for the logarithm of the nesting depth.
    """
    found = _Uses(function)
    for v, scope, user in reversed(found.uses):
        known = found.bound.get(v)
        if known is not None and not found.tree.within(scope, known[0]):
            raise CompileError(f"in '{name}' the variable '{v.name_hint}' is used in {short(user)}, outside of "
                               f"{_outside(v, known[1])}", user.span or v.span, code="TW0402")


class _Uses:
    """The scopes of a function, with the bindings and uses of each variable."""

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
        """Return the scope in which `e`, a node of `home`, uses its operand number `k`."""
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
    """Return the text of the scope that a use of a variable is outside of, with a remedy."""
    if isinstance(binder, Function):
        return f"{short(binder)}, which has it as a parameter; return the value as a result of that function"
    if isinstance(binder, Match):
        return f"its clause of {short(binder)}; use it only in that clause, or return it as the value of the match"
    return f"the body of let %{v.name_hint}; move the use into the body, or the let outward"
