"""TVM's visitor classes, for programs that derive from them: `ExprFunctor`, `ExprVisitor`, `ExprMutator`.

Tilewright's passes use `match` and the walks of `relay/visitor.py`. A subclass overrides `visit_call`,
`visit_function`, …, calls the base method, and visits operands with `self.visit`. Each node is visited once; memory
alone limits the depth of graphs.

    class CountCalls(ExprVisitor):
        def __init__(self):
            super().__init__()
            self.count = 0

        def visit_call(self, call):
            super().visit_call(call)
            self.count += 1
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.base.recursion import room_for
from tilewright.relay.adt import Clause, Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
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
from tilewright.relay.visitor import operands, post_order

_METHODS: Final[dict[type, str]] = {
    Call: "visit_call", Constant: "visit_constant", Constructor: "visit_constructor", Function: "visit_function",
    GlobalVar: "visit_global_var",
    If: "visit_if", Let: "visit_let", Match: "visit_match", RefCreate: "visit_ref_create", RefRead: "visit_ref_read",
    RefWrite: "visit_ref_write", Tuple: "visit_tuple", TupleGetItem: "visit_tuple_getitem", Var: "visit_var",
}


class ExprFunctor:
    """Dispatches on the kind of node: `visit_call` for a `Call`, `visit_tuple_getitem` for a `TupleGetItem`, ….

    `memo_map` maps visited nodes to results. Raises `NotImplementedError` for a kind of node without a method.
    """

    def __init__(self) -> None:
        self.memo_map: dict[Any, Any] = {}
        self._inside = False

    def visit(self, expr: Expr) -> Any:
        """Return the result of visiting `expr`; each node is visited once."""
        if expr in self.memo_map:
            return self.memo_map[expr]
        if self._inside or not isinstance(expr, Expr):
            return self._visited(expr)
        self._inside = True
        try:
            with room_for(len(post_order(expr))):
                return self._visited(expr)
        finally:
            self._inside = False

    def _visited(self, expr: Any) -> Any:
        name = _METHODS.get(type(expr), "visit_op")
        method = getattr(self, name, None)
        if method is None:
            raise NotImplementedError(f"{type(self).__name__} has no method {name} to visit a {type(expr).__name__}")
        result = self.memo_map[expr] = method(expr)
        return result


class ExprVisitor(ExprFunctor):
    """Visits every node once, from the root down; overridden methods call the base method to continue with the
    operands."""

    def _below(self, expr: Expr) -> None:
        for o in operands(expr):
            self.visit(o)

    def visit_op(self, op: Any) -> None:
        """Visit the operator of a call."""

    def visit_call(self, call: Call) -> None:
        self.visit(call.op)
        for a in call.args:
            self.visit(a)

    def visit_function(self, fn: Function) -> None:
        for p in fn.params:
            self.visit(p)
        self.visit(fn.body)

    def visit_let(self, let: Let) -> None:
        self.visit(let.var)
        self._below(let)

    visit_constant = visit_constructor = visit_global_var = visit_var = visit_op
    visit_if = visit_match = visit_tuple = visit_tuple_getitem = _below
    visit_ref_create = visit_ref_read = visit_ref_write = _below


class ExprMutator(ExprFunctor):
    """Rewrites a graph: each method returns the replacement of its node; unchanged subgraphs are kept."""

    def visit_op(self, op: Any) -> Any:
        """Return the replacement of a call's operator."""
        return op

    def visit_var(self, var: Var) -> Any:
        return var

    visit_constant = visit_constructor = visit_global_var = visit_op

    def visit_call(self, call: Call) -> Any:
        op, args = self.visit(call.op), [self.visit(a) for a in call.args]
        return call if op is call.op and _same(args, call.args) else Call(op, args, span=call.span)

    def visit_function(self, fn: Function) -> Any:
        params, body = [self.visit(p) for p in fn.params], self.visit(fn.body)
        if body is fn.body and _same(params, fn.params):
            return fn
        return Function(params, body, fn.declared_ret_type if body is fn.body else None, fn.type_params, fn.attrs,
                        fn.span)

    def visit_tuple(self, tup: Tuple) -> Any:
        fields = [self.visit(f) for f in tup.fields]
        return tup if _same(fields, tup.fields) else Tuple(tuple(fields), tup.span)

    def visit_tuple_getitem(self, op: TupleGetItem) -> Any:
        whole = self.visit(op.tuple_value)
        return op if whole is op.tuple_value else TupleGetItem(whole, op.index, op.span)

    def visit_if(self, ite: If) -> Any:
        new = [self.visit(e) for e in operands(ite)]
        return ite if _same(new, operands(ite)) else If(new[0], new[1], new[2], ite.span)

    def visit_let(self, let: Let) -> Any:
        var, value, body = self.visit(let.var), self.visit(let.value), self.visit(let.body)
        return let if _same((var, value, body), (let.var, let.value, let.body)) else Let(var, value, body, let.span)

    def visit_ref_create(self, r: RefCreate) -> Any:
        value = self.visit(r.value)
        return r if value is r.value else RefCreate(value, r.span)

    def visit_ref_read(self, r: RefRead) -> Any:
        ref = self.visit(r.ref)
        return r if ref is r.ref else RefRead(ref, r.span)

    def visit_ref_write(self, r: RefWrite) -> Any:
        ref, value = self.visit(r.ref), self.visit(r.value)
        return r if ref is r.ref and value is r.value else RefWrite(ref, value, r.span)

    def visit_match(self, m: Match) -> Any:
        data = self.visit(m.data)
        clauses = [Clause(self.visit_pattern(c.lhs), self.visit(c.rhs)) for c in m.clauses]
        if data is m.data and all(a.lhs is b.lhs and a.rhs is b.rhs for a, b in zip(clauses, m.clauses, strict=True)):
            return m
        return Match(data, tuple(clauses), m.complete, m.span)

    def visit_pattern(self, pattern: Pattern) -> Pattern:
        """Return the replacement of a pattern of a clause."""
        match pattern:
            case PatternVar():
                var = self.visit(pattern.var)
                return pattern if var is pattern.var else PatternVar(var)
            case PatternTuple():
                inside = tuple(map(self.visit_pattern, pattern.patterns))
                return pattern if _same(inside, pattern.patterns) else PatternTuple(inside)
            case PatternConstructor():
                inside = tuple(map(self.visit_pattern, pattern.patterns))
                return pattern if _same(inside, pattern.patterns) else PatternConstructor(pattern.constructor, inside)
            case _:
                return pattern


def _same(new: Any, old: Any) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))
