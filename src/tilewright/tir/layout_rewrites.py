"""Rewrites of layouts and of the loops around a block by index maps, and copies that change the layout.

Each maps a program to a new one, and returns the names of new blocks; `tir.Schedule` offers them as steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tilewright.base.errors import ScheduleError
from tilewright.base.types import BOOL, INT64, DataType
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import (
    Buffer,
    IntImm,
    Load,
    PrimExpr,
    Select,
    Var,
    cast,
    const,
    number_of,
)
from tilewright.scalar.walk import free_vars, rewrite, substitute, walk
from tilewright.tir.block_copies import copy_nest
from tilewright.tir.block_rewrites import free_name, nest_of
from tilewright.tir.block_tree import child_blocks, own_loops
from tilewright.tir.index_map import IndexMap
from tilewright.tir.legality import check_all_points, check_any_order, constant, fault, reduces_over
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.region import region_of
from tilewright.tir.stmt import (
    ALIGNED,
    SCOPE,
    Block,
    For,
    IfThenElse,
    IterVar,
    PrimFunc,
    Stmt,
    Store,
    expressions,
    handed_out,
    loaded_buffers,
    map_bodies,
    map_expressions,
    nest,
    redirect,
    seq,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)


def sizes(buffer: Buffer) -> tuple[int, ...]:
    """Return the sizes of a buffer. Raises `ScheduleError` if one is symbolic."""
    if not all(isinstance(d, (int, IntImm)) for d in buffer.shape):
        raise ScheduleError(f"'{buffer.name}' has the shape {buffer.shape}, but constant sizes are needed here")
    return tuple(int(d) for d in buffer.shape)


def transform_layout(func: PrimFunc, buffer: Buffer, how: IndexMap) -> tuple[PrimFunc, Buffer]:
    """Change the layout of a value: B[i, j] -> B[i // 4, j, i % 4] everywhere. A parameter gets the new shape. Return
    the new buffer, too."""
    for x in walk_stmt(func.body):
        if isinstance(x, Block) and buffer in stored_buffers(x):
            _not_aligned(func, x)
    new = Buffer(buffer.name, how.shape(sizes(buffer)), buffer.dtype, buffer.scope)
    if buffer in func.params:
        params = tuple(new if b is buffer else b for b in func.params)
        return replace(func, params=params, body=redirect(func.body, buffer, new, how)), new
    s = Schedule(func)
    s._set(redirect(func.body, buffer, new, how), drop=buffer, new=new)
    return s.func, new


def set_dtype(func: PrimFunc, buffer: Buffer, dtype: DataType) -> PrimFunc:
    """Store an intermediate value as another type: B[i] = e; C[i] = B[i]  ->  B[i] = cast(e); C[i] = cast(B[i]).

    Raises `ScheduleError` for a parameter, and for a value whose address a function takes.
    """
    if buffer in func.params:
        raise ScheduleError(f"'{buffer.name}' is a parameter, whose type is the caller's; choose an intermediate value")
    passed = next((s for s in walk_stmt(func.body) for e in expressions(s) if buffer in handed_out(e)), None)
    if passed is not None:
        raise fault(f"a function takes the address of '{buffer.name}', so its type cannot change", passed, func)
    new = Buffer(buffer.name, buffer.shape, dtype, buffer.scope)

    def visit(s: Stmt) -> Stmt:
        s = map_bodies(s, visit) or s
        if isinstance(s, Block) and s.init is not None:
            s = replace(s, init=visit(s.init))
        if isinstance(s, Store) and s.buffer is buffer:
            return replace(s, buffer=new, value=cast(dtype.with_lanes(s.value.dtype.lanes), s.value))
        return s

    def load(e: PrimExpr) -> PrimExpr | None:
        same = isinstance(e, Load) and e.buffer is buffer
        return cast(e.dtype, Load(new, e.indices)) if same and isinstance(e, Load) else None

    s = Schedule(func)
    s._set(map_expressions(visit(func.body), lambda e: rewrite(e, load)), drop=buffer, new=new)
    return s.func


def transform_block_layout(func: PrimFunc, block: str, how: IndexMap) -> PrimFunc:
    """Replace the axes of a block, and the loops around it, by the results of a map of its axes, in order.

    for i: for j: C[i, j]  ->  for i.j.0 in range(I * J): C[i.j.0 // J, i.j.0 % J]       by lambda i, j: (i * J + j,)
    """
    s = Schedule(func)
    node = s.block(block)
    top = own_nest(func, s, node)
    extents = [constant(i.extent, f"axis '{i.var.name}'", node, func) for i in node.iters]
    made, back = how.shape(extents), how.by_digits(extents)
    if back is None or prod(made) != prod(extents):
        raise fault(f"the loops of block '{block}' cannot be transformed by '{how}', which is not "
                    "invertible", node, func)
    check_any_order(func, top, f"the loops of block '{block}' cannot go by '{how}'")
    reduce = {v for v, i in zip(how.params, node.iters, strict=True) if i.kind == "reduce"}
    if reduce and any(set(free_vars(r)) & reduce and set(free_vars(r)) - reduce for r in how.results):
        raise fault(f"'{how}' fuses a spatial and a reduction axis of block '{block}'", node, func)
    kinds = ["reduce" if reduce & set(free_vars(r)) else "spatial" for r in how.results]
    axes = [IterVar(Var(n), const(size, INT64), kind) for n, size, kind in zip(how.names, made, kinds, strict=True)]
    ranges = Ranges()
    for a in axes:  # an axis of one point stays a variable
        ranges = ranges if number_of(a.extent) == 1 else ranges.bind_loop(a.var, const(0, INT64), a.extent)
    points: dict[PrimExpr, PrimExpr] = dict(zip((i.var for i in node.iters), back([a.var for a in axes]), strict=True))

    def moved(part: Stmt) -> Stmt:
        return map_expressions(part, lambda e: simplify(substitute(e, points), ranges))

    init = None if node.init is None else moved(node.init)
    s._replace(
        top,
        nest_of(
            replace(node, iters=tuple(axes), bindings=(), predicate=IntImm(BOOL, 1), init=init, body=moved(node.body))))
    return s.func


def own_nest(func: PrimFunc, s: Schedule, node: Block) -> Stmt:
    """Return the outermost statement that contains only `node` and loops. Raises `ScheduleError` if other statements
    share its loops."""
    loops = own_loops(s.around(node))
    top: Stmt = _outermost(s, node)
    if top is not (loops[0] if loops else node):
        raise fault(
            f"the loops around block '{node.name}' contain other blocks too; do this before compute_at", node, func)
    check_all_points(func, node)
    if isinstance(node.predicate, IntImm) and node.predicate.value:
        return top
    raise fault(f"block '{node.name}' runs under a condition; do this before its loops are split", node, func)


def _not_aligned(func: PrimFunc, block: Block) -> None:
    if ALIGNED in block.annotations:
        raise fault(
            f"the rows that block '{block.name}' stores were aligned for the old layout; call storage_align after the "
            "layout change",
            block, func)


# Copies whose layout follows a block's axes.
def reindex_read(
    func: PrimFunc, block: str, buffer: Buffer, scope: str, how: IndexMap | None, suffix: str
) -> tuple[PrimFunc, str]:
    """Let the block read a copy whose layout follows its axes.

    C[i] = A[i * 2 + 1]  ->  A_reindex[i] = A[i * 2 + 1];  C[i] = A_reindex[i]
    """
    s = Schedule(func)
    node = s.block(block)
    at = _one_access(func, node, [e.indices for e in all_loads(node) if e.buffer is buffer], buffer, "reads")
    if buffer in stored_buffers(node):
        raise fault(f"block '{block}' reads '{buffer.name}', which it also writes", node, func)
    copy, axes, place = _copy_of(func, node, buffer, at, scope, how, suffix)
    fresh = {i.var: Var(i.var.name) for i in axes}
    store = Store(
        copy, Load(buffer, tuple(substitute(i, fresh) for i in at)), tuple(substitute(i, fresh) for i in place))
    _check_unconditional(node)
    made, top = _copying_nest(func, s, node, axes, fresh, copy.name, store)
    new = replace(node, body=redirect(node.body, buffer, copy, lambda _: place))
    s._replace(node, new)
    top = new if top is node else _same_loop(s, top)
    s._replace(top, seq(made, top))
    s._set(s.func.body, drop=copy, new=copy)
    return s.func, copy.name


def _same_loop(s: Schedule, top: Stmt) -> Stmt:
    """Return the current loop with the variable of `top`."""
    assert isinstance(top, For)
    return s.loop(top.var)


def _copying_nest(
    func: PrimFunc, s: Schedule, node: Block, axes: Sequence[IterVar], fresh: Mapping[Var, Var], name: str,
    store: Store
) -> tuple[Stmt, Stmt]:
    """Return a nest that copies at the points of `node`, and the statement beside which it belongs.

    If `node` is alone in its loops, the copy is for all points of the axes. Otherwise it is beside the innermost
    statement in which `node` is alone and its sums are complete, for the points of one trip of the loops around.
    """
    own = tuple(replace(i, var=fresh[i.var], kind="spatial") for i in axes)
    top = _outermost(s, node)
    loops = own_loops(s.around(node))
    if top is (loops[0] if loops else node):
        own_nest(func, s, node)
        return nest_of(Block(name, own, (), IntImm(BOOL, 1), None, store)), top
    summed = next((f for f in loops if reduces_over(node, f.var)), None)
    if summed is not None and any(x is top for x in walk_stmt(summed)):
        top = _outermost(s, summed)
    inner = loops[loops.index(top) :] if isinstance(top, For) and top in loops else []
    bound = dict(zip((i.var for i in node.iters), node.bindings, strict=True))
    used = {v for i in axes for v in free_vars(bound[i.var])} | set(free_vars(node.predicate))
    if any(reduces_over(node, f.var) and f.var in used for f in inner):
        raise fault(f"a reduction loop of block '{node.name}' is fused with another, or guarded", node, func)
    needed = [f for f in inner if f.var in used]
    renamed = {f.var: Var(f.var.name) for f in needed}
    bindings = tuple(substitute(bound[i.var], renamed) for i in axes)
    where = substitute(substitute(node.predicate, bound), renamed)
    return nest(needed, Block(name, own, bindings, where, None, store), renamed), top


def reindex_write(
    func: PrimFunc, block: str, buffer: Buffer, scope: str, how: IndexMap | None, suffix: str
) -> tuple[PrimFunc, str]:
    """Let the block write to a copy whose layout follows its axes, and add a block that copies the result back.

    C[i * 2 + 1] = …  ->  C_reindex[i] = …;  C[i * 2 + 1] = C_reindex[i]
    """
    s = Schedule(func)
    node = s.block(block)
    _not_aligned(func, node)
    stores = [x.indices for x in walk_stmt(node) if isinstance(x, Store) and x.buffer is buffer]
    loads = [e.indices for e in all_loads(node) if e.buffer is buffer]
    at = _one_access(func, node, stores + loads, buffer, "writes")
    if (
        any(v in free_vars(i) for i in at for v in (a.var for a in node.iters if a.kind == "reduce"))
        or len(stored_buffers(node)) != 1
    ):
        raise fault(
            f"block '{block}' writes '{buffer.name}' along a reduction axis, or has several results", node, func)
    copy, axes, place = _copy_of(func, node, buffer, at, scope, how, suffix)
    fresh = {i.var: Var(i.var.name) for i in axes}
    store = Store(
        buffer, Load(copy, tuple(substitute(i, fresh) for i in place)), tuple(substitute(i, fresh) for i in at))
    home, top = _copying_nest(func, s, node, axes, fresh, copy.name, store)
    _check_not_read_in(func, node, buffer, top)
    new = redirect(node, buffer, copy, lambda _: place)
    s._replace(node, new)
    top = new if top is node else _same_loop(s, top)
    s._replace(top, seq(top, home))
    s._set(s.func.body, drop=copy, new=copy)
    return s.func, copy.name


def _check_not_read_in(func: PrimFunc, node: Block, buffer: Buffer, top: Stmt) -> None:
    """Raise `ScheduleError` if another block reads a value before it is copied back after the statement `top`."""
    other = next((b for b in child_blocks(top) if b is not node and buffer in loaded_buffers(b)), None)
    if other is not None:
        raise fault(f"block '{other.name}' reads '{buffer.name}' before block '{node.name}' has copied it back", other,
                    func)


def _outermost(s: Schedule, node: Stmt) -> Stmt:
    around = s.around(node)
    while around and isinstance(around[-1], For) and SCOPE not in around[-1].annotations:
        node = around.pop()
    return node


def all_loads(node: Block) -> list[Load]:
    return [e for s in walk_stmt(node) for top in expressions(s) for e in walk(top) if isinstance(e, Load)]


def _one_access(
    func: PrimFunc, node: Block, found: Sequence[tuple[PrimExpr, ...]], buffer: Buffer, does: str
) -> tuple[PrimExpr, ...]:
    if not found or any(a != found[0] for a in found):
        raise fault(
            f"block '{node.name}' {does} '{buffer.name}' at {len(set(found))} places, but exactly one is "
            "needed", node, func)
    axes = {i.var for i in node.iters}
    if (
        any(v not in axes for i in found[0] for v in free_vars(i))
        or any(isinstance(e, Load) for i in found[0] for e in walk(i))
    ):
        raise fault(
            f"block '{node.name}' {does} '{buffer.name}' at a place that is not a function of its axes", node, func)
    return tuple(_with_fewer_axes(i, node) for i in found[0])


def _with_fewer_axes(index: PrimExpr, node: Block) -> PrimExpr:
    """Return an index without the axes of a block that do not change it, such as `v // 64` for an axis of 64 points."""
    limits = Ranges()
    for i in node.iters:
        limits = limits if number_of(i.extent) == 1 else limits.bind_loop(i.var, const(0, INT64), i.extent)
    simpler = simplify(index, limits)
    return simpler if set(free_vars(simpler)) < set(free_vars(index)) else index


def _copy_of(
    func: PrimFunc, node: Block, buffer: Buffer, at: tuple[PrimExpr, ...], scope: str, how: IndexMap | None, suffix: str
) -> tuple[Buffer, list[IterVar], tuple[PrimExpr, ...]]:
    """Return the copy, the axes that it covers, and its index at a point of the block."""
    used = {v for i in at for v in free_vars(i)}
    axes = [i for i in node.iters if i.var in used]
    extents = [constant(i.extent, f"axis '{i.var.name}'", node, func) for i in axes]
    place: tuple[PrimExpr, ...] = tuple(i.var for i in axes)
    shape: tuple[int, ...] = tuple(extents)
    if how is not None:
        place, shape = _mapped(func, node, axes, how)
    elif not axes:
        place, shape = (const(0, INT64),), (1,)
    return Buffer(free_name(func, f"{buffer.name}_{suffix}"), shape, buffer.dtype, scope), axes, place


def _mapped(
    func: PrimFunc, node: Block, axes: list[IterVar], how: IndexMap
) -> tuple[tuple[PrimExpr, ...], tuple[int, ...]]:
    """Return the index, and the sizes, of a copy by a map of all axes of a block, of which it may use only `axes`."""
    other = next((i.var for i in node.iters if i not in axes for r in how([j.var for j in node.iters])
                  if i.var in free_vars(r)), None)
    if other is not None:
        raise fault(f"the index map '{how}' uses axis '{other.name}', but the copy does not depend on it", node, func)
    own = {p: i for p, i in zip(how.params, node.iters, strict=True) if i in axes}
    extents = [constant(i.extent, f"axis '{i.var.name}'", node, func) for i in own.values()]
    return how([i.var for i in node.iters]), IndexMap(tuple(own), how.results).shape(extents)


def _check_unconditional(node: Block) -> None:
    """Raise `ScheduleError` if a block reads under a condition (a choice or an `if`), since a copy reads always."""
    for s in walk_stmt(node.body):
        if any(isinstance(e, Select) for top in expressions(s) for e in walk(top)) or isinstance(s, IfThenElse):
            raise ScheduleError(
                f"block '{node.name}' reads under a condition, so a full copy could read out of bounds; call "
                "decompose_padding first")


def cache_index(func: PrimFunc, block: str, scope: str) -> tuple[PrimFunc, list[str]]:
    """Compute indices that are not plain sums once, into tables.

    C[i] = A[i // 3 * 2 + i % 3]  ->  table[i] = i // 3 * 2 + i % 3;  C[i] = A[table[i]]
    """
    s = Schedule(func)
    node = s.block(block)
    own_nest(func, s, node)
    extents = {i.var: i for i in node.iters}
    tables: dict[PrimExpr, Load] = {}
    made: list[Stmt] = []
    for e in all_loads(node):
        for i in e.indices:
            plain = not any(type(x).__name__ in ("FloorDiv", "FloorMod") for x in walk(i))
            inner = any(isinstance(x, Load) for x in walk(i)) or any(v not in extents for v in free_vars(i))
            if plain or inner or i in tables or e.buffer in stored_buffers(node):
                continue
            axes = [a for a in node.iters if a.var in free_vars(i)]
            table = Buffer(free_name(s.func, f"{node.name}_index"), [a.extent for a in axes], INT64, scope)
            s._set(s.func.body, drop=table, new=table)
            fresh = {a.var: Var(a.var.name) for a in axes}
            own = tuple(IterVar(fresh[a.var], a.extent) for a in axes)
            made.append(
                nest_of(
                    Block(
                        table.name, own, (), IntImm(BOOL, 1), None,
                        Store(table, substitute(i, fresh), tuple(a.var for a in own)))))
            tables[i] = Load(table, tuple(a.var for a in axes))
    if not tables:
        raise fault(f"block '{block}' has no index with a division or a remainder, so there is nothing to "
                    "cache", node, func)
    body = substitute_stmt(node.body, {})

    def use(e: PrimExpr) -> PrimExpr | None:
        return Load(e.buffer, tuple(tables.get(i, i) for i in e.indices)) if isinstance(e, Load) else None

    new = replace(node, body=map_expressions(body, lambda e: rewrite(e, use)))
    s._replace(node, new)
    top = _outermost(s, new)
    s._replace(top, seq(*made, top))
    return s.func, [t.buffer.name for t in tables.values()]


def cache_inplace(func: PrimFunc, block: str, buffer: Buffer, scope: str) -> tuple[PrimFunc, list[str]]:
    """Let a block that updates a value in place work on a copy of the part that it uses.

    A[i] = A[i] + 1  ->  A_local[i] = A[i];  A_local[i] = A_local[i] + 1;  A[i] = A_local[i]
    """
    s = Schedule(func)
    node = s.block(block)
    if buffer not in loaded_buffers(node) or buffer not in stored_buffers(node):
        raise fault(f"block '{block}' does not both read and write '{buffer.name}'", node, func)
    copy = Buffer(free_name(func, f"{buffer.name}_{scope}"), buffer.shape, buffer.dtype, scope)
    s._set(s.func.body, drop=copy, new=copy)
    ranges = Ranges()
    for f in s.around(node):
        ranges = ranges.bind_loop(f.var, f.min, f.extent) if isinstance(f, For) else ranges
    box = region_of(node, buffer, ranges, stores=True)
    names = [copy.name, free_name(s.func, f"{buffer.name}_home")]
    copies = [copy_nest(a, b, name, box, ranges) for a, b, name in (
        (buffer, copy, names[0]), (copy, buffer, names[1]))]
    s._replace(node, seq(copies[0], redirect(node, buffer, copy), copies[1]))
    return s.func, names
