"""Visits and rewrites of loop programs, for passes in scripts: TVM's `tir.stmt_functor`.

    stmt_functor.post_order_visit(f.body, lambda node: …)
    f.with_body(stmt_functor.ir_transform(f.body, None, rewrite_loop, ["tir.For"]))

Nodes are the statements of `stmt.py` and scalar expressions. Equal expressions are one object, and are visited once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.settings import nearest
from tilewright.scalar import expr as E
from tilewright.scalar import walk
from tilewright.scalar.expr import PrimExpr, Value, Var, as_expr
from tilewright.tir import stmt as S
from tilewright.tir.rebuilding import renew_defs, substitute_in
from tilewright.tir.stmt import PrimFunc, Seq, Stmt, bodies, expressions

Node = Stmt | PrimExpr
Visit = Callable[[Any], Any]

NODES: Final[Mapping[str, type]] = {
    **{f"tir.{c.__name__}": c for c in (
        S.For, S.While, S.IfThenElse, S.AssertStmt, S.Evaluate, S.Allocate, S.AllocateConst, S.AttrStmt,
        S.ProducerRealize, S.Block, E.Var,
        E.Add, E.Sub, E.Mul, E.Div, E.FloorDiv,
        E.FloorMod, E.Min, E.Max, E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE, E.And, E.Or, E.Not, E.Cast, E.Select, E.Call,
        E.Ramp, E.Broadcast)},
    "tir.BufferStore": S.Store, "tir.SeqStmt": S.Seq, "tir.LetStmt": S.Let, "tir.BufferLoad": E.Load,
    "tir.Mod": E.TruncMod, "IntImm": E.IntImm, "FloatImm": E.FloatImm,
}
"""TVM's names of the kinds of nodes."""


def post_order_visit(stmt: Node | PrimFunc, fvisit: Visit) -> None:
    """Call `fvisit` with every node inside `stmt`, operands and bodies first, then with `stmt` itself."""
    _visit(stmt, fvisit, set(), before=False)


def pre_order_visit(stmt: Node | PrimFunc, fvisit: Visit) -> None:
    """Call `fvisit` with `stmt`, then with every node inside; what is inside a node is left out if the result is False.
    """
    _visit(stmt, fvisit, set(), before=True)


def _visit(node: Any, fvisit: Visit, seen: set[int], *, before: bool) -> None:
    if isinstance(node, PrimFunc):
        node = node.body
    if id(node) in seen:
        return
    seen.add(id(node))
    if before and fvisit(node) is False:
        return
    for inner in node.operands() if isinstance(node, PrimExpr) else (*_own(node), *bodies(node)):
        _visit(inner, fvisit, seen, before=before)
    if not before:
        fvisit(node)


def _own(s: Stmt) -> tuple[PrimExpr, ...]:
    """Return the expressions of a statement in TVM's order: the stored value before the indices."""
    return (s.value, *s.indices) if isinstance(s, S.Store) and s.mask is None else expressions(s)


def ir_transform(
    stmt: Any, preorder: Visit | None, postorder: Visit | None, only_enable: Sequence[str] | None = None
) -> Any:
    """Rewrite a statement or an expression.

    `preorder` receives a node before the nodes inside. Its result replaces the node as it is; None continues inside.
    `postorder` receives a node after the nodes inside were rewritten; None keeps the node. `only_enable` restricts both
    to kinds of nodes, such as `tir.For`. Raises `OptionError` for an unknown kind.
    """
    return _Rewriter(preorder, postorder, only_enable).node(stmt)


class _Rewriter:
    """The state of one `ir_transform`."""

    def __init__(self, preorder: Visit | None, postorder: Visit | None, only_enable: Sequence[str] | None) -> None:
        self.preorder, self.postorder = preorder, postorder
        self.kinds = None if only_enable is None else tuple(map(_kind, only_enable))
        self.known: dict[int, tuple[Any, Any]] = {}
        """Identity of a node -> the node, which must stay alive, and its replacement."""

    def node(self, node: Any) -> Any:
        found = self.known.get(id(node))
        if found is None:
            found = self.known[id(node)] = node, self.rewritten(node)
        return found[1]

    def rewritten(self, node: Any) -> Any:
        enabled = self.kinds is None or isinstance(node, self.kinds)
        if enabled and self.preorder is not None:
            new = self.preorder(node)
            if new is not None:
                return _same_sort(new, node)
        new = self.expr(node) if isinstance(node, PrimExpr) else self.stmt(node)
        if enabled and self.postorder is not None:
            last = self.postorder(new)
            return new if last is None else _same_sort(last, node)
        return new

    def expr(self, e: PrimExpr) -> PrimExpr:
        old = e.operands()
        new = [self.node(o) for o in old]
        return e if all(a is b for a, b in zip(old, new, strict=True)) else e.with_operands(new)

    def stmt(self, s: Stmt) -> Stmt:
        """Return a statement over rewritten parts; `s` itself if they are unchanged."""
        fields = _FIELDS.get(type(s))
        if fields is None:
            raise CompileError(f"{type(s).__name__} is not a statement or a scalar expression", code="TW0602")
        old = {name: getattr(s, name) for name in fields}
        new = {name: self.part(value) for name, value in old.items()}
        if all(_is_same(value, new[name]) for name, value in old.items()):
            return s
        return S.seq(*new["stmts"]) if isinstance(s, Seq) else replace(s, **new)  # type: ignore[type-var]

    def part(self, value: Any) -> Any:
        """Return a rewritten field: a node, several, a text, or None."""
        if isinstance(value, tuple):
            return tuple(map(self.node, value))
        return value if value is None or isinstance(value, str) else self.node(value)


def _is_same(a: Any, b: Any) -> bool:
    return all(map(operator.is_, a, b)) if isinstance(a, tuple) else a is b


_FIELDS: Final[Mapping[type, tuple[str, ...]]] = {
    S.For: ("min", "extent", "body"), S.IfThenElse: ("condition", "then_case", "else_case"),
    S.Store: ("value", "indices", "mask"), Seq: ("stmts",), S.Evaluate: ("value",), S.Let: ("value", "body"),
    S.AttrStmt: ("value", "body"), S.Allocate: ("body",), S.AllocateConst: ("body",), S.ProducerRealize: ("body",),
    S.Block: ("bindings", "predicate", "init", "body"), S.RootBlock: ("body",), S.While: ("condition", "body"),
    S.AssertStmt: ("condition", "body"),
}
"""The fields of a statement with nodes inside, in the order of visits."""


def _kind(name: str) -> type:
    found = NODES.get(name)
    if found is None:
        raise OptionError(f"there is no kind of node '{name}'{nearest(name, NODES)}", code="TW0210")
    return found


def _same_sort(new: Any, node: Any) -> Any:
    """Return a replacement. Raises `CompileError` unless it is a statement for a statement, or a value for a value."""
    if isinstance(node, PrimExpr) and E.is_value(new):
        return as_expr(new, None if isinstance(new, E.ExprLike) else node.dtype)
    if isinstance(node, Stmt) and isinstance(new, Stmt):
        return new
    raise CompileError(
        f"a {type(node).__name__} was replaced by {type(new).__name__}; return a "
        f"{'scalar expression' if isinstance(node, PrimExpr) else 'statement'}, or None", code="TW0602")


def substitute(node: Any, vmap: Mapping[Var, Value]) -> Any:
    """Replace variables in a statement or an expression by values. Numbers get the types of the variables.

    Memory that is allocated inside with a replaced variable as a dimension gets the new dimension. A loop whose extent
    becomes a number has an int64 variable.
    """
    values: dict[Any, PrimExpr] = {
        v: as_expr(x, None if isinstance(x, E.ExprLike) else v.dtype) for v, x in vmap.items()}
    return walk.substitute(node, values) if isinstance(node, PrimExpr) else substitute_in(node, values)


__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "renew_defs", "substitute"]
