"""Compares an expression with a pattern and finds the smallest edit that makes it match.

It follows `dataflow_pattern.match` case by case, but continues after a mismatch. A mismatch is another attribute, dtype
or shape, a value that is not constant, or an extra, missing or different operator. Recursive over the pattern, but not
over the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tilewright.base.types import TensorType, same_shape
from tilewright.ir.structural import structural_equal
from tilewright.relay.dataflow_pattern.graph import Graph
from tilewright.relay.dataflow_pattern.match import Matcher, attribute, named
from tilewright.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
)
from tilewright.relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from tilewright.relay.node_labels import short
from tilewright.relay.offload.difference import NO_EDIT, Difference, Kind, Way
from tilewright.relay.offload.identity_operators import CHANGE_NOTHING, can_be_made, has_neutral
from tilewright.relay.offload.pattern_paths import calls_in
from tilewright.relay.op.registry import Fusion, Op, get, plain
from tilewright.relay.visitor import operands

Conditions = tuple[DFPattern, ...]
_CONDITIONS: Final = (TypePattern, DataTypePattern, ShapePattern, AttrPattern)
STEPS: Final = 2
"""Largest number of consecutive operators that may be missing or extra."""


class Nearest:
    """Compares patterns with the expressions of one graph."""

    def __init__(self, graph: Graph, constant: set[Expr]) -> None:
        """`constant` are the expressions of the graph that are computed only from constants."""
        self.graph, self.constant = graph, constant
        self._sizes: dict[DFPattern, int] = {}
        self._known: dict[tuple[Conditions, DFPattern, Expr, int], Way] = {}

    def way(self, pattern: DFPattern, expr: Expr) -> Way:
        """Return the nearest comparison; its cost is 0 for a match."""
        found = self._near((), pattern, expr, STEPS, at_root=True)
        return found.differing(*_not_the_same(found))

    def _size(self, p: DFPattern) -> int:
        if p not in self._sizes:
            self._sizes[p] = calls_in(p)
        return self._sizes[p]

    def _near(self, conditions: Conditions, p: DFPattern, e: Expr, steps: int, at_root: bool = False) -> Way:
        while True:
            if isinstance(p, _CONDITIONS):
                conditions, p = (*conditions, p), p.pattern
            elif isinstance(p, WildcardPattern) and p.redirected is not None:
                p = p.redirected
            else:
                break
        key = (conditions, p, e, steps)
        if at_root or key not in self._known:
            found = self._compared(conditions, p, e, steps, at_root)
            if at_root:
                return found
            self._known[key] = found
        return self._known[key]

    def _compared(self, conditions: Conditions, p: DFPattern, e: Expr, steps: int, at_root: bool) -> Way:
        match p:
            case AltPattern():
                left = self._near(conditions, p.left, e, steps, at_root)
                return left if not left.cost else min(left, self._near(conditions, p.right, e, steps, at_root),
                    key=lambda w: w.rank)
            case CallPattern():
                return self._call(conditions, p, e, steps, at_root)
            case _:
                found = self._leaf(p, e, steps).differing(*_unmet(conditions, e))
                if not found.cost or not steps or at_root or not isinstance(p, (TupleGetItemPattern, TuplePattern)):
                    return found
                return min([found, *self._past_an_extra(conditions, p, e, steps)], key=lambda w: w.rank)

    def _leaf(self, p: DFPattern, e: Expr, steps: int) -> Way:
        """Compare an expression other than a call: a leaf, a tuple, a field, or by the matcher."""
        one = Way(pairs=((p, e),))
        match p:
            case WildcardPattern():
                return one
            case ConstantPattern():
                return one if isinstance(e, Constant) else one.differing(self._no_constant(p, e))
            case VarPattern():
                return one if isinstance(e, Var) and p.name in ("", e.name_hint) else one.differing(_no_variable(p, e))
            case ExprPattern(expr=Expr()):
                same = type(e) is type(p.expr) and structural_equal(p.expr, e)
                return one if same else one.differing(Difference(Kind.VALUE, p, e, short(p.expr), short(e),
                    1 if isinstance(p.expr, Constant) else NO_EDIT))
            case TupleGetItemPattern() if isinstance(e, TupleGetItem):
                inner = one.and_then(self._operand(p.tuple, e, 0, steps))
                return inner if p.index in (None, e.index) else inner.differing(
                    Difference(Kind.INDEX, p, e, f"field {p.index}", f"field {e.index}", wanted={"index": p.index}))
            case TuplePattern() if isinstance(e, Tuple) and (p.fields is None or len(p.fields) == len(e.fields)):
                for i, f in enumerate(p.fields or ()):
                    one = one.and_then(self._operand(f, e, i, steps))
                return one
            case DominatorPattern():
                return self._dominated(p, e, steps)
            case _:
                return (Way(pairs=((p, e),)) if Matcher(self.graph).match(p, e) is not None
                        else one.differing(_other(p, e)))

    def _operand(self, p: DFPattern, user: Expr, position: int, steps: int) -> Way:
        """Compare an operand; its differences record the user."""
        e = operands(user)[position]
        found = self._near((), p, e, steps)
        if all(d.user is not None for d in found.differences):
            return found
        return Way(tuple(d.used_by(user, position) for d in found.differences), found.pairs, found.matched, found.cost)

    def _call(self, conditions: Conditions, p: CallPattern, e: Expr, steps: int, at_root: bool) -> Way:
        direct = self._direct(conditions, p, e, steps)
        if direct is not None and direct.cost <= 1:
            return direct
        ways = [] if direct is None else [direct]
        if steps:
            ways += self._without_a_missing(conditions, p, e, steps)
            ways += [] if at_root else self._past_an_extra(conditions, p, e, steps)
        ways += self._in_place_of_another(conditions, p, e, steps)
        other = _other(p, e, self._size(p))
        ways.append(Way((other,), ((p, e),), 0, other.cost))
        return min(ways, key=lambda w: w.rank)

    def _direct(self, conditions: Conditions, p: CallPattern, e: Expr, steps: int) -> Way | None:
        """Compare with `e` as a call of the expected operator; None if it is not one."""
        if not isinstance(e, Call):
            return None
        of = _operator_way(p.op, e)
        if of is None:
            return None
        way = Way(of, ((p, e),), 1, sum(d.cost for d in of))
        if p.args is not None and len(p.args) != len(e.args):
            return way.differing(Difference(Kind.OTHER, p, e, f"{len(p.args)} arguments", f"{len(e.args)}", NO_EDIT))
        arguments = self._arguments(p.args, e, steps)
        if arguments.cost and p.args is not None and len(p.args) == 2 and named(p.op) in ("add", "multiply"):
            arguments = min(arguments, self._arguments(p.args[::-1], e, steps), key=lambda w: w.rank)
        return way.and_then(arguments).differing(*_unmet(conditions, e))

    def _arguments(self, patterns: Sequence[DFPattern] | None, e: Call, steps: int) -> Way:
        first = len(operands(e)) - len(e.args)
        whole = Way()
        for i, q in enumerate(patterns or ()):
            whole = whole.and_then(self._operand(q, e, first + i, steps))
        return whole

    def _past_an_extra(self, conditions: Conditions, p: DFPattern, e: Expr, steps: int) -> Iterator[Way]:
        """Compare with `e` as an extra operator between the expected one and its user."""
        through = e.tuple_value if isinstance(e, TupleGetItem) else e
        if not (isinstance(through, Call) and isinstance(through.op, Op)):
            return
        for i, o in enumerate(through.args):
            if isinstance(o, (Constant, Var)):
                continue
            inner = self._near(conditions, p, o, steps - 1)
            if inner.matched:
                heavy = through.op.kind > Fusion.INJECTIVE and through.op.name not in CHANGE_NOTHING
                cost = 1 + heavy + sum(a is not o and a not in self.constant for a in through.args)
                extra = Difference(Kind.EXTRA, p, e, f"{_wanted_name(p)} directly", f"{through.op.name} between", cost,
                                   wanted={"operand": i})
                yield Way((extra, *inner.differences), inner.pairs, inner.matched, inner.cost + extra.cost)

    def _without_a_missing(self, conditions: Conditions, p: CallPattern, e: Expr, steps: int) -> Iterator[Way]:
        """Compare with the expected operator missing; `e` is its operand."""
        kinds = [c.dtype for c in conditions if isinstance(c, DataTypePattern)]
        for name, attrs in _wanted(conditions, p):
            if p.args is None or get(name).kind > Fusion.INJECTIVE:
                continue
            for i, q in enumerate(p.args):
                if isinstance(q, ConstantPattern) or not all(can_be_made(other) for k, other in enumerate(p.args)
                        if k != i):
                    continue
                inner = self._near((), q, e, steps - 1)
                if inner.cost < NO_EDIT or inner.matched:
                    wanted = {"operator": name, "attrs": attrs, "argument": i, "count": len(p.args), "dtypes": kinds}
                    cost = 1 if has_neutral(name) and not attrs else 2 if has_neutral(name) or len(p.args) == 1 else 3
                    yield inner.differing(
                        Difference(Kind.MISSING, p, e, _wanted_name(p), "nothing", cost, wanted=wanted))

    def _in_place_of_another(self, conditions: Conditions, p: CallPattern, e: Expr, steps: int) -> Iterator[Way]:
        """Compare with `e` as a call of a wrong operator whose arguments are as expected."""
        if not isinstance(e, Call) or not isinstance(e.op, Op) or p.args is None or len(p.args) != len(e.args):
            return
        for name, attrs in _wanted(conditions, p):
            if e.op.name == name or (get(name).kind is not e.op.kind
                                     and max(get(name).kind, e.op.kind) > Fusion.BROADCAST):
                continue
            arguments = self._arguments(p.args, e, steps)
            if arguments.matched:
                other = Difference(Kind.OPERATOR, p, e, _wanted_name(p), e.op.name, 2,
                                   wanted={"operator": name, "attrs": attrs})
                yield Way(pairs=((p, e),)).and_then(arguments).differing(other)

    def _dominated(self, p: DominatorPattern, e: Expr, steps: int) -> Way:
        child = self._near((), p.child, e, steps)
        if child.cost:
            return child
        matcher = Matcher(self.graph)
        if matcher.match(p, e) is not None:
            return Way(pairs=((p, e), *child.pairs), matched=child.matched + 1)
        whole = Way(pairs=((p, e), *child.pairs), matched=child.matched)
        seen: set[Expr] = set()
        stack = [(e, i, o) for i, o in enumerate(operands(e))]
        while stack:
            user, position, o = stack.pop()
            if o in seen or not isinstance(o, Call) or matcher.match(p.parent, o) is not None:
                continue
            seen.add(o)
            if matcher.match(p.path, o) is None and isinstance(o.op, Op):
                between = Difference(Kind.EXTRA, p.path, o, f"only {p.path!r}", f"{o.op.name} between", user=user,
                                     position=position, wanted={"operand": 0})
                return whole.differing(between)
            stack += [(o, i, x) for i, x in enumerate(operands(o))]
        return whole.differing(Difference(Kind.OTHER, p, e, f"one {p.parent!r} above",
                                          "several ways up, or a way down that leaves", NO_EDIT))

    def _no_constant(self, p: DFPattern, e: Expr) -> Difference:
        mendable = e in self.constant or isinstance(e, Var)
        made = ("computed from constants" if e in self.constant else "a variable" if isinstance(e, Var)
                else "computed at run time")
        return Difference(Kind.CONSTANT, p, e, "a constant", f"{short(e, int(isinstance(e, Var)))}, {made}",
                          1 if mendable else NO_EDIT - 1, wanted={"foldable": e in self.constant})


def _no_variable(p: VarPattern, e: Expr) -> Difference:
    wanted = f"the variable %{p.name}" if p.name else "a variable"
    return Difference(Kind.VARIABLE, p, e, wanted, short(e), 1 if isinstance(e, (Constant, Var)) else NO_EDIT - 1)


def _other(p: DFPattern, e: Expr, calls: int = 1) -> Difference:
    """Return the difference to a completely different expression; its cost grows with the number of expected calls."""
    return Difference(Kind.OTHER, p, e, _wanted_name(p), short(e, 0) if not isinstance(e, Call)
                      or isinstance(e.op, Expr) else e.op.name, NO_EDIT * max(1, calls))


def _wanted_name(p: DFPattern) -> str:
    """Return a short name of a pattern."""
    if isinstance(p, CallPattern):
        return " or ".join(dict.fromkeys(name for name, _ in _wanted((), p))) or repr(p.op)
    text = repr(p)
    return text if len(text) < 60 else f"{text[:57]}…"


def _wanted(conditions: Conditions, p: CallPattern) -> list[tuple[str, dict[str, Any]]]:
    """Return the operators that a call may use, by name, each with its required attributes."""
    asked = {k: v for c in conditions if isinstance(c, AttrPattern) for k, v in c.attrs.items()}
    found: list[tuple[str, dict[str, Any]]] = []
    stack: list[tuple[DFPattern, dict[str, Any]]] = [(p.op, asked)]
    while stack:
        q, attrs = stack.pop()
        if isinstance(q, AttrPattern):
            stack.append((q.pattern, {**attrs, **q.attrs}))
        elif isinstance(q, AltPattern):
            stack += [(q.right, attrs), (q.left, attrs)]
        elif name := named(q):
            found.append((name, attrs))
    return found


def _operator_way(p: DFPattern, e: Call) -> tuple[Difference, ...] | None:
    """Compare the operator of a call; None if it is a different one."""
    if isinstance(p, AltPattern):
        left, right = _operator_way(p.left, e), _operator_way(p.right, e)
        return left if right is None or (left is not None and len(left) <= len(right)) else right
    if isinstance(p, AttrPattern):
        inner = _operator_way(p.pattern, e)
        return None if inner is None else (*inner, *_attributes(p, e.op, e, NO_EDIT))
    if isinstance(p, WildcardPattern) and p.redirected is None:
        return ()
    if isinstance(p, ExprPattern) and isinstance(e.op, Op) and not isinstance(p.expr, Expr):
        if isinstance(p.expr, Op) and type(p.expr) is type(e.op) and p.expr != e.op:
            return tuple(_attribute(p, e, k, v, e.op.attributes()[k], 1) for k, v in p.expr.attributes().items()
                         if e.op.attributes()[k] != v)
        return () if e.op == p.expr else None
    return () if Matcher(e.op).match(p, e.op) is not None else None


def _attributes(p: AttrPattern, of: Any, at: Expr, cost: int) -> Iterator[Difference]:
    for name, wanted in p.attrs.items():
        value = attribute(of, name)
        if value is None or not (value is wanted or bool(plain(value) == wanted)):
            has = isinstance(at, Call) and isinstance(at.op, Op) and name in at.op.attribute_names
            yield _attribute(p, at, name, wanted, value, cost if has else NO_EDIT)


def _attribute(p: DFPattern, at: Expr, name: str, wanted: Any, value: Any, cost: int) -> Difference:
    return Difference(Kind.ATTRIBUTE, p, at, f"{name} = {wanted!r}", f"no {name}" if value is None
                      else f"{name} = {value!r}", cost, wanted={name: wanted})


def _unmet(conditions: Conditions, e: Expr) -> Iterator[Difference]:
    """Yield the conditions that `e` does not satisfy, as differences."""
    known = e.known_type()
    for c in conditions:
        match c:
            case AttrPattern():
                yield from _attributes(c, e, e, 1)
            case DataTypePattern() if not (isinstance(known, TensorType) and known.dtype is c.dtype):
                yield Difference(Kind.DTYPE, c, e, str(c.dtype), str(known.dtype) if isinstance(known, TensorType)
                                 else repr(known), wanted={"dtype": c.dtype})
            case ShapePattern() if not (isinstance(known, TensorType) and same_shape(known.shape, c.shape)):
                yield Difference(Kind.SHAPE, c, e, repr(c.shape), repr(known.shape) if isinstance(known, TensorType)
                                 else repr(known), wanted={"shape": c.shape})
            case TypePattern() if known != c.type:
                yield Difference(Kind.TYPE, c, e, repr(c.type), repr(known), wanted={"type": c.type})


def _not_the_same(way: Way) -> Iterator[Difference]:
    """Yield the difference of the first pattern object that matches two expressions."""
    first: dict[DFPattern, Expr] = {}
    for p, e in way.pairs:
        if first.setdefault(p, e) is not e and not isinstance(p, AltPattern):
            first_one = first[p]
            yield Difference(Kind.SAME, p, e, f"the value that is {short(first_one)}", short(e),
                             wanted={"value": first_one})
            return
