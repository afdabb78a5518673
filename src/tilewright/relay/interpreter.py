"""Evaluates programs with the numpy reference of every operator.

Optimized for clarity, not speed; every back end is compared with it. Activations are on an explicit stack, so memory
alone limits the depth of graphs and recursion. A tail call replaces the activation of its caller. Only the selected
branch runs, and every value is dropped after its last use. A value that several scopes use is computed once, in the
innermost scope around all its uses.

    tensor -> numpy array   tuple -> tuple   data type -> ConstructorValue   reference -> RefValue   function -> Closure
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, InputError, InternalError, RunError
from tilewright.base.types import TensorType
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
from tilewright.relay.numpy_steps import is_straight, steps_of
from tilewright.relay.op.registry import Op
from tilewright.relay.scopes import Scopes
from tilewright.relay.visitor import free_vars, operands, post_order

Functions = Mapping[str, Any]
Values = dict[Expr, Any]


class ConstructorValue:
    """A value of a data type: its constructor's tag, and the values of its fields."""

    __slots__ = ("constructor", "fields", "tag")

    def __init__(self, tag: int, fields: Sequence[Any], constructor: Constructor) -> None:
        self.tag, self.fields, self.constructor = tag, tuple(fields), constructor

    def __repr__(self) -> str:
        fields = ("…" if isinstance(f, ConstructorValue) and f.fields else repr(f) for f in self.fields)
        return f"{self.constructor.name_hint}({', '.join(fields)})"


class RefValue:
    """A reference; `value` is its current value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Closure:
    """A function value and its captured values; `root` is the outermost function that contains it."""

    __slots__ = ("function", "root", "scope")

    def __init__(self, function: Function, scope: Values, root: Function) -> None:
        self.function, self.scope, self.root = function, scope, root


def evaluate(what: Any, *args: Any, functions: Functions | None = None) -> Any:
    """Return the value of an expression, a function, or a module's `main`; `args` are the values of its parameters, or
    of its free variables in order.

    `functions` are the callees of `GlobalVar`s by name; a module has its own. Raises `InputError` for inputs of another
    number, shape or dtype.
    """
    if not isinstance(what, Expr):
        functions = {v.name_hint: what[v] for v in what.get_global_vars()}
        what = functions["main"]
    function = what if isinstance(what, Function) else Function(tuple(free_vars(what)), what)
    if "numerics" in function.attrs:
        function, functions = _settled(function, functions)
    if len(args) != len(function.params):
        names = ", ".join(p.name_hint for p in function.params)
        raise InputError(f"{len(args)} inputs were given, but the function has {len(function.params)}: "
                         f"{names}", code="TW0701")
    parts = function.attrs.get("Parts", 1)
    results = []
    for k in range(parts):
        values = [_checked(p, a if parts == 1 else np.split(np.asarray(a), parts)[k])
                  for p, a in zip(function.params, args, strict=True)]
        results.append(Interpreter(functions or {}).run(function, values))
    if parts == 1:
        return results[0]
    return (tuple(map(np.concatenate, zip(*results, strict=True))) if isinstance(results[0], tuple)
            else np.concatenate(results))


def _settled(main: Function, functions: Functions | None) -> tuple[Function, Functions]:
    """Return the functions with all roundings defined, as `numerics` of `main` requires."""
    from tilewright.ir.module import IRModule
    from tilewright.relay.qnn.settle_numerics import SettleNumerics

    module = SettleNumerics()(IRModule({**(functions or {}), "main": main}))
    return module["main"], {v.name_hint: module[v] for v in module.get_global_vars()}


class Meaning(functools.partial[Any]):
    """The result of `Op.meaning` for a call: a function that returns one new array."""


def prepared(function: Function, known: Sequence[Any] = ()) -> Callable[..., Any]:
    """Return `evaluate` for arrays of the right types (not checked), with its steps made once.

    `known` has the constant arguments, None for the others. Functions with control flow fall back to `evaluate`.
    """
    call = function.body
    if isinstance(call, Call) and isinstance(call.op, Op) and call.args == function.params:
        meaning = call.op.meaning(known or [None] * len(call.args))
        if meaning is not None:
            return Meaning(_apply, call, meaning)
    run = _prepared(function)
    if all(k is None for k in known):
        return run

    def completed(*args: Any) -> Any:
        given = iter(args)
        return run(*[next(given) if k is None else k for k in known])

    return completed


def _prepared(function: Function) -> Callable[..., Any]:
    if not is_straight(function):
        return functools.partial(evaluate, function)
    return steps_of(function, lambda call: lambda *args: apply_op(call, args))


def _checked(param: Var, value: Any) -> Any:
    if isinstance(value, (tuple, ConstructorValue, RefValue, Closure, Constructor)):
        return value
    if isinstance(value, list) and not isinstance(param.known_type(), TensorType):
        return tuple(value)
    if isinstance(value, Function):
        return Closure(value, {}, value)
    array = np.asarray(getattr(value, "numpy", lambda: value)())
    wanted = param.known_type()
    if isinstance(wanted, TensorType):
        fits = len(wanted.shape) == array.ndim and all(not isinstance(d, int) or d == n
            for d, n in zip(wanted.shape, array.shape, strict=True))
        if not fits or wanted.dtype.numpy() != array.dtype:
            raise InputError(f"input '{param.name_hint}' has type {wanted!r}, but was given "
                             f"{array.dtype} of shape {array.shape}", code="TW0704")
    return array


class Interpreter:
    """Runs functions, and caches the analysis of each."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self._plans: dict[Function, _Plan] = {}
        self._scopes: dict[Function, Scopes | None] = {}

    def run(self, function: Function, args: Sequence[Any]) -> Any:
        """Evaluate `function` with these arguments."""
        frames = [self.frame(function, args, {}, function)]
        while True:
            frame = frames[-1]
            callee = frame.advance()
            if callee is None:
                frames.pop()
                if not frames:
                    return frame.values[frame.body]
                frames[-1].supply(frame.values[frame.body])
                continue
            if frame.in_tail_position():
                frames.pop()
            frames.append(callee)

    def frame(self, function: Function, args: Sequence[Any], scope: Values, root: Function) -> _Frame:
        """Return an activation of `function`, which lies inside the outermost function `root`."""
        if len(args) != len(function.params):
            raise InputError(f"{len(args)} arguments were given to a function with "
                             f"{len(function.params)} parameters", function.span,
                             code="TW0701")
        plan = self._plans.get(function)
        if plan is None:
            plan = self._plans[function] = _Plan(function, root, self.scopes(root))
        values = dict(scope)
        values.update(zip(function.params, args, strict=True))
        return _Frame(self, plan, values)

    def scopes(self, root: Function) -> Scopes | None:
        """Return the scopes of the values of `root`; None for a single scope."""
        if root not in self._scopes:
            nested = any(isinstance(e, (Function, If, Match, Let)) for e in post_order(root.body))
            self._scopes[root] = Scopes(root) if nested else None
        return self._scopes[root]

    def global_function(self, name: GlobalVar) -> Function:
        found = self.functions.get(name.name_hint)
        if not isinstance(found, Function):
            raise CompileError(f"the function @{name.name_hint} is not in the module", name.span, code="TW0401")
        return found


class _Plan:
    """The analysis of a function: the uses of every value, and their scopes."""

    def __init__(self, function: Function, root: Function, scopes: Scopes | None) -> None:
        self.body, self.root, self.scopes = function.body, root, scopes
        self.hoisted = {} if scopes is None else scopes.hoisted
        self.uses: dict[Expr, int] = {self.body: 1}
        stack, done = [self.body], {self.body}
        while stack:
            for o in self.needs(stack.pop()):
                self.uses[o] = self.uses.get(o, 0) + 1
                if o not in done:
                    done.add(o)
                    stack.append(o)

    def needs(self, e: Expr) -> tuple[Expr, ...]:
        """Return the values that `e` reads from its activation."""
        if isinstance(e, Function):
            return self.captured(e)
        if isinstance(e, Call) and isinstance(e.op, Function):
            return (*self.captured(e.op), *e.args)
        if isinstance(e, Call) and isinstance(e.op, (GlobalVar, Constructor)):
            return e.args
        return operands(e)

    def captured(self, f: Function) -> tuple[Expr, ...]:
        """Return the captured variables and shared values of a function."""
        return () if self.scopes is None else self.scopes.captured(f)


_PASSED_ON = (If, Let, Match)
"""Nodes whose value is that of one operand, selected at run time."""


class _Frame:
    """One activation: the known values, their remaining uses, and the nodes being computed."""

    __slots__ = ("body", "chosen", "interpreter", "left", "opened", "plan", "stack", "values")

    def __init__(self, interpreter: Interpreter, plan: _Plan, values: Values) -> None:
        self.interpreter, self.plan, self.body, self.values = interpreter, plan, plan.body, values
        self.left = dict(plan.uses)
        self.stack = [plan.body]
        self.chosen: dict[Expr, Expr] = {}
        self.opened: set[Expr] = set()

    def advance(self) -> _Frame | None:
        """Run to the end and return None, or return the activation of the next called function."""
        while self.stack:
            e = self.stack[-1]
            if e in self.values:
                self.stack.pop()
                continue
            missing = self._missing(e)
            if missing:
                self.stack.extend(reversed(missing))
                continue
            if isinstance(e, Call) and isinstance(e.op, Expr):
                callee = self._enter(e)
                if isinstance(callee, _Frame):
                    return callee
                self.supply(callee)
            else:
                self.supply(self._value(e))
        return None

    def supply(self, value: Any) -> None:
        """Set the value of the node on top of the stack."""
        e = self.stack.pop()
        self.values[e] = value
        for o in self.plan.needs(e):
            self.left[o] = left = self.left.get(o, 0) - 1
            if left == 0:
                self.values.pop(o, None)

    def in_tail_position(self) -> bool:
        """Return whether the node on top of the stack determines the value of the whole activation."""
        child = self.stack[-1]
        for i in range(len(self.stack) - 2, -1, -1):
            e = self.stack[i]
            if not isinstance(e, _PASSED_ON) or self.chosen.get(e) is not child:
                return False
            child = e
        return child is self.body

    def _missing(self, e: Expr) -> list[Expr]:
        """Return the values that must be computed before `e`."""
        if isinstance(e, _PASSED_ON):
            if e not in self.opened:
                self.opened.add(e)
                first = [o for o in self.plan.hoisted.get(e, ()) if o not in self.values]
                if first:
                    return first
            return self._missing_choice(e)
        return [o for o in self.plan.needs(e) if o not in self.values
                and not (isinstance(e, Function) and isinstance(o, Var))]

    def _missing_choice(self, e: If | Let | Match) -> list[Expr]:
        """Return the deciding operand, then the selected one."""
        decides = e.cond if isinstance(e, If) else e.value if isinstance(e, Let) else e.data
        if e not in self.chosen:
            if decides not in self.values:
                return [decides]
            self.chosen[e] = self._choose(e, self.values[decides])
        chosen = self.chosen[e]
        return [] if chosen in self.values else [chosen]

    def _choose(self, e: If | Let | Match, value: Any) -> Expr:
        if isinstance(e, If):
            return e.true_branch if bool(value) else e.false_branch
        if isinstance(e, Let):
            self.values[e.var] = value
            if isinstance(e.value, Function):
                value.scope[e.var] = value  # a recursive function
            return e.body
        for c in e.clauses:
            found: Values = {}
            if _fits(c.lhs, value, found):
                self.values.update(found)
                return c.rhs
        raise CompileError(f"no clause of the match fits the value {value!r}", e.span, code="TW0713")

    def _value(self, e: Expr) -> Any:
        compute = _VALUES.get(type(e))
        if compute is None:
            raise InternalError(f"a {type(e).__name__} has no value")
        return compute(self, e)

    def _of_var(self, e: Var) -> Any:
        raise CompileError(f"the variable '{e.name_hint}' is not bound here", e.span, code="TW0402")

    def _of_global(self, e: GlobalVar) -> Closure:
        function = self.interpreter.global_function(e)
        return Closure(function, {}, function)

    def _of_write(self, e: RefWrite) -> tuple[()]:
        self.values[e.ref].value = self.values[e.value]
        return ()

    def _scope(self, f: Function) -> Values:
        return {v: self.values[v] for v in self.plan.captured(f) if v in self.values}

    def _enter(self, e: Call) -> Any:
        """Return the activation of the called function; for a constructor, the value."""
        args = [self.values[a] for a in e.args]
        target: Any = e.op
        if isinstance(target, GlobalVar):
            function = self.interpreter.global_function(target)
            return self.interpreter.frame(function, args, {}, function)
        if isinstance(target, Function):
            return self.interpreter.frame(target, args, self._scope(target), self.plan.root)
        callee = target if isinstance(target, Constructor) else self.values[target]
        if isinstance(callee, Constructor):
            return ConstructorValue(callee.tag, args, callee)
        return self.interpreter.frame(callee.function, args, callee.scope, callee.root)


_VALUES: Final[dict[type, Callable[[_Frame, Any], Any]]] = {
    Call: lambda f, e: apply_op(e, [f.values[a] for a in e.args]),
    Constant: lambda f, e: e.value,
    Tuple: lambda f, e: tuple(f.values[x] for x in e.fields),
    TupleGetItem: lambda f, e: f.values[e.tuple_value][e.index],
    Var: _Frame._of_var,
    Function: lambda f, e: Closure(e, f._scope(e), f.plan.root),
    GlobalVar: _Frame._of_global,
    Constructor: lambda f, e: e,
    RefCreate: lambda f, e: RefValue(f.values[e.value]),
    RefRead: lambda f, e: f.values[e.ref].value,
    RefWrite: _Frame._of_write,
    If: lambda f, e: f.values[f.chosen[e]],
    Let: lambda f, e: f.values[f.chosen[e]],
    Match: lambda f, e: f.values[f.chosen[e]],
}


def _fits(p: Pattern, value: Any, found: Values) -> bool:
    """Return whether a value matches a pattern, and add the pattern's variables to `found`."""
    match p:
        case PatternVar():
            found[p.var] = value
            return True
        case PatternTuple():
            return all(_fits(q, v, found) for q, v in zip(p.patterns, value, strict=True))
        case PatternConstructor():
            return p.constructor.tag == value.tag and all(_fits(q, v, found)
                for q, v in zip(p.patterns, value.fields, strict=True))
        case _:
            return True


def apply_op(call: Call, args: Sequence[Any]) -> Any:
    """Apply the operator of `call` to numpy values. Raises `RunError` for values outside the operator's domain."""
    with np.errstate(all="ignore"):
        return arrays_of(_apply(call, call.op.reference, *args))


def _apply(call: Call, meaning: Callable[..., Any], *args: Any) -> Any:
    try:
        return meaning(*args)
    except MEANINGLESS as error:
        raise meaningless(call, args, error) from error


MEANINGLESS: Final = (ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""Exceptions that a reference raises for values outside the operator's domain."""


def meaningless(call: Call, args: Sequence[Any], error: Exception) -> RunError:
    """Return the error for values of a call that its reference refused with `error`."""
    shown = ", ".join(f"{np.asarray(a).dtype}{list(np.shape(a))}" if isinstance(a, np.ndarray) else type(a).__name__
                      for a in args)
    return RunError(f"{call.op.name} of {shown} fails for these values: "
                    f"{error or type(error).__name__}; correct its arguments", call.span, code="TW0712")


def arrays_of(result: Any) -> Any:
    """Return the results of a reference as arrays and tuples of arrays; None for absent values."""
    if isinstance(result, (tuple, list)):
        return tuple(map(arrays_of, result))
    return None if result is None else np.asarray(result)
