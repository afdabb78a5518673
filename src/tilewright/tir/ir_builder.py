"""Builds TIR statements in Python.

    irb = tir.ir_builder.create()
    x, y = irb.buffer_ptr(X), irb.buffer_ptr(Y)
    total = irb.allocate("float32", (1,), name="total", scope="local")
    total[0] = 0.0
    with irb.for_range(0, 8, name="i") as i:
        with irb.if_scope(x[i] > 0.0):
            total[0] += x[i]
        with irb.else_scope():
            total[0] -= x[i]
    y[0] = total[0]
    body = irb.get()

Every `with` block is a list of statements that is closed at its end. A statement that applies to the rest of a block
(an allocation, a `let` without `with`) gets the following statements as its body when the block is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import BOOL, INT64, DataType
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Value, Var, as_expr, cast, const, floordiv, floormod, sub
from tilewright.tir.block_rewrites import check_scope
from tilewright.tir.buffers import fitted
from tilewright.tir.stmt import (
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    Allocate,
    AttrStmt,
    Evaluate,
    For,
    IfThenElse,
    Let,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)

_KINDS: Final = {
    "serial": SERIAL, "parallel": PARALLEL, "vectorize": VECTORIZED, "vectorized": VECTORIZED, "unroll": UNROLLED,
    "unrolled": UNROLLED
}
_Part = Stmt | Callable[[Stmt], Stmt]


class BufferVar:
    """A buffer accessed by index: `a[i]`, `a[i, j] = value`. A single index into several dimensions is a linear one."""

    def __init__(self, builder: IRBuilder, buffer: Buffer) -> None:
        self._builder, self.buffer = builder, buffer

    @property
    def dtype(self) -> DataType:
        return self.buffer.dtype

    def asobject(self) -> Buffer:
        """Return the buffer."""
        return self.buffer

    def __getitem__(self, index: Any) -> PrimExpr:
        return Load(self.buffer, self._place(index))

    def __setitem__(self, index: Any, value: Value) -> None:
        stored = as_expr(value, None if isinstance(value, PrimExpr) else self.buffer.dtype)
        fitting = fitted(stored, self.buffer.dtype)
        if fitting is None:
            raise CompileError(
                f"a value of {stored.dtype} cannot be stored in '{self.buffer.name}', which holds "
                f"{self.buffer.dtype}; use .astype('{self.buffer.dtype}')",
                code="TW0608")
        self._builder.emit(Store(self.buffer, fitting, self._place(index)))

    def _place(self, index: Any) -> tuple[PrimExpr, ...]:
        given = [cast(INT64, as_expr(i)) for i in (index if isinstance(index, tuple) else (index,))]
        shape = self.buffer.shape
        if len(given) == len(shape):
            return tuple(given)
        if len(given) != 1:
            raise CompileError(
                f"'{self.buffer.name}' has {len(shape)} dimensions and was given {len(given)} indices", code="TW0608")
        places, rest = list[PrimExpr](), given[0]
        for d in reversed(shape[1:]):
            places.append(floormod(rest, d))
            rest = floordiv(rest, d)
        return (rest, *reversed(places)) if shape else ()


class IRBuilder:
    """A program under construction; `get` returns the statement."""

    def __init__(self) -> None:
        self._open: list[list[_Part]] = [[]]

    def emit(self, stmt: Stmt | PrimExpr) -> None:
        """Add a statement, or an expression for its effect."""
        self._open[-1].append(Evaluate(stmt) if isinstance(stmt, PrimExpr) else stmt)

    def buffer_ptr(self, buf: Buffer, shape: Sequence[Any] | None = None) -> BufferVar:
        """Return a buffer for access by index."""
        if not isinstance(buf, Buffer):
            raise CompileError(
                f"buffer_ptr takes a buffer, such as an argument of a te.extern body, not {type(buf).__name__}",
                code="TW0608")
        if shape is not None and len(shape) != len(buf.shape):
            raise CompileError(
                f"buffer '{buf.name}' has {len(buf.shape)} dimensions, so the shape cannot have {len(shape)}",
                code="TW0608")
        return BufferVar(self, buf)

    def pointer(self, content_type: str | DataType, name: str = "ptr", scope: str = "global") -> BufferVar:
        """Return memory that a call passes: one dimension, whose size follows from the argument."""
        check_scope(scope)
        return BufferVar(self, Buffer(name, (Var(f"{name}_size"),), content_type, scope))

    def allocate(self, dtype: str | DataType, shape: Any, name: str = "buf", scope: str = "global") -> BufferVar:
        """Allocate memory for the rest of this block: `global`, or `local` (registers, else the stack). It is
        uninitialized."""
        check_scope(scope)
        buffer = Buffer(
            name, [as_expr(d) for d in (shape if isinstance(shape, (list, tuple)) else (shape,))], dtype, scope)
        self._open[-1].append(lambda rest: Allocate(buffer, rest))
        return BufferVar(self, buffer)

    @contextmanager
    def for_range(
        self, begin: Value, end: Value, name: str = "i", dtype: str | None = None, kind: str = "serial", grain: int = 1,
        annotations: Mapping[str, Any] | None = None,
    ) -> Iterator[PrimExpr]:
        """A loop over `[begin, end)`: `serial`, `parallel`, `vectorize` or `unroll`.

        The variable is int64, cast to `dtype` if given.

        The threads of a parallel loop take `grain` trips at a time. `annotations` are notes for passes.
        """
        if kind not in _KINDS:
            raise CompileError(f"a loop cannot be '{kind}'; use serial, parallel, vectorize or unroll", code="TW0608")
        var = Var(name)
        low, high = cast(INT64, as_expr(begin)), cast(INT64, as_expr(end))
        self._open.append([])
        yield var if dtype is None else cast(dtype, var)
        notes = {**(annotations or {}), **({} if grain == 1 else {"grain": grain})}
        self.emit(For(var, low, sub(high, low), _KINDS[kind], self._close(), notes))

    @contextmanager
    def if_scope(self, cond: Value) -> Iterator[None]:
        """Begin the statements that run if `cond` is true."""
        condition = cast(BOOL, as_expr(cond))
        self._open.append([])
        yield
        self.emit(IfThenElse(condition, self._close()))

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Begin the statements that run if the condition of the directly preceding `if_scope` is false."""
        last = self._open[-1][-1] if self._open[-1] else None
        if not isinstance(last, IfThenElse) or last.else_case is not None:
            raise CompileError("else_scope must directly follow an if_scope", code="TW0608")
        self._open[-1].pop()
        self._open.append([])
        yield
        self.emit(IfThenElse(last.condition, last.then_case, self._close()))

    @contextmanager
    def while_loop(self, condition: Value) -> Iterator[None]:
        """Begin statements that are repeated as long as `condition` holds before them."""
        holds = cast(BOOL, as_expr(condition))
        self._open.append([])
        yield
        self.emit(While(holds, self._close()))

    @contextmanager
    def new_scope(self) -> Iterator[None]:
        """Begin statements of their own: allocations and attributes end with them."""
        self._open.append([])
        yield
        self.emit(self._close())

    @contextmanager
    def scope(self) -> Iterator[Callable[[], Stmt]]:
        """Begin statements that are not added to the program: its value is a function that returns them at the end."""
        found: list[Stmt] = []
        self._open.append([])
        yield lambda: found[0]
        found.append(self._close())

    def let(self, var_name: str, value: Value) -> Var:
        """Bind a value to a name for the rest of this block."""
        given = as_expr(value)
        var = Var(var_name, given.dtype)
        self._open[-1].append(lambda rest: Let(var, given, rest))
        return var

    def likely(self, expr: PrimExpr) -> PrimExpr:
        """Return the condition; the hint is not used."""
        return expr

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """Give the rest of this block an attribute: `value` is the attribute `attr_key` of `node`.

        For a thread axis (`te.thread_axis`), `thread_extent` and `virtual_thread` make the rest of the block a loop
        over `value` threads, whose variable is that of the axis. Raises `CompileError` for another node with these.
        """
        tag = str(getattr(node, "thread_tag", ""))
        of = node.buffer if isinstance(node, BufferVar) else node
        if attr_key not in ("thread_extent", "virtual_thread"):
            self._open[-1].append(lambda rest: AttrStmt(of, attr_key, value, rest))
            return
        if not tag:
            raise CompileError(
                f"scope_attr '{attr_key}' needs an axis from te.thread_axis, not {node!r}", code="TW0608")
        trips = cast(node.var.dtype, as_expr(value))
        self._open[-1].append(
            lambda rest: For(node.var, const(0, node.var.dtype), trips, SERIAL, rest, {THREAD: tag}))

    def get(self) -> Stmt:
        """Return the whole program. Raises `CompileError` inside an open `with`."""
        if len(self._open) != 1:
            raise CompileError(
                "get() is called inside a for_range, if_scope or else_scope; call it after the scope "
                "ends", code="TW0608")
        body = self._close()
        self._open.append([body])
        return body

    def _close(self) -> Stmt:
        body: Stmt = Seq(())
        for part in reversed(self._open.pop()):
            body = seq(part, body) if isinstance(part, Stmt) else part(body)
        return body


def create() -> IRBuilder:
    """Return a new builder."""
    return IRBuilder()
