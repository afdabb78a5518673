"""Loops as tail-recursive functions, which compiled programs run in one frame (`compiler/flow.py`).

    while_loop(lambda i, s: less(i, n), [i, s], lambda i, s: [add(i, 1), add(s, x)])
    ->  let %while_loop = fn (%i, %s) {
          if (less(%i, n)) { %while_loop(add(%i, 1), add(%s, x)) } else { (%i, %s) }
        }; %while_loop

`Loop` builds loops with a counter and gathered outputs: each iteration writes a row into one tensor in place
(`write_row`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ShapeError
from tilewright.base.types import FuncType, OpenSize, TensorType, TupleType
from tilewright.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var, const
from tilewright.relay.op.create import Zeros
from tilewright.relay.op.registry import get


def while_loop(cond: Callable[..., Expr], loop_vars: Sequence[Expr],
               loop_bodies: Callable[..., Sequence[Expr]]) -> Expr:
    """Return a function from the first to the last values of `loop_vars`, as a tuple: TVM's `relay.loops.while_loop`.

    `loop_vars` are variables, or values that give the variables their types. `cond` returns whether another iteration
    follows; `loop_bodies` returns the next values. Raises `ShapeError` where a type changes.
    """
    params = [Var(v.name_hint if isinstance(v, Var) else f"arg{k}", v.checked_type) for k, v in enumerate(loop_vars)]
    return _loop(params, cond(*params), loop_bodies(*params))


def _loop(params: Sequence[Var], cond: Expr, again: Sequence[Expr]) -> Expr:
    types = [p.checked_type for p in params]
    for p, new in zip(params, again, strict=True):
        if new.checked_type != p.checked_type:
            raise ShapeError(f"loop variable '{p.name_hint}' has type {p.checked_type!r} before an iteration, and "
                             f"{new.checked_type!r} after it; its type must stay the same")
    result = TupleType(types)
    loop = Var("while_loop", FuncType(types, result))
    return Let(loop, Function(params, If(cond, Call(loop, again), Tuple(tuple(params))), result), loop)


@dataclass(frozen=True, slots=True)
class Turn:
    """The results of one iteration: the next states, a row for each gathered tensor, and whether another iteration
    follows.
    """

    states: Sequence[Expr]
    rows: Sequence[Expr] = ()
    going: Expr | None = None


class Loop:
    """A loop inside a scope. `outside` names the values that an iteration uses, so that they are computed once before
    the loop.
    """

    def __init__(self) -> None:
        self._outside: dict[Expr, Var] = {}

    def outside(self, e: Expr) -> Expr:
        """Return `e`, computed before the loop, for use in an iteration."""
        if isinstance(e, (Var, Constant)) or (isinstance(e, Tuple) and not e.fields):
            return e
        if isinstance(e, Tuple):
            return Tuple(tuple(map(self.outside, e.fields)), e.span)
        return self._outside.setdefault(e, Var(f"outer{len(self._outside)}", e.checked_type))

    def run(
        self, count: int | Expr | None, states: Sequence[Expr], turn: Callable[[Expr, Sequence[Expr]], Turn],
        reverse: Sequence[bool] = (),
        going: Expr | None = None,
    ) -> tuple[Expr, list[Expr], list[Expr]]:
        """Return the number of iterations, the last states, and the gathered tensors, each with a new first dimension
        of `count`.

        The loop runs at most `count` iterations (an int, an int64 scalar, or None for no limit) while `going`, a bool
        scalar, and then that of each iteration is true. `turn(i, states)` receives the iteration number, an int64
        scalar; `count` is an int if it gathers. `reverse` selects the tensors that are filled from their end. Raises
        `ShapeError` where a state changes its type.
        """
        number = Var("i", TensorType((), "int64"))
        params = [Var(f"state{k}", s.checked_type) for k, s in enumerate(states)]
        done = turn(number, params)
        flags = [] if going is None and done.going is None else [Var("going", TensorType((), "bool"))]
        kinds = [TensorType((count, *r.tensor_type.shape), r.tensor_type.dtype) for r in done.rows]
        buffers = [Var(f"rows{k}", t) for k, t in enumerate(kinds)]
        conds: list[Expr] = [*([] if count is None else [get("less")()(number, self.outside(_int64(count)))]), *flags]
        cond = conds[0] if len(conds) == 1 else get("logical_and")()(*conds) if conds else const(True)
        written = []
        for k, (buffer, row) in enumerate(zip(buffers, done.rows, strict=True)):
            place = (get("subtract")()(self.outside(_int64(kinds[k].shape[0] - 1)), number)
                     if k < len(reverse) and reverse[k] else number)
            written.append(get("write_row")()(buffer, row, place))
        more = [done.going if done.going is not None else f for f in flags]
        whole = _loop([number, *params, *buffers, *flags], cond,
                      [get("add")()(number, _int64(1)), *done.states, *written, *more])
        empty = [Zeros(t.shape, t.dtype)() for t in kinds]
        result: Expr = Call(whole,
                            [_int64(0), *states, *empty, *(going if going is not None else const(True) for _ in flags)])
        for e, v in reversed(self._outside.items()):
            result = Let(v, e, result)
        last: list[Expr] = [TupleGetItem(result, k) for k in range(1 + len(states) + len(kinds))]
        return last[0], last[1 : 1 + len(states)], last[1 + len(states) :]


def _int64(value: Any) -> Expr:
    """Return a number as an int64 scalar; a symbolic size is computed in each call."""
    if isinstance(value, OpenSize):
        return get("squeeze")(axis=(0,))(get("arange")(start=value, stop=value + 1, step=1, dtype="int64")())
    return value if isinstance(value, Expr) else const(value, "int64")
