"""Replaces loops by hardware instructions and routines.

    for i in range(16):                                for i_0 in range(16):
        for j in range(32):                                for j_0 in range(2):
            for k in range(64): C[i, j] += …       ->          gemv(C[i_0, j_0 * 16:…], A[i_0, :], B[j_0 * 16:…, :])

An intrinsic consists of a block that defines its computation, and statements that perform it: declared with
`te.decl_tensor_intrin`, or as two TIR functions. The loops to be replaced, around a block or inside one made by
`blockize`, must perform the same computation. So their body is compared with the intrinsic's block, expression by
expression. Each buffer of the intrinsic becomes a box of a buffer of the program, derived from the loop indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, overload

from tilewright.base.errors import MissingIntrinsicError, ScheduleError
from tilewright.base.node import node
from tilewright.base.settings import nearest
from tilewright.base.types import BOOL, INT64
from tilewright.scalar.arith import Ranges, bounds, prove, simplify
from tilewright.scalar.arith.solve import conjuncts
from tilewright.scalar.expr import (
    Add,
    Binary,
    Buffer,
    Call,
    Cast,
    IntImm,
    Load,
    Max,
    Min,
    Mul,
    PrimExpr,
    Var,
    add,
    all_of,
    as_expr,
    const,
    mul,
    sub,
)
from tilewright.scalar.intrinsics import address_of, expect, fma, stride_of
from tilewright.scalar.walk import free_vars, rewrite, substitute, walk
from tilewright.tir.block_tree import dissolved
from tilewright.tir.legality import constant, fault, reduces_over
from tilewright.tir.stmt import (
    SERIAL,
    Block,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    expressions,
    map_bodies,
    map_expressions,
    redirect,
    seq,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.lower_blocks import lower_blocks


@node
class TensorIntrin:
    """An instruction: `body` computes `pattern`; `reset` and `update` do so for a reduction that continues over outer
    loops."""

    name: str
    pattern: Block
    body: Stmt | None
    reset: Stmt | None = None
    update: Stmt | None = None
    desc: PrimFunc | None = None
    impl: PrimFunc | None = None
    """The two functions of `register`; None for an instruction of `te.decl_tensor_intrin`."""

    known: ClassVar[dict[str, TensorIntrin]] = {}

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Register an intrinsic of two TIR functions as `name`: `impl` replaces the computation `desc`.

        Both have the same parameters; `desc` is one nest of loops. If `desc` has an initialization (`T.init`), and the
        reduction continues over loops outside the intrinsic, `impl` runs without initialization. Raises
        `ScheduleError` if they do not fit together.
        """
        shapes = [[(b.shape, b.dtype) for b in f.buffers] for f in (desc, impl)]
        if shapes[0] != shapes[1]:
            raise ScheduleError(
                f"intrinsic '{name}': its two functions have different parameters; both must take the same buffers in "
                "the same order")
        found = _one_nest(name, desc.body)
        if found is None:
            raise ScheduleError(
                f"intrinsic '{name}' must be described by a single loop nest around its stores; '{desc.name}' is "
                f"not:\n{desc}")
        _, pattern = found
        body = impl.body
        for own, described in zip(impl.buffers, desc.buffers, strict=True):
            body = redirect(body, own, described)
            body = substitute_stmt(body, {
                v: as_expr(d) for v, d in zip(own.strides, described.strides, strict=False) if isinstance(v, Var)})
        known = replace(impl, params=desc.params, body=body)
        reset = update = None
        if pattern.init is not None and any(isinstance(s, Block) and s.init is not None for s in walk_stmt(body)):
            reset = _nest([i for i in pattern.iters if i.kind != "reduce"], pattern.init)
            update = lower_blocks(known.with_body(_going_on(body))).body
        made = TensorIntrin(name, pattern, lower_blocks(known).body, reset, update, desc, impl)
        return TensorIntrin.remember(made, override)

    @staticmethod
    def remember(intrin: TensorIntrin, override: bool = False) -> TensorIntrin:
        """Register an intrinsic under its name, to which stored steps refer. Raises `ScheduleError` if another one
        has this name."""
        if TensorIntrin.known.get(intrin.name, intrin) is not intrin and not override:
            raise ScheduleError(
                f"an intrinsic '{intrin.name}' already exists; register it with override=True, or under another name")
        TensorIntrin.known[intrin.name] = intrin
        return intrin

    @overload
    @staticmethod
    def get(name: str, allow_missing: Literal[False] = False) -> TensorIntrin: ...
    @overload
    @staticmethod
    def get(name: str, allow_missing: bool) -> TensorIntrin | None: ...
    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """Return the intrinsic of that name. One that is not registered raises `MissingIntrinsicError`, or
        is None with `allow_missing`."""
        found = TensorIntrin.known.get(name)
        if found is None and not allow_missing:
            raise MissingIntrinsicError(
                f"there is no intrinsic '{name}'{nearest(name, TensorIntrin.known)}; register it with "
                "TensorIntrin.register")
        return found


Pair = tuple[Buffer, tuple[PrimExpr, ...], Buffer, tuple[PrimExpr, ...]]
"""A buffer of the intrinsic with an index, and the matching buffer of the program with its index."""


@dataclass(frozen=True, slots=True)
class _Box:
    """The box of a buffer of the intrinsic: its dimension k is dimension `dims[k]` of `buffer`, and its first element
    is at `first`."""

    buffer: Buffer
    dims: tuple[int, ...]
    first: tuple[PrimExpr, ...]

    def at(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        place = list(self.first)
        for d, i in zip(self.dims, indices, strict=True):
            place[d] = add(place[d], i)
        return tuple(place)


def tensorize(func: PrimFunc, at: For | Block, outer: Ranges, intrin: TensorIntrin) -> Block:
    """Return the block that replaces a loop with its body, or a block with loops in it; `outer` are the ranges of the
    outer loops.

    Raises `ScheduleError` if the loop does not match the intrinsic.
    """
    return _Match(func, at, outer, intrin).block()


class _Match:
    """`target` is the resulting block, and `leaf` the computation of each trip of the loops `inner`; if these are
    around `target`, it is `target` itself."""

    def __init__(self, func: PrimFunc, at: For | Block, outer: Ranges, intrin: TensorIntrin) -> None:
        at = dissolved(at) if isinstance(at, Block) else at
        self.func, self.at, self.intrin, self.pattern = func, at, intrin, intrin.pattern
        self.ranges = outer
        if isinstance(at, Block):
            for it in at.iters:
                self.ranges = self.ranges.bind_loop(it.var, const(0, INT64), it.extent)
        found = _one_nest(at.name, at.body, at.init) if isinstance(at, Block) else _loops_around(at)
        if found is None:
            raise self.error("there is more than one computation in the loop")
        self.inner, self.leaf = found
        self.target = at if isinstance(at, Block) else self.leaf
        for f in self.inner:
            self.ranges = self.ranges.bind_loop(f.var, f.min, f.extent)
            if f.kind != SERIAL or not isinstance(f.extent, IntImm):
                raise self.error(
                    f"loop '{f.var.name}' is {f.kind} with {f.extent} iterations, but an instruction needs serial "
                    "loops of constant extents")

    def error(self, why: str) -> ScheduleError:
        what = f"block '{self.at.name}'" if isinstance(self.at, Block) else f"loop '{self.at.var.name}'"
        return fault(
            f"'{self.intrin.name}' cannot replace {what}: {why}. The instruction computes\n{self.pattern}\nwhich "
            "differs from the marked statement",
            self.at, self.func)

    def block(self) -> Block:
        zero: dict[PrimExpr, PrimExpr] = {f.var: f.min for f in self.inner}
        first = [simplify(substitute(b, zero), self.ranges) for b in self.leaf.bindings]
        points = self.axes(first)
        predicate = self.predicate()
        pairs: list[Pair] = []
        if not self.same_stmt(self.pattern.body, _with_points(self.leaf.body, points), pairs):
            raise self.error("the computation differs")
        start = None if self.leaf.init is None else _with_points(self.leaf.init, points)
        if start is not None and self.pattern.init is not None and not self.same_stmt(self.pattern.init, start, pairs):
            raise self.error("the initial value differs")
        whole = first if self.target is self.leaf else list(self.target.bindings)
        axes = list(zip(self.target.iters, whole, strict=True))
        going_on = any(it.kind == "reduce" and not isinstance(b, IntImm) for it, b in axes)
        init, body = self.statements(going_on, self.boxes(pairs), start)
        if init is None and not going_on:
            fixed: dict[PrimExpr, PrimExpr] = {it.var: b for it, b in axes if it.kind == "reduce"}
            body = map_expressions(body, lambda e: substitute(e, fixed))
            axes = [(it, b) for it, b in axes if it.kind != "reduce"]
        notes = {k: v for k, v in self.target.annotations.items() if k != "combiner"}
        return replace(
            self.target, iters=tuple(it for it, _ in axes), bindings=tuple(b for _, b in axes), predicate=predicate,
            init=init, body=body, annotations=notes)

    def axes(self, first: Sequence[PrimExpr]) -> dict[PrimExpr, PrimExpr]:
        """Return the value of each axis of the program inside the instruction, relative to its value at the start."""
        points: dict[PrimExpr, PrimExpr] = {}
        wanted = list(self.pattern.iters)
        covered = 1
        for it, binding, start in reversed(list(zip(self.leaf.iters, self.leaf.bindings, first, strict=True))):
            local = simplify(sub(binding, start), self.ranges)
            low, high = bounds(local, self.ranges)
            if low != 0 or high is None or any(v not in [f.var for f in self.inner] for v in free_vars(local)):
                raise self.error(
                    f"axis '{it.var.name}' has a binding that does not depend on these loops alone: {binding}"
                )
            covered *= high + 1
            size = as_expr(wanted[-1].extent) if wanted else None
            if isinstance(size, IntImm) and size.value == high + 1 and wanted[-1].kind == it.kind:
                points[it.var] = add(it.var, wanted.pop().var)
            elif high != 0:
                shown = f"'{wanted[-1].var.name}' of {wanted[-1].extent}" if wanted else "nothing"
                raise self.error(f"axis '{it.var.name}' has {high + 1} values, but {shown} is expected")
        if wanted:
            raise self.error(f"axis '{wanted[-1].var.name}' of {wanted[-1].extent} is missing")
        trips = 1
        for f in self.inner:
            trips *= constant(f.extent, f"loop '{f.var.name}'", f, None)
        if trips != covered:
            raise self.error(f"the loops have {trips} iterations for {covered} points")
        if self.target is self.leaf:
            return points
        return {it.var: substitute(points.get(it.var, it.var), {it.var: const(0, INT64)}) for it in self.leaf.iters}

    def predicate(self) -> PrimExpr:
        """Return the guard of the whole instruction. Raises `ScheduleError` if the guard covers only a part of it."""
        mine = {f.var for f in self.inner}
        axes: dict[PrimExpr, PrimExpr] = {
            it.var: b for it, b in zip(self.target.iters, self.target.bindings, strict=True)}
        kept = []
        for c in conjuncts(self.target.predicate):
            if not any(v in mine for v in free_vars(substitute(c, axes))):
                kept.append(c)
            elif prove(simplify(substitute(c, axes), self.ranges), self.ranges) is not True:
                raise self.error(f"a split leaves a remainder, where {c} fails; split by a divisor of the extent")
        return all_of(*kept)

    # Comparing.
    def same_stmt(self, a: Stmt, b: Stmt, pairs: list[Pair]) -> bool:
        match a, b:
            case Store(), Store():
                pairs.append((a.buffer, a.indices, b.buffer, b.indices))
                return a.mask is None and b.mask is None and self.same(a.value, b.value, pairs)
            case IfThenElse(else_case=None), IfThenElse(else_case=None):
                return self.same(a.condition, b.condition, pairs) and self.same_stmt(a.then_case, b.then_case, pairs)
            case Seq(), Seq():
                return (
                    len(a.stmts) == len(b.stmts)
                    and all(self.same_stmt(x, y, pairs) for x, y in zip(a.stmts, b.stmts, strict=True))
                )
            case Let(), Let():
                renamed = _with_points(b.body, {b.var: a.var})
                return (
                    a.var.dtype is b.var.dtype and self.same(a.value, b.value, pairs)
                    and self.same_stmt(a.body, renamed, pairs)
                )
            case _:
                return False

    def same(self, a: PrimExpr, b: PrimExpr, pairs: list[Pair]) -> bool:
        """Return whether two expressions are equal except for their buffers, which are recorded, and intermediate
        rounding."""
        a, b = _unfused(a), _unfused(b)
        if type(a) is not type(b) or a.dtype is not b.dtype:
            return False
        if isinstance(a, Load) and isinstance(b, Load):
            pairs.append((a.buffer, a.indices, b.buffer, b.indices))
            return True
        if isinstance(a, Call) and isinstance(b, Call) and a.op is not b.op:
            return False
        x, y = a.operands(), b.operands()
        if not x:
            return a is b
        orders = [y]
        if isinstance(a, (Add, Mul, Min, Max)):
            orders.append((y[1], y[0]))
        for order in orders:
            known = len(pairs)
            if (
                len(x) == len(order) and all(self.same(p, q, pairs) for p, q in zip(x, order, strict=True))
                and self.agree(pairs)
            ):
                return True
            del pairs[known:]
        return (
            isinstance(a, (Binary, Cast)) and a.dtype.is_integer
            and simplify(sub(a, b), self.ranges) is const(0, a.dtype)
        )

    def agree(self, pairs: Sequence[Pair]) -> bool:
        """Check that no buffer of the instruction matches two buffers."""
        found: dict[Buffer, Buffer] = {}
        return all(found.setdefault(a, b) is b and a.dtype is b.dtype for a, _, b, _ in pairs)

    def boxes(self, pairs: Sequence[Pair]) -> dict[Buffer, _Box]:
        found: dict[Buffer, _Box] = {}
        for a, at_a, b, at_b in pairs:
            box = self.box(a, at_a, b, at_b)
            known = found.setdefault(a, box)
            if (known.buffer, known.dims, known.first) != (box.buffer, box.dims, box.first):
                raise self.error(f"its buffer '{a.name}' matches different regions of '{b.name}'")
        return found

    def box(self, a: Buffer, at_a: Sequence[PrimExpr], b: Buffer, at_b: Sequence[PrimExpr]) -> _Box:
        zero: dict[PrimExpr, PrimExpr] = {it.var: const(0, INT64) for it in self.pattern.iters}
        ranges = self.ranges
        for it in self.pattern.iters:
            ranges = ranges.bind_loop(it.var, const(0, INT64), it.extent)
        first = tuple(simplify(substitute(i, zero), self.ranges) for i in at_b)
        dims: list[int] = []
        left = list(at_a)
        for d in range(len(at_b) - 1, -1, -1):
            moved = simplify(sub(at_b[d], first[d]), ranges)
            if left and simplify(sub(moved, left[-1]), ranges) is const(0, INT64):
                dims.insert(0, d)
                left.pop()
            elif moved is not const(0, INT64):
                raise self.error(f"'{b.name}' is indexed by {at_b[d]}, but '{a.name}' by {', '.join(map(str, at_a))}")
        if left:
            raise self.error(f"'{b.name}' has too few dimensions for '{a.name}'")
        return _Box(b, tuple(dims), first)

    # Building.
    def statements(self, going_on: bool, boxes: dict[Buffer, _Box], start: Stmt | None) -> tuple[Stmt | None, Stmt]:
        """Return the initialization of a reduction (where it continues over outer loops) and the body of the
        intrinsic."""
        given = self.intrin
        whole = given.body if given.body is not None else seq(given.reset, given.update)
        if self.pattern.init is None:
            if start is not None:
                start = (
                    self.target.init if self.target is not self.leaf
                    else _nest([i for i in self.pattern.iters if i.kind != "reduce"], start)
                )
            return start, _bound(whole, boxes)
        if start is not None and not going_on:
            return None, _bound(whole, boxes)
        if given.update is None or (given.reset is None and start is not None):
            raise self.error(
                "its reduction continues over outer loops, so it must return (body, reduce_reset, reduce_update)"
                if start is not None
                else "the program adds to existing values, but the instruction overwrites them")
        return None if start is None or given.reset is None else _bound(given.reset, boxes), _bound(given.update, boxes)


def _loops_around(s: Stmt) -> tuple[list[For], Block] | None:
    """Return the loops from `s` inwards, and the block that they contain; None for other statements."""
    loops: list[For] = []
    while isinstance(s, For):
        loops.append(s)
        s = s.body
    return (loops, s) if isinstance(s, Block) else None


def _one_nest(name: str, s: Stmt, init: Stmt | None = None) -> tuple[list[For], Block] | None:
    """Return a nest of loops, and its body as a block with an axis for each loop; None for other statements.

    `init` is a nest over the loops that are not reduction loops.
    """
    loops: list[For] = []
    while isinstance(s, For):
        loops.append(s)
        s = s.body
    if isinstance(s, Block):
        reducing = {f.var for f in loops if reduces_over(s, f.var)}
        points: dict[PrimExpr, PrimExpr] = {i.var: b for i, b in zip(s.iters, s.bindings, strict=True)}
        init, s = None if s.init is None else substitute_stmt(s.init, points), substitute_stmt(s.body, points)
        firsts: list[For] = []
    else:
        stored = {v for x in walk_stmt(s) if isinstance(x, Store) for i in x.indices for v in free_vars(i)}
        reducing = {f.var for f in loops if f.var not in stored}
        firsts = []
        while isinstance(init, For):
            firsts.append(init)
            init = init.body
    if not all(isinstance(x, (Store, IfThenElse, Let, Seq)) for x in walk_stmt(s)):
        return None
    axes = {f.var: IterVar(Var(f.var.name), f.extent, "reduce" if f.var in reducing else "spatial") for f in loops}
    own: dict[PrimExpr, PrimExpr] = {f.var: add(axes[f.var].var, f.min) for f in loops}
    if init is not None and firsts:
        spatial = [i.var for i in axes.values() if i.kind != "reduce"]
        if len(spatial) != len(firsts):
            return None
        init = substitute_stmt(init, dict(zip((f.var for f in firsts), spatial, strict=True)))
    init = None if init is None else substitute_stmt(init, own)
    bindings = tuple(sub(f.var, f.min) for f in loops)
    return loops, Block(name, tuple(axes.values()), bindings, IntImm(BOOL, 1), init, substitute_stmt(s, own))


def _nest(axes: Sequence[IterVar], body: Stmt) -> Stmt:
    """Wrap a statement of a block in new loops over some of the block's axes."""
    fresh: dict[PrimExpr, PrimExpr] = {}
    loops = [Var(i.var.name) for i in axes]
    fresh.update(zip((i.var for i in axes), loops, strict=True))
    body = substitute_stmt(body, fresh)
    for v, i in zip(reversed(loops), reversed(axes), strict=True):
        body = For(v, const(0, INT64), i.extent, SERIAL, body)
    return body


def _going_on(s: Stmt) -> Stmt:
    """Return `s` without the initialization of its reductions."""
    return replace(s, init=None) if isinstance(s, Block) else map_bodies(s, _going_on) or s


def _unfused(e: PrimExpr) -> PrimExpr:
    """Return `fma(x, y, z)` as a product and a sum."""
    return add(mul(e.args[0], e.args[1]), e.args[2]) if isinstance(e, Call) and e.op is fma else e


def _with_points(s: Stmt, points: dict[PrimExpr, PrimExpr]) -> Stmt:
    memo: dict[PrimExpr, PrimExpr] = {}
    return map_expressions(s, lambda e: substitute(e, points, memo))


def _promises(a: Buffer, box: _Box) -> list[Stmt]:
    """Return checks that the memory of the box has the strides that the buffer declares as numbers."""
    found: list[Stmt] = []
    wanted: PrimExpr = const(1, INT64)
    last = len(box.buffer.shape) - 1
    for k in range(len(a.shape) - 1, -1, -1):
        stride = as_expr(a.strides[k]) if a.strides else wanted
        wanted = mul(wanted, as_expr(a.shape[k]))
        plain = box.dims[k] == last and not box.buffer.strides and isinstance(stride, IntImm) and stride.value == 1
        if isinstance(stride, Var) or plain or (isinstance(a.shape[k], int) and a.shape[k] == 1):
            continue
        found.append(Evaluate(Call("void", expect, (_stride(box, k), stride))))
    return found


def _stride(box: _Box, k: int) -> PrimExpr:
    return Call(INT64, stride_of, (Load(box.buffer, box.first), const(box.dims[k], INT64)))


def _bound(s: Stmt, boxes: dict[Buffer, _Box]) -> Stmt:
    """Return the statements of an intrinsic on the boxes of the program, with new loop variables and the required
    checks."""
    addressed = {e.args[0].buffer for x in walk_stmt(s) for top in expressions(x) for e in walk(top)
                 if isinstance(e, Call) and e.op is address_of
                 if isinstance(e.args[0], Load)}
    promises = [p for a, box in boxes.items() if a.strides or a in addressed for p in _promises(a, box)]
    s = _renewed(s)
    strides: dict[PrimExpr, PrimExpr] = {
        v: _stride(box, k) for a, box in boxes.items() for k, v in enumerate(a.strides) if isinstance(v, Var)}

    def addresses(e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, Call) and e.op is address_of and isinstance(load := e.args[0], Load) and load.buffer in boxes:
            box = boxes[load.buffer]
            sizes: list[PrimExpr] = [const(1, INT64)] * len(box.buffer.shape)
            for d, size in zip(box.dims, e.args[2:], strict=True):
                sizes[d] = size
            return Call(e.dtype, address_of, (Load(box.buffer, box.at(load.indices)), e.args[1], *sizes))
        return strides.get(e)

    def loads(e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, Load) and e.buffer in boxes:
            box = boxes[e.buffer]
            return Load(box.buffer, box.at(e.indices))
        return None

    def stores(x: Stmt) -> Stmt:
        if isinstance(x, Store) and x.buffer in boxes:
            box = boxes[x.buffer]
            return replace(x, buffer=box.buffer, indices=box.at(x.indices))
        return map_bodies(x, stores) or x

    return seq(*promises, stores(map_expressions(s, lambda e: rewrite(rewrite(e, addresses), loads))))


def _renewed(s: Stmt) -> Stmt:
    """Return a copy of `s` with new variables."""
    fresh = {x.var: Var(x.var.name, x.var.dtype) for x in walk_stmt(s) if isinstance(x, (For, Let))}

    def visit(x: Stmt) -> Stmt:
        x = map_bodies(x, visit) or x
        return replace(x, var=fresh[x.var]) if isinstance(x, (For, Let)) else x

    return visit(substitute_stmt(s, fresh))
