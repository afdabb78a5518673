"""`rewrite_simplify`: applies the rules of `rewrite_rules.py` until none applies, as TVM's simplifier of that name.

    rewrite_simplify((x * 8 + 7) // 16, Ranges())       # x // 2
    rewrite_simplify(x + 2 < y + 3, Ranges())           # x <= y

Unlike `simplify`, it does not bring sums into one order. The compiler itself uses `simplify`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import BOOL
from tilewright.scalar import expr as E
from tilewright.scalar.arith import rewrite_rules as R
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.linear import LinearForm, expression, linear
from tilewright.scalar.arith.logic_forms import and_of_ors
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import is_index, prove, simplify
from tilewright.scalar.arith.solve import assume, conjuncts
from tilewright.scalar.expr import IntImm, PrimExpr, number_of
from tilewright.scalar.expr_nodes import BUILDERS
from tilewright.scalar.walk import substitute, walk

Parts = dict[str, PrimExpr]
Pattern = Callable[[PrimExpr, Parts], bool]
Maker = Callable[[Parts], Any]
_MOST_STEPS: Final = 64
"""Largest number of rules that are applied one after the other at one expression."""

_OPERATORS: Final[dict[type[ast.AST], tuple[type[PrimExpr], Callable[..., Any]]]] = {
    ast.Add: (E.Add, E.add), ast.Sub: (E.Sub, E.sub), ast.Mult: (E.Mul, E.mul), ast.Mod: (E.FloorMod, E.floormod),
    ast.Lt: (E.LT, functools.partial(E.compare, E.LT)), ast.LtE: (E.LE, functools.partial(E.compare, E.LE)),
    ast.Gt: (E.GT, functools.partial(E.compare, E.GT)), ast.GtE: (E.GE, functools.partial(E.compare, E.GE)),
    ast.Eq: (E.EQ, functools.partial(E.compare, E.EQ)), ast.NotEq: (E.NE, functools.partial(E.compare, E.NE)),
    ast.And: (E.And, E.logical_and), ast.Or: (E.Or, E.logical_or),
}
_FUNCTIONS: Final[dict[str, tuple[type[PrimExpr], Callable[..., Any]]]] = {
    "fdiv": (E.FloorDiv, E.floordiv), "fmod": (E.FloorMod, E.floormod), "tdiv": (E.TruncDiv, E.truncdiv),
    "tmod": (E.TruncMod, E.truncmod), "min": (E.Min, E.minimum), "max": (E.Max, E.maximum),
    "select": (E.Select, E.if_then_else),
}


def _parts_of(node: ast.expr) -> tuple[type[PrimExpr], Callable[..., Any], list[ast.expr]]:
    """Return the class of a rule's operation, its builder and its operands."""
    match node:
        case ast.BinOp():
            return (*_OPERATORS[type(node.op)], [node.left, node.right])
        case ast.Compare():
            return (*_OPERATORS[type(node.ops[0])], [node.left, node.comparators[0]])
        case ast.BoolOp():
            return (*_OPERATORS[type(node.op)], node.values)
        case ast.Call(func=ast.Name(id=name)):
            return (*_FUNCTIONS[name], node.args)
        case _:
            raise ValueError(f"{ast.unparse(node)} is not a part of a rule")


def _pattern(node: ast.expr) -> Pattern:
    if isinstance(node, ast.Constant):
        return lambda e, parts: isinstance(e, IntImm) and e.value == node.value
    if isinstance(node, ast.Name):
        name, is_constant = node.id, len(node.id) == 2

        def named(e: PrimExpr, parts: Parts) -> bool:
            return parts.setdefault(name, e) is e and (not is_constant or isinstance(e, IntImm))

        return named
    kind, _, operands = _parts_of(node)
    inner = [_pattern(o) for o in operands]

    def matches(e: PrimExpr, parts: Parts) -> bool:
        return type(e) is kind and all(p(o, parts) for p, o in zip(inner, e.operands(), strict=True))

    return matches


def _maker(node: ast.expr) -> Maker:
    if isinstance(node, ast.Constant):
        return lambda parts: node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        value = -node.operand.value  # type: ignore[operator]
        return lambda parts: value
    if isinstance(node, ast.Name):
        name = node.id
        if name in ("true", "false"):
            return lambda parts: IntImm(BOOL, name == "true")
        return lambda parts: parts[name]
    kind, build, operands = _parts_of(node)
    makers = [_maker(o) for o in operands]

    def made(parts: Parts) -> Any:
        values = [m(parts) for m in makers]
        found = build(*values)
        if kind in (E.Add, E.Sub, E.Mul) and isinstance(found, IntImm):
            numbers = [v.value if isinstance(v, IntImm) else v for v in values]
            if all(isinstance(n, int) for n in numbers) and kind.fold(*numbers) != found.value:
                raise OverflowError
        return found

    return made


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Pattern
    make: Maker
    conditions: tuple[Maker, ...]


@functools.cache
def _rules() -> dict[type[PrimExpr], list[_Rule]]:
    """Return the rules by the class of their left side, in order."""
    other = R.EXTREMES_BOTH_WAYS.replace("min", "MAX").replace("max", "min").replace("MAX", "max")
    text = "\n".join((R.SUMS, R.QUOTIENTS, R.EXTREMES, R.EXTREMES_BOTH_WAYS, other, R.COMPARISONS, R.LOGIC))
    found: dict[type[PrimExpr], list[_Rule]] = {}
    for line in text.replace("\n    if ", " if ").split("\n"):
        if not line:
            continue
        left, _, rest = line.partition(" -> ")
        right, _, condition = rest.partition(" if ")
        source, target = (ast.parse(t, mode="eval").body for t in (left, right))
        conditions = ast.parse(f"f({condition})", mode="eval").body
        assert isinstance(conditions, ast.Call)
        rule = _Rule(_pattern(source), _maker(target), tuple(map(_maker, conditions.args)))
        found.setdefault(_parts_of(source)[0], []).append(rule)
    return found


@dataclass(slots=True)
class Rewriter:
    """Rewrites expressions under the known ranges of variables and the conditions `facts`, which hold or not.

    With `branches`, each operand of `and` and `or` is rewritten under the other one; else only its value is decided.
    With `transitive`, comparisons are also decided by sums of known ones: i < k follows from i < j and j < k.
    With `conjunctive`, conditions become `and`s of `or`s.
    """

    ranges: Ranges
    facts: Mapping[PrimExpr, bool] = field(default_factory=dict)
    branches: bool = False
    transitive: bool = False
    conjunctive: bool = False
    known: dict[PrimExpr, PrimExpr] = field(default_factory=dict)

    def of(self, e: PrimExpr) -> PrimExpr:
        """Return an equal expression to which no rule applies."""
        found = self.known.get(e)
        if found is None:
            if self.conjunctive and isinstance(e, (E.And, E.Or)):
                plain = Rewriter(self.ranges, self.facts, self.branches, self.transitive)
                found = self.known[e] = plain.of(and_of_ors(e, plain.of))
                return found
            stated = self.fact(e)
            found = self.over_operands(e) if stated is None else stated
            for _ in range(_MOST_STEPS):
                new = self.step(found)
                if new is None or new is found:
                    break
                found = self.over_operands(new)
            stated = self.fact(found)
            self.known[e] = found = found if stated is None else stated
        return found

    def fact(self, e: PrimExpr) -> PrimExpr | None:
        """Return the value of a condition that is known to hold or not."""
        known = self.facts.get(e) if self.facts else None
        if known is None and self.transitive and isinstance(e, E.Comparison) and is_index(e.operands()[0].dtype):
            known = decided_by([f for f, value in self.facts.items() if value], e)
            known = self.by_equality(e) if known is None else known
        return None if known is None else IntImm(BOOL, known)

    def by_equality(self, e: E.Comparison) -> bool | None:
        """Return the value of a comparison that is known for a value equal to one of its operands."""
        for f, value in self.facts.items():
            if value and isinstance(f, E.EQ):
                for a, b in ((f.a, f.b), (f.b, f.a)):
                    known = None if isinstance(a, IntImm) else self.facts.get(substitute(e, {a: b}))
                    if known is not None:
                        return known
        return None

    def over_operands(self, e: PrimExpr) -> PrimExpr:
        operands = e.operands()
        if isinstance(e, E.Select):
            return self.choice(e)
        if isinstance(e, (E.And, E.Or)):
            a = self.of(e.a)
            second = self.within(a if isinstance(e, E.And) else E.logical_not(a)).of(e.b)
            b = second if isinstance(second, IntImm) or self.branches else self.of(e.b)
            first = self.within(b if isinstance(e, E.And) else E.logical_not(b)).of(a)
            a = first if isinstance(first, IntImm) or self.branches else a
            return (E.logical_and if isinstance(e, E.And) else E.logical_or)(a, b)
        new = [self.of(o) for o in operands]
        if isinstance(e, E.Cast):
            return E.cast(e.dtype, new[0])
        if isinstance(e, E.Binary):
            return BUILDERS[type(e)](*new)  # folds constants of expressions that were built without
        return e if all(a is b for a, b in zip(operands, new, strict=True)) else e.with_operands(new)

    def within(self, condition: PrimExpr) -> Rewriter:
        """Return a rewriter that assumes a condition."""
        ranges = assume(condition, self.ranges)
        facts = dict(self.facts)
        for c in conjuncts(condition):
            if number_of(c) is None and not any(isinstance(x, E.Load) for x in walk(c)):
                opposite = E.logical_not(c)
                facts |= {c: True, opposite: False}
                for f, value in ((c, True), (opposite, False)):
                    if isinstance(f, (E.GT, E.GE)):
                        facts[(E.LT if isinstance(f, E.GT) else E.LE)(f.b, f.a)] = value
        if ranges is self.ranges and len(facts) == len(self.facts):
            return self
        return type(self)(ranges, facts, self.branches, self.transitive, self.conjunctive)

    def over(self, ranges: Ranges) -> Rewriter:
        """Return a rewriter with other ranges."""
        return type(self)(ranges, self.facts, self.branches, self.transitive, self.conjunctive)

    def choice(self, e: E.Select) -> PrimExpr:
        condition = self.of(e.condition)
        if isinstance(condition, IntImm):
            return self.of(e.true_value if condition.value else e.false_value)
        return E.if_then_else(
            condition, self.within(condition).of(e.true_value),
            self.within(E.logical_not(condition)).of(e.false_value))

    def step(self, e: PrimExpr) -> PrimExpr | None:
        """Apply one rule at the outermost operation; None if none applies."""
        if not e.operands():
            return self.constant(e)
        if isinstance(e, (E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod, E.Div)) and E.number_of(e.b) == 0:
            raise CompileError(f"'{e}' divides by zero", code="TW0602")
        if isinstance(e, E.Binary) and isinstance(e.a, E.Broadcast) and isinstance(e.b, E.Broadcast):
            return E.broadcast(self.of(e.with_operands([e.a.value, e.b.value]) if e.a.value is not e.b.value
                                       else _same(e)), e.dtype.lanes)
        if isinstance(e, (E.GT, E.GE)):
            return (E.LT if isinstance(e, E.GT) else E.LE)(e.b, e.a)
        if isinstance(e, E.Not):
            flipped = E.logical_not(e.a)
            return None if flipped is e else flipped
        if e.dtype.lanes > 1:
            return self.vector(e)
        decided = self.constant(e)
        return decided if decided is not None else self.by_rules(e)

    def vector(self, e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, (E.Ramp, E.Broadcast)):
            return None
        if isinstance(e, (E.Min, E.Max)) and type(e.a) is type(e) and isinstance(e.b, E.Broadcast):
            inner: Any = e.a
            if isinstance(inner.b, E.Broadcast):
                return type(e)(inner.a, type(e)(inner.b, e.b))
        if isinstance(e, E.Binary) and not isinstance(e.a, E.Ramp) and not isinstance(e.b, E.Ramp):
            return None
        found = simplify(e, self.ranges)
        if (
            isinstance(e, (E.FloorDiv, E.FloorMod, E.TruncMod)) and isinstance(e.a, E.Ramp)
            and isinstance(e.b, E.Broadcast) and isinstance(e.b.value, IntImm) and e.b.value.value > 0
        ):
            return self.lanes(e, e.a, e.b.value, found)
        return found

    def is_natural(self, e: PrimExpr) -> bool:
        """Return whether a value is proved to be at least 0."""
        low, _ = bounds(e, self.ranges)
        return low is not None and low >= 0

    def lanes(
        self, e: E.FloorDiv | E.FloorMod | E.TruncMod, ramp: E.Ramp, by: IntImm, found: PrimExpr
    ) -> PrimExpr:
        """Return divided lanes: `found`, with its first lane in the form of the scalar division, or the remainder of a
        smaller ramp."""
        is_natural = self.is_natural(ramp)
        if isinstance(e, E.TruncMod) and is_natural:
            rounded = simplify(E.FloorMod(e.a, e.b), self.ranges)
            found = rounded if isinstance(rounded, (E.Ramp, E.Broadcast)) else found
        if isinstance(found, (E.Ramp, E.Broadcast)):
            own, first = (found.base if isinstance(found, E.Ramp) else found.value), type(e)(ramp.base, by)
            if isinstance(e, E.TruncMod) or simplify(first, self.ranges) is not own:
                return found
            return found.with_operands([self.of(first), *found.operands()[1:]])
        form = linear(ramp.base)
        rest = LinearForm({a: k for a, k in form.coefs.items() if k % by.value}, form.const % by.value)
        smaller = E.Ramp(expression(rest, ramp.base.dtype), ramp.stride, e.dtype.lanes)
        if isinstance(e, E.FloorDiv) or (isinstance(e, E.TruncMod) and not (
                is_natural and self.is_natural(smaller))) or smaller is ramp:
            return found
        return type(e)(smaller, e.b)

    def constant(self, e: PrimExpr) -> PrimExpr | None:
        """Return the only value of an expression, if there is one."""
        if isinstance(e, (IntImm, E.Var, E.Add, E.Sub, E.Mul)):
            return None
        if isinstance(e, E.Comparison) and not isinstance(e, (E.And, E.Or)) and is_index(e.a.dtype):
            decided = prove(e, self.ranges)
            decided = _unequal(e) if decided is None else decided
            return None if decided is None else IntImm(BOOL, decided)
        if is_index(e.dtype):
            low, high = bounds(e, self.ranges)
            if low is not None and low == high:
                return IntImm(e.dtype, low)
        return None

    def by_rules(self, e: PrimExpr) -> PrimExpr | None:
        operands = e.operands()
        if not (isinstance(e, (E.And, E.Or, E.Select)) or is_index(operands[0].dtype)) or isinstance(e, E.Call):
            return None
        if self.facts and isinstance(e, (E.LE, E.NE)) and (found := self.sharpened(e)) is not None:
            return found
        if isinstance(e, (E.Min, E.Max)) and _in_chain(type(e), e.a, e.b):
            return e.a
        if isinstance(e, E.NE):
            other = self.matched(E.EQ(e.a, e.b))
            return None if other is None else E.logical_not(other)
        return self.matched(e)

    def sharpened(self, e: E.LE | E.NE) -> PrimExpr | None:
        """Return a stronger comparison that is equal under the known ones: `a <= b` is `a == b` where `b <= a`, and
        `a < b` where `a != b`."""
        a, b = e.a, e.b
        if isinstance(e, E.NE):
            return E.LT(a, b) if self.facts.get(E.LE(a, b)) else E.LT(b, a) if self.facts.get(E.LE(b, a)) else None
        if self.facts.get(E.LT(a, b)):
            return IntImm(BOOL, 1)
        if self.facts.get(E.LE(b, a)):
            return E.EQ(b, a) if isinstance(a, IntImm) else E.EQ(a, b)
        return E.LT(a, b) if self.facts.get(E.NE(a, b)) or self.facts.get(E.NE(b, a)) else None

    def matched(self, e: PrimExpr) -> PrimExpr | None:
        for rule in _rules().get(type(e), ()):
            parts: Parts = {}
            if rule.pattern(e, parts):
                try:
                    made = rule.make(parts) if all(self.holds(c(parts)) for c in rule.conditions) else e
                except OverflowError:  # a constant does not fit its type
                    continue
                found = made if isinstance(made, PrimExpr) else E.const(made, e.dtype)
                if found is not e:
                    return found
        return None

    def holds(self, condition: Any) -> bool:
        return condition is True or (isinstance(condition, PrimExpr) and prove(condition, self.ranges) is True)


def _unequal(e: E.Comparison) -> bool | None:
    """Return whether a comparison with a number that no value of the variable equals holds; None for other ones."""
    if not isinstance(e, (E.EQ, E.NE)):
        return None
    form = linear(e.a).plus(linear(e.b), -1)
    if len(form.coefs) != 1 or abs(k := next(iter(form.coefs.values()))) != 1:
        return None
    low, high = E.integer_range(e.a.dtype)
    return None if low <= -form.const * k <= high else isinstance(e, E.NE)


_MOST_FACTS: Final = 3
"""Largest number of known comparisons that are added up."""


def decided_by(facts: Sequence[PrimExpr], e: PrimExpr) -> bool | None:
    """Return whether a comparison follows from the sum of known ones, or its opposite does; else None."""
    known = [f for c in facts for f in _not_positive(c)]
    if any(_follows(known, [f], _MOST_FACTS) for f in _alternatives(e)):
        return True
    opposite = E.logical_not(e)
    return False if any(_follows(known, [f], _MOST_FACTS) for f in _alternatives(opposite)) else None


def _alternatives(e: PrimExpr) -> list[LinearForm]:
    """Return forms of which one that is not positive proves a comparison."""
    if isinstance(e, E.NE):
        return [*_not_positive(E.LT(e.a, e.b)), *_not_positive(E.LT(e.b, e.a))]
    return [] if isinstance(e, E.EQ) else _not_positive(e)


def _not_positive(e: PrimExpr) -> list[LinearForm]:
    """Return linear forms that are at most 0 where a comparison holds."""
    if not isinstance(e, (E.LT, E.LE, E.GT, E.GE, E.EQ)) or not is_index(e.a.dtype):
        return []
    form = linear(e.a).plus(linear(e.b), -1)
    if isinstance(e, E.EQ):
        return [form, form.times(-1)]
    form = form if isinstance(e, (E.LT, E.LE)) else form.times(-1)
    return [LinearForm(form.coefs, form.const + isinstance(e, (E.LT, E.GT)))]


def _follows(known: Sequence[LinearForm], wanted: Sequence[LinearForm], steps: int) -> bool:
    """Return whether a form is at most the sum of up to `steps` forms that are not positive."""
    for form in wanted:
        if not form.coefs:
            if form.const <= 0:
                return True
        elif steps and _follows(known, [form.plus(f, -1) for f in known if any(a in f.coefs for a in form.coefs)],
                                steps - 1):
            return True
    return False


def _same(e: E.Binary) -> PrimExpr:
    """Return an operation on two equal broadcast values as one on the values."""
    return type(e)(e.a.value, e.b.value)  # type: ignore[attr-defined]


def _in_chain(kind: type[PrimExpr], chain: PrimExpr, e: PrimExpr) -> bool:
    """Return whether `e` is an operand of nested minima or maxima."""
    while type(chain) is kind:
        a, b = chain.operands()
        if b is e:
            return True
        chain = a
    return chain is e


def rewrite_simplify(e: PrimExpr, ranges: Ranges) -> PrimExpr:
    """Return an equal, simpler expression. Raises `CompileError` for a division by the constant zero."""
    return Rewriter(ranges).of(e)


__all__ = ["Rewriter", "rewrite_simplify"]
