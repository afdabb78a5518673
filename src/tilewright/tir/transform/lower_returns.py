"""Replaces `T.ret` by a store of the result, after which nothing else runs.

    for i in T.serial(8):                        returned[0] = 0
        if A[i] < 0:                             for i in T.serial(8):
            T.ret(i)                    ->           if returned[0] == 0:
    T.ret(-1)                                            if A[i] < 0:
                                                             result[0] = i
                                                             returned[0] = 1
                                                 if returned[0] == 0:
                                                     result[0] = -1
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.errors import CompileError
from tilewright.scalar.expr import EQ, Buffer, Call, Load, cast, compare, const
from tilewright.scalar.intrinsics import ret
from tilewright.tir.stmt import (
    PARALLEL,
    RESULT,
    Allocate,
    Block,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    map_bodies,
    seq,
    walk_stmt,
)


def lower_returns(func: PrimFunc) -> PrimFunc:
    """Make the result of a function its last parameter, a buffer of one element, which is also the attribute `RESULT`.

    Needs a program without blocks. Raises `CompileError` for results of several types, and for a `T.ret` in a parallel
    loop.
    """
    kinds = {x.value.dtype for x in walk_stmt(func.body) if isinstance(x, Evaluate) and _is_return(x)}
    if not kinds:
        return func
    if len(kinds) > 1:
        raise CompileError(
            f"'{func.name}' returns values of different types: {', '.join(sorted(map(str, kinds)))}; cast them to one",
            code="TW0611")
    for x in walk_stmt(func.body):
        if (isinstance(x, Block) or (isinstance(x, For) and x.kind == PARALLEL)) and _may_return(x):
            what = "a block" if isinstance(x, Block) else f"the parallel loop '{x.var.name}'"
            raise CompileError(
                f"'{func.name}' has a T.ret in {what}; store the value in a buffer, and return it after that",
                code="TW0611")
    result = Buffer("result", (1,), kinds.pop())
    lowering = _Lowering(result)
    body = lowering.then(func.body, None)
    if lowering.is_flagged:
        body = Allocate(lowering.flag, seq(Store(lowering.flag, const(0, "int32"), (const(0, "int64"),)), body))
    return replace(func, params=(*func.params, result), body=body, attrs={**func.attrs, RESULT: result})


class _Lowering:
    """The stores of one function. `flag` is 1 after a return; only `is_flagged` functions need it."""

    def __init__(self, result: Buffer) -> None:
        self.result, self.flag, self.is_flagged = result, Buffer("returned", (1,), "int32", "local"), False

    def then(self, s: Stmt, rest: Stmt | None) -> Stmt:
        """Return `s`, then `rest` unless `s` returned; `rest` has no returns left."""
        if not _may_return(s):
            return seq(s, rest)
        match s:
            case Evaluate():
                return self.stored(s)
            case Seq():
                for x in reversed(s.stmts):
                    rest = self.then(x, rest)
                return seq(rest)
            case Let() | Allocate():
                return replace(s, body=self.then(s.body, rest))
            case IfThenElse():
                other = Seq(()) if s.else_case is None else s.else_case
                if _returns(s.then_case) or _returns(other) or rest is None:
                    first = self.then(s.then_case, None if _returns(s.then_case) else rest)
                    second = self.then(other, None if _returns(other) else rest)
                    return IfThenElse(s.condition, first, None if s.else_case is None and second is other else second)
            case _:
                pass
        return seq(self.flagged(s), None if rest is None else self.guarded(rest))

    def flagged(self, s: Stmt) -> Stmt:
        """Return `s`, which sets the flag where it returns."""
        self.is_flagged = True
        if not _may_return(s):
            return s
        if isinstance(s, Evaluate):
            return seq(self.stored(s), Store(self.flag, const(1, "int32"), (const(0, "int64"),)))
        if isinstance(s, For):
            return replace(s, body=self.guarded(self.flagged(s.body)))
        if isinstance(s, Seq):
            done: Stmt | None = None
            for x in reversed(s.stmts):
                done = seq(self.flagged(x), self.guarded(done) if done is not None and _may_return(x) else done)
            return seq(done)
        return map_bodies(s, self.flagged) or s

    def guarded(self, s: Stmt) -> Stmt:
        """Return `s` under the condition that nothing returned before."""
        self.is_flagged = True
        return IfThenElse(compare(EQ, Load(self.flag, (const(0, "int64"),)), 0), s)

    def stored(self, s: Evaluate) -> Stmt:
        call = s.value
        assert isinstance(call, Call)
        return Store(self.result, cast(call.dtype, call.args[0]), (const(0, "int64"),))


def _is_return(s: Stmt) -> bool:
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op is ret


def _may_return(s: Stmt) -> bool:
    return any(_is_return(x) for x in walk_stmt(s))


def _returns(s: Stmt) -> bool:
    """Return whether a statement always returns."""
    match s:
        case Seq():
            return any(map(_returns, s.stmts))
        case IfThenElse():
            return s.else_case is not None and _returns(s.then_case) and _returns(s.else_case)
        case Let() | Allocate():
            return _returns(s.body)
        case _:
            return _is_return(s)
