"""Replaces `T.call_packed` by calls of addresses, which the caller of the function passes as further numbers.

    T.call_packed("f", A, 3)  ->  T.call_extern("int32", "call_address", callback, T.address_of(A[0], 3, 8), 8,
                                                T.stride_of(A[0], 0), 3)

An array is passed by its address, then the size and the stride of each dimension. Strings are not passed, since they
belong to the callback.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.errors import CompileError
from tilewright.base.types import INT64, DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Call, Load, PrimExpr, Var, cast, const, number_of
from tilewright.scalar.intrinsics import Opaque, Packed, address_of, call_address, stride_of, without_meaning
from tilewright.scalar.walk import rewrite
from tilewright.tir.packed_calls import CallbackType
from tilewright.tir.stmt import CALLBACKS, PrimFunc, map_expressions


def lower_packed_calls(func: PrimFunc) -> PrimFunc:
    """Make the callbacks numbers of a function: its attribute `CALLBACKS`. Raises `CompileError` for an argument that
    cannot be passed."""
    found: dict[CallbackType, Var] = {}
    memo: dict[PrimExpr, PrimExpr] = {}

    def call(e: PrimExpr) -> PrimExpr | None:
        if not isinstance(e, Call) or not isinstance(e.op, Packed):
            return None
        if not e.op.function:
            raise CompileError(
                f"a call in '{func.name}' does not name the registered function; the first argument of call_packed "
                "must be a string, its name", code="TW0602")
        kinds: list[tuple[str, ...]] = []
        passed: list[PrimExpr] = []
        texts, arrays, values = dict(e.op.texts), dict(e.op.arrays), iter(e.args)
        for place in range(len(e.args) + len(texts)):
            if place in texts:
                kinds.append(("text", texts[place]))
                continue
            kind, several = _argument(next(values), arrays.get(place))
            kinds.append(kind)
            passed += several
        kept = CallbackType(e.op.function, tuple(kinds), e.dtype)
        callback = found.setdefault(kept, Var(f"callback_{len(found)}"))
        return Call(e.dtype, call_address, (callback, *passed))

    body = map_expressions(func.body, lambda e: rewrite(e, call, memo))
    if not found:
        return func
    return replace(func, body=body, attrs={**func.attrs, CALLBACKS: tuple((v, kind) for kind, v in found.items())})


def _argument(e: PrimExpr, dimensions: int | None) -> tuple[tuple[str, ...], list[PrimExpr]]:
    """Return the kind of an argument, and the values that are passed for it. An array has a number of dimensions; the
    first ones of size 1 of the memory that are more are left out."""
    if isinstance(e, Call) and isinstance(e.op, Opaque):
        raise without_meaning(e.op)
    if isinstance(e, Call) and e.op is address_of and isinstance(load := e.args[0], Load):
        if dimensions is None:
            return ("address",), [e]
        places = list(enumerate(e.args[2:]))
        single = [d for d, size in places if number_of(size) == 1][: len(places) - dimensions]
        passed: list[PrimExpr] = [e]
        for d, size in places:
            passed += [] if d in single else [cast(INT64, size), Call(INT64, stride_of, (load, const(d, INT64)))]
        return ("array", str(load.dtype), str(dimensions)), passed
    if e.dtype.lanes > 1 or not (e.dtype.is_float or e.dtype.is_integer or e.dtype.code == "bool"):
        raise CompileError(
            f"call_packed takes numbers, strings, addresses and buffers; '{e}' is {e.dtype}", code="TW0602")
    if e.dtype.code == "bool":
        return ("bool",), [E.cast(INT64, e)]
    kind = DataType("float64") if e.dtype.is_float else INT64
    return ("number", str(kind)), [cast(kind, e)]
