"""Rewrites of padding: separate fills and copies, sums over rounded axes, and values at places that a layout adds.

Each maps a program to a new one; `tir.Schedule` offers them as steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.base.types import BOOL, INT64
from tilewright.scalar.arith import Ranges, prove, simplify
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    GE,
    GT,
    LE,
    LT,
    Buffer,
    FloatImm,
    IntImm,
    Load,
    PrimExpr,
    Select,
    Var,
    add,
    all_of,
    as_expr,
    cast,
    compare,
    const,
    floordiv,
    literal,
    mul,
    number_of,
    sub,
)
from tilewright.scalar.walk import free_vars, rewrite, substitute, walk
from tilewright.tir.block_rewrites import free_name, nest_of
from tilewright.tir.block_tree import child_blocks, own_loops
from tilewright.tir.index_map import IndexMap
from tilewright.tir.layout_rewrites import all_loads, own_nest
from tilewright.tir.legality import check_any_order, fault, makers
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import (
    SERIAL,
    Block,
    For,
    IterVar,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    nest,
    redirect,
    seq,
    stored_buffers,
    walk_stmt,
)


# Layouts with places that have no element.
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


def has_padding(how: IndexMap, shape: Sequence[int]) -> bool:
    """Return whether some places of a layout of sizes `shape` have no element."""
    return number_of(how.non_surjective_inverse(shape)[1]) != 0


def fill_padding(func: PrimFunc, buffer: Buffer, how: IndexMap, shape: Sequence[int], value: IndexMap) -> PrimFunc:
    """Store a value at the places of `buffer` that have no element by the map `how` of the indices of `shape`. An input
    is unchanged.

    for i of 14: B[i // 4, i % 4] = A[i]
      ->  for p, q: B[p, q] = 0 if p == 3 and q >= 2 else A[p * 4 + q]
    If the block that stores the value has other results, or does not visit the elements in order, a further block
    stores the padding after it:
      ->  for i of 14: …;  for p, q where p == 3 and q >= 2: B[p, q] = 0
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
    padding, condition = substitute(value.results[0], places), _limits_first(substitute(empty, points))
    found = _padded_nest(func, buffer, how, [substitute(e, points) for e in back.results], axes, condition, padding)
    if found is not None:
        return found
    made = next(
        x for x in reversed([*walk_stmt(top[last])]) if isinstance(x, Block) and buffer in stored_buffers(x))
    fill = nest_of(Block(
        free_name(func, f"{made.name}_pad_{buffer.name}"), tuple(axes), (), condition, None,
        Store(buffer, padding, tuple(a.var for a in axes))))
    return func.with_body(seq(*top[: last + 1], fill, *top[last + 1 :]))


def _limits_first(condition: PrimExpr) -> PrimExpr:
    """Return a condition with lower limits written first: `v >= 2  ->  2 <= v`."""
    return rewrite(
        condition, lambda e: compare(LE, e.b, e.a) if isinstance(e, GE) and number_of(e.b) is not None else None)


def _padded_nest(
    func: PrimFunc, buffer: Buffer, how: IndexMap, back: Sequence[PrimExpr], axes: Sequence[IterVar],
    empty: PrimExpr, padding: PrimExpr
) -> PrimFunc | None:
    """Return the function with the nest that computes `buffer` over all places of the new layout; None if the nest has
    another form. `back` are the old indices, and `empty` the condition for padding, of new places."""
    made = makers(func, buffer)
    s = Schedule(func)
    node = made[0]
    loops = own_loops(s.around(node))
    spatial = [i for i in node.iters if i.kind != "reduce"]
    if (
        len(made) != 1 or not loops or len(loops) != len(node.iters) or len(spatial) != len(how.params)
        or not isinstance(node.body, Store) or not isinstance(node.init, Store | None)
        or node.bindings != tuple(f.var for f in loops) or any(f.kind != SERIAL for f in loops)
        or any(i.kind not in ("spatial", "reduce") for i in node.iters)
        or list(node.iters[: len(spatial)]) != spatial or node.body.indices != how([i.var for i in spatial])
        or len(child_blocks(loops[0] if loops else node)) != 1
        or any(number_of(f.extent) != number_of(i.extent) for f, i in zip(loops, node.iters, strict=True))
        or number_of(node.predicate) != 1
    ):
        return None
    points: dict[PrimExpr, PrimExpr] = {i.var: e for i, e in zip(spatial, back, strict=True)}
    at = tuple(a.var for a in axes)
    check_any_order(func, loops[0], f"'{buffer.name}' cannot be computed in the order of its new layout")
    inside = Ranges()
    for a in axes:  # an axis of one point stays a variable
        inside = inside if number_of(a.extent) == 1 else inside.bind_loop(a.var, const(0, INT64), a.extent)

    def moved(old: Stmt) -> Stmt:
        assert isinstance(old, Store)
        own: dict[PrimExpr, PrimExpr] = {
            e: Load(buffer, at) for e in walk(old.value)
            if isinstance(e, Load) and e.buffer is buffer and e.indices == old.indices}
        value = substitute(substitute(old.value, own), points)
        value = rewrite(
            value, lambda e: Load(e.buffer, tuple(simplify(i, inside) for i in e.indices))
            if isinstance(e, Load) and e.buffer is not buffer else None)
        return Store(buffer, Select(empty, padding, value), at)

    rest = node.iters[len(spatial) :]
    new = nest_of(replace(
        node, iters=(*axes, *rest), bindings=(), init=None if node.init is None else moved(node.init),
        body=moved(node.body)))
    s._replace(loops[0], new)
    return s.func


# Padded copies.
@dataclass(frozen=True, slots=True)
class _Inner:
    """The part `low <= v < high` of an axis where a padded copy reads its input."""

    axis: IterVar
    low: int
    high: int


def decompose_padding(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, str]:
    """Split a padded copy into a fill before `loop`, and a copy of the inner part.

    for i of 10: B[i] = A[i - 1] if 1 <= i < 9 else 0  ->  for i of 10: B[i] = 0;  for i of 8: B[i + 1] = A[i]
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
    around = own_loops(s.around(node))
    if target not in around:
        raise fault(f"loop '{loop.name}' is not around block '{block}'", target, func)
    others = [b for b in child_blocks(target) if b is not node and body.buffer in stored_buffers(b)]
    if others or (body.buffer in func.params and len(child_blocks(target)) > 1):
        raise fault(
            f"loop '{loop.name}' contains other blocks that store to '{body.buffer.name}', or use an output", target,
            func)
    parts = _inner_parts(func, node, body.value.condition)
    name = free_name(func, f"{block}_pad_const")
    outer, inner = around[: around.index(target)], around[around.index(target) :]
    units = Ranges()
    for f in outer:
        units = units.bind(f.var, 0, 0) if number_of(f.extent) == 1 and number_of(f.min) == 0 else units
    bindings = tuple(b if isinstance(b, Var) and b not in units else simplify(b, units) for b in node.bindings)
    own = {f.var: Var(f.var.name) for f in inner}
    axes = {i.var: Var(i.var.name) for i in node.iters}
    fill: Stmt = replace(
        node, name=name, iters=tuple(replace(i, var=axes[i.var]) for i in node.iters),
        bindings=tuple(substitute(b, own) for b in bindings),
        predicate=substitute(substitute(node.predicate, own), axes),
        body=Store(body.buffer, body.value.false_value, tuple(substitute(i, axes) for i in body.indices)))
    fill = nest(inner, fill, own)
    copy, shorter = _inner_copy(node, body, parts, bindings, inner)
    s._replace(node, copy)
    for v, extent in shorter.items():
        f = s.loop(v)
        s._replace(f, replace(f, extent=const(extent, f.extent.dtype)))
    target = s.loop(loop)
    s._replace(target, seq(fill, target))
    return s.func, name


def _inner_parts(func: PrimFunc, node: Block, condition: PrimExpr) -> list[_Inner]:
    """Return the part of each axis in which the condition of a padded copy holds."""
    limits = Ranges()
    for i in node.iters:
        limits = limits.bind_loop(i.var, const(0, INT64), i.extent)
    if prove(condition, limits) is True:
        raise fault(f"the condition of block '{node.name}' is always true, so it has no padding", node, func)
    ends = {i.var: [0, int(number_of(i.extent) or 0)] for i in node.iters}
    for c in conjuncts(condition):
        end = _end_of(c)
        if end is None or end[0] not in ends:
            raise fault(
                f"block '{node.name}' selects by '{c}', which is not a limit of one axis, so it has no inner part",
                node, func)
        v, at, n = end
        ends[v][at] = max(ends[v][0], n) if at == 0 else min(ends[v][1], n)
    return [_Inner(i, *ends[i.var]) for i in node.iters]


def _end_of(c: PrimExpr) -> tuple[Var, int, int] | None:
    """Return the variable of a limit, and its first (0) or end (1) value: `v < 9` ends at 9, `1 <= v` begins at 1."""
    if not isinstance(c, (LT, LE, GT, GE)):
        return None
    a, b, upper = c.a, c.b, isinstance(c, (LT, LE))
    strict = isinstance(c, (LT, GT))
    if isinstance(b, Var):
        a, b, upper = b, a, not upper
    n = number_of(b)
    if not isinstance(a, Var) or n is None:
        return None
    return (a, 1, int(n) + (not strict)) if upper else (a, 0, int(n) + strict)


def _inner_copy(
    node: Block, body: Store, parts: Sequence[_Inner], bindings: Sequence[PrimExpr], inner: Sequence[For]
) -> tuple[Block, dict[Var, int]]:
    """Return the block that copies the inner part, and the extents of loops that become shorter."""
    assert isinstance(body.value, Select)
    extents = {f.var: number_of(f.extent) for f in inner}
    shorter: dict[Var, int] = {}
    iters, bound = list[IterVar](), list[PrimExpr]()
    guards, moved = list[PrimExpr](), dict[PrimExpr, PrimExpr]()
    limits = Ranges()
    for p, b in zip(parts, bindings, strict=True):
        whole = number_of(p.axis.extent)
        own = IterVar(Var(p.axis.var.name), const(p.high - p.low, INT64), p.axis.kind)
        limits = limits if number_of(own.extent) == 1 else limits.bind_loop(own.var, const(0, INT64), own.extent)
        moved[p.axis.var] = add(own.var, p.low) if p.low else own.var
        iters.append(own)
        if isinstance(b, Var) and extents.get(b) == whole and sum(b in free_vars(x) for x in bindings) == 1:
            bound.append(b)
            shorter.update({b: p.high - p.low} if p.high - p.low != whole else {})
            continue
        bound.append(sub(b, p.low) if p.low else b)
        guards += [compare(LE, p.low, b)] if p.low else []
        guards += [compare(LT, b, p.high)] if p.high != whole else []
    points = {i.var: b for i, b in zip(node.iters, bindings, strict=True)}
    value = rewrite(
        substitute(body.value.true_value, moved),
        lambda e: Load(e.buffer, tuple(simplify(i, limits) for i in e.indices)) if isinstance(e, Load) else None)
    store = Store(body.buffer, value, tuple(simplify(substitute(i, moved), limits) for i in body.indices))
    copy = replace(
        node, iters=tuple(iters), bindings=tuple(bound), predicate=all_of(*guards, substitute(node.predicate, points)),
        body=store)
    return copy, shorter


# Sums over rounded axes.
def pad_einsum(func: PrimFunc, block: str, padding: Sequence[int]) -> PrimFunc:
    """Round up the axes of a sum of products to multiples of `padding`; inputs are padded with zeros, and the result is
    cropped. Axes may have symbolic sizes.

    C[i] += A[i, k] * B[k]  (i of 5, padding 4)
        ->  A_pad[i of 8, k] = A or 0;  C_pad[i of 8] += A_pad * B;  C[i] = C_pad[i]
    """
    s = Schedule(func)
    node = s.block(block)
    top = own_nest(func, s, node)
    if len(padding) != len(node.iters) or any(p < 1 for p in padding):
        raise fault(f"block '{block}' has {len(node.iters)} axes, but the padding is {list(padding)}; "
                    "give one number for each axis", node, func)
    loads = [e for e in all_loads(node) if e.buffer not in stored_buffers(node)]
    _check_einsum(func, node, loads)
    grown = {i.var: _rounded(i.extent, p) for i, p in zip(node.iters, padding, strict=True)}
    (home,) = stored_buffers(node)
    made: list[Stmt] = []
    new: Stmt = node
    for source in dict.fromkeys(e.buffer for e in loads):
        at = next(e.indices for e in loads if e.buffer is source)
        shape = [grown[v] for v in at]  # type: ignore[index]
        if all(_is_size(n, d) for n, d in zip(shape, source.shape, strict=True)):
            continue
        padded = Buffer(free_name(s.func, f"{source.name}_pad"), shape, source.dtype)
        s._set(s.func.body, drop=padded, new=padded)
        made.append(_padded_copy(source, padded, [v.name for v in at]))  # type: ignore[attr-defined]
        new = redirect(new, source, padded)
    after: list[Stmt] = []
    out = [i.var for i in node.iters if i.kind != "reduce"]
    if not all(_is_size(grown[v], d) for v, d in zip(out, home.shape, strict=True)):
        padded = Buffer(free_name(s.func, f"{home.name}_pad"), [grown[v] for v in out], home.dtype)
        s._set(s.func.body, drop=padded, new=padded)
        axes = tuple(IterVar(Var(v.name, v.dtype), as_expr(d)) for v, d in zip(out, home.shape, strict=True))
        own = tuple(a.var for a in axes)
        after.append(nest_of(Block(padded.name, axes, (), IntImm(BOOL, 1), None, Store(home, Load(padded, own), own))))
        new = redirect(new, home, padded)
    assert isinstance(new, Block)
    new = replace(new, iters=tuple(replace(i, extent=grown[i.var]) for i in new.iters))
    s._replace(top, seq(*made, nest_of(new), *after))
    return s.func


def _rounded(extent: PrimExpr, multiple: int) -> PrimExpr:
    """Return the next multiple of a number."""
    n = number_of(extent)
    if n is not None:
        return const(-(-int(n) // multiple) * multiple, INT64)
    return extent if multiple == 1 else mul(floordiv(add(extent, multiple - 1), multiple), multiple)


def _is_size(a: PrimExpr, b: int | PrimExpr) -> bool:
    return a is b or (number_of(a) is not None and number_of(a) == number_of(as_expr(b)))


def _padded_copy(source: Buffer, padded: Buffer, names: Sequence[str]) -> Stmt:
    """Return a nest that copies a value, with zeros beyond its ends."""
    axes = tuple(IterVar(Var(n, as_expr(d).dtype), as_expr(d)) for n, d in zip(names, padded.shape, strict=True))
    own = tuple(a.var for a in axes)
    limits = Ranges()
    for a in axes:
        limits = limits.bind_loop(a.var, const(0, INT64), a.extent)
    ends = [compare(LT, a, d) for a, d in zip(own, source.shape, strict=True)]
    inside = all_of(*(c for c in ends if prove(c, limits) is not True))
    value = Select(inside, Load(source, own), const(0, source.dtype))
    return nest_of(Block(padded.name, axes, (), IntImm(BOOL, 1), None, Store(padded, value, own)))


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
    product = [substitute(t, zero) for t in terms]
    vanish = (
        any(isinstance(p, (IntImm, FloatImm)) and p.value == 0 for p in product) if type(step.value).__name__ == "Add"
        else False
    )
    covered = all(any(v in free_vars(e) for e in zero) for v in reduce)
    if not vanish or not covered:
        raise fault(
            f"block '{node.name}' adds a nonzero value where its inputs are zero, so it cannot be padded with zeros",
            node, func)
