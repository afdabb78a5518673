"""`ScopeBuilder`: builds programs with lets and branches in the order of execution.

    sb = ScopeBuilder()
    y = sb.let("y", relay.add(x, x))
    with sb.if_scope(cond): sb.ret(y)
    with sb.else_scope(): sb.ret(x)
    func = relay.Function([x, cond], sb.get())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.types import Type
from tilewright.relay.expr import Expr, If, Let, Tuple, Var, const
from tilewright.relay.visitor import substitute


def bind(expr: Expr, binds: Mapping[Var, Expr]) -> Expr:
    """Replace free variables of `expr` by these values; bound parameters of a function are removed from its signature.
    """
    from tilewright.relay.expr import Function

    values: dict[Expr, Expr] = dict(binds.items())
    if not isinstance(expr, Function):
        return substitute(expr, values)
    left = [p for p in expr.params if p not in binds]
    return Function(left, substitute(expr.body, values), expr.declared_ret_type, expr.type_params, expr.attrs,
                    expr.span)


class ScopeBuilder:
    """Builds a program statement by statement; `get()` returns it. Raises `CompileError` for statements out of order.
    """

    def __init__(self) -> None:
        self._scopes: list[list[tuple[Var, Expr]]] = [[]]
        self._results: list[Expr | None] = [None]
        self._branch: list[tuple[Expr, Expr] | None] = [None]

    def let(self, var: str | Var | tuple[str, Type], value: Any) -> Var:
        """Bind `value`, and return the variable. `var` is a variable, a name, or a pair of a name and a type."""
        value = _value(value)
        if isinstance(var, tuple):
            var = Var(*var)
        if isinstance(var, str):
            var = Var(var)
        if var.known_type() is None:
            var.set_type(value.known_type())
        self._scopes[-1].append((var, value))
        return var

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """Begin the statements that run if `cond`, a bool scalar, is true."""
        self._open()
        yield
        self._branch[-2 if len(self._branch) > 1 else -1] = (_value(cond), self._close("if_scope"))
        self._pop()

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Begin the statements that run if the condition of the previous `if_scope` is false."""
        if self._branch[-1] is None:
            raise CompileError("else_scope needs an if_scope right before it", code="TW0420")
        self._open()
        yield
        other = self._close("else_scope")
        self._pop()
        known = self._branch[-1]
        assert known is not None
        self._branch[-1] = None
        self.ret(If(known[0], known[1], other))

    def type_of(self, expr: Expr) -> Type:
        """Return the type of a value of this program."""
        return expr.checked_type

    def ret(self, value: Any) -> None:
        """Set the result of the scope and end it."""
        if self._results[-1] is not None:
            raise CompileError("ret was called twice in one scope", code="TW0420")
        self._results[-1] = _value(value)

    def get(self) -> Expr:
        """Return the whole program. Raises `CompileError` before `ret`."""
        return self._close("the program")

    def _open(self) -> None:
        self._scopes.append([])
        self._results.append(None)
        self._branch.append(None)

    def _pop(self) -> None:
        for stack in (self._scopes, self._results, self._branch):
            stack.pop()

    def _close(self, what: str) -> Expr:
        body = self._results[-1]
        if body is None:
            raise CompileError(f"{what} has no value; call ret", code="TW0420")
        for var, value in reversed(self._scopes[-1]):
            body = Let(var, value, body)
        return body


def _value(value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    return Tuple(tuple(map(_value, value))) if isinstance(value, (tuple, list)) else const(value)
