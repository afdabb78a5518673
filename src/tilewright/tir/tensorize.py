"""Hardware instructions and functions in place of loops.

    for i in range(16):                                for i_0 in range(16):
        for j in range(32):                                for j_0 in range(2):
            for k in range(64): C[i, j] += …       ->          gemv(C[i_0, j_0 * 16:…], A[i_0, :], B[j_0 * 16:…, :])

An instruction is a block, which says what it computes, and statements that do it. The loops to be replaced must do just
that: the block inside them is compared with the instruction's, expression by expression, and each buffer of the
instruction becomes a box of one of the program, found from how the loops index it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.arith import Ranges, bounds, prove, simplify
from tilewright.arith.solve import conjuncts
from tilewright.errors import ScheduleError
from tilewright.expr import (
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
    address_of,
    all_of,
    as_expr,
    const,
    expect,
    mul,
    stride_of,
    sub,
)
from tilewright.expr_walk import free_vars, rewrite, substitute
from tilewright.node import node
from tilewright.tir.stmt import SERIAL, Block, Evaluate, For, IfThenElse, Let, Seq, Stmt, Store, map_bodies, map_expressions, seq
from tilewright.types import INT64


@node
class TensorIntrin:
    """`pattern` says what the instruction computes. `body` does it; with `reset` and `update`, a reduction can go on."""

    name: str
    pattern: Block
    body: Stmt | None
    reset: Stmt | None = None
    update: Stmt | None = None

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"


Pair = tuple[Buffer, tuple[PrimExpr, ...], Buffer, tuple[PrimExpr, ...]]
"""A buffer of the instruction with an index, and what stands at the same place in the program."""


@dataclass(frozen=True, slots=True)
class _Box:
    """Where a buffer of the instruction is: `dims[k]` of `buffer` is its dimension k, and `first` its first element."""

    buffer: Buffer
    dims: tuple[int, ...]
    first: tuple[PrimExpr, ...]

    def at(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        place = list(self.first)
        for d, i in zip(self.dims, indices, strict=True):
            place[d] = add(place[d], i)
        return tuple(place)


def tensorize(loop: For, outer: Ranges, intrin: TensorIntrin) -> Block:
    """The block that stands for `loop` and all in it; `outer` are the ranges of the loops around. Raises `ScheduleError`."""
    return _Match(loop, outer, intrin).block()


class _Match:
    def __init__(self, loop: For, outer: Ranges, intrin: TensorIntrin) -> None:
        self.loop, self.intrin, self.pattern = loop, intrin, intrin.pattern
        self.ranges, self.inner = outer, list[For]()
        s: Stmt = loop
        while isinstance(s, For):
            self.inner.append(s)
            self.ranges = self.ranges.bind_loop(s.var, s.min, s.extent)
            s = s.body
        if not isinstance(s, Block):
            raise self.error("there is more than one computation in the loop")
        self.target = s
        for f in self.inner:
            if f.kind != SERIAL or not isinstance(f.extent, IntImm):
                raise self.error(f"loop '{f.var.name}' is {f.kind} with {f.extent} trips, and an instruction takes serial loops of constant extents")

    def error(self, why: str) -> ScheduleError:
        return ScheduleError(
            f"'{self.intrin.name}' cannot stand for loop '{self.loop.var.name}': {why}. The instruction computes\n{self.pattern}\nThe loops there:\n{self.loop}"
        )

    def block(self) -> Block:
        zero: dict[PrimExpr, PrimExpr] = {f.var: f.min for f in self.inner}
        first = [simplify(substitute(b, zero), self.ranges) for b in self.target.bindings]
        points = self.axes(first)
        predicate = self.predicate()
        pairs: list[Pair] = []
        if not self.same_stmt(self.pattern.body, _with_points(self.target.body, points), pairs):
            raise self.error("they compute something else")
        boxes = self.boxes(pairs)
        going_on = any(it.kind == "reduce" and not isinstance(b, IntImm) for it, b in zip(self.target.iters, first, strict=True))
        init, body = self.statements(going_on, boxes)
        kept = [(it, b) for it, b in zip(self.target.iters, first, strict=True) if init is not None or it.kind == "spatial"]
        if init is None:
            fixed: dict[PrimExpr, PrimExpr] = {it.var: b for it, b in zip(self.target.iters, first, strict=True) if it.kind == "reduce"}
            body = map_expressions(body, lambda e: substitute(e, fixed))
        notes = {k: v for k, v in self.target.annotations.items() if k != "combiner"}
        return replace(
            self.target, iters=tuple(it for it, _ in kept), bindings=tuple(b for _, b in kept), predicate=predicate, init=init, body=body, annotations=notes,
        )

    def axes(self, first: Sequence[PrimExpr]) -> dict[PrimExpr, PrimExpr]:
        """For each axis of the program its value inside the instruction; what it is at the start stays its name."""
        points: dict[PrimExpr, PrimExpr] = {}
        wanted = list(self.pattern.iters)
        covered = 1
        for it, binding, start in reversed(list(zip(self.target.iters, self.target.bindings, first, strict=True))):
            local = simplify(sub(binding, start), self.ranges)
            low, high = bounds(local, self.ranges)
            if low != 0 or high is None or any(v not in [f.var for f in self.inner] for v in free_vars(local)):
                raise self.error(f"axis '{it.var.name}' does not move by itself in there: {binding}")
            covered *= high + 1
            size = as_expr(wanted[-1].extent) if wanted else None
            if isinstance(size, IntImm) and size.value == high + 1 and wanted[-1].kind == it.kind:
                points[it.var] = add(it.var, wanted.pop().var)
            elif high != 0:
                shown = f"'{wanted[-1].var.name}' of {wanted[-1].extent}" if wanted else "nothing"
                raise self.error(f"axis '{it.var.name}' runs over {high + 1}, and {shown} is expected")
        if wanted:
            raise self.error(f"axis '{wanted[-1].var.name}' of {wanted[-1].extent} is missing")
        trips = 1
        for f in self.inner:
            trips *= int(f.extent)  # type: ignore[call-overload]
        if trips != covered:
            raise self.error(f"they make {trips} trips for {covered} points")
        return points

    def predicate(self) -> PrimExpr:
        """What guards the whole instruction; raises where it guards a part of it."""
        mine = {f.var for f in self.inner}
        axes: dict[PrimExpr, PrimExpr] = {it.var: b for it, b in zip(self.target.iters, self.target.bindings, strict=True)}
        kept = []
        for c in conjuncts(self.target.predicate):
            if not any(v in mine for v in free_vars(substitute(c, axes))):
                kept.append(c)
            elif prove(simplify(substitute(c, axes), self.ranges), self.ranges) is not True:
                raise self.error(f"a split leaves a rest there, where {c} fails; split by a factor of the extent")
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
                return len(a.stmts) == len(b.stmts) and all(self.same_stmt(x, y, pairs) for x, y in zip(a.stmts, b.stmts, strict=True))
            case Let(), Let():
                renamed = _with_points(b.body, {b.var: a.var})
                return a.var.dtype is b.var.dtype and self.same(a.value, b.value, pairs) and self.same_stmt(a.body, renamed, pairs)
            case _:
                return False

    def same(self, a: PrimExpr, b: PrimExpr, pairs: list[Pair]) -> bool:
        """Whether two expressions are the same but for their buffers, which are noted."""
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
        elif isinstance(a, Call) and a.op.name == "fma":
            orders.append((y[1], y[0], y[2]))
        for order in orders:
            known = len(pairs)
            if len(x) == len(order) and all(self.same(p, q, pairs) for p, q in zip(x, order, strict=True)) and self.agree(pairs):
                return True
            del pairs[known:]
        return isinstance(a, (Binary, Cast)) and a.dtype.is_integer and simplify(sub(a, b), self.ranges) is const(0, a.dtype)

    def agree(self, pairs: Sequence[Pair]) -> bool:
        """Whether no buffer of the instruction stands for two."""
        found: dict[Buffer, Buffer] = {}
        return all(found.setdefault(a, b) is b and a.dtype is b.dtype for a, _, b, _ in pairs)

    def boxes(self, pairs: Sequence[Pair]) -> dict[Buffer, _Box]:
        found: dict[Buffer, _Box] = {}
        for a, at_a, b, at_b in pairs:
            box = self.box(a, at_a, b, at_b)
            known = found.setdefault(a, box)
            if (known.buffer, known.dims, known.first) != (box.buffer, box.dims, box.first):
                raise self.error(f"its buffer '{a.name}' stands for different parts of '{b.name}'")
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
                raise self.error(f"'{b.name}' is indexed by {at_b[d]}, and '{a.name}' by {', '.join(map(str, at_a))}")
        if left:
            raise self.error(f"'{b.name}' has too few dimensions for '{a.name}'")
        return _Box(b, tuple(dims), first)

    # Building.
    def statements(self, going_on: bool, boxes: dict[Buffer, _Box]) -> tuple[Stmt | None, Stmt]:
        """What starts a reduction (for one that goes on over loops outside) and what the instruction does."""
        given = self.intrin
        promises = [p for a, box in boxes.items() for p in _promises(a, box)]
        if not going_on or self.pattern.init is None:
            whole = given.body if given.body is not None else seq(given.reset, given.update)
            return None, seq(*promises, _bound(whole, boxes))
        if given.reset is None or given.update is None:
            raise self.error("its reduction goes on over loops outside, so it must return (body, reduce_reset, reduce_update)")
        return _bound(given.reset, boxes), seq(*promises, _bound(given.update, boxes))


def _with_points(s: Stmt, points: dict[PrimExpr, PrimExpr]) -> Stmt:
    memo: dict[PrimExpr, PrimExpr] = {}
    return map_expressions(s, lambda e: rewrite(e, points.get, memo))


def _promises(a: Buffer, box: _Box) -> list[Stmt]:
    """That the memory of the box is laid out as the buffer is declared, for the strides that it declares as numbers."""
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
    """The statements of an instruction over the boxes of the program."""
    strides: dict[PrimExpr, PrimExpr] = {
        v: _stride(box, k) for a, box in boxes.items() for k, v in enumerate(a.strides) if isinstance(v, Var)
    }

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

    return stores(map_expressions(s, lambda e: rewrite(rewrite(e, addresses), loads)))



