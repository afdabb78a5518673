"""The memory in which a loop program takes the arguments and the result of a function of a graph.

    fn(%p: (Tensor[(8), float32], Tensor[(8), float32]), %c: Tensor[(8), float32]) -> Tensor[(8), float32]
    a: scopeA, b: scopeA, c: scopeB, d: scopeC         ->      scopeA, scopeB, scopeC

A tuple has the memory of its tensors, which must be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base.errors import CompileError
from tilewright.base.types import FuncType, TupleType, Type
from tilewright.scalar.expr import Buffer
from tilewright.tir.stmt import PrimFunc, redirect

GLOBAL: Final = "global"
"""The memory of values without a constraint."""


def get_prim_func_arg_and_result_memory_constraints(func: PrimFunc, relay_func_type: FuncType) -> tuple[str, ...]:
    """Return the memory scope of each argument of the function of the graph, then that of its result.

    A tensor in `global` leaves the scope to the other tensors of its tuple. Raises `CompileError` if the parameters of
    `func` are not the tensors of the type, or if the tensors of a tuple are in different memory.
    """
    found: list[str] = []
    for k, buffers in enumerate(_groups(func, relay_func_type)):
        scopes = list(dict.fromkeys(b.scope for b in buffers if b.scope != GLOBAL))
        if len(scopes) > 1:
            raise CompileError(
                f"value {k} of the type of '{func.name}' is a tuple of tensors in different memory, "
                f"{', '.join(scopes)}; give all of them one scope", code="TW0611")
        found.append(scopes[0] if scopes else GLOBAL)
    return tuple(found)


def apply_prim_func_arg_and_result_memory_constraints(
    func: PrimFunc, relay_func_type: FuncType, arg_and_result_memory_scopes: Sequence[str]
) -> PrimFunc:
    """Return `func` with the buffers of each argument of the function of the graph, then of its result, in these memory
    scopes. An empty scope changes nothing. Raises `CompileError` for another number of scopes, or of parameters."""
    groups, scopes = _groups(func, relay_func_type), [*arg_and_result_memory_scopes]
    if len(groups) != len(scopes):
        raise CompileError(
            f"the type of '{func.name}' has {len(groups)} arguments and results, and {len(scopes)} scopes were given; "
            "give one for each", code="TW0611")
    moved = {
        b: Buffer(b.name, b.shape, b.dtype, scope, b.strides, b.axis_separators)
        for buffers, scope in zip(groups, scopes, strict=True) if scope
        for b in buffers if b.scope != scope}
    body = func.body
    for old, new in moved.items():
        body = redirect(body, old, new)
    params = tuple(moved.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
    return replace(func, params=params, body=body)


def _groups(func: PrimFunc, relay_func_type: FuncType) -> list[list[Buffer]]:
    """Return the buffers of each argument and of the result."""
    values = [*relay_func_type.arg_types, relay_func_type.ret_type]
    counts = [sum(1 for _ in _tensors(t)) for t in values]
    if sum(counts) != len(func.buffers):
        raise CompileError(
            f"'{func.name}' has {len(func.buffers)} buffers as parameters, and the type {relay_func_type} has "
            f"{sum(counts)} tensors; they must be as many", code="TW0611")
    buffers = iter(func.buffers)
    return [[next(buffers) for _ in range(n)] for n in counts]


def _tensors(kind: Type) -> Iterator[Type]:
    """Yield the tensors of a type, those of tuples in order."""
    if isinstance(kind, TupleType):
        for field in kind.fields:
            yield from _tensors(field)
    else:
        yield kind
