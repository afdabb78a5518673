"""Memory at an address in place of a buffer.

    A[i] = 0; T.call_extern("int32", "f", A.data)    ->    A_1 = T.Buffer((8,), data=A); A_1[i] = 0
                                                           T.call_extern("int32", "f", A)
"""

from __future__ import annotations

from tilewright.scalar.expr import Buffer, Call, Load, PlacedBuffer, PrimExpr, Var, number_of
from tilewright.scalar.intrinsics import Packed, address_of
from tilewright.scalar.walk import free_vars, rewrite, walk
from tilewright.tir.stmt import Allocate, Stmt, Store, expressions, map_expressions, redirect, walk_stmt


def at_address(body: Stmt, buffer: Buffer, pointer: Var, scope: str = "") -> Stmt:
    """Return `body` with the memory of a buffer at the address `pointer`, which replaces the address of its first
    element.

    An array that a packed call passes keeps its buffer, from which its shape follows. `scope` is the scope of the
    memory, by default that of the buffer.
    """
    memory = PlacedBuffer(pointer.name, buffer.shape, buffer.dtype, pointer, scope or buffer.scope, buffer.strides)
    kept = _passed_arrays(body)

    def at_start(e: PrimExpr) -> PrimExpr | None:
        load = e.args[0] if isinstance(e, Call) and e.op is address_of and e not in kept else None
        first = isinstance(load, Load) and load.buffer is buffer and all(number_of(i) == 0 for i in load.indices)
        return pointer if first else None

    memo: dict[PrimExpr, PrimExpr] = {}
    return redirect(map_expressions(body, lambda e: rewrite(e, at_start, memo)), buffer, memory)


def variables_of_memory(body: Stmt) -> set[Var]:
    """Return the variables in the addresses, shapes and strides of the buffers in `body`. Substitution keeps these."""
    buffers = {s.buffer for s in walk_stmt(body) if isinstance(s, (Store, Allocate))}
    buffers |= {e.buffer for s in walk_stmt(body) for top in expressions(s) for e in walk(top) if isinstance(e, Load)}
    found = {b.pointer for b in buffers if isinstance(b, PlacedBuffer)}
    sizes = [d for b in buffers for d in (*b.shape, *b.strides) if isinstance(d, PrimExpr)]
    return found.union(*map(free_vars, sizes))


def _passed_arrays(body: Stmt) -> set[PrimExpr]:
    """Return the addresses that packed calls pass as whole arrays."""
    found: set[PrimExpr] = set()
    for s in walk_stmt(body):
        for e in (e for top in expressions(s) for e in walk(top)):
            if isinstance(e, Call) and isinstance(e.op, Packed):
                found |= {a for a, (_, is_array) in zip(e.args, places(e), strict=True) if is_array}
    return found


def places(e: Call) -> list[tuple[int, bool]]:
    """Return the position of each value among the arguments of a packed call, which may have texts between them, and
    whether the value is a whole array."""
    assert isinstance(e.op, Packed)
    texts, arrays = dict(e.op.texts), dict(e.op.arrays)
    return [(k, k in arrays) for k in range(len(e.args) + len(texts)) if k not in texts]
