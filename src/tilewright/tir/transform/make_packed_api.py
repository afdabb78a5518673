"""Make functions with a global symbol packed functions, which check their arguments.

    def main(A: T.Buffer((8,), "float32")): …
      ->
    def main(args: T.handle, arg_type_ids: T.handle, num_args: T.int32, out_ret_value: T.handle, …):
        assert num_args == 1, "main takes 1 argument"
        A_code = arg_type_ids[0]                                     7 or 13: an array
        A_array = T.tvm_struct_get(args, 0, 12, dtype="handle")
        assert T.tvm_struct_get(A_array, 0, 4, dtype="int32") == 1   the number of dimensions; then type, shape, …
        A = T.tvm_struct_get(A_array, 0, 1, dtype="handle")          the address of the elements
        with T.attr(0, "compute_scope", "main_compute_"): …
        T.ret(T.int32(0))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base.types import PointerType, PrimType
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import (
    EQ,
    Buffer,
    Call,
    Load,
    PlacedBuffer,
    PrimExpr,
    Var,
    any_of,
    as_expr,
    cast,
    compare,
    const,
    if_then_else,
    logical_not,
    mul,
)
from tilewright.scalar.intrinsics import Subroutine, opaque, ret
from tilewright.scalar.walk import free_vars, rewrite
from tilewright.tir.array_fields import HANDLE, Field, Kind, get_field, is_null, kind_of, null, passed_type
from tilewright.tir.placed_memory import at_address
from tilewright.tir.stmt import (
    AssertStmt,
    AttrStmt,
    Evaluate,
    Let,
    PrimFunc,
    Stmt,
    map_expressions,
    seq,
    substitute_stmt,
)
from tilewright.tir.transform.function_attributes import (
    CONVENTION,
    PACKED,
    SYMBOL,
    TARGET,
    host_of,
    is_exposed,
    target_of,
)
from tilewright.tir.transform.make_unpacked_api import on_device

CONTEXT: Final = "device_api_context"
"""Name of a parameter that is the resource handle of the call, and no argument."""


def make_packed_api(mod: IRModule) -> IRModule:
    """Give the functions with a global symbol TVM's packed calling convention, and the target of their host; calls of
    these functions become packed calls. Raises `CompileError` for a function without a target."""
    symbols = {name: str(f.attrs[SYMBOL]) for name, f in mod.items() if isinstance(f, PrimFunc) and is_exposed(f)}

    def call(e: PrimExpr) -> PrimExpr | None:
        if isinstance(e, Call) and isinstance(e.op, Subroutine) and e.op.name_hint in symbols:
            return Call("int32", opaque("tvm_call_cpacked", (0, symbols[e.op.name_hint])), (*e.args, null()))
        return None

    def changed(func: PrimFunc) -> PrimFunc:
        memo: dict[PrimExpr, PrimExpr] = {}
        made = func.with_body(map_expressions(func.body, lambda e: rewrite(e, call, memo))) if symbols else func
        return _Packing(made).function() if is_exposed(func) else made

    return mod.map_functions(changed, PrimFunc)


class _Packing:
    """Packs one function. `around` are the statements that bind and check its arguments, outermost first."""

    def __init__(self, func: PrimFunc) -> None:
        self.func, self.target = func, target_of(func, "MakePackedAPI")
        self.symbol = str(func.attrs[SYMBOL])
        self.args, self.kinds, self.results, self.result_kinds, self.handle = (
            Var(name, HANDLE) for name in (
                "args", "arg_type_ids", "out_ret_value", "out_ret_tcode", "resource_handle"))
        self.count = Var("num_args", "int32")
        self.around: list[Callable[[Stmt], Stmt]] = []
        self.known: set[Var] = set(func.scalars)
        self.later: list[tuple[PrimExpr, PrimExpr, str]] = []
        """Sizes, and what they must be, in terms of variables that later sizes bind."""
        self.device: PrimExpr | None = None

    def function(self) -> PrimFunc:
        body = self.func.body
        contexts = {p: self.handle for p in self.func.scalars if p.name == CONTEXT}
        given = [p for p in self.func.params if p not in contexts]
        self.check(compare(EQ, self.count, const(len(given), "int32")), f"takes {len(given)} arguments")
        codes = PlacedBuffer("arg_type_ids", (len(given),), "int32", self.kinds)
        for place, p in enumerate(given):
            code = self.bind(f"{p.name}_code", Load(codes, (as_expr(place),)))
            if isinstance(p, Buffer):
                body = self.array(body, p, place, code)
            else:
                self.number(p, place, code)
        for found, size, message in self.later:
            self.check(compare(EQ, found, cast("int64", size)), message)
        body = substitute_stmt(AttrStmt(as_expr(0), "compute_scope", f"{self.symbol}_compute_", body), contexts)
        body = seq(body, Evaluate(ret(const(0, "int32"))))
        if self.func.buffers:
            body = on_device(body, as_expr(0) if self.device is None else self.device, self.target)
        for wrap in reversed(self.around):
            body = wrap(body)
        params = (self.args, self.kinds, self.count, self.results, self.result_kinds, self.handle)
        return replace(self.func, params=params, body=body).with_attr(
            {TARGET: host_of(self.target), CONVENTION: PACKED})

    def bind(self, var: Var | str, value: PrimExpr) -> Var:
        """Bind a value to a variable, or to a new one of that name, and return it."""
        made = Var(var, value.dtype) if isinstance(var, str) else var
        self.around.append(lambda body: Let(made, value, body))
        return made

    def check(self, condition: PrimExpr, message: str) -> None:
        text = f"{self.symbol}: {message}"
        self.around.append(lambda body: AssertStmt(condition, text, body))

    def number(self, p: Var, place: int, code: Var) -> None:
        """Bind a parameter that is a number or an address."""
        passed = passed_type(p.dtype)
        kinds = (Kind.HANDLE, Kind.NULL, Kind.ARRAY, Kind.OWNED_ARRAY) if passed is HANDLE else (kind_of(p.dtype),)
        self.check(_is_any(code, kinds), f"argument {place} ('{p.name}') must be {p.dtype}")
        value = get_field(self.args, place, Field.VALUE, passed)
        self.bind(p, value if passed is HANDLE else cast(p.dtype, value))

    def array(self, body: Stmt, p: Buffer, place: int, code: Var) -> Stmt:
        """Bind the memory of an array that is a buffer, check its type and shape, and return `body` with the memory."""
        named = f"argument {place} ('{p.name}')"
        kinds = (Kind.HANDLE, Kind.NULL, Kind.ARRAY, Kind.OWNED_ARRAY)
        self.check(_is_any(code, kinds), f"{named} must be an array")
        array = self.bind(p.name, get_field(self.args, place, Field.VALUE, HANDLE))
        self.check(logical_not(is_null(array)), f"{named} must be an array")
        for field, wanted, dtype, what in (
            (Field.RANK, len(p.shape), "int32", "must have {} dimensions"),
            (Field.TYPE_CODE, int(p.dtype.type_code), "uint8", f"must be {p.dtype}"),
            (Field.TYPE_BITS, p.dtype.bits, "uint8", f"must be {p.dtype}"),
            (Field.TYPE_LANES, p.dtype.lanes, "uint16", f"must be {p.dtype}"),
        ):
            value = get_field(array, 0, field, dtype)
            self.check(compare(EQ, value, const(wanted, dtype)), f"{named} {what.format(wanted)}")
        self.sizes(p, array, named)
        self.places(array, named)
        data = Var(p.name, PointerType(PrimType(p.dtype), p.scope))
        self.bind(data, get_field(array, 0, Field.DATA, HANDLE))
        return at_address(body, p, data)

    def sizes(self, p: Buffer, array: Var, named: str) -> None:
        """Bind the symbolic sizes and strides of a buffer, and check all others."""
        rank = len(p.shape)
        shape = PlacedBuffer(f"{p.name}_shape", (rank,), "int64", self.bind(
            f"{p.name}_shape", get_field(array, 0, Field.SHAPE, HANDLE)))
        for k, d in enumerate(p.shape):
            self.size(Load(shape, (as_expr(k),)), d, f"size {k} of {named} must be {d}")
        at = self.bind(f"{p.name}_strides", get_field(array, 0, Field.STRIDES, HANDLE))
        strides = PlacedBuffer(f"{p.name}_strides", (rank,), "int64", at)
        for k, dense in enumerate(_dense(p.shape)):
            found = if_then_else(is_null(at), dense, Load(strides, (as_expr(k),)))
            self.size(found, p.strides[k] if p.strides else dense, f"stride {k} of {named} must be that of its shape")

    def size(self, found: PrimExpr, wanted: int | PrimExpr, message: str) -> None:
        """Bind a size if it is an unknown variable, else check it."""
        size = as_expr(wanted)
        if isinstance(size, Var) and size not in self.known:
            self.known.add(size)
            self.bind(size, cast(size.dtype, found))
        elif all(v in self.known for v in free_vars(size)):
            self.check(compare(EQ, found, cast("int64", size)), message)
        else:
            self.later.append((found, size, message))

    def places(self, array: Var, named: str) -> None:
        """Check where an array lies: at the address itself, on the device of the function."""
        offset = get_field(array, 0, Field.BYTE_OFFSET, "uint64")
        self.check(compare(EQ, offset, const(0, "uint64")), f"{named} must begin at its address")
        kind = get_field(array, 0, Field.DEVICE_TYPE, "int32")
        wanted = const(self.target.get_target_device_type(), "int32")
        self.check(compare(EQ, kind, wanted), f"{named} must be on the device of '{self.target.kind}'")
        number = get_field(array, 0, Field.DEVICE_ID, "int32")
        if self.device is None:
            self.device = self.bind("device_id", number)
        else:
            self.check(compare(EQ, number, self.device), f"{named} must be on the device of the first array")


def _is_any(code: Var, kinds: Sequence[Kind]) -> PrimExpr:
    return any_of(*(compare(EQ, code, const(k, "int32")) for k in kinds))


def _dense(shape: Sequence[int | PrimExpr]) -> list[PrimExpr]:
    """Return the strides of a dense array."""
    found: list[PrimExpr] = []
    step: PrimExpr = const(1, "int64")
    for d in reversed(shape):
        found.insert(0, step)
        step = mul(step, cast("int64", as_expr(d)))
    return found
