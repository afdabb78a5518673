"""Replace calls of registered functions, and memory of a device, by calls of the runtime.

    for i in T.parallel(4):                    for i in T.parallel(4):
        T.call_packed("f", A, i)                   kinds = T.tvm_stack_alloca("arg_tcode", 3, dtype="handle")
                                                   values = T.tvm_stack_alloca("arg_value", 3, dtype="handle")
                                          ->       …
                                                   T.tvm_struct_set(values, 1, 12, i)
                                                   kinds[1] = 0
                                                   T.tvm_call_packed_lowered("f", values, kinds, 0, 2)

An argument array has one element more, for the result. Each parallel loop has arrays of its own. Memory is allocated by
the runtime where the attributes `device_type` and `device_id` around it name another device than the CPU, or where it
does not fit the stack; these attributes go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType, PointerType, PrimType
from tilewright.scalar.expr import (
    NE,
    Call,
    Load,
    PlacedBuffer,
    PrimExpr,
    Var,
    as_expr,
    cast,
    compare,
    const,
    mul,
    number_of,
)
from tilewright.scalar.intrinsics import Opaque, Packed, address_of, call_opaque
from tilewright.scalar.walk import rewrite, walk
from tilewright.tir.array_fields import (
    HANDLE,
    Field,
    Kind,
    get_field,
    kind_of,
    null,
    passed_type,
    set_field,
)
from tilewright.tir.placed_memory import at_address, places
from tilewright.tir.stmt import (
    PARALLEL,
    Allocate,
    AllocateConst,
    AttrStmt,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Stmt,
    Store,
    While,
    expressions,
    map_bodies,
    map_expressions,
    seq,
)
from tilewright.tir.transform.function_attributes import TARGET

_CPU: Final = 1
_STACK_BYTES: Final = 1024
"""Memory of the CPU below this size stays an allocation, which is on the stack."""
_ALIGNMENT: Final = 64
_DEVICE: Final = ("device_type", "device_id")
_LOWERED: Final = frozenset({"tvm_stack_make_array", "tvm_stack_make_shape", "tvm_call_cpacked"})


def lower_builtins(func: PrimFunc) -> PrimFunc:
    """Lower the function of a host; other functions stay. Raises `CompileError` for memory on an unknown device."""
    target = func.attrs.get(TARGET)
    if target is None or "cpu" not in target.keys:
        return func
    return func.with_body(_Lowering(func).scope(func.body))


class _Arrays:
    """The arrays of one scope: a variable for each, and the largest number of its elements that a statement uses."""

    def __init__(self) -> None:
        self.kinds, self.values, self.arrays, self.shapes = (
            Var(name, HANDLE) for name in ("stack_tcode", "stack_value", "stack_array", "stack_shape"))
        self.sizes: dict[str, int] = {}

    def around(self, body: Stmt) -> Stmt:
        """Return statements with the arrays that they use."""
        for var, what in reversed((
            (self.kinds, "arg_tcode"), (self.values, "arg_value"), (self.arrays, "array"), (self.shapes, "shape"),
        )):
            size = self.sizes.get(what, 0)
            body = Let(var, call_opaque("tvm_stack_alloca", what, size), body) if size else body
        return body


class _Lowering:
    """Lowers one function. `before` are the calls before the current statement, and `used` the elements of arrays that
    they use."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.device: dict[str, PrimExpr] = {}
        self.before: list[Stmt] = []
        self.used: dict[str, int] = {}
        self.own = _Arrays()

    def scope(self, body: Stmt) -> Stmt:
        """Return statements with arrays of their own."""
        outer, self.own = self.own, _Arrays()
        made = self.own.around(self.stmt(body))
        self.own = outer
        return made

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, AttrStmt) and s.attr_key in _DEVICE and isinstance(s.value, PrimExpr):
            outer = self.device
            self.device = {**outer, s.attr_key: s.value}
            body = self.stmt(s.body)
            self.device = outer
            return body
        if isinstance(s, Allocate) and not isinstance(s, AllocateConst):
            return self.allocation(s)
        if isinstance(s, For) and s.kind == PARALLEL:
            return self.with_calls(replace(s, body=self.scope(s.body)))
        return self.with_calls(map_bodies(s, self.stmt) or s)

    # Calls.
    def with_calls(self, s: Stmt) -> Stmt:
        """Return a statement after the calls that set the arguments of its own calls."""
        if not any(_is_lowered(e) for top in expressions(s) for e in walk(top)):
            return s
        if isinstance(s, While):
            raise CompileError(
                f"the condition of a while loop in '{self.func.name}' calls a function; store the result in a buffer",
                self.func.origin, code="TW0611")
        self.before, self.used = [], {}
        memo: dict[PrimExpr, PrimExpr] = {}
        changed = map_expressions(s, lambda e: rewrite(e, self.call, memo), lambda x: x is s)
        for what, size in self.used.items():
            self.own.sizes[what] = max(size, self.own.sizes.get(what, 0))
        return seq(*self.before, changed)

    def call(self, e: PrimExpr) -> PrimExpr | None:
        if not isinstance(e, Call) or not _is_lowered(e):
            return None
        if isinstance(e.op, Packed):
            return self.packed(e, e.op)
        assert isinstance(e.op, Opaque)
        if e.op.spelling == "tvm_stack_make_shape":
            return self.shape(e.args)
        if e.op.spelling == "tvm_stack_make_array":
            return self.array(e.args, e.args[4].dtype)
        (_, name), *_ = e.op.texts
        begin = self.arguments(e.args[:-1], {}, {})
        return call_opaque("tvm_call_cpacked_lowered", name, self.own.values, self.own.kinds, begin,
                           begin + len(e.args) - 1, e.args[-1], dtype=e.dtype)

    def take(self, what: str, count: int) -> int:
        """Return the first of `count` elements of an array for the current statement."""
        first = self.used.get(what, 0)
        self.used[what] = first + count
        return first

    def shape(self, sizes: Sequence[PrimExpr]) -> PrimExpr:
        """Return the address of sizes on the stack; null for none."""
        if not sizes:
            return null()
        first = self.take("shape", len(sizes))
        memory = PlacedBuffer("stack_shape", (first + len(sizes),), "int64", self.own.shapes)
        for k, n in enumerate(sizes):
            self.before.append(Store(memory, cast("int64", n), (as_expr(first + k),)))
        return Call(HANDLE, address_of, (Load(memory, (as_expr(first),)),))

    def array(self, fields: Sequence[PrimExpr], dtype: DataType) -> PrimExpr:
        """Return the address of an array on the stack with the fields of `tvm_stack_make_array`."""
        data, shape, strides, rank, _, offset = fields
        place = self.take("array", 1)
        values = {
            Field.DATA: data, Field.SHAPE: shape, Field.STRIDES: strides if strides.dtype is HANDLE else null(),
            Field.RANK: rank, Field.TYPE_CODE: const(int(dtype.type_code), "uint8"),
            Field.TYPE_BITS: const(dtype.bits, "uint8"), Field.TYPE_LANES: const(dtype.lanes, "uint16"),
            Field.BYTE_OFFSET: cast("uint64", mul(offset, dtype.itemsize)),
            Field.DEVICE_ID: self.device.get("device_id", const(0, "int32")),
            Field.DEVICE_TYPE: self.device.get("device_type", const(_CPU, "int32")),
        }
        for field, value in values.items():
            self.before.append(Evaluate(set_field(self.own.arrays, place, field, value)))
        return get_field(self.own.arrays, place, Field.ADDRESS, HANDLE)

    def packed(self, e: Call, op: Packed) -> PrimExpr:
        values = {
            k: self.whole(a, dict(op.arrays)[k]) if is_array else a
            for a, (k, is_array) in zip(e.args, places(e), strict=True)}
        texts = dict(op.texts)
        count = len(values) + len(texts)
        begin = self.arguments([values.get(k, as_expr(0)) for k in range(count)], texts, dict(op.arrays))
        return call_opaque("tvm_call_packed_lowered", op.function, self.own.values, self.own.kinds, begin,
                           begin + count, dtype=e.dtype)

    def whole(self, e: PrimExpr, rank: int) -> PrimExpr:
        """Return the array on the stack for a whole buffer, given by the address of its first element."""
        assert isinstance(e, Call) and isinstance(e.args[0], Load)
        buffer = e.args[0].buffer
        skipped = len(buffer.shape) - rank
        shape = self.shape([as_expr(d) for d in buffer.shape[skipped:]])
        strides = self.shape([as_expr(d) for d in buffer.strides[skipped:]])
        data = buffer.pointer if isinstance(buffer, PlacedBuffer) else e
        return self.array((data, shape, strides, const(rank, "int32"), e, as_expr(0)), buffer.dtype)

    def arguments(self, values: Sequence[PrimExpr], texts: dict[int, str], arrays: dict[int, int]) -> int:
        """Set the arguments of a call, and return the place of the first."""
        begin = self.take("arg_value", len(values) + 1)
        self.take("arg_tcode", len(values) + 1)
        kinds = PlacedBuffer("stack_tcode", (begin + len(values) + 1,), "int32", self.own.kinds)
        for k, value in enumerate(values):
            passed = texts[k] if k in texts else cast(passed_type(value.dtype), value)
            kind = Kind.TEXT if k in texts else Kind.ARRAY if k in arrays or _is_array(value) else kind_of(value.dtype)
            self.before.append(Evaluate(set_field(self.own.values, begin + k, Field.VALUE, passed)))
            self.before.append(Store(kinds, const(kind, "int32"), (as_expr(begin + k),)))
        return begin

    # Memory.
    def allocation(self, s: Allocate) -> Stmt:
        sizes = [number_of(d) for d in s.extents]
        total = None if None in sizes else prod(int(n) for n in sizes if n is not None) * s.dtype.itemsize
        kind, number = (self.device.get(key) for key in _DEVICE)
        if kind is not None and number_of(kind) == _CPU and total is not None and total < _STACK_BYTES:
            return replace(s, body=self.stmt(s.body))
        if kind is None or number is None:
            missing = " and ".join(key for key in _DEVICE if key not in self.device)
            raise CompileError(
                f"the device of '{s.buffer.name}' in '{self.func.name}' is unknown; put the attribute {missing} around "
                "its allocation", self.func.origin, code="TW0611")
        pointer = Var(s.buffer.name, PointerType(PrimType(s.dtype), s.buffer.scope))
        nbytes = const(total, "uint64") if total is not None else _symbolic_bytes(s)
        code, bits = as_expr(int(s.dtype.type_code)), as_expr(s.dtype.bits)
        memory = call_opaque("TVMBackendAllocWorkspace", kind, number, nbytes, code, bits)
        freed = call_opaque("TVMBackendFreeWorkspace", kind, number, pointer)
        fail = Evaluate(call_opaque("tvm_throw_last_error", dtype="int32"))
        checked = IfThenElse(call_opaque("isnullptr", pointer), fail)
        inside = seq(checked, self.stmt(at_address(s.body, s.buffer, pointer)))
        return AttrStmt(
            pointer, "storage_alignment", as_expr(_alignment(total)),
            seq(Let(pointer, memory, inside), IfThenElse(compare(NE, freed, 0), fail)))


def _is_lowered(e: PrimExpr) -> bool:
    return isinstance(e, Call) and (
        isinstance(e.op, Packed) or (isinstance(e.op, Opaque) and e.op.spelling in _LOWERED))


def _is_array(e: PrimExpr) -> bool:
    """Return whether a value is the address of an array on the stack."""
    return isinstance(e, Call) and isinstance(e.op, Opaque) and e.op.spelling == "tvm_struct_get" and (
        number_of(e.args[2]) == Field.ADDRESS)


def _alignment(nbytes: int | None) -> int:
    """Return the alignment of memory: that of the largest vectors, or the largest power of two in a smaller size."""
    return _ALIGNMENT if nbytes is None else min(_ALIGNMENT, 1 << max(0, nbytes.bit_length() - 1))


def _symbolic_bytes(s: Allocate) -> PrimExpr:
    total: PrimExpr = const(s.dtype.itemsize, "uint64")
    for d in s.extents:
        total = mul(total, cast("uint64", d))
    return total
