"""Functions and statements of `tvm.script.ir_builder`, and the types and expressions of `tvm.script.tir`.

    with T.If(x < 12):
        with T.Then():
            T.evaluate(0)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.scalar import expr as E
from tilewright.tir import stmt as S
from tilewright.tir.buffers import decl_buffer, fitted
from tilewright.tir.script import tir as types
from tilewright.tir.script.ir_builder.base import FunctionFrame, IRBuilder, P

_OPEN_IF: Final = "T.Then and T.Else belong inside T.If(condition)"


def __getattr__(name: str) -> Any:
    return getattr(types, name)


@contextmanager
def prim_func(is_private: bool = False) -> Iterator[None]:
    """Begin a function, whose name is `main` unless `func_name` gives another."""
    builder = IRBuilder.current()
    builder.function = frame = FunctionFrame()
    with builder.statements.scope() as body:
        yield
    builder.function = None
    attrs = {"global_symbol": frame.name, **frame.attrs}
    builder.add(S.PrimFunc(frame.params, body(), None, frame.buffers, attrs))


def _function(what: str) -> FunctionFrame:
    frame = IRBuilder.current().function
    if frame is None:
        raise CompileError(f"T.{what} belongs inside `with T.prim_func():`", code="TW0608")
    return frame


def func_name(name: str) -> None:
    """Name the function."""
    _function("func_name").name = name


def func_attr(attrs: Mapping[str, Any]) -> None:
    """Add attributes of the function."""
    _function("func_attr").attrs.update(attrs)


def arg(name: str, obj: P) -> P:
    """Add a parameter, a variable or a buffer, with the name `name`, and return it."""
    obj.name = name
    _function("arg").params.append(obj)
    return obj


def match_buffer(param: E.Var, shape: Any, dtype: Any = "float32", **options: Any) -> E.Buffer:
    """Return the buffer at the address that a parameter is."""
    frame = _function("match_buffer")
    if param not in frame.params:
        raise CompileError(f"'{param}' is not a parameter of the function; add it with T.arg", code="TW0608")
    frame.buffers[param] = made = decl_buffer(shape, dtype, param.name, **options)
    return made


def evaluate(value: E.Value) -> None:
    """Add an expression for its effect."""
    IRBuilder.current().statements.emit(S.Evaluate(E.as_expr(value)))


def buffer_store(buffer: E.Buffer, value: E.Value, indices: Sequence[E.Value] | E.Value) -> None:
    """Store a value. Raises `CompileError` for a value that the type of the buffer does not hold."""
    at = tuple(map(E.as_expr, indices if isinstance(indices, (list, tuple)) else (indices,)))
    stored = E.as_expr(value, None if isinstance(value, E.PrimExpr) else buffer.dtype)
    fitting = fitted(stored, buffer.dtype)
    if fitting is None:
        raise CompileError(
            f"a value of {stored.dtype} cannot be stored in '{buffer.name}', which holds {buffer.dtype}; use .astype",
            code="TW0608")
    IRBuilder.current().statements.emit(S.Store(buffer, fitting, at))


def _loop(kind: str, start: E.Value, stop: E.Value | None = None, *, annotations: Mapping[str, Any] | None = None) -> (
    AbstractContextManager[E.PrimExpr]
):
    """Begin a loop over `[0, start)`, or `[start, stop)`; its value is the variable."""
    low, high = (0, start) if stop is None else (start, stop)
    return IRBuilder.current().statements.for_range(low, high, kind=kind, annotations=annotations)


serial, parallel, vectorized, unroll = (partial(_loop, k) for k in ("serial", "parallel", "vectorized", "unroll"))


def thread_binding(
    start: E.Value, stop: E.Value | None = None, thread: str = "", *, annotations: Mapping[str, Any] | None = None
) -> AbstractContextManager[E.PrimExpr]:
    """Begin a loop over `[0, start)`, or `[start, stop)`, whose trips are bound to threads, such as `threadIdx.x`."""
    if not thread:
        raise CompileError(
            'T.thread_binding needs the kind of its threads, such as thread="threadIdx.x"', code="TW0608")
    return _loop("serial", start, stop, annotations={**(annotations or {}), S.THREAD: thread})


@contextmanager
def grid(*extents: E.Value) -> Iterator[list[Any]]:
    """Begin a loop over each extent, outermost first; the value is the list of variables."""
    with ExitStack() as loops:
        yield [loops.enter_context(_loop("serial", n)) for n in extents]


@contextmanager
def attr(node: Any, attr_key: str, value: Any) -> Iterator[None]:
    """Begin statements in which the attribute `attr_key` of `node` is `value`."""
    builder = IRBuilder.current()
    with builder.statements.scope() as body:
        yield
    builder.statements.emit(S.AttrStmt(node, attr_key, value, body()))


@contextmanager
def If(condition: E.Value) -> Iterator[None]:
    """Begin a choice; its statements are inside `Then` and `Else`."""
    builder = IRBuilder.current()
    outer, builder.condition = builder.condition, E.as_expr(condition)
    yield
    builder.condition = outer


def Then() -> AbstractContextManager[None]:
    """Begin the statements that run if the condition is true."""
    builder = IRBuilder.current()
    if builder.condition is None:
        raise CompileError(_OPEN_IF, code="TW0608")
    return builder.statements.if_scope(builder.condition)


def Else() -> AbstractContextManager[None]:
    """Begin the statements that run if the condition is false."""
    builder = IRBuilder.current()
    if builder.condition is None:
        raise CompileError(_OPEN_IF, code="TW0608")
    return builder.statements.else_scope()


@contextmanager
def LetStmt(value: E.Value, var: E.Var | None = None) -> Iterator[E.Var]:
    """Bind a value to a variable inside the `with`."""
    builder, given = IRBuilder.current(), E.as_expr(value)
    bound = E.Var("v", given.dtype) if var is None else var
    with builder.statements.scope() as body:
        yield bound
    builder.statements.emit(S.Let(bound, given, body()))
