"""Run what is known while compiling: calls of known functions, branches and matches on known values, operators on constants.

    let %f = fn (%y) { add(%y, 1f) }; if (True) { %f(%x) } else { %x } -> add(%x, 1f)

References and what else has effects is left in its order. A function that calls itself is unrolled as long as one of the arguments of
the call is known, `fuel` calls in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.adt import Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
from tilewright.relay.analysis.call_graph import CallGraph
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.interpreter import apply_op
from tilewright.relay.transform.dead_code import DeadCodeElimination
from tilewright.relay.transform.dedup import fresh_copy
from tilewright.relay.transform.to_a_normal_form import ToANormalForm
from tilewright.relay.visitor import free_vars, operands, with_operands
from tilewright.types import TensorType

LARGEST = 1 << 20
"""Bytes of the largest tensor that is computed."""


@dataclass(frozen=True)
class PartialEvaluate(Pass):
    """Needs known types. Leaves `main` in A-normal form, without dead code; `fuel` bounds the calls that are put in place."""

    fuel: int = 100

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        named = ToANormalForm()(mod)
        new = named.copy()
        graph = CallGraph(named)
        recursive = {n for n in named if graph.is_recursive(n)}
        for name, f in named.items():
            if isinstance(f, Function) and not f.attrs.get("Primitive") and not f.attrs.get("Compiler"):
                new[name] = _Evaluation(named, recursive, self.fuel).function(f)
        return DeadCodeElimination()(new)


class _Evaluation:
    """One function: what its variables are known to be, and the fuel that is left."""

    def __init__(self, mod: IRModule, recursive: set[str], fuel: int) -> None:
        self.mod, self.recursive, self.fuel = mod, recursive, fuel
        self.known: dict[Expr, Expr] = {}
        self.instead: dict[Expr, Expr] = {}

    def function(self, f: Function) -> Function:
        return f.with_body(self.scope(f.body))

    def scope(self, body: Expr) -> Expr:
        """A scope after evaluation."""
        lets: list[tuple[Var, Expr]] = []
        result = self.steps(body, lets)
        for v, value in reversed(lets):
            result = Let(v, value, result)
        return result

    def steps(self, body: Expr, lets: list[tuple[Var, Expr]]) -> Expr:
        """Add what is left of the steps of `body` to `lets`; returns the variable, or other atom, that is its value."""
        while isinstance(body, Let):
            value = self.step(body, lets)
            if isinstance(value, (Var, GlobalVar)):
                self.instead[body.var] = value
            elif value is not None:
                if isinstance(value, (Constant, Tuple, Constructor)) or (isinstance(value, Call) and isinstance(value.op, Constructor)):
                    self.known[body.var] = value
                lets.append((body.var, value))
            body = body.body
        return self.atom(body)

    def atom(self, e: Expr) -> Expr:
        while e in self.instead:
            e = self.instead[e]
        return e

    def step(self, e: Let, lets: list[tuple[Var, Expr]]) -> Expr:
        """What is left of the value of `e`: an atom where it is known to be that."""
        value = e.value
        match value:
            case Function():
                if value.attrs.get("Primitive"):
                    return fresh_copy(value, self.instead) if any(v in self.instead for v in free_vars(value)) else value
                if e.var not in free_vars(value):
                    self.known[e.var] = value
                return self.function(value)
            case If():
                cond = self.known.get(self.atom(value.cond))
                if isinstance(cond, Constant):
                    return self.steps(value.true_branch if bool(cond.value) else value.false_branch, lets)
                return If(self.atom(value.cond), self.scope(value.true_branch), self.scope(value.false_branch), value.span)
            case Match():
                return self.match(value, lets)
            case Var() | GlobalVar():
                return self.atom(value)
            case Constant() | Constructor():
                return value
        new = [self.atom(o) for o in operands(value)]
        rebuilt = with_operands(value, new)
        if isinstance(rebuilt, TupleGetItem):
            whole = self.known.get(rebuilt.tuple_value)
            return whole.fields[rebuilt.index] if isinstance(whole, Tuple) else rebuilt
        return self.call(rebuilt, lets) if isinstance(rebuilt, Call) else rebuilt

    def call(self, e: Call, lets: list[tuple[Var, Expr]]) -> Expr:
        if not isinstance(e.op, Expr):
            return self.folded(e)
        callee: Any = self.known.get(e.op, e.op)
        if isinstance(callee, GlobalVar) and callee in self.mod:
            function = self.mod[callee]
            unroll = callee.name_hint not in self.recursive or any(a in self.known for a in e.args)
            callee = function if unroll else callee
        if not isinstance(callee, Function) or callee.attrs.get("Primitive") or callee.attrs.get("Compiler") or callee.type_params or not self.fuel:
            return e
        self.fuel -= 1
        body = fresh_copy(callee.body, {**{v: self.atom(v) for v in free_vars(callee)}, **dict(zip(callee.params, e.args, strict=True))})
        return self.steps(body, lets)

    def folded(self, e: Call) -> Expr:
        """An operator on constants as its value, when that is one small tensor."""
        args = [self.constant(a) for a in e.args]
        t = e.known_type()
        if not e.op.pure or any(a is None for a in args) or not isinstance(t, TensorType) or not t.is_static or t.nbytes > LARGEST:
            return e
        return Constant(apply_op(e, args), e.span)

    def constant(self, e: Expr) -> Any:
        found = self.known.get(e)
        if isinstance(found, Tuple):
            fields = [self.constant(f) for f in found.fields]
            return None if any(f is None for f in fields) else tuple(fields)
        return found.value if isinstance(found, Constant) else None

    def match(self, e: Match, lets: list[tuple[Var, Expr]]) -> Expr:
        data = self.atom(e.data)
        for c in e.clauses:
            found: dict[Expr, Expr] = {}
            fits = self.fits(c.lhs, data, found)
            if fits is None:
                break
            if fits:
                self.instead.update(found)
                return self.steps(c.rhs, lets)
        return with_operands(e, [data, *(self.scope(c.rhs) for c in e.clauses)])

    def fits(self, p: Pattern, value: Expr, found: dict[Expr, Expr]) -> bool | None:
        """Whether a value looks like a pattern, None where that is not known."""
        match p:
            case PatternVar():
                found[p.var] = value
                return True
            case PatternTuple() | PatternConstructor():
                known = self.known.get(value)
                if isinstance(p, PatternTuple):
                    return self.all_fit(p.patterns, known.fields, found) if isinstance(known, Tuple) else None
                if not isinstance(known, Call) or not isinstance(known.op, Constructor):
                    return None
                return known.op.tag == p.constructor.tag and self.all_fit(p.patterns, known.args, found)
            case _:
                return True

    def all_fit(self, patterns: Sequence[Pattern], values: Sequence[Expr], found: dict[Expr, Expr]) -> bool | None:
        results = [self.fits(q, self.atom(v), found) for q, v in zip(patterns, values, strict=True)]
        return False if False in results else None if None in results else True
