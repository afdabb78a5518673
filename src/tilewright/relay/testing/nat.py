"""Natural numbers as a data type, for tests: `nat.rly` of the standard library."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import CompileError
from tilewright.relay.expr import Call, Expr
from tilewright.relay.interpreter import ConstructorValue
from tilewright.relay.prelude import Prelude

__all__ = ["count", "make_nat_expr", "make_nat_value"]


def count(prelude: Prelude, n: Any) -> int:
    """Return the number that a value or an expression of the type `nat` denotes. Raises `CompileError` for others."""
    _, z, s = prelude.mod.get_type("nat")
    found = 0
    while True:
        made, fields = (n.op, n.args) if isinstance(n, Call) else (getattr(n, "constructor", None), n.fields)
        if made is None or made.name_hint not in (z.name_hint, s.name_hint):
            raise CompileError(f"{n!r} is not a natural number; write z() or s(n)", code="TW0311")
        if made.name_hint == z.name_hint:
            return found
        n, found = fields[0], found + 1


def make_nat_value(prelude: Prelude, n: int) -> ConstructorValue:
    """Return the value of the type `nat` that denotes `n`."""
    _, z, s = prelude.mod.get_type("nat")
    value = ConstructorValue(z.tag, (), z)
    for _ in range(n):
        value = ConstructorValue(s.tag, (value,), s)
    return value


def make_nat_expr(prelude: Prelude, n: int) -> Expr:
    """Return the expression of the type `nat` that denotes `n`. Raises `CompileError` for a negative number."""
    if n < 0:
        raise CompileError(f"{n} is not a natural number; give 0 or more", code="TW0209")
    _, z, s = prelude.mod.get_type("nat")
    value: Expr = z()
    for _ in range(n):
        value = s(value)
    return value
