"""Rewrites of layouts and of the loops around a block by index maps, and copies that change the layout.

Each maps a program to a new one, and returns the names of new blocks; `tir.Schedule` offers them as steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.base.types import BOOL, INT64
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import (
    LT,
    Buffer,
    FloatImm,
    IntImm,
    Load,
    PrimExpr,
    Select,
    Var,
    all_of,
    as_expr,
    cast,
    compare,
    const,
    literal,
    number_of,
)
from tilewright.scalar.walk import free_vars, rewrite, substitute, walk
from tilewright.tir.block_rewrites import free_name, nest_of
from tilewright.tir.index_map import IndexMap
from tilewright.tir.legality import check_all_points, check_any_order, constant, fault
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import (
    ALIGNED,
    Block,
    For,
    IterVar,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    expressions,
    loaded_buffers,
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


def pad_map(buffer: Buffer, value: Any) -> IndexMap:
    """Return the value of padding, a number or a function of the indices of `buffer`, as a map of these indices. Raises
    `ScheduleError` for a value of another type than the elements, or of elements of another buffer."""
    if isinstance(value, (str, IndexMap)) or (callable(value) and not isinstance(value, PrimExpr)):
        found = IndexMap.of(value, len(buffer.shape))
    else:
        found = IndexMap(tuple(Var(f"axis{k}") for k in range(len(buffer.shape))), (literal(value),))
    if len(found.results) != 1:
        raise ScheduleError(f"the padding of '{buffer.name}' is one value, but '{found}' gives {len(found.results)}")
    e = found.results[0]
    other = next((x.buffer for x in walk(e) if isinstance(x, Load)), None)
    if other is not None:
        raise ScheduleError(
            f"the padding of '{buffer.name}' reads '{other.name}'; a padding value depends on the indices alone")
    given = isinstance(value, PrimExpr)
    if (given and e.dtype is not buffer.dtype) or e.dtype.is_float != buffer.dtype.is_float:
        raise ScheduleError(f"the padding of '{buffer.name}' is {e.dtype}, but its elements are {buffer.dtype}")
    return IndexMap(found.params, (cast(buffer.dtype, e),))


def fill_padding(func: PrimFunc, buffer: Buffer, how: IndexMap, shape: Sequence[int], value: IndexMap) -> PrimFunc:
    """Store a value at the places of `buffer` that have no element by the map `how` of the indices of `shape`, after
    the last block that stores to it. An input is unchanged.

    for i of 14: B[i // 4, i % 4] = …  ->  for i of 14: …;  for p, q where p == 3 and q >= 2: B[p, q] = 0
    """
    back, empty = how.non_surjective_inverse(shape)
    top = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    last = next((
        k for k in reversed(range(len(top)))
        if any(isinstance(x, Block) and buffer in stored_buffers(x) for x in walk_stmt(top[k]))), None)
    if number_of(empty) == 0 or last is None:
        return func
    axes = [IterVar(Var(f"v{k}"), as_expr(n)) for k, n in enumerate(buffer.shape)]
    points: dict[PrimExpr, PrimExpr] = {p: a.var for p, a in zip(back.params, axes, strict=True)}
    places: dict[PrimExpr, PrimExpr] = {p: a.var for p, a in zip(value.params, axes, strict=True)}
    made = next(
        x for x in reversed([*walk_stmt(top[last])]) if isinstance(x, Block) and buffer in stored_buffers(x))
    fill = nest_of(Block(
        free_name(func, f"{made.name}_pad_{buffer.name}"), tuple(axes), (), substitute(empty, points), None,
        Store(buffer, substitute(value.results[0], places), tuple(a.var for a in axes))))
    return func.with_body(seq(*top[: last + 1], fill, *top[last + 1 :]))


def transform_block_layout(func: PrimFunc, block: str, how: IndexMap) -> PrimFunc:
    """Replace the axes of a block, and the loops around it, by the results of a map of its axes, in order.

    for i: for j: C[i, j]  ->  for i.j.0 in range(I * J): C[i.j.0 // J, i.j.0 % J]       by lambda i, j: (i * J + j,)
    """
    s = Schedule(func)
    node = s.block(block)
    top = _own_nest(func, s, node)
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
    for a in axes:
        ranges = ranges.bind_loop(a.var, const(0, INT64), a.extent)
    points: dict[PrimExpr, PrimExpr] = dict(zip((i.var for i in node.iters), back([a.var for a in axes]), strict=True))

    def moved(part: Stmt) -> Stmt:
        return map_expressions(part, lambda e: simplify(substitute(e, points), ranges))

    init = None if node.init is None else moved(node.init)
    s._replace(
        top,
        nest_of(
            replace(node, iters=tuple(axes), bindings=(), predicate=IntImm(BOOL, 1), init=init, body=moved(node.body))))
    return s.func


def _own_nest(func: PrimFunc, s: Schedule, node: Block) -> Stmt:
    """Return the outermost statement that contains only `node` and loops. Raises `ScheduleError` if other statements
    share its loops."""
    around = s.around(node)
    top: Stmt = node
    while around and isinstance(around[-1], For):
        top = around.pop()
    if any(isinstance(f, For) for f in around):
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
    top = _own_nest(func, s, node)
    at = _one_access(func, node, [e.indices for e in _all_loads(node) if e.buffer is buffer], buffer, "reads")
    if buffer in stored_buffers(node):
        raise fault(f"block '{block}' reads '{buffer.name}', which it also writes", node, func)
    copy, axes, place = _copy_of(func, node, buffer, at, scope, how, suffix)
    fresh = {i.var: Var(i.var.name) for i in axes}
    own = tuple(replace(i, var=fresh[i.var], kind="spatial") for i in axes)
    store = Store(
        copy, Load(buffer, tuple(substitute(i, fresh) for i in at)), tuple(substitute(i, fresh) for i in place))
    guard = _guard(node, at, axes, fresh)
    made = nest_of(Block(copy.name, own, (), guard, None, store))
    new = replace(node, body=redirect(node.body, buffer, copy, lambda _: place))
    s._replace(node, new)
    top = new if top is node else _outermost(s, new)
    s._replace(top, seq(made, top))
    s._set(s.func.body, drop=copy, new=copy)
    return s.func, copy.name


def reindex_write(
    func: PrimFunc, block: str, buffer: Buffer, scope: str, how: IndexMap | None, suffix: str
) -> tuple[PrimFunc, str]:
    """Let the block write to a copy whose layout follows its axes, and add a block that copies the result back.

    C[i * 2 + 1] = …  ->  C_reindex[i] = …;  C[i * 2 + 1] = C_reindex[i]
    """
    s = Schedule(func)
    node = s.block(block)
    _own_nest(func, s, node)
    _not_aligned(func, node)
    stores = [x.indices for x in walk_stmt(node) if isinstance(x, Store) and x.buffer is buffer]
    loads = [e.indices for e in _all_loads(node) if e.buffer is buffer]
    at = _one_access(func, node, stores + loads, buffer, "writes")
    if (
        any(v in free_vars(i) for i in at for v in (a.var for a in node.iters if a.kind == "reduce"))
        or len(stored_buffers(node)) != 1
    ):
        raise fault(
            f"block '{block}' writes '{buffer.name}' along a reduction axis, or has several results", node, func)
    copy, axes, place = _copy_of(func, node, buffer, at, scope, how, suffix)
    fresh = {i.var: Var(i.var.name) for i in axes}
    own = tuple(replace(i, var=fresh[i.var]) for i in axes)
    store = Store(
        buffer, Load(copy, tuple(substitute(i, fresh) for i in place)), tuple(substitute(i, fresh) for i in at))
    home = nest_of(Block(copy.name, own, (), IntImm(BOOL, 1), None, store))
    new = redirect(node, buffer, copy, lambda _: place)
    s._replace(node, new)
    top = _outermost(s, new)
    s._replace(top, seq(top, home))
    s._set(s.func.body, drop=copy, new=copy)
    return s.func, copy.name


def _outermost(s: Schedule, node: Stmt) -> Stmt:
    around = s.around(node)
    while around and isinstance(around[-1], For):
        node = around.pop()
    return node


def _all_loads(node: Block) -> list[Load]:
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
    return found[0]


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
        place, shape = how(place), how.shape(extents)
    elif not axes:
        place, shape = (const(0, INT64),), (1,)
    return Buffer(free_name(func, f"{buffer.name}_{suffix}"), shape, buffer.dtype, scope), axes, place


def _guard(node: Block, at: tuple[PrimExpr, ...], axes: list[IterVar], points: Mapping[Any, PrimExpr]) -> PrimExpr:
    """Return the condition under which the copy may read. Conditions inside the block (a choice or an `if`) are not
    supported."""
    for s in walk_stmt(node.body):
        if any(isinstance(e, Select) for top in expressions(s) for e in walk(top)) or type(s).__name__ == "IfThenElse":
            raise ScheduleError(
                f"block '{node.name}' reads under a condition, so a full copy could read out of bounds; call "
                "decompose_padding first")
    return IntImm(BOOL, 1)


def cache_index(func: PrimFunc, block: str, scope: str) -> tuple[PrimFunc, list[str]]:
    """Compute indices that are not plain sums once, into tables.

    C[i] = A[i // 3 * 2 + i % 3]  ->  table[i] = i // 3 * 2 + i % 3;  C[i] = A[table[i]]
    """
    s = Schedule(func)
    node = s.block(block)
    _own_nest(func, s, node)
    extents = {i.var: i for i in node.iters}
    tables: dict[PrimExpr, Load] = {}
    made: list[Stmt] = []
    for e in _all_loads(node):
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
    """Let a block that updates a value in place work on a copy.

    A[i] = A[i] + 1  ->  A_local[i] = A[i];  A_local[i] = A_local[i] + 1;  A[i] = A_local[i]
    """
    s = Schedule(func)
    node = s.block(block)
    top = _own_nest(func, s, node)
    if buffer not in loaded_buffers(node) or buffer not in stored_buffers(node):
        raise fault(f"block '{block}' does not both read and write '{buffer.name}'", node, func)
    copy = Buffer(free_name(func, f"{buffer.name}_{scope}"), buffer.shape, buffer.dtype, scope)
    s._set(s.func.body, drop=copy, new=copy)

    def move(source: Buffer, target: Buffer, name: str) -> Stmt:
        axes = tuple(IterVar(Var(f"ax{k}"), as_expr(d)) for k, d in enumerate(source.shape))
        at = tuple(a.var for a in axes)
        return nest_of(Block(name, axes, (), IntImm(BOOL, 1), None, Store(target, Load(source, at), at)))

    new = redirect(node, buffer, copy)
    s._replace(node, new)
    top = _outermost(s, new)
    names = [copy.name, free_name(s.func, f"{buffer.name}_home")]
    s._replace(top, seq(move(buffer, copy, names[0]), top, move(copy, buffer, names[1])))
    return s.func, names


# Padding.
def decompose_padding(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, str]:
    """Split a padded copy into a fill before `loop`, and a copy of the inner part.

    for i: B[i] = A[i - 1] if 1 <= i < 9 else 0  ->  for i: B[i] = 0;  for i where 1 <= i < 9: B[i] = A[i - 1]
    """
    s = Schedule(func)
    node, target = s.block(block), s.loop(loop)
    body = node.body
    if (
        not (
            isinstance(body, Store) and isinstance(body.value, Select)
            and number_of(body.value.false_value) is not None and node.init is None
        )
    ):
        raise fault(f"block '{block}' is not a selection between a value and a number", node, func)
    around = [f for f in s.around(node) if isinstance(f, For)]
    if target not in around or any(isinstance(x, Block) and x is not node for x in walk_stmt(target)):
        raise fault(f"loop '{loop.name}' is not around block '{block}' alone", target, func)
    name = free_name(func, f"{block}_pad_const")
    inner = around[around.index(target) :]
    own = {f.var: Var(f.var.name) for f in inner}
    axes = {i.var: Var(i.var.name) for i in node.iters}
    fill: Stmt = replace(
        node, name=name, iters=tuple(replace(i, var=axes[i.var]) for i in node.iters),
        bindings=tuple(substitute(b, own) for b in node.bindings),
        predicate=substitute(substitute(node.predicate, own), axes),
        body=Store(body.buffer, body.value.false_value, tuple(substitute(i, axes) for i in body.indices)))
    fill = nest(inner, fill, own)
    s._replace(
        node,
        replace(
            node, predicate=all_of(node.predicate, body.value.condition),
            body=Store(body.buffer, body.value.true_value, body.indices)))
    target = s.loop(loop)
    s._replace(target, seq(fill, target))
    return s.func, name


def pad_einsum(func: PrimFunc, block: str, padding: Sequence[int]) -> PrimFunc:
    """Round up the axes of a sum of products to multiples of `padding`; inputs are padded with zeros, and the result is
    cropped.

    C[i] += A[i, k] * B[k]  (i of 5, padding 4)
        ->  A_pad[i of 8, k] = A or 0;  C_pad[i of 8] += A_pad * B;  C[i] = C_pad[i]
    """
    s = Schedule(func)
    node = s.block(block)
    top = _own_nest(func, s, node)
    if len(padding) != len(node.iters) or any(p < 1 for p in padding):
        raise fault(f"block '{block}' has {len(node.iters)} axes, but the padding is {list(padding)}; "
                    "give one number for each axis", node, func)
    loads = [e for e in _all_loads(node) if e.buffer not in stored_buffers(node)]
    _check_einsum(func, node, loads)
    grown = {
        i.var: -(-constant(i.extent, f"axis '{i.var.name}'", node, func) // p) * p
        for i, p in zip(node.iters, padding, strict=True)}
    (home,) = stored_buffers(node)
    made: list[Stmt] = []
    new: Stmt = node
    for source in dict.fromkeys(e.buffer for e in loads):
        at = next(e.indices for e in loads if e.buffer is source)
        shape = [grown[v] for v in at]  # type: ignore[index]
        if tuple(shape) == sizes(source):
            continue
        padded = Buffer(free_name(s.func, f"{source.name}_pad"), shape, source.dtype)
        s._set(s.func.body, drop=padded, new=padded)
        axes = tuple(
            IterVar(Var(v.name), const(n, INT64))  # type: ignore[attr-defined]
            for v, n in zip(at, shape, strict=True))
        own = tuple(a.var for a in axes)
        inside = all_of(*(compare(LT, a, d) for a, d in zip(own, sizes(source), strict=True)))
        value = Select(inside, Load(source, own), const(0, source.dtype))
        made.append(nest_of(Block(padded.name, axes, (), IntImm(BOOL, 1), None, Store(padded, value, own))))
        new = redirect(new, source, padded)
    after: list[Stmt] = []
    out = [i.var for i in node.iters if i.kind != "reduce"]
    if any(grown[v] != n for v, n in zip(out, sizes(home), strict=True)):
        padded = Buffer(free_name(s.func, f"{home.name}_pad"), [grown[v] for v in out], home.dtype)
        s._set(s.func.body, drop=padded, new=padded)
        axes = tuple(IterVar(Var(v.name), const(n, INT64)) for v, n in zip(out, sizes(home), strict=True))
        own = tuple(a.var for a in axes)
        after.append(nest_of(Block(padded.name, axes, (), IntImm(BOOL, 1), None, Store(home, Load(padded, own), own))))
        new = redirect(new, home, padded)
    assert isinstance(new, Block)
    new = replace(new, iters=tuple(replace(i, extent=const(grown[i.var], INT64)) for i in new.iters))
    s._replace(top, seq(*made, nest_of(new), *after))
    return s.func


def _check_einsum(func: PrimFunc, node: Block, loads: Sequence[Load]) -> None:
    combiner = node.annotations.get("combiner")
    axes = {i.var for i in node.iters}
    stores = [x for x in walk_stmt(node) if isinstance(x, Store)]
    spatial = tuple(i.var for i in node.iters if i.kind != "reduce")
    reduce = {i.var for i in node.iters if i.kind == "reduce"}
    plain = all(set(e.indices) <= axes and len(set(e.indices)) == len(e.indices) for e in loads)
    one_place = all(len({e.indices for e in loads if e.buffer is b}) == 1 for b in {e.buffer for e in loads})
    if (
        combiner is None or combiner.name != "sum" or node.init is None or any(x.indices != spatial for x in stores)
        or not plain or not one_place
    ):
        raise fault(f"block '{node.name}' is not a sum of products indexed by its own axes", node, func)
    step = node.body
    assert isinstance(step, Store)
    terms = [o for o in step.value.operands() if not (isinstance(o, Load) and o.buffer is step.buffer)]
    zero: dict[PrimExpr, PrimExpr] = {e: const(0, e.dtype) for e in loads if reduce & set(free_vars(e))}
    product = [rewrite(t, zero.get) for t in terms]
    vanish = (
        any(isinstance(p, (IntImm, FloatImm)) and p.value == 0 for p in product) if type(step.value).__name__ == "Add"
        else False
    )
    covered = all(any(v in free_vars(e) for e in zero) for v in reduce)
    if not vanish or not covered:
        raise fault(
            f"block '{node.name}' adds a nonzero value where its inputs are zero, so it cannot be padded with zeros",
            node, func)


def access_axes(node: Block, buffer: Buffer) -> list[Var]:
    """Return the axes of a block used in its indices of `buffer`."""
    found = [e.indices for e in _all_loads(node) if e.buffer is buffer]
    found += [x.indices for x in walk_stmt(node) if isinstance(x, Store) and x.buffer is buffer]
    used = {v for at in found for i in at for v in free_vars(i)}
    return [i.var for i in node.iters if i.var in used]
