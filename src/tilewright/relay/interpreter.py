"""The meaning of a graph: evaluation by the numpy reference of every operator.

Slow and obvious; every back end is compared with it. Iterative over the graph (a function that calls another recurses),
runs only the branch that is taken, and drops every value after its last use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.errors import CompileError, InputError, InternalError
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import free_vars, operands, post_order
from tilewright.types import TensorType

Functions = Mapping[str, Any]


def evaluate(what: Any, *args: Any, functions: Functions | None = None) -> Any:
    """The value of an expression, a function, or a module's `main`; `args` are its parameters, or its free variables in order.

    Returns a numpy array, or a tuple for a tuple. Raises `InputError` when the number, shape or dtype of the inputs does
    not fit. `functions` are those that a `GlobalVar` may call, by name; a module brings its own.
    """
    if not isinstance(what, Expr):
        functions = {v.name_hint: what[v] for v in what.get_global_vars()}
        what = functions["main"]
    function = what if isinstance(what, Function) else Function(tuple(free_vars(what)), what)
    if len(args) != len(function.params):
        names = ", ".join(p.name_hint for p in function.params)
        raise InputError(f"{len(args)} inputs were given, and there are {len(function.params)}: {names}")
    parts = function.attrs.get("Parts", 1)
    results = []
    for k in range(parts):
        values = [_checked(p, a if parts == 1 else np.split(np.asarray(a), parts)[k]) for p, a in zip(function.params, args, strict=True)]
        results.append(_apply(function, values, functions or {}, {}))
    if parts == 1:
        return results[0]
    return tuple(map(np.concatenate, zip(*results, strict=True))) if isinstance(results[0], tuple) else np.concatenate(results)


def _checked(param: Var, value: Any) -> Any:
    if isinstance(value, tuple):
        return value
    array = np.asarray(getattr(value, "numpy", lambda: value)())
    wanted = param.type_annotation
    if isinstance(wanted, TensorType):
        fits = len(wanted.shape) == array.ndim and all(not isinstance(d, int) or d == n for d, n in zip(wanted.shape, array.shape, strict=True))
        if not fits or wanted.dtype.numpy() != array.dtype:
            raise InputError(f"input '{param.name_hint}' is {wanted!r}, and was given {array.dtype} of shape {array.shape}")
    return array


class _Closure:
    """A function value and what it sees of the scope around it."""

    __slots__ = ("function", "scope")

    def __init__(self, function: Function, scope: dict[Expr, Any]) -> None:
        self.function, self.scope = function, scope


def _apply(function: Function, args: Sequence[Any], functions: Functions, scope: dict[Expr, Any]) -> Any:
    values = dict(scope)
    values.update(zip(function.params, args, strict=True))
    return _Frame(function.body, values, functions).run()


class _Frame:
    """One activation: the values known so far, and how many uses each has left."""

    def __init__(self, body: Expr, values: dict[Expr, Any], functions: Functions) -> None:
        self.body, self.values, self.functions = body, values, functions
        self.left: dict[Expr, int] = {body: 1}
        for e in post_order(body, inside=False):
            for o in operands(e):
                self.left[o] = self.left.get(o, 0) + 1
        for e in free_vars(body):  # a closure may read these later
            self.left[e] = self.left.get(e, 0) + 1

    def run(self) -> Any:
        stack = [self.body]
        while stack:
            e = stack[-1]
            if e in self.values:
                stack.pop()
                continue
            missing = self._missing(e)
            if missing:
                stack.extend(reversed(missing))
                continue
            self.values[e] = self._value(e)
            self._drop(e)
            stack.pop()
        return self.values[self.body]

    def _missing(self, e: Expr) -> list[Expr]:
        """What must be computed before `e`."""
        match e:
            case If():
                if e.cond not in self.values:
                    return [e.cond]
                needed: tuple[Expr, ...] = (self._branch(e),)
            case Let():
                if e.var not in self.values:
                    if e.value not in self.values:
                        return [e.value]
                    self.values[e.var] = self.values[e.value]
                needed = (e.body,)
            case Call() if isinstance(e.op, Expr) and not isinstance(e.op, (Function, GlobalVar)):
                needed = (e.op, *e.args)
            case Call():
                needed = e.args
            case Function() | GlobalVar():
                needed = ()
            case _:
                needed = operands(e)
        return [o for o in needed if o not in self.values]

    def _branch(self, e: If) -> Expr:
        return e.true_branch if bool(self.values[e.cond]) else e.false_branch

    def _value(self, e: Expr) -> Any:
        match e:
            case Call():
                return self._call(e)
            case Constant():
                return e.value
            case Tuple():
                return tuple(self.values[f] for f in e.fields)
            case TupleGetItem():
                return self.values[e.tuple_value][e.index]
            case If():
                return self.values[self._branch(e)]
            case Let():
                return self.values[e.body]
            case Function():
                return _Closure(e, {v: self.values[v] for v in free_vars(e) if v in self.values})
            case Var():
                raise CompileError(f"the variable '{e.name_hint}' has no value here", e.span)
            case _:
                raise InternalError(f"a {type(e).__name__} has no value")

    def _call(self, e: Call) -> Any:
        args = [self.values[a] for a in e.args]
        target: Any = e.op
        if isinstance(target, GlobalVar):
            if target.name_hint not in self.functions:
                raise CompileError(f"the function @{target.name_hint} is not in the module", e.span)
            return _apply(self.functions[target.name_hint], args, self.functions, {})
        if isinstance(target, Function):
            return _apply(target, args, self.functions, {v: self.values[v] for v in free_vars(target) if v in self.values})
        if isinstance(target, Expr):
            closure: _Closure = self.values[target]
            return _apply(closure.function, args, self.functions, closure.scope)
        return apply_op(e, args)

    def _drop(self, e: Expr) -> None:
        for o in operands(e):
            self.left[o] -= 1
            if self.left[o] == 0:
                self.values.pop(o, None)


def apply_op(call: Call, args: Sequence[Any]) -> Any:
    """The operator of `call` on numpy values, by its reference."""
    with np.errstate(all="ignore"):
        result = call.op.reference(*args)
    return tuple(np.asarray(r) for r in result) if isinstance(result, (tuple, list)) else np.asarray(result)
