"""Calls of registered functions from programs: `tir.call_packed`.

    @tvm.register_func("my.sort")
    def sort(x, y, descending): ...             # x and y are NDArrays over the memory of the program

    tir.call_packed("my.sort", A, B, True)      # A and B are buffers

The compiled program calls back into Python. Numbers arrive as Python numbers, and addresses (`A.access_ptr("r")`) as
`ctypes.c_void_p`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.global_functions import TRACED
from tilewright.base.types import DataType
from tilewright.scalar.addresses import address
from tilewright.scalar.expr import Buffer, Call, Load, PrimExpr, as_expr, const
from tilewright.scalar.intrinsics import Packed, address_of, packed
from tilewright.scalar.walk import rewrite
from tilewright.tir.stmt import Stmt, map_expressions


@dataclass(frozen=True, slots=True)
class CallbackType:
    """A registered function that a program calls: its name, the kinds of its arguments, and the type of its result.

    A kind is `("text", value)`, `("number", dtype)`, `("bool",)`, `("address",)` or `("array", dtype, dimensions)`.
    """

    name: str
    arguments: tuple[tuple[str, ...], ...]
    dtype: DataType


def call_packed(*args: Any, span: Any = None) -> PrimExpr:
    """Return a call of the registered function of the name `args[0]` with the other arguments: numbers, strings,
    addresses, and buffers, which the function may change. Its result is int32.

    Raises `CompileError` for other arguments.
    """
    return packed_call("int32", args)


def trace(args: Sequence[Any], trace_action: str = "tvm.default_trace_action") -> PrimExpr:
    """Return the last of `args`, numbers, after a call of the registered function `trace_action` with all of them. If
    that function returns a number, the result is this number. The default function prints the values.

    Raises `CompileError` if there are no values, or for one that cannot be passed.
    """
    if not args:
        raise CompileError("tir.trace takes at least one value; give a list of them", code="TW0602")
    return packed_call(as_expr(args[-1]).dtype, [TRACED, trace_action, *args])


def packed_call(dtype: str | DataType, args: Sequence[Any]) -> PrimExpr:
    """Return a call of the registered function `args[0]` with a result of `dtype`."""
    name, given = (args[0] if args else None), args[1:]
    if not isinstance(name, str):
        raise CompileError(
            f"call_packed takes the name of a registered function first, not {name!r}", code="TW0602")
    texts = tuple((k, a) for k, a in enumerate(given) if isinstance(a, str))
    arrays = tuple((k, len(a.shape)) for k, a in enumerate(given) if isinstance(a, Buffer))
    values = [address(a) if isinstance(a, Buffer) else as_expr(a) for a in given if not isinstance(a, str)]
    return Call(dtype, packed(name, texts, arrays), values)


def with_access(s: Stmt, inputs: Collection[Buffer], outputs: Collection[Buffer], *, updates: bool = False) -> Stmt:
    """Return a statement whose packed calls read the arrays `inputs`, and write (or with `updates`, change) `outputs`.
    """
    access = {**dict.fromkeys(inputs, 1), **dict.fromkeys(outputs, 3 if updates else 2)}

    def call(e: PrimExpr) -> PrimExpr | None:
        if not isinstance(e, Call) or not isinstance(e.op, Packed) or not e.op.arrays:
            return None
        texts, arrays, values, place = dict(e.op.texts), dict(e.op.arrays), list(e.args), 0
        for k in range(len(values) + len(texts)):
            if k in arrays:
                values[place] = _accessed(values[place], access)
            place += k not in texts
        return Call(e.dtype, e.op, values)

    return map_expressions(s, lambda e: rewrite(e, call))


def _accessed(e: PrimExpr, access: dict[Buffer, int]) -> PrimExpr:
    """Return the address of a whole buffer with its kind of access."""
    load = e.args[0] if isinstance(e, Call) and e.op is address_of else None
    if not isinstance(e, Call) or not isinstance(load, Load) or load.buffer not in access:
        return e
    return Call(e.dtype, e.op, (load, const(access[load.buffer], "int64"), *e.args[2:]))
