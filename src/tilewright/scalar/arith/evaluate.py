"""Evaluates expressions on numbers, for tests and constant folding; optimized for clarity.

Scalar `int64` values are Python ints. All other values have the numpy type of the expression; vectors are 1-D arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.base.errors import InternalError
from tilewright.base.types import DataType
from tilewright.scalar.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from tilewright.scalar.intrinsics import reinterpret


def _truncated(a: Any, b: Any) -> Any:
    if np.issubdtype(np.result_type(a, b), np.floating):
        return np.floor_divide(np.abs(a), np.abs(b)) * np.sign(a) * np.sign(b)
    return np.floor_divide(np.subtract(a, np.fmod(a, b)), b)  # the least integer has no absolute value of its type


_FUNCTIONS: dict[type, Callable[[Any, Any], Any]] = {
    Add: np.add, Sub: np.subtract, Mul: np.multiply, Div: np.divide, FloorDiv: np.floor_divide, FloorMod: np.mod,
    Min: np.minimum,
    Max: np.maximum, EQ: np.equal, NE: np.not_equal, LT: np.less, LE: np.less_equal, GT: np.greater,
    GE: np.greater_equal,
    And: np.logical_and, Or: np.logical_or, TruncMod: np.fmod,
    TruncDiv: _truncated,
}
LoadFunction = Callable[[Load, tuple[Any, ...], Any], Any]


def evaluate(e: PrimExpr, env: Mapping[Var, Any] | None = None) -> Any:
    """Return the value of `e` with the variables in `env`; loads are rejected."""
    return Evaluator(dict(env or {})).value(e)


class Evaluator:
    """Evaluates expressions under `env`, which can be changed between calls; `load(load, indices, mask)` reads memory.
    """

    def __init__(self, env: dict[Var, Any], load: LoadFunction | None = None) -> None:
        self.env, self.load = env, load

    def value(self, e: PrimExpr, mask: Any = True) -> Any:
        """Return the value of `e`. With a vector `mask`, loads are performed only in the lanes where it is true."""
        with np.errstate(all="ignore"):
            return self._value(e, mask)

    def _value(self, e: PrimExpr, mask: Any) -> Any:
        if isinstance(e, (And, Or)):
            return self._logical(e, mask)
        if isinstance(e, Binary):
            a, b = self._value(e.a, mask), self._value(e.b, mask)
            if isinstance(e, Sub) and e.dtype.code == "bool":
                return typed(np.logical_xor(a, b), e.dtype)
            if isinstance(a, int) and isinstance(b, int):
                return type(e).fold(a, b)
            return typed(_FUNCTIONS[type(e)](a, b), e.dtype)
        match e:
            case Var():
                if e not in self.env:
                    raise InternalError(f"variable '{e.name}' has no value here")
                return self.env[e]
            case IntImm() | FloatImm():
                return typed(e.value, e.dtype)
            case Load():
                return self._loaded(e, mask)
            case Select():
                return self._selected(e, mask)
            case _:
                return self._rare(e, mask)

    def _rare(self, e: PrimExpr, mask: Any) -> Any:
        values = [self._value(x, mask) for x in e.operands()]
        match e:
            case Not():
                return typed(np.logical_not(values[0]), e.dtype)
            case Cast():
                x = np.trunc(values[0]) if e.value.dtype.is_float and not e.dtype.is_float else values[0]
                return typed(x, e.dtype)
            case Ramp():
                return values[0] + values[1] * np.arange(e.dtype.lanes, dtype=e.dtype.numpy())
            case Broadcast():
                return np.full(e.dtype.lanes, values[0], e.dtype.numpy())
            case Call() if e.op is reinterpret:
                return np.asarray(
                    values[0], e.args[0].dtype.numpy()
                ).view(e.dtype.numpy()).reshape(() if e.dtype.lanes == 1 else -1)[()]
            case Call() if e.op.reference is not None:
                return typed(e.op.reference(*values), e.dtype)
            case _:
                raise InternalError(f"'{e}' ({type(e).__name__}) has no numeric meaning")

    def _logical(self, e: And | Or, mask: Any) -> Any:
        """Evaluate `And` or `Or`. The second operand reads memory only in lanes that the first does not decide."""
        a = self._value(e.a, mask)
        undecided = a if isinstance(e, And) else np.logical_not(a)
        if e.dtype.lanes == 1 and not undecided:
            return typed(a, e.dtype)
        b = self._value(e.b, mask if e.dtype.lanes == 1 else np.logical_and(undecided, mask))
        return typed(_FUNCTIONS[type(e)](a, b), e.dtype)

    def _loaded(self, e: Load, mask: Any) -> Any:
        if self.load is None:
            raise InternalError(f"'{e}' reads memory, but a number is expected")
        return typed(self.load(e, tuple(self._value(i, mask) for i in e.indices), mask), e.dtype)

    def _selected(self, e: Select, mask: Any) -> Any:
        condition = self._value(e.condition, mask)
        if e.dtype.lanes == 1:
            return self._value(e.true_value if condition else e.false_value, mask)
        yes = self._value(e.true_value, np.logical_and(condition, mask))
        no = self._value(e.false_value, np.logical_and(np.logical_not(condition), mask))
        return np.where(condition, yes, no)


def typed(value: Any, dtype: DataType) -> Any:
    """Return `value` as a number of `dtype`; integers wrap around."""
    if dtype.lanes > 1:
        return np.broadcast_to(np.asarray(value), (dtype.lanes,)).astype(dtype.numpy())
    if dtype == "int64":
        return int(value)
    if dtype == "bool":
        return bool(value)
    return np.asarray(value).astype(dtype.numpy())[()]
