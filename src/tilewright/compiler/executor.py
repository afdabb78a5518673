"""`create_executor`: programs as Python functions, interpreted or compiled.

    create_executor("debug", mod).evaluate()(x)               the interpreter: every operator by its numpy reference
    create_executor("vm", mod, target="llvm").evaluate()(x)   compiled; "graph" and "aot" give the same program
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, InputError, NotNativeWarning, OptionError
from tilewright.base.nd import Device, NDArray, array, as_numpy, is_numeric
from tilewright.base.settings import nearest
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.compiler.build import build
from tilewright.compiler.entry_values import layout_of, with_plain_entry
from tilewright.compiler.stage_growth import typed
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Expr, Function, GlobalVar
from tilewright.relay.interpreter import ConstructorValue, RefValue, evaluate
from tilewright.relay.scope_builder import ScopeBuilder
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.stages import needs_stages
from tilewright.relay.visitor import post_order, substitute
from tilewright.runtime.container import ADT
from tilewright.runtime.records import flat_inputs, nested_result

_NOT_NATIVE: Final = "TW0403"
"""Code of the error for values that no native program has."""
ENTRY: Final = "main"
"""Name of the function that runs."""
KINDS: Final = ("debug", "graph", "vm", "aot")


def create_executor(
    kind: str = "debug", mod: IRModule | None = None, device: Device | None = None, target: Any = "llvm",
    params: Mapping[str, Any] | None = None
) -> Executor:
    """Return an executor of expressions and of the functions of `mod`, with `params` bound to parameters of its `main`.

    Raises `OptionError` for an unknown kind.
    """
    if kind not in KINDS:
        raise OptionError(
            f"there is no executor '{kind}'{nearest(kind, KINDS)}; the executors are {', '.join(KINDS)}", code="TW0210")
    module = IRModule() if mod is None else mod
    if params:
        module = bind_params(module, params)
    return Executor(kind, module, device, target, tuple(params or ()))


class Executor:
    """Turns expressions into Python functions; see `create_executor`."""

    def __init__(
        self, kind: str, mod: IRModule, device: Device | None, target: Any, bound: Sequence[str] = ()
    ) -> None:
        """`bound` are names of parameters that are constants now; calls may repeat them."""
        self.kind, self.mod, self.device, self.target, self._bound = kind, mod, device, target, frozenset(bound)

    def evaluate(self, expr: Expr | None = None, binds: Mapping[Any, Expr] | None = None) -> Any:
        """Return a Python function for a function, a `GlobalVar`, or by default `main`; for other expressions their
        value.

        `binds` are values of free variables. The function takes arrays, in order or by the names of its parameters, and
        returns `NDArray`s and tuples (`ADT`s; the kinds "graph" and "aot" return several tensors as a list). A value of
        a data type is a `ConstructorValue` of the interpreter, and an `ADT` of a compiled program. The interpreter also
        returns `RefValue`s. The executor "vm" interprets a program with functions, references or values of data types
        that have no native form (unknown sizes, for example), with a `NotNativeWarning`.
        """
        if expr is not None and binds:
            builder = ScopeBuilder()
            for name, value in binds.items():
                builder.let(name, value)
            builder.ret(expr)
            expr = builder.get()
        if expr is None:
            return self._callable(self.mod["main"])
        if isinstance(expr, GlobalVar):
            return self._callable(self.mod[expr])
        if isinstance(expr, Function):
            return self._callable(expr)
        return self._callable(Function([], expr))()

    def _callable(self, function: Function) -> Callable[..., Any]:
        module, function = _with_entry(self.mod, function)
        if self.kind != "debug":
            module = with_plain_entry(module)
            entry = layout_of(module["main"])
        module = typed(module) if needs_stages(module["main"]) else InferType()(module)
        if self.kind == "debug":
            return lambda *args, **named: _value(evaluate(module, *self._arguments(function, args, named)))
        compiled, device = self._compiled(module), self.device or Device()

        def call(*args: Any, **named: Any) -> Any:
            nonlocal compiled
            given = self._arguments(function, args, named)
            try:
                if compiled is not None:
                    if entry is None:
                        return self._flat(_value(compiled(*given)))
                    found = compiled(*flat_inputs(entry.inputs, given))
                    return nested_result(entry.result, found, lambda x: array(x, device))
            except CompileError as error:
                self._interpret(error)
                compiled = None
            return _value(evaluate(module, *given), ADT)

        return call

    def _flat(self, result: Any) -> Any:
        """Return a tuple of tensors as a list for the executors of graphs, as in TVM."""
        return [*result] if self.kind != "vm" and isinstance(result, ADT) else result

    def _compiled(self, module: IRModule) -> Any:
        """Return the native program, or None for a program that the interpreter runs."""
        try:
            return build(module, self.target).executable
        except CompileError as error:
            self._interpret(error)
            return None

    def _interpret(self, error: CompileError) -> None:
        """Warn that the executor "vm" interprets a program whose values no native program has. Raises other errors."""
        if self.kind != "vm" or error.code != _NOT_NATIVE:
            raise error
        warnings.warn(NotNativeWarning(f"the program is interpreted: {error.message}"), stacklevel=4)


    def _arguments(self, function: Function, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        names = {p.name_hint for p in function.params}
        return _arranged(function, args, {n: v for n, v in named.items() if n in names or n not in self._bound})


def _with_entry(mod: IRModule, function: Function) -> tuple[IRModule, Function]:
    """Return a copy of the module with `function` as `main`, and this function. If it calls another `main`, that one
    gets a new name."""
    module = mod.copy()
    if ENTRY in mod and mod[ENTRY] is function:
        return module, function
    entry: Any = function
    if ENTRY in mod and _mains(function):
        name = next(name for k in itertools.count(1) if (name := f"{ENTRY}_{k}") not in mod)
        moved = GlobalVar(name)
        for var, other in mod.items():
            if isinstance(other, Function):
                module[moved if var == ENTRY else var] = substitute(other, dict.fromkeys(_mains(other), moved))
        entry = substitute(function, dict.fromkeys(_mains(function), moved))
    module[GlobalVar(ENTRY)] = entry  # the variable of the given module keeps its type
    return module, entry


def _mains(function: Function) -> list[Expr]:
    """Return the references to the function `main`."""
    return [e for e in post_order(function) if isinstance(e, GlobalVar) and e.name_hint == ENTRY]


def _arranged(function: Function, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
    """Return the arguments in parameter order; raises `InputError` for one that is missing, unknown or given twice."""
    left = {p.name_hint: p for p in function.params[len(args) :]}
    for name in named:
        if name not in left:
            known = ", ".join(p.name_hint for p in function.params)
            raise InputError(
                f"'{name}' is not a parameter, or was given twice; the parameters are {known or 'none'}", code="TW0702")
    missing = [n for n in left if n not in named]
    if missing or len(args) > len(function.params):
        given = len(args) + len(named)
        raise InputError(
            f"{given} arguments were given, but the function takes {len(function.params)}"
            + (f"; missing: {', '.join(missing)}" if missing else ""), code="TW0701")
    values = [*args, *(named[n] for n in left)]
    return [_number(p.known_type(), v) for p, v in zip(function.params, values, strict=True)]


def _number(kind: Type | None, value: Any) -> Any:
    """Convert a Python number or an array to a parameter's type, except a Python float that is no integer to an integer
    type; return other values unchanged."""
    if isinstance(value, (Constant, NDArray, np.generic)):
        value = as_numpy(value.value if isinstance(value, Constant) else value)
    if isinstance(kind, TupleType) and isinstance(value, (tuple, list)) and len(value) == len(kind.fields):
        return tuple(map(_number, kind.fields, value))
    if isinstance(kind, TensorType) and isinstance(value, np.ndarray) and is_numeric(value.dtype):
        return value.astype(kind.dtype.numpy(), copy=False) if is_numeric(kind.dtype.numpy()) else value
    if not isinstance(kind, TensorType) or not isinstance(value, (bool, int, float)) or (
        isinstance(value, float) and not kind.dtype.is_float and not value.is_integer()
    ):
        return value
    return np.asarray(value, kind.dtype.numpy())


def _value(result: Any, made: Callable[[int, Sequence[Any]], Any] | None = None) -> Any:
    """Return a result in the types of TVM's API. A value of a data type is `made` of its tag and fields, by default a
    `ConstructorValue`."""
    if isinstance(result, NDArray):
        return result
    if isinstance(result, (tuple, list)):
        return ADT(0, (_value(v, made) for v in result))
    if isinstance(result, ConstructorValue):
        return _constructed(result, made)
    if isinstance(result, RefValue):
        return RefValue(_value(result.value, made))
    return array(result) if isinstance(result, (np.ndarray, np.generic)) else result


def _constructed(root: ConstructorValue, made: Callable[[int, Sequence[Any]], Any] | None) -> Any:
    """Convert a value of an algebraic data type, inner values first, because it may be deeply nested."""
    done: dict[int, Any] = {}
    stack: list[tuple[ConstructorValue, bool]] = [(root, False)]
    while stack:
        v, ready = stack.pop()
        if id(v) in done:
            continue
        if ready:
            fields = [done[id(f)] if isinstance(f, ConstructorValue) else _value(f, made) for f in v.fields]
            done[id(v)] = ConstructorValue(v.tag, fields, v.constructor) if made is None else made(v.tag, fields)
        else:
            stack.append((v, True))
            stack += [(f, False) for f in v.fields if isinstance(f, ConstructorValue)]
    return done[id(root)]
