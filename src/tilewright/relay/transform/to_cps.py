"""Convert to continuation-passing style: a function passes its result to its last parameter, and all calls are tail
calls.

    fn (%x) { add(@f(%x), 1f) } -> fn [R](%x, %k: fn (float32) -> R) -> R { @f(%x, fn (%v) { %k(add(%v, 1f)) }) }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.types import FuncType, Type, TypeVar, type_children, with_type_children
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.adt import Clause, Constructor, Match, pattern_vars
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, If, Let, Var
from tilewright.relay.transform.dedup import rename_pattern
from tilewright.relay.transform.infer_type import infer_types
from tilewright.relay.transform.to_a_normal_form import Sequencer
from tilewright.relay.visitor import free_vars, operands, with_operands


@dataclass(frozen=True)
class ToCPS(Pass):
    """Convert every function of the module to continuation-passing style, under its old name. Needs known types.

    Functions marked `Primitive` are called as before.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        functions = {n: f for n, f in mod.items() if isinstance(f, Function) and not f.attrs.get("Primitive")}
        if not functions:
            return mod
        new = mod.copy()
        names = {n: GlobalVar(n, _global_type(f.checked_type)) for n, f in functions.items()}
        for n, f in functions.items():
            new[names[n]] = _Conversion(names).outermost(f)
        return new


def to_cps(func: Function, mod: IRModule | None = None) -> Function:
    """Return `func` in continuation-passing style. Callees in `mod` are converted as `NAME_cps` and added to `mod`."""
    called = {n: f for n, f in (mod.items() if mod is not None else []) if isinstance(f, Function) and f is not func
              and not n.endswith("_cps")}
    infer_types({**(dict(mod.items()) if mod is not None else {}), "the function": func})
    names = {n: GlobalVar(f"{n}_cps", _global_type(f.checked_type)) for n, f in called.items()}
    if mod is not None:
        for n, f in called.items():
            if names[n] not in mod:
                mod[names[n]] = _Conversion(names).outermost(f)
    return _Conversion(names).outermost(func)


def un_cps(func: Function) -> Function:
    """Wrap a function in continuation-passing style as an ordinary one; function-typed arguments and results are not
    converted."""
    params = [Var(p.name_hint, p.known_type()) for p in func.params[:-1]]
    given = func.params[-1].checked_type
    assert isinstance(given, FuncType)
    x = Var("x", given.arg_types[0])
    return Function(params, Call(func, [*params, Function([x], x)]), given.arg_types[0], func.type_params[:-1])


def _global_type(t: Type) -> FuncType:
    answer = TypeVar("R")
    found = cps_type(t, answer)
    assert isinstance(found, FuncType)
    return FuncType(found.arg_types, found.ret_type, (*found.type_params, answer))


def cps_type(t: Type, answer: Type) -> Type:
    """Return the type of a value of type `t` in a program whose continuations return `answer`."""
    old = type_children(t)
    new = [cps_type(c, answer) for c in old]
    if isinstance(t, FuncType):
        return FuncType([*new[:-1], FuncType([new[-1]], answer)], answer, t.type_params)
    return t if all(a is b for a, b in zip(old, new, strict=True)) else with_type_children(t, new)


class _Conversion:
    """Converts one function of the module; its body and inner functions share one answer type."""

    def __init__(self, names: dict[str, GlobalVar]) -> None:
        self.names, self.answer = names, TypeVar("R")
        self.vars: dict[Expr, Expr] = {}
        self.direct: set[Expr] = set()

    def outermost(self, f: Function) -> Function:
        made = self.function(Sequencer(f, lambda e: True).function(f))
        return Function(made.params, made.body, self.answer, (*f.type_params, self.answer), f.attrs, f.span)

    def function(self, f: Function) -> Function:
        t = cps_type(f.checked_type, self.answer)
        assert isinstance(t, FuncType)
        k = Var("k", t.arg_types[-1])
        return Function([*map(self.var, f.params), k], self.body(f.body, k), self.answer, f.type_params, f.attrs,
                        f.span)

    def var(self, v: Var) -> Var:
        found = self.vars.get(v)
        if found is None:
            t = v.checked_type if v in self.direct else cps_type(v.checked_type, self.answer)
            found = self.vars[v] = Var(v.name_hint, t, v.span)
        assert isinstance(found, Var)
        return found

    def atom(self, e: Expr) -> Expr:
        if isinstance(e, GlobalVar):
            return self.names.get(e.name_hint, e)
        return self.var(e) if isinstance(e, Var) else e

    def body(self, body: Expr, k: Expr) -> Expr:
        """Return lets of one step each, whose value is passed to the continuation `k`."""
        lets: list[Let] = []
        while isinstance(body, Let):
            lets.append(body)
            if isinstance(body.value, Function) and body.value.attrs.get("Primitive") and not free_vars(body.value):
                self.direct.add(body.var)
            body = body.body
        result: Expr = Call(k, [self.atom(body)])
        for e in reversed(lets):
            result = self.step(e, result)
        return result

    def step(self, e: Let, rest: Expr) -> Expr:
        """Return the step `e` followed by `rest`."""
        value, v = e.value, self.var(e.var)
        if isinstance(value, (If, Match)):
            k = Var("k", FuncType([v.checked_type], self.answer))
            return Let(k, Function([v], rest, self.answer), self.choice(value, k))
        if isinstance(value, Function):
            return Let(v, value if e.var in self.direct else self.function(value), rest)
        if isinstance(value, Call) and isinstance(value.op, Expr) and not self.called_directly(value.op):
            return Call(self.atom(value.op), [*map(self.atom, value.args), Function([v], rest, self.answer)],
                        span=value.span)
        return Let(v, self.atom(value) if not operands(value) else with_operands(value, self.atoms(operands(value))),
                   rest)

    def called_directly(self, callee: Expr) -> bool:
        known = isinstance(callee, GlobalVar) and callee.name_hint not in self.names
        return known or isinstance(callee, (Constructor, Function)) or callee in self.direct

    def atoms(self, values: Sequence[Expr]) -> list[Expr]:
        return [self.atom(x) for x in values]

    def choice(self, e: If | Match, k: Expr) -> Expr:
        if isinstance(e, If):
            return If(self.atom(e.cond), self.body(e.true_branch, k), self.body(e.false_branch, k), e.span)
        for c in e.clauses:
            for v in pattern_vars(c.lhs):
                _ = self.var(v)
        clauses = [Clause(rename_pattern(c.lhs, self.vars), self.body(c.rhs, k)) for c in e.clauses]
        return Match(self.atom(e.data), tuple(clauses), e.complete, e.span)
