"""Blocks of `tvm.script.ir_builder.tir`.

    with T.block("B"):
        vi = T.axis.spatial(128, i)
        T.where(i < 100)
        T.buffer_store(B, A[vi], [vi])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import BOOL
from tilewright.scalar import expr as E
from tilewright.tir import stmt as S
from tilewright.tir.script.ir_builder.base import BlockFrame, IRBuilder

_KINDS: Final = {"S": "spatial", "R": "reduce"}


@contextmanager
def block(name: str = "", no_realize: bool = False) -> Iterator[None]:
    """Begin a block; with `no_realize`, its axes have no bindings."""
    builder = IRBuilder.current()
    outer, builder.block = builder.block, BlockFrame()
    with builder.statements.scope() as body:
        yield
    frame, builder.block = builder.block, outer
    bindings = () if no_realize else tuple(frame.bindings)
    builder.statements.emit(
        S.Block(name, tuple(frame.iters), bindings, frame.predicate, frame.init, body(), frame.annotations))


def _open(what: str) -> BlockFrame:
    found = IRBuilder.current().block
    if found is None:
        raise CompileError(f"T.{what} belongs inside `with T.block(…):`", code="TW0608")
    return found


@contextmanager
def init() -> Iterator[None]:
    """Begin the statements before the first step of the block's reduction."""
    frame = _open("init")
    with IRBuilder.current().statements.scope() as body:
        yield
    frame.init = body()


def where(predicate: E.Value) -> None:
    """Let the block run only where the predicate holds."""
    found = E.const(predicate, BOOL) if isinstance(predicate, (bool, int)) else E.as_expr(predicate)
    _open("where").predicate = found


def block_attr(attrs: Mapping[str, Any]) -> None:
    """Add annotations of the block."""
    _open("block_attr").annotations.update(attrs)


def reads(*regions: Any) -> None:
    """State what the block reads, which follows from its body."""
    _open("reads")


def writes(*regions: Any) -> None:
    """State what the block writes, which follows from its body."""
    _open("writes")


class _Axes:
    """The functions `T.axis.spatial`, `T.axis.remap`, and so on."""

    def _axis(self, kind: str, extent: E.Value, binding: E.Value, dtype: str) -> E.Var:
        """Add an axis over `[0, extent)` and return its variable, which has the type of an expression that is its
        binding."""
        frame = _open(f"axis.{kind}")
        given = binding if isinstance(binding, E.PrimExpr) else E.as_expr(binding, dtype)
        size = E.as_expr(extent, given.dtype) if isinstance(extent, int) else E.as_expr(extent)
        var = E.Var("v", given.dtype)
        frame.iters.append(S.IterVar(var, size, kind))
        frame.bindings.append(given)
        return var

    def spatial(self, dom: E.Value, binding: E.Value, dtype: str = "int32") -> E.Var:
        """Add an axis along which trips compute separate elements."""
        return self._axis("spatial", dom, binding, dtype)

    def reduce(self, dom: E.Value, binding: E.Value, dtype: str = "int32") -> E.Var:
        """Add an axis along which trips are reduced into one element."""
        return self._axis("reduce", dom, binding, dtype)

    def scan(self, dom: E.Value, binding: E.Value, dtype: str = "int32") -> E.Var:
        """Add an axis along which trips compute separate elements in order."""
        return self._axis("scan", dom, binding, dtype)

    def opaque(self, dom: E.Value, binding: E.Value, dtype: str = "int32") -> E.Var:
        """Add an axis of which nothing is known but that its trips keep their order."""
        return self._axis("opaque", dom, binding, dtype)

    S, R = spatial, reduce

    def remap(self, kinds: str, bindings: Sequence[E.Var], dtype: str = "int32") -> Any:
        """Add axes over the extents of loops, a letter S or R for each; return their variables, or the only one.

        Raises `CompileError` for another letter, and for a variable of no loop of the builder.
        """
        extents = IRBuilder.current().extents
        wrong = next((v for v in bindings if v not in extents), None)
        if wrong is not None or len(kinds) != len(bindings) or not set(kinds) <= _KINDS.keys():
            raise CompileError(
                f"T.axis.remap takes a letter S or R for each variable of a loop; wrong is '{kinds}' for "
                f"{', '.join(map(str, bindings))}", code="TW0608")
        found = [self._axis(_KINDS[k], extents[v], v, dtype) for k, v in zip(kinds, bindings, strict=True)]
        return found[0] if len(found) == 1 else found


axis: Final = _Axes()

__all__ = ["axis", "block", "block_attr", "init", "reads", "where", "writes"]
