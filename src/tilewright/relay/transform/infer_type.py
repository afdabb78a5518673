"""Infer the type of every value, or name the variable that needs an annotation.

Calls infer their types when they are built, so usually little is left. Variables without annotation, mutually recursive
functions, and generic constructors whose arguments do not determine the type (`Nil()`) get types with holes, which
unification solves; an operator is inferred when all its argument types are known. Types are derived facts: they are
recorded in the nodes, and no node is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.type_matching import join_types
from tilewright.base.types import BOOL, FuncType, RefType, TensorType, TupleType, Type
from tilewright.ir import diagnostics
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.adt import Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
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
from tilewright.relay.node_labels import short
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.type_solver import Hole, Solver
from tilewright.relay.visitor import binders, operands, post_order


@dataclass(frozen=True)
class InferType(Pass):
    """Infer all types; every type is known afterwards.

    Raises `ShapeError` for types that contradict each other, and `CompileError` for a type that cannot be inferred.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        with diagnostics.reporting():
            record_types(mod)
        return mod

    def holds(self, mod: IRModule) -> bool:
        """Return whether the types of all functions and of their bodies are known."""
        return all(f.known_type() is not None and f.body.known_type() is not None
                   for _, f in mod.items() if isinstance(f, Function))


def record_types(mod: IRModule) -> None:
    """Record the types of all values and of the names of functions. Raises the errors of `InferType`."""
    infer_types(dict(mod.items()))
    for name, f in mod.items():
        if isinstance(f, Function):
            mod.get_global_var(name).set_type(f.known_type())


def InferTypeLocal(expr: Expr) -> Type:
    """Return the type of one expression, whose free variables are annotated. Raises the errors of `InferType`."""
    infer_types({"": expr})
    return expr.checked_type


def infer_types(functions: Mapping[str, Any]) -> None:
    """Record the types of all values of these functions (or expressions), which may call each other by name."""
    orders = {name: post_order(f) for name, f in functions.items() if isinstance(f, Expr)}
    again = any(_outdated(e, functions) for order in orders.values() for e in order)
    open_ones = {name: order for name, order in orders.items() if again or not all(map(_settled, order))}
    if open_ones:
        _Inference(functions, open_ones, again).run()


def _outdated(e: Expr, functions: Mapping[str, Any]) -> bool:
    """Return whether the type recorded in a function's name differs from that of the function."""
    if type(e) is not GlobalVar:
        return False
    f, known = functions.get(e.name_hint), e.known_type()
    now = f.known_type() if isinstance(f, Function) else None
    return known is not None and now is not None and known != now


def _settled(e: Expr) -> bool:
    """Return whether the types of `e` and its bound names are known and consistent with those of its parts."""
    known = e.known_type()
    if known is None:
        return False
    match e:
        case Call():
            return True
        case Function():
            body = e.body.known_type()
            return body is not None and (e.declared_ret_type is None or body == e.declared_ret_type)
        case Let():
            return e.var.known_type() is not None and e.var.known_type() == e.value.known_type()
        case Match():
            return all(v.known_type() is not None for v in binders(e))
        case _:
            return True


class _Inference:
    """A run over the functions with unknown types. `again`: ignore recorded types."""

    def __init__(self, functions: Mapping[str, Any], orders: Mapping[str, list[Expr]], again: bool) -> None:
        self.functions, self.orders, self.again = functions, orders, again
        self.solver = Solver()
        self.types: dict[Expr, Type] = {}
        self.stuck: dict[Expr, tuple[str, Hole]] = {}

    def run(self) -> None:
        for name, order in self.orders.items():
            for e in order:
                self.declare(name, e)
        for name, order in self.orders.items():
            for e in order:
                if self.again or not _settled(e) or any(o.known_type() is None for o in operands(e)):
                    self.visit(name, e)
                while self.solver.queue:
                    self.visit(*self.solver.queue.popleft())
        for name, order in self.orders.items():
            self.require_all(name, order)
        for order in self.orders.values():
            for e in order:
                self.record(e)

    # Types known before inference.
    def known(self, e: Expr) -> Type | None:
        """Return the recorded type of `e` if it can be trusted."""
        if isinstance(e, Var):
            return e.type_annotation if self.again else e.known_type()
        if isinstance(e, (Constant, Constructor)) or not self.again:
            return e.known_type()
        return None

    def type_of(self, e: Expr) -> Type:
        found = self.types.get(e)
        if found is None:
            if isinstance(e, GlobalVar):
                function = self.functions.get(e.name_hint)
                if isinstance(function, Function):
                    return self.type_of(function)
                found = e.known_type()
            else:
                found = self.known(e)
            if found is None:
                found = self.types[e] = Hole()
        return found

    def declare(self, name: str, e: Expr) -> None:
        """Set the types of names before their uses are visited: functions, and variables bound to values."""
        match e:
            case Function():
                declared = e.declared_ret_type
                result = self.type_of(e.body) if declared is None else declared
                self.types[e] = FuncType([self.type_of(p) for p in e.params], result, e.type_params)
            case Let():
                var, value = self.type_of(e.var), self.type_of(e.value)
                if not self.solver.unify(var, value):
                    self.fail(name, e, f"the variable has type {self.shown(var)}, but its value has type "
                                       f"{self.shown(value)}")
            case _:
                pass

    # Rules. Each returns the hole that it needs resolved, or None when it is done.
    def visit(self, name: str, e: Expr) -> None:
        rule = _RULES.get(type(e))
        blocked = rule(self, name, e) if rule is not None else None
        if blocked is None:
            self.stuck.pop(e, None)
        else:
            self.stuck[e] = (name, blocked)
            blocked.waiting.append((name, e))

    def call(self, name: str, e: Call) -> Hole | None:
        if isinstance(e.op, Expr):
            self.call_function(name, e)
            return None
        if e.op.keeps_type:
            self.same(name, e, self.type_of(e.args[0]), "the result has type {1}, but {0} is expected")
        types = [self.solver.expand(self.type_of(a)) for a in e.args]
        if any(isinstance(t, Hole) for t in types):
            types = self.completed(e.op, types)
        for t in types:
            hole = self.solver.hole_in(t)
            if hole is not None:
                return hole
        try:
            found = e.op.infer_call(types, None)
        except ShapeError as error:
            self.fail(name, e, error.message)
        self.same(name, e, found, "the result has type {1}, but {0} is expected")
        return None

    def completed(self, op: Op, types: Sequence[Type]) -> list[Type]:
        """Return the types of the arguments of an operator, with unknown ones inferred from the others."""
        known = [None if self.solver.hole_in(t) is not None else t for t in types]
        for t, found in zip(types, op.infer_arguments(known), strict=True):
            if isinstance(t, Hole) and found is not None:
                _ = self.solver.unify(t, found)
        return [self.solver.expand(t) for t in types]

    def call_function(self, name: str, e: Call) -> None:
        args, function = [self.type_of(a) for a in e.args], self.solver.resolve(self.type_of(e.op))
        if isinstance(function, Hole):
            _ = self.solver.unify(function, FuncType(args, self.type_of(e)))
            return
        if not isinstance(function, FuncType):
            self.fail(name, e, f"a function is expected, but {short(e.op)} has type {self.shown(function)}")
        if len(args) != len(function.arg_types):
            self.fail(name, e, f"{short(e.op)} takes {len(function.arg_types)} arguments, but was given {len(args)}")
        function = self.solver.instantiate(function)
        for i, (wanted, given) in enumerate(zip(function.arg_types, args, strict=True)):
            if not self.solver.unify(wanted, given):
                self.fail(name, e, f"argument {i}, {short(e.args[i])}, has type {self.shown(given)}, but "
                                   f"{self.shown(wanted)} is expected")
        self.same(name, e, function.ret_type, "the result has type {1}, but {0} is expected")

    def tuple(self, name: str, e: Tuple) -> None:
        self.same(
            name, e, TupleType([self.type_of(f) for f in e.fields]), "the tuple has type {1}, but {0} is expected")

    def item(self, name: str, e: TupleGetItem) -> Hole | None:
        whole = self.solver.resolve(self.type_of(e.tuple_value))
        if isinstance(whole, Hole):
            return whole
        if not isinstance(whole, TupleType):
            self.fail(name, e, f"a tuple is expected, but {short(e.tuple_value)} has type {self.shown(whole)}")
        if not 0 <= e.index < len(whole.fields):
            self.fail(name, e, f"field {e.index} is out of range for a tuple of {len(whole.fields)} fields, "
                               f"{self.shown(whole)}")
        self.same(name, e, whole.fields[e.index], "the field has type {1}, but {0} is expected")
        return None

    def function(self, name: str, e: Function) -> None:
        ret = self.type_of(e)
        assert isinstance(ret, FuncType)
        if not self.solver.unify(ret.ret_type, self.type_of(e.body)):
            self.fail(name, e, f"the function is declared to return {self.shown(ret.ret_type)}, but its body has type "
                               f"{self.shown(self.type_of(e.body))}")

    def let(self, name: str, e: Let) -> None:
        self.same(name, e, self.type_of(e.body), "the value has type {1}, but {0} is expected")

    def branch(self, name: str, e: If) -> None:
        cond = self.type_of(e.cond)
        if not self.solver.unify(cond, TensorType((), BOOL)):
            self.fail(name, e, f"the condition of an if must be a bool scalar, but {short(e.cond)} has type "
                               f"{self.shown(cond)}")
        self.join(name, e, [e.true_branch, e.false_branch], "the branches of an if")

    def join(self, name: str, e: Expr, cases: list[Expr], what: str) -> None:
        """Unify the types of alternative values, and combine the dimensions that each of them knows."""
        found = self.type_of(cases[0])
        for c in cases[1:]:
            other = self.type_of(c)
            if not self.solver.unify(found, other):
                self.fail(name, e, f"{what} have different types, {self.shown(found)} and {self.shown(other)}")
            if self.solver.hole_in(found) is None and self.solver.hole_in(other) is None:
                found = join_types(self.solver.expand(found), self.solver.expand(other)) or found
        self.same(name, e, found, "the value has type {1}, but {0} is expected")

    def reference(self, name: str, e: RefCreate) -> None:
        self.same(name, e, RefType(self.type_of(e.value)), "the reference has type {1}, but {0} is expected")

    def held(self, name: str, e: RefRead | RefWrite) -> Type:
        """Return the type of the content of the reference of `e`."""
        place = self.solver.resolve(self.type_of(e.ref))
        held: Type = place.value if isinstance(place, RefType) else Hole()
        if not isinstance(place, RefType) and not self.solver.unify(place, RefType(held)):
            self.fail(name, e, f"a reference is expected, but {short(e.ref)} has type {self.shown(place)}")
        return held

    def read(self, name: str, e: RefRead) -> None:
        self.same(name, e, self.held(name, e), "the reference holds {1}, but {0} is expected")

    def write(self, name: str, e: RefWrite) -> None:
        held, value = self.held(name, e), self.type_of(e.value)
        if not self.solver.unify(held, value):
            self.fail(name, e, f"a value of type {self.shown(value)} cannot be written to a reference to "
                               f"{self.shown(held)}")
        self.same(name, e, TupleType(()), "a write has type {1}, but {0} is expected")

    def match(self, name: str, e: Match) -> None:
        for c in e.clauses:
            self.pattern(name, e, c.lhs, self.type_of(e.data))
        if e.clauses:
            self.join(name, e, [c.rhs for c in e.clauses], "the clauses of a match")

    def pattern(self, name: str, e: Match, p: Pattern, given: Type) -> None:
        match p:
            case PatternVar():
                if not self.solver.unify(self.type_of(p.var), given):
                    self.fail(name, e, f"%{p.var.name_hint} has type {self.shown(self.type_of(p.var))}, but the "
                                       f"matched value has type {self.shown(given)}")
            case PatternTuple():
                fields: list[Type] = [Hole() for _ in p.patterns]
                if not self.solver.unify(TupleType(fields), given):
                    self.fail(name, e, f"a pattern for a tuple of {len(fields)} fields cannot match a value of type "
                                       f"{self.shown(given)}")
                for q, t in zip(p.patterns, fields, strict=True):
                    self.pattern(name, e, q, t)
            case PatternConstructor():
                made = p.constructor.known_type()
                if not isinstance(made, FuncType):
                    self.fail(name, e, f"the constructor {p.constructor.name_hint} does not belong to a data type of "
                                       "the module")
                made = self.solver.instantiate(made)
                if not self.solver.unify(made.ret_type, given):
                    self.fail(name, e, f"the constructor {p.constructor.name_hint} of {self.shown(made.ret_type)} "
                                       f"cannot match a value of type {self.shown(given)}")
                for q, t in zip(p.patterns, made.arg_types, strict=True):
                    self.pattern(name, e, q, t)
            case _:
                pass

    def same(self, name: str, e: Expr, found: Type, message: str) -> None:
        """Unify the type of `e` with `found`; on failure, fail with `message`, where {0} is the type of `e` and {1} is
        `found`."""
        wanted = self.type_of(e)
        if not self.solver.unify(wanted, found):
            self.fail(name, e, message.format(self.shown(wanted), self.shown(found)))

    # Results.
    def require_all(self, name: str, order: Iterable[Expr]) -> None:
        """Raise `CompileError` for the first value of a function whose type is still unknown."""
        for e in order:
            if isinstance(e, GlobalVar) and e.name_hint in self.functions:
                continue
            for v in (*binders(e), e):
                hole = self.solver.hole_in(self.type_of(v))
                if hole is not None:
                    self.fail_unknown(name, v)

    def fail_unknown(self, name: str, e: Expr) -> NoReturn:
        if isinstance(e, Var):
            user = next((s for s, (where, hole) in self.stuck.items() if where == name
                         and self.solver.hole_in(self.type_of(e)) is hole), None)
            needed = f" where {short(user)} needs it" if user is not None else ""
            hint = f'write relay.var("{e.name_hint}", shape=…, dtype=…), or in the text %{e.name_hint}: Tensor[(…), …]'
            raise CompileError(f"{_in(name)}the type of %{e.name_hint} is not known{needed}; {hint}", e.span,
                               code="TW0310")
        if isinstance(e, GlobalVar):
            raise CompileError(f"{_in(name)}the function @{e.name_hint} is not in the module, so its type is not known",
                               e.span, code="TW0401")
        found = self.shown(self.type_of(e))
        partly = "" if found == "_" else f" completely ({found})"
        hint = "bind it to a variable with a type annotation, or declare the type of the function's result"
        raise CompileError(f"{_in(name)}the type of {short(e)} is not known{partly}; {hint}", e.span, code="TW0310")

    def record(self, e: Expr) -> None:
        for v in (*binders(e), e):
            if (isinstance(v, GlobalVar) and v.name_hint in self.functions
                    and not isinstance(self.functions[v.name_hint], Function)):
                continue
            now = self.solver.expand(self.type_of(v))
            if v.known_type() is not now:
                v.set_type(now)

    def shown(self, t: Type) -> str:
        return repr(self.solver.expand(t))

    def fail(self, name: str, e: Expr, why: str) -> NoReturn:
        raise ShapeError(f"{_in(name)}at {short(e)}: {why}", e.span)


_RULES: Final[dict[type, Callable[[_Inference, str, Any], Hole | None]]] = {
    Call: _Inference.call, Tuple: _Inference.tuple, TupleGetItem: _Inference.item, Function: _Inference.function,
    Let: _Inference.let,
    If: _Inference.branch, RefCreate: _Inference.reference, RefRead: _Inference.read, RefWrite: _Inference.write,
    Match: _Inference.match,
}


def _in(name: str) -> str:
    return f"in @{name}, " if name else ""
