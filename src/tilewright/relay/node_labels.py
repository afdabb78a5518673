"""Short labels of expressions for messages."""

from __future__ import annotations

from typing import Any

from tilewright.relay.adt import Constructor, Match
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.visitor import operands


def short(e: Any, depth: int = 1) -> str:
    """Return a short text of an expression for messages: `add(%x, …)`."""
    match e:
        case Var():
            return f"%{e.name_hint}"
        case GlobalVar():
            return f"@{e.name_hint}"
        case Constructor():
            return str(e.name_hint)
        case Constant():
            return str(e.value.item()) if not e.value.shape else "a constant"
        case Call():
            name = short(e.op, 0) if isinstance(e.op, Expr) else e.op.name
            return f"{name}({', '.join(short(a, 0) for a in e.args) if depth else '…' if e.args else ''})"
        case Function():
            return f"fn ({', '.join(f'%{p.name_hint}' for p in e.params)}) {{…}}"
        case Let():
            return f"let %{e.var.name_hint}"
        case Tuple() if depth:
            return f"({', '.join(short(f, 0) for f in e.fields)})"
        case TupleGetItem():
            return f"{short(e.tuple_value, 0)}.{e.index}"
        case If() if depth:
            return f"if ({short(e.cond, 0)})"
        case Match() if depth:
            return f"match ({short(e.data, 0)})"
        case RefCreate() | RefRead() | RefWrite() if depth:
            kind = {RefCreate: "ref", RefRead: "ref_read", RefWrite: "ref_write"}[type(e)]
            return f"{kind}({', '.join(short(o, 0) for o in operands(e))})"
        case _:
            return "…"
