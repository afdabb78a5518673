"""Functions and statements of `tvm.script.ir_builder`, and the types and expressions of `tvm.script.tir`.

    with T.If(x < 12):
        with T.Then():
            T.evaluate(0)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import BOOL
from tilewright.scalar import expr as E
from tilewright.tir import buffers
from tilewright.tir import stmt as S
from tilewright.tir.buffers import fitted
from tilewright.tir.script import tir as types
from tilewright.tir.script.ir_builder import blocks
from tilewright.tir.script.ir_builder.base import FunctionFrame, IRBuilder, P

_OPEN_IF: Final = "T.Then and T.Else belong inside T.If(condition)"


def __getattr__(name: str) -> Any:
    return getattr(blocks if name in blocks.__all__ else types, name)


@contextmanager
def prim_func(is_private: bool = False) -> Iterator[None]:
    """Begin a function, whose name is `main` unless `func_name` gives another."""
    builder = IRBuilder.current()
    builder.function = frame = FunctionFrame()
    with builder.statements.scope() as body:
        yield
    builder.function = None
    made, attrs = body(), {"global_symbol": frame.name, **frame.attrs}
    if frame.inner or any(isinstance(s, S.Block) for s in S.walk_stmt(made)):
        attrs[S.INNER] = tuple(frame.inner)
    builder.add(S.PrimFunc(frame.params, made, None, frame.buffers, attrs))


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
    frame.buffers[param] = made = buffers.decl_buffer(shape, dtype, param.name, **options)
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


def alloc_buffer(shape: Any, dtype: Any = "float32", **options: Any) -> E.Buffer:
    """Return a new intermediate buffer of the function."""
    made: E.Buffer = buffers.decl_buffer(shape, dtype, **options)
    _function("alloc_buffer").inner.append(made)
    return made


@contextmanager
def allocate(
    extents: Sequence[E.Value], dtype: str = "float32", scope: str = "global", condition: Any = None,
    annotations: Mapping[str, Any] | None = None,
) -> Iterator[E.Buffer]:
    """Begin statements with memory, whose value is the buffer; `condition` has no effect."""
    made, builder = buffers.decl_buffer(extents, dtype, "v", scope=scope), IRBuilder.current()
    with builder.statements.scope() as body:
        yield made
    builder.statements.emit(S.Allocate(made, body(), dict(annotations or {})))


@contextmanager
def decl_buffer(shape: Any, dtype: str = "float32", **options: Any) -> Iterator[E.Buffer]:
    """Begin statements with memory, whose value is the buffer."""
    made, builder = buffers.decl_buffer(shape, dtype, **options), IRBuilder.current()
    with builder.statements.scope() as body:
        yield made
    builder.statements.emit(S.Allocate(made, body()))


@contextmanager
def allocate_const(data: Any, dtype: str, extents: Sequence[int], annotations: Any = None) -> Iterator[E.Buffer]:
    """Begin statements with constant memory, whose value is the buffer."""
    made, builder = buffers.decl_buffer(extents, dtype, "v"), IRBuilder.current()
    with builder.statements.scope() as body:
        yield made
    builder.statements.emit(S.AllocateConst(made, body(), annotations, data))


@contextmanager
def While(condition: E.Value) -> Iterator[None]:
    """Begin statements that run as long as the condition holds before them."""
    builder = IRBuilder.current()
    with builder.statements.scope() as body:
        yield
    builder.statements.emit(S.While(E.cast(BOOL, E.as_expr(condition)), body()))


@contextmanager
def Assert(condition: E.Value, message: str) -> Iterator[None]:
    """Begin statements that need the condition."""
    builder = IRBuilder.current()
    with builder.statements.scope() as body:
        yield
    builder.statements.emit(S.AssertStmt(E.cast(BOOL, E.as_expr(condition)), message, body()))


def env_thread(thread_tag: str) -> E.Var:
    """Return the variable of a kind of threads, for `launch_thread`."""
    made = E.Var("v", "int32")
    IRBuilder.current().threads[made] = thread_tag
    return made


@contextmanager
def launch_thread(thread: E.Var | str, extent: E.Value) -> Iterator[E.Var]:
    """Begin a loop whose trips are threads. Raises `CompileError` for a variable that `env_thread` did not return."""
    builder = IRBuilder.current()
    var = env_thread(thread) if isinstance(thread, str) else thread
    kind = builder.threads.get(var)
    if kind is None:
        raise CompileError(f"'{var.name}' is no thread; T.env_thread returns variables of threads", code="TW0608")
    with builder.statements.scope() as body:
        yield var
    trips = E.cast(var.dtype, E.as_expr(extent))
    builder.statements.emit(S.For(var, E.const(0, var.dtype), trips, S.SERIAL, body(), {S.THREAD: kind}))


def comm_reducer(combiner: Callable[..., Any], identity: Sequence[E.Value]) -> S.Reducer:
    """Return a reduction: `combiner` takes the old values, then the new ones; `identity` are the neutral values."""
    neutral = tuple(map(E.as_expr, identity))
    names = tuple(inspect.signature(combiner).parameters)
    if len(names) != 2 * len(neutral):
        raise CompileError(
            f"a reduction of {len(neutral)} takes {2 * len(neutral)} values, but the function takes {len(names)}",
            code="TW0608")
    params = tuple(E.Var(n, e.dtype) for n, e in zip(names, (*neutral, *neutral), strict=True))
    made = combiner(*params)
    body = tuple(map(E.as_expr, made if isinstance(made, tuple) else (made,)))
    return S.Reducer("comm_reducer", params, body, neutral)


@contextmanager
def _loop(kind: str, start: E.Value, stop: E.Value | None = None, *, annotations: Mapping[str, Any] | None = None) -> (
    Iterator[E.PrimExpr]
):
    """Begin a loop over `[0, start)`, or `[start, stop)`; its value is the variable."""
    low, high = (0, start) if stop is None else (start, stop)
    builder = IRBuilder.current()
    with builder.statements.for_range(low, high, kind=kind, annotations=annotations) as var:
        builder.extents[var] = E.sub(E.cast(var.dtype, E.as_expr(high)), E.cast(var.dtype, E.as_expr(low)))
        yield var


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
