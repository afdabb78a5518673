"""Matches an expression against a pattern. Recursive over the pattern, but iterative over the graph.

A match assigns expressions to patterns. A pattern object has one expression, except on the path of a dominator. The
first fitting alternative wins: left before right, and the arguments of a sum in their order before the swapped order.
Alternatives are not reconsidered later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeGuard

from tilewright.base.types import TensorType, same_shape
from tilewright.ir.op_attributes import op_attr
from tilewright.ir.structural import structural_equal
from tilewright.relay.dataflow_pattern.graph import Graph, Key, key_of
from tilewright.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
)
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import OPS, Op, plain
from tilewright.relay.visitor import operands

NodeMap = dict[DFPattern, list[Any]]
"""The expressions matched by each pattern: one, or several on the path of a dominator."""


def match(pattern: DFPattern, expr: Expr | type[Op]) -> bool:
    """Return whether `expr`, or an operator without its call, matches `pattern`."""
    return Matcher(expr).match(pattern, expr) is not None


class Matcher:
    """Matches patterns in one graph; the graph is traversed only if a dominator pattern needs it."""

    def __init__(self, graph: Graph | Expr | type[Op]) -> None:
        self._graph: Any = graph
        self._found: NodeMap = {}
        self._trail: list[DFPattern] = []
        self._once = True

    @property
    def graph(self) -> Graph:
        """The graph that contains the candidates."""
        if not isinstance(self._graph, Graph):
            self._graph = Graph(self._graph)
        return self._graph

    def match(self, pattern: DFPattern, expr: Expr | type[Op]) -> NodeMap | None:
        """Return the expression of each part of `pattern` if `expr` matches, else None."""
        self._found, self._trail, self._once = {}, [], True
        return self._found if self._looks(pattern, expr) else None

    def _looks(self, p: DFPattern, e: Any) -> bool:
        if self._once and (known := self._found.get(p)):
            return known[0] is e or (isinstance(e, Op) and type(known[0]) is type(e))
        mark = len(self._trail)
        if not _LOOKS[type(p)](self, p, e):
            self._forget(mark)
            return False
        self._found.setdefault(p, []).append(e)
        self._trail.append(p)
        return True

    def _forget(self, mark: int) -> None:
        """Undo the assignments since `mark`."""
        while len(self._trail) > mark:
            p = self._trail.pop()
            self._found[p].pop()
            if not self._found[p]:
                del self._found[p]

    def _all(self, patterns: Sequence[DFPattern], exprs: Sequence[Any]) -> bool:
        if len(patterns) != len(exprs):
            return False
        mark = len(self._trail)
        for p, e in zip(patterns, exprs, strict=True):
            if not self._looks(p, e):
                self._forget(mark)
                return False
        return True

    def _expr(self, p: ExprPattern, e: Any) -> bool:
        if isinstance(e, Op) or not isinstance(p.expr, Expr):
            return bool(e == p.expr)
        return e is p.expr or (type(e) is type(p.expr) and structural_equal(p.expr, e))

    def _var(self, p: VarPattern, e: Any) -> bool:
        return isinstance(e, Var) and p.name in ("", e.name_hint)

    def _constant(self, p: ConstantPattern, e: Any) -> bool:
        return isinstance(e, Constant)

    def _wildcard(self, p: WildcardPattern, e: Any) -> bool:
        return p.redirected is None or self._looks(p.redirected, e)

    def _call(self, p: CallPattern, e: Any) -> bool:
        if not isinstance(e, Call):
            return False
        if not self._looks(p.op, e.op):
            return self._reassociated(p, e)
        if p.args is None or self._all(p.args, e.args):
            return True
        return len(p.args) == 2 and named(p.op) in ("add", "multiply") and self._all(p.args[::-1], e.args)

    def _reassociated(self, p: CallPattern, e: Call) -> bool:
        """Match the pattern `a * b / c` with the expression `a * (b / c)`, or the pattern `a / b * c` with `(a * c) /
        b`."""
        outer, inner = named(p.op), e.op.name if isinstance(e.op, Op) else ""
        if p.args is None or len(p.args) != 2 or {outer, inner} != {"multiply", "divide"}:
            return False
        if not any(isinstance(a, Call) and isinstance(a.op, Op) and a.op.name == outer for a in e.args):
            return False
        a, b = p.args
        if outer == "divide":
            if not _is_call_of(a, inner):
                return False
            x, y = a.args or ()
            ways = [CallPattern(a.op, (y, CallPattern(p.op, (x, b)))),
                    CallPattern(a.op, (x, CallPattern(p.op, (y, b))))]
        else:
            ways = []
            for d, other in ((a, b), (b, a)):
                if _is_call_of(d, inner):
                    x, y = d.args or ()
                    ways.append(CallPattern(d.op, (CallPattern(p.op, (x, other)), y)))
        return any(self._looks(way, e) for way in ways)

    def _function(self, p: FunctionPattern, e: Any) -> bool:
        return (isinstance(e, Function) and (p.params is None or self._all(p.params, e.params))
                and self._looks(p.body, e.body))

    def _if(self, p: IfPattern, e: Any) -> bool:
        return isinstance(e, If) and self._all(p.inside(), (e.cond, e.true_branch, e.false_branch))

    def _let(self, p: LetPattern, e: Any) -> bool:
        return isinstance(e, Let) and self._all(p.inside(), (e.var, e.value, e.body))

    def _tuple(self, p: TuplePattern, e: Any) -> bool:
        return isinstance(e, Tuple) and (p.fields is None or self._all(p.fields, e.fields))

    def _item(self, p: TupleGetItemPattern, e: Any) -> bool:
        return isinstance(e, TupleGetItem) and p.index in (None, e.index) and self._looks(p.tuple, e.tuple_value)

    def _alternative(self, p: AltPattern, e: Any) -> bool:
        return self._looks(p.left, e) or self._looks(p.right, e)

    def _type(self, p: TypePattern, e: Any) -> bool:
        return isinstance(e, Expr) and e.known_type() == p.type and self._looks(p.pattern, e)

    def _dtype(self, p: DataTypePattern, e: Any) -> bool:
        known = e.known_type() if isinstance(e, Expr) else None
        return isinstance(known, TensorType) and known.dtype is p.dtype and self._looks(p.pattern, e)

    def _shape(self, p: ShapePattern, e: Any) -> bool:
        known = e.known_type() if isinstance(e, Expr) else None
        return isinstance(known, TensorType) and same_shape(known.shape, p.shape) and self._looks(p.pattern, e)

    def _attrs(self, p: AttrPattern, e: Any) -> bool:
        return self._looks(p.pattern, e) and all(_same(attribute(e, name), wanted) for name, wanted in p.attrs.items())

    def _dominator(self, p: DominatorPattern, e: Any) -> bool:
        """Match the child, then every path up to the parent, in any order, then the paths down from the parent."""
        if not self._looks(p.child, e):
            return False
        parent: Expr | None = None
        beside: list[Expr] = []
        seen: set[Expr] = {e}
        stack: list[Expr] = [e]
        while stack:
            off: list[Expr] = []
            met = False
            for o in _values(stack.pop()):
                if o is parent or (parent is None and self._looks(p.parent, o)):
                    parent, met = o, True
                elif o not in seen and not self._on_path(p.path, o):
                    off.append(o)
                elif o not in seen:
                    seen.add(o)
                    stack.append(o)
            if off and not met:
                return False
            beside += off
        if parent is None or any(self.graph.depends(b, parent) for b in beside):
            return False
        return self.graph.dominates(e, parent)

    def _on_path(self, path: DFPattern, e: Expr) -> bool:
        before, self._once = self._once, False
        found = self._looks(path, e)
        self._once = before
        return found


_LOOKS: Final[dict[type, Callable[[Matcher, Any, Any], bool]]] = {
    ExprPattern: Matcher._expr,
    VarPattern: Matcher._var,
    ConstantPattern: Matcher._constant,
    WildcardPattern: Matcher._wildcard,
    CallPattern: Matcher._call,
    FunctionPattern: Matcher._function,
    IfPattern: Matcher._if,
    LetPattern: Matcher._let,
    TuplePattern: Matcher._tuple,
    TupleGetItemPattern: Matcher._item,
    AltPattern: Matcher._alternative,
    TypePattern: Matcher._type,
    DataTypePattern: Matcher._dtype,
    ShapePattern: Matcher._shape,
    AttrPattern: Matcher._attrs,
    DominatorPattern: Matcher._dominator,
}


def named(p: DFPattern) -> str:
    """Return the name of the operator that a pattern matches; empty for other patterns."""
    return p.expr.name if isinstance(p, ExprPattern) and not isinstance(p.expr, Expr) else ""


def _is_call_of(p: Any, name: str) -> TypeGuard[CallPattern]:
    return isinstance(p, CallPattern) and named(p.op) == name and p.args is not None and len(p.args) == 2


def _values(e: Expr) -> tuple[Expr, ...]:
    """Return the operands of a node except a called function."""
    return e.args if isinstance(e, Call) else operands(e)


def attribute(e: Any, name: str) -> Any:
    """Return an attribute of an operator (`TOpPattern` or a registered one), of a call, or of a function; None if it
    is absent."""
    if isinstance(e, Op) or (isinstance(e, type) and issubclass(e, Op)):
        return int(e.kind) if name == "TOpPattern" else op_attr(e.name, name)
    if isinstance(e, Call) and isinstance(e.op, Op):
        return getattr(e.op, name) if name in e.op.attributes() else None
    attrs = e.own_attrs if isinstance(e, Call) else e.attrs if isinstance(e, Function) else None
    return None if attrs is None else attrs.get(name)


def _same(value: Any, wanted: Any) -> bool:
    return value is not None and (value is wanted or bool(plain(value) == wanted))


def root_keys(p: DFPattern) -> set[Key] | None:
    """Return the keys of the nodes that a pattern may match; None if it may match any node."""
    match p:
        case AltPattern():
            left, right = root_keys(p.left), root_keys(p.right)
            return None if left is None or right is None else left | right
        case TypePattern() | DataTypePattern() | ShapePattern() | AttrPattern():
            return root_keys(p.pattern)
        case DominatorPattern():
            return root_keys(p.child)
        case CallPattern():
            return _call_keys(p.op)
        case ExprPattern():
            return {key_of(p.expr)} if isinstance(p.expr, Expr) else set()
        case _:
            kind = _KINDS.get(type(p))
            return None if kind is None else {kind}


def _call_keys(op: DFPattern) -> set[Key] | None:
    """Return the keys of the calls of the operators that `op` matches."""
    if isinstance(op, AltPattern):
        left, right = _call_keys(op.left), _call_keys(op.right)
        return None if left is None or right is None else left | right
    if isinstance(op, AttrPattern):
        return _call_keys(op.pattern)
    if not isinstance(op, (ExprPattern, FunctionPattern, VarPattern)):
        return None
    if not isinstance(op, ExprPattern) or isinstance(op.expr, Expr):
        return {Call}
    if named(op) in ("multiply", "divide"):
        return {OPS["multiply"], OPS["divide"]}
    return {op.expr if isinstance(op.expr, type) else type(op.expr)}


_KINDS: Final[dict[type, Key]] = {
    VarPattern: Var, ConstantPattern: Constant, FunctionPattern: Function, IfPattern: If, LetPattern: Let,
    TuplePattern: Tuple,
    TupleGetItemPattern: TupleGetItem,
}
