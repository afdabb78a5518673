"""Tensor expressions evaluated with numpy, a whole computation at a time: what a `compute` means, without generating
code."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tilewright.scalar import expr as E
from tilewright.scalar.intrinsics import reinterpret
from tilewright.scalar.walk import walk
from tilewright.te.create import create_prim_func
from tilewright.te.extern import ExternOp
from tilewright.te.tensor import MAX, MIN, PROD, SUM, Combiner, ComputeOp, Reduce, Tensor, TensorElem
from tilewright.tir.interpreter import run
from tilewright.tir.transform.lower_blocks import lower_blocks

Array = np.ndarray[Any, Any]
_FOLDS: dict[Combiner, Callable[..., Any]] = {SUM: np.sum, PROD: np.prod, MAX: np.max, MIN: np.min}


def evaluate(outputs: Any, inputs: dict[Tensor, Array]) -> Any:
    """The values of tensors (one, or a tuple), given those of the placeholders."""
    known = dict(inputs)
    if isinstance(outputs, tuple):
        return tuple(_tensor(t, known) for t in outputs)
    return _tensor(outputs, known)


def _tensor(t: Tensor, known: dict[Tensor, Array]) -> Array:
    if t not in known:
        assert isinstance(t.op, (ComputeOp, ExternOp))
        for needed in t.op.inputs:
            _tensor(needed, known)
        if isinstance(t.op, ExternOp):
            return _loops(t.op, known)[t.index]
        shape = tuple(int(d) for d in t.shape)  # type: ignore[call-overload]
        axes = [*t.op.axis, *t.op.reduce_axis]
        over = tuple(int(a.extent) for a in t.op.reduce_axis)  # type: ignore[call-overload]
        scope = {
            a.var: np.arange(n).reshape([-1 if k == d else 1 for k in range(len(axes))]) for d,
            (a, n) in enumerate(zip(axes, shape + over, strict=True))
        }
        values = [_body(b, scope, known, shape, over) for b in t.op.body]
        for made, value in zip(t.op.outputs, values, strict=True):
            known[made] = np.array(np.broadcast_to(value, shape), made.dtype.numpy())
    return known[t]


def _loops(op: ExternOp, known: dict[Tensor, Array]) -> list[Array]:
    """The results of a computation that is written as loops."""
    made = [np.zeros(t.extents, t.dtype.numpy()) for t in op.outputs]
    run(lower_blocks(create_prim_func(op.inputs, op.outputs)), [*(known[t] for t in op.inputs), *made])
    known.update(zip(op.outputs, made, strict=True))
    return made


def _body(
    body: E.PrimExpr, scope: dict[Any, Any], known: dict[Tensor, Array], shape: tuple[int, ...], over: tuple[int, ...]
) -> Any:
    if not isinstance(body, Reduce):
        value = _value(body, scope, known)
        return value[(..., *(0,) * len(over))] if over and np.ndim(value) else value
    sources = [np.array(np.broadcast_to(_value(s, scope, known), shape + over), s.dtype.numpy()) for s in body.sources]
    along = tuple(range(len(shape), len(shape) + len(over)))
    fold = _FOLDS.get(body.combiner)
    if fold is not None:
        return fold(sources[0], axis=along, **({"dtype": sources[0].dtype} if fold in (np.sum, np.prod) else {}))
    flat = [s.reshape(*shape, prod(s.shape[len(shape):])) for s in sources]
    dtypes = tuple(s.dtype for s in body.sources)
    state = [_value(e, {}, {}) for e in body.combiner.identity(dtypes)]
    a, b = (tuple(E.Var(f"{side}{k}", d) for k, d in enumerate(dtypes)) for side in "ab")
    step = body.combiner.combine(a, b)
    for k in range(flat[0].shape[-1]):
        env = dict(zip(a, state, strict=True)) | dict(zip(b, (f[..., k] for f in flat), strict=True))
        state = [_value(e, env, {}) for e in step]
    return state[body.index]


def _value(e: E.PrimExpr, scope: dict[Any, Any], known: dict[Tensor, Array]) -> Any:
    memo: dict[E.PrimExpr, Any] = {}
    with np.errstate(all="ignore"):
        for x in walk(e):
            memo[x] = _one(x, scope, known, memo)
    return memo[e]


def _one(x: E.PrimExpr, scope: dict[Any, Any], known: dict[Tensor, Array], memo: dict[E.PrimExpr, Any]) -> Any:
    dtype = x.dtype.numpy()
    operands = [memo[o] for o in x.operands()]
    if isinstance(x, E.Var):
        return scope[x]
    if isinstance(x, (E.IntImm, E.FloatImm)):
        return np.asarray(x.value, dtype)
    if isinstance(x, TensorElem):
        array = known[x.tensor]
        if any(n == 0 for n in array.shape):
            return np.zeros((), array.dtype)
        return array[tuple(np.clip(i, 0, n - 1) for i, n in zip(operands, array.shape, strict=True))]
    if isinstance(x, E.Cast):
        return operands[0].astype(dtype)
    if isinstance(x, E.Not):
        return np.logical_not(operands[0])
    if isinstance(x, E.Select):
        return np.where(*operands)
    if isinstance(x, E.Call):
        if x.op is reinterpret:
            return np.ascontiguousarray(
                operands[0].astype(x.args[0].dtype.numpy())
            ).view(dtype).reshape(np.shape(operands[0]))
        assert x.op.reference is not None
        return np.asarray(x.op.reference(*operands), dtype)
    assert isinstance(x, E.Binary), f"{type(x).__name__} is not evaluated"
    return np.asarray(_BINARY[type(x)](*operands), dtype)


def _truncated(a: Array, b: Array) -> Array:
    return np.where((a % b != 0) & ((a < 0) != (b < 0)), a // b + 1, a // b)


_BINARY: dict[type, Any] = {
    E.Add: np.add, E.Sub: np.subtract, E.Mul: np.multiply, E.Div: np.true_divide, E.FloorDiv: np.floor_divide,
    E.FloorMod: np.mod,
    E.TruncDiv: _truncated, E.TruncMod: np.fmod, E.Min: np.minimum, E.Max: np.maximum, E.EQ: np.equal,
    E.NE: np.not_equal, E.LT: np.less,
    E.LE: np.less_equal, E.GT: np.greater, E.GE: np.greater_equal, E.And: np.logical_and, E.Or: np.logical_or,
}
