"""Check that a program is flat and well typed, as code generation requires.

Code generation runs the check on every function and makes no checks itself. A fault of a pass, or of a user's TIR
function, is an `InternalError` that shows the statement, instead of an error of LLVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.base.errors import InternalError
from tilewright.base.graphs import reachable
from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var
from tilewright.scalar.walk import text_of, walk
from tilewright.tir.stmt import (
    NUMBERS,
    Allocate,
    Block,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Stmt,
    Store,
    bodies,
    expressions,
)


def verify_flat(func: PrimFunc) -> None:
    """Raise `InternalError` with the statement unless `func` is flat and consistent."""
    buffers = set(func.buffers)
    for b in func.buffers:
        _check_buffer(func, b)
    sizes = {v for b in func.buffers for d in b.shape if isinstance(d, PrimExpr) for v in walk(d) if isinstance(v, Var)}
    known = frozenset({*sizes, *func.scalars, *func.attrs.get(NUMBERS, ())})
    _Verifier(func).stmt(func.body, frozenset(buffers), known)


def _check_buffer(func: PrimFunc, buffer: Buffer) -> None:
    if len(buffer.shape) != 1:
        raise InternalError(
            f"{func.name}: buffer '{buffer.name}' has {len(buffer.shape)} dimensions where flat ones are expected")


class _Verifier:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.checked: dict[tuple[frozenset[Buffer], frozenset[Var]], set[PrimExpr]] = {}
        self.typed: set[PrimExpr] = set()

    def fail(self, why: str, s: Stmt) -> InternalError:
        lines = repr(s).splitlines()
        shown = "\n".join(["    " + line for line in lines[:6]] + (["    …"] if len(lines) > 6 else []))
        return InternalError(f"{self.func.name}: {why}, in\n{shown}")

    def stmt(self, s: Stmt, buffers: frozenset[Buffer], variables: frozenset[Var]) -> None:
        for e in expressions(s):
            self.expr(e, s, buffers, variables)
        match s:
            case For():
                if s.kind not in ("serial", "parallel"):
                    raise self.fail(f"loop '{s.var.name}' is still {s.kind}", s)
                if (
                    not _is_index(s.var.dtype) or s.var.dtype.lanes != 1
                    or any(e.dtype is not s.var.dtype for e in (s.min, s.extent))
                ):
                    raise self.fail(
                        f"loop '{s.var.name}' of {s.var.dtype} runs from {s.min.dtype} for {s.extent.dtype}", s)
                variables |= {s.var}
            case Store():
                self.store(s, buffers)
            case Let():
                if s.value.dtype is not s.var.dtype:
                    raise self.fail(f"variable '{s.var.name}' of {s.var.dtype} is given a value of {s.value.dtype}", s)
                variables |= {s.var}
            case Allocate():
                _check_buffer(self.func, s.buffer)
                for size in s.buffer.shape:
                    if isinstance(size, PrimExpr):
                        self.expr(size, s, buffers, variables)
                buffers |= {s.buffer}
            case IfThenElse() if s.condition.dtype != "bool":
                raise self.fail(f"a condition is {s.condition.dtype}, not bool", s)
            case Block():
                raise self.fail(f"block '{s.name}' was not lowered", s)
            case _:
                pass
        for x in bodies(s):
            self.stmt(x, buffers, variables)

    def store(self, s: Store, buffers: frozenset[Buffer]) -> None:
        if s.buffer not in buffers:
            raise self.fail(f"buffer '{s.buffer.name}' is written where it does not exist", s)
        if len(s.indices) != 1:
            raise self.fail(f"{len(s.indices)} indices for the flat buffer '{s.buffer.name}'", s)
        lanes = s.indices[0].dtype.lanes
        if not _is_index(s.indices[0].dtype):
            raise self.fail(f"an index of '{s.buffer.name}' is {s.indices[0].dtype}", s)
        if s.value.dtype is not s.buffer.dtype.with_lanes(lanes):
            raise self.fail(f"a value of {s.value.dtype} is stored as {s.buffer.dtype.with_lanes(lanes)}", s)
        if s.mask is not None and (s.mask.dtype.element != "bool" or s.mask.dtype.lanes != lanes):
            raise self.fail(f"the mask of {lanes} lanes is {s.mask.dtype}", s)

    def expr(self, e: PrimExpr, s: Stmt, buffers: frozenset[Buffer], variables: frozenset[Var]) -> None:
        checked = self.checked.setdefault((buffers, variables), set())
        for x in reachable([e], lambda x: x.operands(), checked):
            if isinstance(x, Var) and x not in variables:
                raise self.fail(f"variable '{x.name}' is used where it has no value", s)
            if isinstance(x, Load) and (x.buffer not in buffers or len(x.indices) != 1):
                why = "does not exist" if x.buffer not in buffers else "is not flat"
                raise self.fail(f"buffer '{x.buffer.name}' is read where it {why}", s)
            if x in self.typed:
                continue
            self.typed.add(x)
            rule = _RULES.get(type(x))
            wrong = None if rule is None else rule(x)
            if wrong is not None:
                raise self.fail(f"'{text_of(x)}' {wrong}", s)


# Rules: each returns the type error of one node, or None.
def _arithmetic(e: Any) -> str | None:
    if e.a.dtype is not e.b.dtype:
        return f"mixes {e.a.dtype} and {e.b.dtype}"
    return None if e.dtype is e.a.dtype else f"is {e.dtype}, of two {e.a.dtype}"


def _of_integers(e: Any) -> str | None:
    return f"divides {e.dtype} as integers" if e.dtype.is_float else _arithmetic(e)


def _comparison(e: Any) -> str | None:
    if e.a.dtype is not e.b.dtype:
        return f"mixes {e.a.dtype} and {e.b.dtype}"
    return None if e.dtype.code == "bool" and e.dtype.lanes == e.a.dtype.lanes else f"is {e.dtype}, of two {e.a.dtype}"


def _logical(e: Any) -> str | None:
    wrong = next((o.dtype for o in e.operands() if o.dtype is not e.dtype or o.dtype.code != "bool"), None)
    return None if wrong is None else f"takes {wrong} as a truth value of {e.dtype}"


def _cast(e: Any) -> str | None:
    return None if e.dtype.lanes == e.value.dtype.lanes else f"makes {e.dtype} of {e.value.dtype}"


def _select(e: Any) -> str | None:
    if e.true_value.dtype is not e.dtype or e.false_value.dtype is not e.dtype:
        return f"chooses between {e.true_value.dtype} and {e.false_value.dtype}"
    c = e.condition.dtype
    return None if c.code == "bool" and c.lanes in (1, e.dtype.lanes) else f"chooses {e.dtype} by a condition of {c}"


def _load(e: Any) -> str | None:
    index = e.indices[0].dtype
    if not _is_index(index):
        return f"has an index of {index}"
    wanted = e.buffer.dtype.with_lanes(index.lanes)
    return None if e.dtype is wanted else f"is {e.dtype}, read as {wanted}"


def _ramp(e: Any) -> str | None:
    right = _is_index(e.base.dtype) and e.base.dtype.lanes == 1 and e.stride.dtype is e.base.dtype
    return None if right else f"goes from {e.base.dtype} in steps of {e.stride.dtype}"


def _broadcast(e: Any) -> str | None:
    return None if e.value.dtype.lanes == 1 else f"repeats a vector, {e.value.dtype}"


def _call(e: Any) -> str | None:
    kinds = {a.dtype for a in e.args}
    if e.op is I.reinterpret:
        (given,) = kinds
        return (
            None if given.bits * given.lanes == e.dtype.bits * e.dtype.lanes
            else f"makes {e.dtype} of the bits of {given}"
        )
    if (
        len(kinds) > 1
        and not (
            e.op.effect or isinstance(e.op, I.Extern)
            or e.op in (I.dot2, I.dot4, I.high_product, I.doubled_high_product)
        )
    ):
        return f"mixes {', '.join(map(str, sorted(kinds, key=str)))}"
    if isinstance(e.op, I.LLVMIntrinsic):  # LLVM checks its own functions
        return None
    lanes = 1 if e.op in _ACROSS else max((d.lanes for d in kinds), default=1)
    return None if e.op.effect or e.dtype.lanes == lanes else f"is {e.dtype}, of {lanes} lanes"


def _is_index(dtype: DataType) -> bool:
    return dtype.code in ("int", "uint")


_ACROSS: Final = (I.horizontal_sum, I.horizontal_prod, I.horizontal_max, I.horizontal_min)
_RULES: Final[dict[type, Callable[[Any], str | None]]] = {
    **dict.fromkeys((E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max), _arithmetic),
    **dict.fromkeys((E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod), _of_integers),
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), _comparison),
    **dict.fromkeys((E.And, E.Or, E.Not), _logical),
    E.Cast: _cast, E.Select: _select, Load: _load, E.Ramp: _ramp, E.Broadcast: _broadcast, E.Call: _call,
}
