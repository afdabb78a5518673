"""Turn vectorized loops into vector expressions.

    for j in T.vectorized(8):          ->      B[T.ramp(i * 8, 1, 8)] = A[T.ramp(i * 8, 1, 8)] + T.broadcast(1.0, 8)
        B[i * 8 + j] = A[i * 8 + j] + 1.0

A lane-dependent `if` becomes the mask of the stores inside. Loads that could be out of bounds where the condition is
false are guarded by it. Allocated memory must be flat. A statement without a vector form (a nested vectorized loop,
lane-dependent bounds, a side effect) becomes a serial loop over the lanes of that statement alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.errors import ScheduleError
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import as_ramp, form_of, is_index, prove, simplify
from tilewright.scalar.expr import (
    And,
    Broadcast,
    Buffer,
    Call,
    Load,
    Or,
    PrimExpr,
    Ramp,
    Select,
    add,
    as_expr,
    broadcast,
    const,
    if_then_else,
    logical_and,
    logical_not,
    mul,
    number_of,
)
from tilewright.scalar.intrinsics import Extern
from tilewright.scalar.walk import rewrite, shared_choices, walk
from tilewright.tir.stmt import (
    SERIAL,
    VECTORIZED,
    Allocate,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    expressions,
    map_bodies,
    map_expressions,
    seq,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.loop_facts import inside, trips


def vectorize_loops(func: PrimFunc) -> PrimFunc:
    """Replace the vectorized loops of `func`. Raises `ScheduleError` for a reduction across lanes."""
    return func.with_body(_stmt(func.body, Ranges()))


def _stmt(s: Stmt, ranges: Ranges) -> Stmt:
    if isinstance(s, For):
        within = inside(s, ranges)
        body = _stmt(s.body, within)
        return replace(s, body=body) if s.kind != VECTORIZED else _vectorized(replace(s, body=body), ranges)
    return map_bodies(s, lambda x: _stmt(x, ranges)) or s


def _vectorized(loop: For, ranges: Ranges) -> Stmt:
    span = trips(loop)
    if span is None:
        raise ScheduleError(
            f"the vectorized loop '{loop.var.name}' has {loop.extent} iterations, which is not a "
            "constant; split it by a constant first", loop.origin
        )
    if span.start:
        loop = replace(
            loop, min=const(0, loop.var.dtype), body=substitute_stmt(loop.body, {loop.var: add(loop.var, span.start)}))
    if len(span) < 2:
        return substitute_stmt(loop.body, {loop.var: loop.min}) if span else Seq(())
    body, vectorizer = _privatize(loop), _Vectorizer(loop, ranges)
    return replace(loop, kind=SERIAL, body=body) if vectorizer.carries(body) else vectorizer.stmt(body, None)


def _privatize(loop: For) -> Stmt:
    """Return the body of `loop` with a separate copy for every lane of the buffers allocated inside."""
    lanes = loop.extent
    private: dict[Buffer, Buffer] = {}
    for s in walk_stmt(loop.body):
        if isinstance(s, Allocate):
            shape = (mul(as_expr(s.buffer.shape[0]), lanes),)
            private[s.buffer] = Buffer(s.buffer.name, shape, s.buffer.dtype, s.buffer.scope)
    if not private:
        return loop.body
    memo: dict[PrimExpr, PrimExpr] = {}

    def place(i: PrimExpr) -> PrimExpr:
        return add(mul(i, lanes), loop.var)

    def rule(e: PrimExpr) -> PrimExpr | None:
        return Load(private[e.buffer], (place(e.indices[0]),)) if isinstance(e, Load) and e.buffer in private else None

    def move(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.buffer in private:
            return replace(s, buffer=private[s.buffer], indices=(place(s.indices[0]),))
        inner = map_bodies(s, move) or s
        return replace(inner, buffer=private[inner.buffer]) if isinstance(inner, Allocate) else inner

    return move(map_expressions(loop.body, lambda e: rewrite(e, rule, memo)))


class _NoVector(Exception):
    """Raised for a statement without a vector form; the handler makes it a serial loop."""


class _Vectorizer:
    """Converts the body of one loop to vector form."""

    def __init__(self, loop: For, ranges: Ranges) -> None:
        self.loop, self.lane, self.lanes = loop, loop.var, len(trips(loop) or ())
        self.ranges = ranges.bind(loop.var, 0, self.lanes - 1)
        self.varies: dict[PrimExpr, bool] = {}
        self.memo: dict[tuple[PrimExpr, PrimExpr | None], PrimExpr] = {}
        self.around: dict[PrimExpr, PrimExpr | None] = {}
        """The enclosing mask of each mask of a choice."""

    def carries(self, body: Stmt) -> bool:
        """Return whether each lane depends on the previous one: all lanes add to one element that other statements also
        use."""
        sums = {
            s.buffer: s for s in walk_stmt(body)
            if isinstance(s, Store) and not any(map(self.depends, s.indices)) and s.buffer in _reads(s.value)}
        return bool(sums) and any(
            s is not one and ((isinstance(s, Store) and s.buffer is b) or any(b in _reads(e) for e in expressions(s)))
            for b, one in sums.items() for s in walk_stmt(body))

    # Statements. `mask` is the scalar condition on the lane under which `s` runs.
    def stmt(self, s: Stmt, mask: PrimExpr | None) -> Stmt:
        try:
            return self.vector_stmt(s, mask)
        except _NoVector:
            return replace(self.loop, kind=SERIAL, body=s if mask is None else IfThenElse(mask, s))

    def vector_stmt(self, s: Stmt, mask: PrimExpr | None) -> Stmt:
        match s:
            case Store():
                return self.store(s, mask)
            case Seq():
                return seq(*(self.stmt(x, mask) for x in s.stmts))
            case IfThenElse():
                return self.branch(s, mask)
            case For() if s.kind != VECTORIZED and not self.depends(s.min) and not self.depends(s.extent):
                inner, self.ranges = self.ranges, inside(s, self.ranges)
                body = self.stmt(s.body, mask)
                self.ranges = inner
                return replace(s, body=body)
            case Allocate():
                return replace(s, body=self.stmt(s.body, mask))
            case Let() if not self.depends(s.value):
                return replace(s, body=self.stmt(s.body, mask))
            case Evaluate() if mask is None and not self.depends(s.value) and not _has_effect(s.value):
                return s
            case _:
                raise _NoVector

    def branch(self, s: IfThenElse, mask: PrimExpr | None) -> Stmt:
        condition = simplify(s.condition, self.ranges)
        known = number_of(condition)
        if known is not None:
            chosen = s.then_case if known else s.else_case
            return Seq(()) if chosen is None else self.stmt(chosen, mask)
        if not self.depends(condition):
            return IfThenElse(
                condition, self.stmt(s.then_case, mask), None if s.else_case is None else self.stmt(s.else_case, mask))
        if s.else_case is not None and _stores_to(s.then_case) & _reads(condition):
            raise _NoVector
        then = self.stmt(s.then_case, condition if mask is None else logical_and(mask, condition))
        if s.else_case is None:
            return then
        opposite = logical_not(condition)
        return seq(then, self.stmt(s.else_case, opposite if mask is None else logical_and(mask, opposite)))

    def store(self, s: Store, mask: PrimExpr | None) -> Stmt:
        if s.mask is not None or s.value.dtype.lanes > 1 or any(i.dtype.lanes > 1 for i in s.indices):
            raise _NoVector
        indices = self.simplified(s.indices)
        if not any(map(self.depends, indices)):
            return self.invariant_store(s, mask)
        for x in _loads(s.value):
            if x.buffer is s.buffer and any(
                    a is not b for a, b in zip(self.simplified(x.indices), indices, strict=True)):
                raise _NoVector
        value = broadcast(self.vector(s.value, mask), self.lanes)
        lanes = None if mask is None else broadcast(self.vector(mask, None), self.lanes)
        return Store(s.buffer, value, self.places(indices, None), lanes)

    def simplified(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        return tuple(simplify(i, self.ranges) for i in indices)

    def places(self, indices: Sequence[PrimExpr], mask: PrimExpr | None) -> tuple[PrimExpr, ...]:
        """Return the indices in all lanes. The last one is a vector, and others are if they differ between lanes."""
        *outer, last = (self.vector(i, mask) for i in indices)
        return (*outer, broadcast(last, self.lanes))

    def invariant_store(self, s: Store, mask: PrimExpr | None) -> Stmt:
        """Vectorize a store of all lanes to one element."""
        own = any(x.buffer is s.buffer for x in _loads(s.value))
        if mask is not None or (own and not self.depends(s.value)):
            raise _NoVector
        if self.depends(s.value):
            raise ScheduleError(
                f"the vectorized loop '{self.lane.name}' writes one element of '{s.buffer.name}' from all of its "
                f"{self.lanes} lanes; vectorize a loop that indexes '{s.buffer.name}', or split the reduction with "
                "rfactor",
                self.loop.origin)
        return s

    # Expressions.
    def depends(self, e: PrimExpr) -> bool:
        """Return whether `e` differs between lanes."""
        known = self.varies.get(e)
        if known is None:
            known = self.varies[e] = e is self.lane or any(self.depends(x) for x in e.operands())
        return known

    def within(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> bool:
        """Return whether the indices are in bounds in all lanes."""
        ends = [bounds(i, self.ranges) for i in indices]
        return all(
            isinstance(size, int) and lo is not None and hi is not None and lo >= 0 and hi < size
            for (lo, hi), size in zip(ends, buffer.shape, strict=True))

    def vector(self, e: PrimExpr, mask: PrimExpr | None) -> PrimExpr:
        """Return `e` in all lanes (a scalar if all are equal); loads are guarded by `mask` if necessary."""
        if not self.depends(e):
            return e
        known, outer = self.memo.get((e, mask)), mask
        while known is None and outer is not None:  # a value computed under a wider mask can be reused
            outer = self.around.get(outer)
            known = self.memo.get((e, outer))
        if known is None:
            known = self.memo[e, mask] = self.vector_of(e, mask)
        return known

    def vector_of(self, e: PrimExpr, mask: PrimExpr | None) -> PrimExpr:
        if isinstance(e, (Ramp, Broadcast)) or e.dtype.lanes > 1 or _has_effect(e):
            raise _NoVector
        if is_index(e.dtype) and not isinstance(e, (Load, Call)):
            ramp = as_ramp(form_of(e, self.ranges), self.lanes, e.dtype, self.lane)
            if ramp is not None and not (isinstance(ramp, Broadcast) and self.depends(ramp.value)):
                return ramp
        if isinstance(e, Select):
            return self.select(e, mask)
        if isinstance(e, Load):
            return self.load(e, mask)
        if isinstance(e, (And, Or)):  # the first operand determines the lanes in which the second is read
            undecided = e.a if isinstance(e, And) else logical_not(e.a)
            return e.with_operands(
                [self.vector(e.a, mask), self.vector(e.b, undecided if mask is None else logical_and(mask, undecided))])
        return e.with_operands([self.vector(x, mask) for x in e.operands()])

    def load(self, e: Load, mask: PrimExpr | None) -> PrimExpr:
        indices = self.simplified(e.indices)
        loaded = Load(e.buffer, self.places(indices, mask))
        if mask is None or self.within(e.buffer, indices):
            return loaded
        return if_then_else(broadcast(self.vector(mask, None), self.lanes), loaded, const(0, loaded.dtype))

    def select(self, e: Select, mask: PrimExpr | None) -> PrimExpr:
        condition = simplify(e.condition, self.ranges)
        decided = prove(condition, self.ranges)
        if decided is not None:
            return self.vector(e.true_value if decided else e.false_value, mask)
        test = broadcast(self.vector(condition, mask), self.lanes)
        for x in shared_choices(e.true_value, e.false_value):
            self.vector(x, mask)
        yes, no = (
            self.vector(value, self.inner_mask(mask, where))
            for value, where in ((e.true_value, condition), (e.false_value, logical_not(condition))))
        if isinstance(yes, Select) and yes.condition is test:
            yes = yes.true_value
        return if_then_else(test, yes, no)


    def inner_mask(self, mask: PrimExpr | None, condition: PrimExpr) -> PrimExpr:
        """Return the mask of one side of a choice made under `mask`."""
        if mask is None:
            return condition
        inner = logical_and(mask, condition)
        if inner is not mask:
            self.around.setdefault(inner, mask)
        return inner


def _loads(e: PrimExpr) -> list[Load]:
    return [x for x in walk(e) if isinstance(x, Load)]


def _reads(e: PrimExpr) -> set[Buffer]:
    return {x.buffer for x in _loads(e)}


def _stores_to(s: Stmt) -> set[Buffer]:
    return set(stored_buffers(s))


def _has_effect(e: PrimExpr) -> bool:
    return isinstance(e, Call) and (e.op.effect or isinstance(e.op, Extern))

