"""Add the barriers that threads need where one of them reads what another has stored in memory that they share.

    B[tx] = A[tx]                                B[tx] = A[tx]                       B: shared by threads tx
    C[tx] = B[tx] + B[tx ^ 1]           ->       T.tvm_storage_sync("shared")
                                                 C[tx] = B[tx] + B[tx ^ 1]

A barrier precedes a statement with an access that may touch an element of an earlier access of another thread, if one
of them is a store. Accesses of earlier trips of the loops around count, too. Two accesses with equal indices need none
if each thread has elements of its own, so `B[tx]` alone needs no barrier. A barrier must be reached by all threads: it
is put before a branch that depends on the thread, never inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import CompileError
from tilewright.scalar.arith.iter_map import IterMapLevel, detect_iter_map
from tilewright.scalar.expr import (
    Broadcast,
    Buffer,
    Call,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    Var,
    add,
    mul,
)
from tilewright.scalar.intrinsics import Opaque, call_opaque
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars, rewrite, walk
from tilewright.tir.stmt import (
    THREAD,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    While,
    expressions,
    handed_out,
    map_bodies,
    seq,
    walk_stmt,
)
from tilewright.tir.threads import is_shared_by

BARRIER = "tvm_storage_sync"


def thread_sync(func: PrimFunc, scope: str) -> PrimFunc:
    """Add barriers for memory of a scope: "shared", "shared.dyn" or "warp".

    Raises `CompileError` for another scope, and if a barrier were needed where not all threads arrive.
    """
    if scope.partition(".")[0] not in ("shared", "warp"):
        raise CompileError(
            f"ThreadSync takes the scope 'shared', 'shared.dyn' or 'warp', not '{scope}': no barrier joins the blocks "
            "of threads that share other memory", code="TW0611")
    if not any(isinstance(s, For) and THREAD in s.annotations for s in walk_stmt(func.body)):
        return func.with_body(_Kernel.of(func.body, scope, func).synchronized(func.body))

    def kernels(s: Stmt) -> Stmt:
        if isinstance(s, For) and THREAD in s.annotations:
            return _Kernel.of(s, scope, func).synchronized(s)
        return map_bodies(s, kernels) or s

    return func.with_body(kernels(func.body))


@dataclass(frozen=True, slots=True)
class _Access:
    """A read or a store of a buffer; without `indices`, of any elements. `past` are the loops of which it is in an
    earlier trip than the statements that are searched."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...] | None
    writes: bool
    past: frozenset[Var] = frozenset()


Pending = frozenset[_Access]
"""The accesses since the last barrier."""
_NONE: Pending = frozenset()


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The statements that a block of threads runs. `domain` are the ranges of its loops and threads; the values of
    variables in `private` may differ between threads."""

    scope: str
    func: PrimFunc
    loops: tuple[For, ...]
    domain: dict[Var, Range]
    private: set[Var]
    known: dict[tuple[Buffer, tuple[PrimExpr, ...]], frozenset[Var] | None] = field(default_factory=dict)
    """The variables of indices by which elements are numbered without repetition, or None."""

    @staticmethod
    def of(body: Stmt, scope: str, func: PrimFunc) -> _Kernel:
        loops = tuple(s for s in walk_stmt(body) if isinstance(s, For))
        threads = tuple(f for f in loops if str(f.annotations.get(THREAD, "")).startswith("threadIdx"))
        private = {f.var for f in threads}
        for s in walk_stmt(body):
            if isinstance(s, Let) and _differs(s.value, private):
                private.add(s.var)
        return _Kernel(
            scope, func, threads, {f.var: Range.from_min_extent(f.min, f.extent) for f in loops}, private)

    def synchronized(self, s: Stmt) -> Stmt:
        return self.stmt(s, _NONE)[0]

    # Statements.
    def stmt(self, s: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        """Return a statement with barriers, and the accesses since the last one after it."""
        if isinstance(s, Evaluate) and self.is_barrier(s.value):
            return s, _NONE
        if isinstance(s, Seq):
            return self.sequence(s, pending)
        if isinstance(s, IfThenElse) and _differs(s.condition, self.private):
            return self.together(s, pending)
        if isinstance(s, (For, While)) and any(_differs(e, self.private) for e in expressions(s)):
            return self.together(s, pending)
        own = frozenset(self.accesses(s))
        before: list[Stmt] = []
        if self.clash(pending, own):
            before, pending = [self.barrier()], _NONE
        inner, pending = self.inside(s, pending | own)
        return seq(*before, inner), pending

    def sequence(self, s: Seq, pending: Pending) -> tuple[Stmt, Pending]:
        parts = []
        for x in s.stmts:
            new, pending = self.stmt(x, pending)
            parts.append(new)
        return (s if all(a is b for a, b in zip(parts, s.stmts, strict=True)) else seq(*parts)), pending

    def inside(self, s: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        """Return a statement, the own accesses of which are pending, with barriers in the statements inside."""
        if isinstance(s, IfThenElse):
            then, after = self.stmt(s.then_case, pending)
            other, after_else = (None, pending) if s.else_case is None else self.stmt(s.else_case, pending)
            same = then is s.then_case and other is s.else_case
            return s if same else replace(s, then_case=then, else_case=other), after | after_else
        if isinstance(s, (For, While)) and not (isinstance(s, For) and THREAD in s.annotations):
            return self.loop(s, pending)
        end = pending

        def visit(b: Stmt) -> Stmt:
            nonlocal end
            new, end = self.stmt(b, end)
            return new

        return map_bodies(s, visit) or s, end

    def loop(self, s: For | While, pending: Pending) -> tuple[Stmt, Pending]:
        """Return a loop with barriers; accesses at the end of a trip are pending at the beginning of the next one."""
        own = frozenset((s.var,)) if isinstance(s, For) else frozenset[Var]()
        carried = _NONE
        while True:
            body, end = self.stmt(s.body, pending | carried)
            again = frozenset(replace(a, past=a.past | own) for a in end)
            if again <= carried:
                break
            carried |= again
        runs = isinstance(s, For) and isinstance(s.extent, IntImm) and s.extent.value > 0
        after = frozenset(replace(a, past=a.past - own) for a in (end if runs else end | pending))
        return s if body is s.body else replace(s, body=body), after

    def together(self, s: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        """Return a statement in which not all threads do the same, with a barrier before it if it needs one."""
        inner = frozenset(a for x in walk_stmt(s) for a in self.accesses(x))
        if self.inside(s, frozenset(self.accesses(s)))[0] is not s:
            raise CompileError(
                f"function '{self.func.name}' needs a barrier inside a branch or a loop that depends on the thread, "
                f"which not all threads reach:\n{s}", self.func.origin, code="TW0611")
        if self.clash(pending, inner):
            return seq(self.barrier(), s), inner
        return s, pending | inner

    def barrier(self) -> Stmt:
        return Evaluate(call_opaque(BARRIER, self.scope))

    def is_barrier(self, e: PrimExpr) -> bool:
        if not isinstance(e, Call) or not isinstance(e.op, Opaque) or e.op.spelling != BARRIER:
            return False
        return any(text.partition(".")[0] == self.scope.partition(".")[0] for _, text in e.op.texts)

    # Accesses.
    def accesses(self, s: Stmt) -> Iterator[_Access]:
        """Yield the accesses of a statement itself to memory of the scope."""
        for top in expressions(s):
            passed = {*handed_out(top)}
            for b in passed:
                if b.scope == self.scope:
                    yield _Access(b, None, b in handed_out(top, writes=True))
            for e in walk(top):
                if isinstance(e, Load) and e.buffer.scope == self.scope and e.buffer not in passed:
                    yield _Access(e.buffer, e.indices, False)
        if isinstance(s, Store) and s.buffer.scope == self.scope:
            yield _Access(s.buffer, s.indices, True)

    def clash(self, before: Pending, after: Pending) -> bool:
        """Return whether an access may touch an element of an earlier access of another thread, and one is a store."""
        return any(
            a.buffer is b.buffer and (a.writes or b.writes) and not self.apart(a, b) for a in before for b in after)

    def apart(self, a: _Access, b: _Access) -> bool:
        """Return whether two accesses of different threads touch different elements."""
        if a.indices is None or b.indices is None or not all(
                x is y for x, y in zip(a.indices, b.indices, strict=True)):
            return False
        key = a.buffer, a.indices
        if key not in self.known:
            self.known[key] = self.numbered(a.indices)
        variables = self.known[key]
        if variables is None:
            return False
        threads = {f.var for f in self.loops if is_shared_by(a.buffer, f)}
        return threads <= variables or not variables.isdisjoint(a.past ^ b.past)

    def numbered(self, indices: Sequence[PrimExpr]) -> frozenset[Var] | None:
        """Return the variables of indices if no two combinations of their values give the same element, else None."""
        lanes = list[Var]()
        plain = [_in_lanes(i, lanes) for i in indices]
        found = {v for i in plain for v in free_vars(i)}
        used = {v: self.domain[v] for v in found if v in self.domain}
        used |= {lane: Range(max(i.dtype.lanes for i in indices)) for lane in lanes}
        unknown = (found & self.private) - self.domain.keys()
        if unknown or any(isinstance(e, Load) for i in plain for e in walk(i)):
            return None
        if used and not detect_iter_map(plain, used, True, IterMapLevel.Bijective).indices:
            return None
        return frozenset(used)


def _differs(e: PrimExpr | Sequence[PrimExpr], private: set[Var]) -> bool:
    """Return whether the value of an expression may differ between threads."""
    tops = (e,) if isinstance(e, PrimExpr) else e
    return any(isinstance(x, Load) or x in private for top in tops for x in walk(top) if isinstance(x, (Load, Var)))


def _in_lanes(index: PrimExpr, lanes: list[Var]) -> PrimExpr:
    """Return an index of a vector as that of a lane, the variable in `lanes`."""
    if index.dtype.lanes == 1:
        return index
    if not lanes:
        lanes.append(Var("lane"))

    def rule(e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, Ramp):
            return add(e.base, mul(lanes[0], e.stride))
        return e.value if isinstance(e, Broadcast) else None

    return rewrite(index, rule)


__all__ = ["thread_sync"]
