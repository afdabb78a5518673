"""Checks of TIR functions, such as whether they are well formed and whether every variable is bound once, and facts
about them: operations, memory, and where buffers are used."""

from __future__ import annotations

from math import prod

from tilewright.base.errors import CompileError
from tilewright.base.memory_placement import round_up
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_equal
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Value, Var, as_expr, number_of
from tilewright.scalar.walk import walk
from tilewright.tir.analysis import _ffi_api
from tilewright.tir.analysis.memory_scopes import (
    apply_prim_func_arg_and_result_memory_constraints,
    get_prim_func_arg_and_result_memory_constraints,
)
from tilewright.tir.block_regions import get_block_access_region, get_block_read_write_region
from tilewright.tir.constructors import known_shape
from tilewright.tir.flops import estimate_tir_flops
from tilewright.tir.stmt import (
    INNER,
    NUMBERS,
    THREAD,
    Allocate,
    AllocateConst,
    Block,
    For,
    Let,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    expressions,
    root_block,
    walk_stmt,
)
from tilewright.tir.transform.check_accesses import OOBChecker

__all__ = [
    "OOBChecker", "_ffi_api", "apply_prim_func_arg_and_result_memory_constraints", "calculate_allocated_bytes",
    "calculate_constant_bytes", "calculate_workspace_bytes", "detect_buffer_access_lca", "estimate_tir_flops",
    "expr_deep_equal", "find_anchor_block", "get_block_access_region", "get_block_read_write_region",
    "get_prim_func_arg_and_result_memory_constraints",
    "verify_memory", "verify_ssa", "verify_well_formed",
]


def verify_ssa(func: PrimFunc) -> bool:
    """Return whether no variable is bound twice; scalar parameters are bound by the function."""
    bound = set(func.scalars)
    for s in walk_stmt(func.body):
        own = [i.var for i in s.iters] if isinstance(s, Block) else [s.var] if isinstance(s, (For, Let)) else []
        if any(v in bound for v in own) or len(set(own)) != len(own):
            return False
        bound.update(own)
    return True


def expr_deep_equal(lhs: Value, rhs: Value) -> bool:
    """Return whether two expressions are the same, with the same variables and buffers. Numbers are constants."""
    return structural_equal(as_expr(lhs), as_expr(rhs), exact=True)


def verify_memory(func: PrimFunc) -> bool:
    """Return whether all memory is used in scope: parameters anywhere, other buffers inside their allocation.

    A function whose attribute `target` is a GPU must also use all memory inside loops bound to threads.
    """
    return _fault(func, variables=False) is None and (not _on_gpu(func) or _in_threads(func.body))


def _on_gpu(func: PrimFunc) -> bool:
    return "gpu" in getattr(func.attrs.get("target"), "keys", ())


def _in_threads(s: Stmt) -> bool:
    """Return whether `s` and the statements inside use memory only in loops bound to threads."""
    if isinstance(s, For) and THREAD in s.annotations:
        return True
    used = isinstance(s, Store) or any(isinstance(e, Load) for top in expressions(s) for e in walk(top))
    return not used and all(_in_threads(b) for b in bodies(s))


def calculate_allocated_bytes(func_or_mod: PrimFunc | IRModule) -> dict[str, dict[str, int]]:
    """Return the bytes that the `Allocate` statements of each TIR function allocate, by function and memory scope.

    A single function has the key `main`. An allocation whose size is known only at run time counts nothing.
    """
    functions = {"main": func_or_mod} if isinstance(func_or_mod, PrimFunc) else {
        name: f for name, f in func_or_mod.items() if isinstance(f, PrimFunc)}
    found: dict[str, dict[str, int]] = {}
    for name, f in functions.items():
        sizes = found.setdefault(name, {})
        for s in walk_stmt(f.body):
            nbytes = bytes_of(s.buffer) if isinstance(s, Allocate) else None
            if isinstance(s, Allocate) and nbytes is not None:
                sizes[s.buffer.scope] = sizes.get(s.buffer.scope, 0) + nbytes
    return found


def bytes_of(buffer: Buffer) -> int | None:
    """Return the bytes of a buffer, or None if its size is known only at run time."""
    shape = known_shape(buffer)
    return None if shape is None else (prod(shape) * buffer.dtype.bits * buffer.dtype.lanes + 7) // 8


def calculate_constant_bytes(func: PrimFunc, constant_byte_alignment: int) -> int:
    """Return the bytes of the constants (`AllocateConst`) of a function, each rounded up to a multiple of the
    alignment."""
    sizes = [s.elements().nbytes for s in walk_stmt(func.body) if isinstance(s, AllocateConst)]
    return sum(round_up(n, constant_byte_alignment) for n in sizes)


def calculate_workspace_bytes(func: PrimFunc, workspace_byte_alignment: int) -> int:
    """Return the most bytes of global memory, with any tag, that a function has allocated at one time, each allocation
    rounded up to a multiple of the alignment.

    Memory lasts to the end of its `Allocate` statement. An allocation whose size is known only at run time counts
    nothing.
    """
    most, stack = 0, [(func.body, 0)]
    while stack:
        s, held = stack.pop()
        is_constant = isinstance(s, AllocateConst)
        if isinstance(s, Allocate) and not is_constant and s.buffer.scope.partition(".")[0] == "global":
            held += round_up(bytes_of(s.buffer) or 0, workspace_byte_alignment)
        most = max(most, held)
        stack.extend((b, held) for b in bodies(s))
    return most


def find_anchor_block(mod: IRModule) -> Block | None:
    """Return the reduction of a program with the most points, or None if no block reduces. Extents that are known only
    at run time count as 1."""
    blocks = [s for f in mod.functions.values() if isinstance(f, PrimFunc) for s in walk_stmt(f.body)
              if isinstance(s, Block) and any(i.kind == "reduce" for i in s.iters)]
    return max(blocks, key=lambda b: prod(number_of(i.extent) or 1 for i in b.iters), default=None)


def detect_buffer_access_lca(func: PrimFunc) -> dict[Buffer, For | Block | None]:
    """Return, for each buffer that is used, the innermost loop or block around all of its uses; None for the whole
    function if it has no blocks.

    A buffer in global memory that is used inside a loop over `blockIdx` is needed in that loop.
    """
    found: dict[Buffer, list[For | Block]] = {}
    whole = root_block(func) if INNER in func.attrs else func.body
    stack: list[tuple[Stmt, list[For | Block]]] = [(whole, [])]
    while stack:
        s, path = stack.pop()
        path = [*path, s] if isinstance(s, (For, Block)) else path
        used = [s.buffer] if isinstance(s, Store) else []
        used += [e.buffer for top in expressions(s) for e in walk(top) if isinstance(e, Load)]
        for b in used:
            old = found.get(b, path)
            found[b] = [x for x, y in zip(old, path, strict=False) if x is y]
        stack.extend((b, path) for b in reversed(bodies(s)))
    return {b: _outside_of_grid(b, path) for b, path in found.items()}


def _outside_of_grid(buffer: Buffer, path: list[For | Block]) -> For | Block | None:
    grid = (s for s in path if isinstance(s, For) and str(s.annotations.get(THREAD, "")).startswith("blockIdx"))
    own = path[-1] if path else None
    return next(grid, own) if buffer.scope == "global" else own


def verify_well_formed(func: PrimFunc, assert_mode: bool = True) -> bool:
    """Return whether variables and memory are used only in scope; with `assert_mode`, raise `CompileError` for the
    first fault.

    The body of a block with axes can use the loops around it only through these axes.
    """
    found = _fault(func, variables=True)
    if found is not None and assert_mode:
        raise CompileError(f"function '{func.name}' is not well formed: {found}", func.origin, code="TW0611")
    return found is None


def _fault(func: PrimFunc, *, variables: bool) -> str | None:
    sizes = {v for b in func.buffers for d in b.shape if isinstance(d, PrimExpr) for v in walk(d) if isinstance(v, Var)}
    sizes |= set(func.scalars) | set(func.attrs.get(NUMBERS, ()))
    given: frozenset[Buffer] = frozenset((*func.buffers, *func.attrs.get("intermediates", ())))
    stack: list[tuple[Stmt, frozenset[Var], frozenset[Var], frozenset[Buffer]]]
    stack = [(func.body, frozenset(sizes), frozenset[Var](), given)]
    while stack:
        s, known, loops, memory = stack.pop()
        inner = known | {i.var for i in s.iters} if isinstance(s, Block) else known
        for top in (*expressions(s),):
            for e in walk(top):
                if variables and isinstance(e, Var) and e not in inner:
                    return f"variable '{e.name}' is used where it is not defined, in\n{s}"
                if isinstance(e, Load) and e.buffer not in memory:
                    return f"buffer '{e.buffer.name}' is read where it does not exist, in\n{s}"
        if isinstance(s, Store) and s.buffer not in memory:
            return f"buffer '{s.buffer.name}' is written where it does not exist, in\n{s}"
        if isinstance(s, (For, Let)):
            inner = known | {s.var}
            loops = loops | {s.var} if isinstance(s, For) else loops
        if isinstance(s, Block) and s.iters:  # its body can use the enclosing loops only through its axes
            inner, loops = inner - loops, frozenset()
        if isinstance(s, Allocate):
            memory |= {s.buffer}
        stack.extend((b, inner, loops, memory) for b in bodies(s))
    return None
