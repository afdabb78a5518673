"""Reads the scalar expressions of TIR text from a Python syntax tree, without executing it.

An expression is built exactly as written, without folding or reordering, so parsing a printed text gives the same
expression. A bare number takes the type of the other operand (`x + 1`), by default int64 or float32. Operators on two
bare numbers are Python's. If the types of two operands differ, the narrower one is cast, as by the builders.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.settings import nearest
from tilewright.base.types import DataType
from tilewright.ir import dialects
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.addresses import address_for
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import (
    Binary,
    Buffer,
    FloatImm,
    IntImm,
    Intrinsic,
    Load,
    PlacedBuffer,
    PrimExpr,
    Var,
    max_value,
    min_value,
)
from tilewright.tir import functions as F
from tilewright.tir.parse_calls import CallReader
from tilewright.tir.parse_python import MODULES, Source
from tilewright.tir.reinterpreted import Reinterpreted
from tilewright.tir.views import View, dense_strides, source_of

INTRINSICS: Final = {f.spelling: f for f in vars(I).values() if isinstance(f, Intrinsic)}
_BINARY: Final[dict[type[ast.operator], type[Binary]]] = {
    ast.Add: E.Add, ast.Sub: E.Sub, ast.Mult: E.Mul, ast.Div: E.Div, ast.FloorDiv: E.FloorDiv, ast.Mod: E.FloorMod,
}
_BITS: Final[dict[type[ast.operator], Intrinsic]] = {
    ast.BitAnd: I.bitwise_and, ast.BitOr: I.bitwise_or, ast.BitXor: I.bitwise_xor, ast.LShift: I.shift_left,
    ast.RShift: I.shift_right,
}
_COMPARE: Final[dict[type[ast.cmpop], type[Binary]]] = {
    ast.Eq: E.EQ, ast.NotEq: E.NE, ast.Lt: E.LT, ast.LtE: E.LE, ast.Gt: E.GT, ast.GtE: E.GE,
}
_NAMED: Final[dict[str, type[Binary]]] = {
    "min": E.Min, "max": E.Max, "truncdiv": E.TruncDiv, "truncmod": E.TruncMod, "floordiv": E.FloorDiv,
    "floormod": E.FloorMod, "Add": E.Add, "Sub": E.Sub, "Mul": E.Mul, "Div": E.Div, "Mod": E.TruncMod,
    "FloorDiv": E.FloorDiv, "FloorMod": E.FloorMod, "Min": E.Min, "Max": E.Max, "EQ": E.EQ, "NE": E.NE, "LT": E.LT,
    "LE": E.LE, "GT": E.GT, "GE": E.GE, "And": E.And, "Or": E.Or,
}
"""Functions of two values by their names; a capital letter begins the name of a node."""
_LITERAL: Final = (bool, int, float)


def module_name(node: ast.expr) -> str:
    """Return `name` for `T.name`, or `axis.name` for `T.axis.name`; empty for other nodes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id in MODULES else ""


def is_handle(node: ast.expr) -> bool:
    """Return whether a type is that of addresses: `T.handle`, `T.handle("float32", "global")`, `T.Ptr[…]`."""
    kind = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else node
    return module_name(kind) in ("handle", "Ptr")


class ExprReader(CallReader):
    """Reads expressions over the names in scope."""

    def __init__(self, source: Source, outer: Mapping[str, Any]) -> None:
        super().__init__(source, outer)
        self.module = ""
        self.of_views: set[PrimExpr] = set()
        """The quotients and remainders that views gave as indices."""

    # Values: an expression, or a Python number without a type.
    def expr(self, node: ast.expr, dtype: DataType | None = None) -> PrimExpr:
        """Return the expression at `node`; a bare number gets the type `dtype`."""
        return self.typed_number(node, self.value(node), dtype)

    def typed_number(self, node: ast.expr, value: Any, dtype: DataType | None) -> PrimExpr:
        """Return an expression, or a bare number as a constant."""
        return value if isinstance(value, PrimExpr) else self.typed(node, value, dtype)

    def typed(self, node: ast.expr, value: Any, dtype: DataType | None) -> PrimExpr:
        """Return a bare number as a constant."""
        if dtype is None:
            return E.as_expr(value)
        kind = dtype.element
        if kind.is_float:
            number: PrimExpr = FloatImm(kind, float(value))
        elif isinstance(value, float):
            raise self.error(
                node, f"{value} is not a value of {dtype}; write an integer, or T.cast({value}, \"{dtype}\")")
        else:
            number = self.integer(node, value, kind)
        return E.broadcast(number, dtype.lanes)

    def integer(self, node: ast.expr, value: Any, dtype: DataType) -> PrimExpr:
        try:
            return IntImm(dtype, int(value))
        except CompileError as error:
            raise self.error(node, error.message) from None

    def value(self, node: ast.expr) -> Any:
        read = _VALUES.get(type(node))
        if read is None:
            raise self.error(node, f"a scalar expression is expected here, not {_described(node)}")
        return read(self, node)

    def constant(self, node: ast.Constant) -> Any:
        if not isinstance(node.value, _LITERAL):
            raise self.error(node, f"a scalar expression is expected here, not {node.value!r}")
        return node.value

    def named(self, node: ast.Name) -> Any:
        found = self.names.get(node.id)
        if found is None:
            found = self.outer.get(node.id)
            found = found.item() if isinstance(found, np.generic) else found
        if isinstance(found, (Buffer, View, Reinterpreted)):
            raise self.error(node, f"'{node.id}' is a buffer; an element of it is {node.id}[…]")
        if isinstance(found, (PrimExpr, *_LITERAL)):
            return found
        if found is not None:
            raise self.error(
                node,
                f"'{node.id}' is a {type(found).__name__}; only numbers can be used from the Python code around a "
                "function"
            )
        raise self.error(node, f"'{node.id}' is not defined here{nearest(node.id, self.names)}")

    def target(self, node: ast.expr) -> Buffer | View:
        """Return the buffer, or the view of one, that a name denotes."""
        found = self.names.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(found, (Buffer, View)):
            return found
        if isinstance(found, Reinterpreted):
            raise self.error(node, f"'{found.name}' is {found.dtype}, but its memory holds {found.parts.dtype}; only "
                                   "single elements of it can be read and written")
        buffers = [n for n, b in self.names.items() if isinstance(b, (Buffer, View))]
        raise self.error(node, f"a buffer is expected here; the buffers are {', '.join(buffers) or 'none yet'}")

    def access(self, node: ast.Subscript) -> tuple[Buffer, tuple[PrimExpr, ...]]:
        """Return the buffer and the indices of an access; no indices for `A[()]`."""
        target = self.target(node.value)
        buffer, places = source_of(target)
        indices = places(self.indices(node, target))
        if isinstance(target, View):
            self.of_views.update(i for i in indices if isinstance(i, (E.FloorDiv, E.FloorMod)))
        return buffer, indices

    def indices(self, node: ast.Subscript, target: Buffer | View | Reinterpreted) -> list[PrimExpr]:
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != len(target.shape):
            raise self.error(
                node, f"buffer '{target.name}' has {len(target.shape)} dimensions, but was given {len(items)} indices")
        found = [self.lanes(i) if isinstance(i, ast.Slice) else self.expr(i) for i in items]
        if isinstance(target, Reinterpreted) and any(i.dtype.lanes > 1 for i in found):
            self.target(node.value)
        return found

    def other_type(self, node: ast.expr) -> Reinterpreted | None:
        """Return the view of memory of another type that a name denotes, or None."""
        found = self.names.get(node.id) if isinstance(node, ast.Name) else None
        return found if isinstance(found, Reinterpreted) else None

    def lanes(self, node: ast.Slice) -> PrimExpr:
        """Read `low:high` or `low:high:step` as the vector of these indices."""
        if node.lower is None or node.upper is None:
            raise self.error(node, "a slice of indices needs both ends: A[0:4]")
        low, high = self.value(node.lower), self.value(node.upper)
        step = 1 if node.step is None else self.whole(node.step)
        distance = E.number_of(simplify(E.sub(*E.match(high, low)), Ranges()))
        if not isinstance(distance, int) or distance < 1:
            raise self.error(node, "the length of a slice must be a number that is greater than 0")
        count = -(-distance // step)
        return E.as_expr(low) if count == 1 else E.Ramp(low, step, count)

    def load(self, node: ast.Subscript) -> Any:
        """Read an element, or one of the sizes or strides of a buffer: `A.shape[0]`, `A.strides[1]`."""
        if self.is_outside(node):
            return self.scalar_outside(node)
        if isinstance(node.value, ast.Attribute) and node.value.attr in ("shape", "strides"):
            target = self.target(node.value.value)
            sizes = target.shape if node.value.attr == "shape" else dense_strides(target)
            at = self.literal(node.slice)
            if not isinstance(at, int) or not -len(sizes) <= at < len(sizes):
                raise self.error(node, f"'{target.name}' has {len(sizes)} dimensions; give a number below that")
            return E.as_expr(sizes[at])
        other = self.other_type(node.value)
        return Load(*self.access(node)) if other is None else other.load(self.indices(node, other))

    def attribute(self, node: ast.Attribute) -> Any:
        """Read `A.data`, the address of a buffer, or `A.elem_offset`, its distance in elements from that address."""
        if self.is_outside(node):
            return self.scalar_outside(node)
        if node.attr == "elem_offset":
            buffer, places = source_of(target := self.target(node.value))
            offset: PrimExpr = E.const(0, "int64")
            for i, n in zip(places([offset for _ in target.shape]), dense_strides(buffer), strict=True):
                offset = E.add(offset, E.mul(i, n))
            return offset
        address = self.pointer(node)
        if address is None:
            raise self.error(node, f"a scalar expression is expected here, not {_described(node)}")
        return address

    def argument(self, node: ast.expr) -> PrimExpr:
        """Read an argument of a C function: a number, or the address of a buffer."""
        address = self.pointer(node)
        return self.expr(node) if address is None else address

    def pointer(self, node: ast.expr) -> PrimExpr | None:
        """Read `A.data`, or `A.access_ptr("r", offset=8)`, as the address of a buffer; None for other expressions.

        `A.data` of a view is the address of its memory, from which `A.elem_offset` counts.
        """
        call = node if isinstance(node, ast.Call) else None
        place = node if call is None else call.func
        if isinstance(node, ast.Name) and isinstance(self.names.get(node.id), Buffer):  # the result of T.allocate
            place = ast.copy_location(ast.Attribute(node, "data", ast.Load()), node)
        if not isinstance(place, ast.Attribute) or place.attr != ("data" if call is None else "access_ptr"):
            return None
        target = self.target(place.value)
        if call is None:
            if isinstance(target, PlacedBuffer):
                return target.pointer
            target = source_of(target)[0]
        mask, offset = "rw", 0
        if call is not None:
            given = self.keywords(call, "access_mask", "offset", "ptr_type", "content_lanes", "extent")
            words = [*self.arguments(call, 0, 1), *([given["access_mask"]] if "access_mask" in given else [])]
            mask = str(self.literal(words[0])) if words else mask
            offset = self.value(given["offset"]) if "offset" in given else 0
        buffer, places = source_of(target)
        first: list[PrimExpr] = [E.const(0, "int64") for _ in target.shape]
        if first:
            first[-1] = E.cast("int64", E.as_expr(offset))
        sizes = [*(1,) * (len(buffer.shape) - len(target.shape)), *target.shape]
        access = E.const({"r": 1, "w": 2}.get(mask, 3), "int64")
        return E.Call("handle", I.address_of, (Load(buffer, places(first)), access, *map(E.as_expr, sizes)))

    # Operators.
    def unary(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return E.Not(value) if isinstance(value, PrimExpr) else not value
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.Invert):
            return I.bitwise_not(value)
        return E.Sub(self.typed(node, 0, value.dtype), value) if isinstance(value, PrimExpr) else -value

    def operator(self, node: ast.BinOp) -> Any:
        a, b = self.value(node.left), self.value(node.right)
        bits = _BITS.get(type(node.op))
        if bits is not None:
            x, y = self.meet(node, a, b)
            return E.Call(x.dtype, bits, (x, y))
        kind = _BINARY.get(type(node.op))
        if kind is None:
            raise self.error(
                node,
                f"{type(node.op).__name__} is not an operator of TVMScript; use + - * / // % or a bitwise operator")
        return self.binary(node, kind, a, b)

    def binary(self, node: ast.expr, kind: type[Binary], a: Any, b: Any) -> Any:
        """Return `kind` applied to two values; the difference with an integer constant becomes the sum with its
        negative."""
        if isinstance(a, _LITERAL) and isinstance(b, _LITERAL):
            if b == 0 and kind in (E.Div, E.FloorDiv, E.FloorMod):
                raise self.error(node, "this expression divides by zero")
            return kind.fold(a, b)
        x, y = self.meet(node, a, b)
        if kind is E.Sub and isinstance(y, IntImm) and x.dtype.is_integer:
            return E.Add(x, E.const(-y.value, y.dtype))
        return self.combined(kind, x, y)

    def combined(self, kind: type[Binary], x: PrimExpr, y: PrimExpr) -> PrimExpr:
        if kind is E.Div and x.dtype.is_integer:
            return E.TruncDiv(x, y)
        if kind in (E.FloorDiv, E.FloorMod) and x.dtype.is_float:
            return E.floordiv(x, y) if kind is E.FloorDiv else E.floormod(x, y)
        return kind(x, y)

    def meet(self, node: ast.expr, a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
        """Convert two values to expressions of one type."""
        if isinstance(a, PrimExpr) and isinstance(b, PrimExpr):
            return (a, b) if a.dtype is b.dtype else E.match(a, b)
        if isinstance(a, PrimExpr):
            y = self.beside(node, b, a.dtype)
            return (a, y) if a.dtype is y.dtype else E.match(a, y)
        if isinstance(b, PrimExpr):
            x = self.beside(node, a, b.dtype)
            return (x, b) if x.dtype is b.dtype else E.match(x, b)
        return E.match(E.as_expr(a), E.as_expr(b))

    def beside(self, node: ast.expr, number: Any, dtype: DataType) -> PrimExpr:
        """Convert a bare number next to a value of `dtype` to that type, unless this changes its value."""
        whole = isinstance(number, int) and not isinstance(number, bool)
        if (isinstance(number, float) and not dtype.is_float) or (whole and dtype.code == "bool"):
            return E.as_expr(number)
        return self.typed(node, number, dtype)

    def compare(self, node: ast.Compare) -> Any:
        values = [self.value(v) for v in (node.left, *node.comparators)]
        result: Any = None
        for op, a, b in zip(node.ops, values, values[1:], strict=False):
            kind = _COMPARE.get(type(op))
            if kind is None:
                raise self.error(
                    node, f"{type(op).__name__} is not a comparison of TVMScript; use == != < <= > >=")
            one = self.binary(node, kind, a, b)
            result = one if result is None else self.binary(node, E.And, result, one)
        return result

    def logic(self, node: ast.BoolOp) -> Any:
        kind = E.And if isinstance(node.op, ast.And) else E.Or
        result, *rest = (self.value(v) for v in node.values)
        for value in rest:
            result = self.binary(node, kind, result, value)
        return result

    def choice(self, node: ast.IfExp) -> PrimExpr:
        return self.select(node, node.test, node.body, node.orelse)

    def select(self, node: ast.expr, condition: ast.expr, yes: ast.expr, no: ast.expr) -> PrimExpr:
        c = self.expr(condition)
        t, f = self.meet(node, self.value(yes), self.value(no))
        lanes = max(c.dtype.lanes, t.dtype.lanes)
        return E.Select(E.broadcast(c, lanes), E.broadcast(t, lanes), E.broadcast(f, lanes))

    # Declarations of variables.
    def declared(self, node: ast.expr) -> DataType | None:
        """Return the type of `T.int64()` or `T.var("int64")`, or None."""
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        if ast.unparse(node.func) in ("te.var", "te.size_var", "tvm.te.var", "tvm.te.size_var"):
            return self.dtype(node.args[1]) if len(node.args) > 1 else DataType("int32")
        name = module_name(node.func)
        if is_handle(node):
            return DataType("handle")
        if name == "var" and len(node.args) == 1:
            return self.dtype(node.args[0])
        return (
            self.dtype_named(node, name) if name.startswith(("int", "uint", "float", "bool")) and not node.args
            else None
        )

    def declared_together(self, node: ast.stmt) -> list[tuple[str, DataType]]:
        """Return the names and types of `m, n = T.int32(), T.int32()`; empty for other statements."""
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        values = node.value.elts if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) else []
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(values):
            return []
        found = [(t.id, kind) for t, v in zip(target.elts, values, strict=True)
                 if isinstance(t, ast.Name) and (kind := self.declared(v)) is not None]
        return found if len(found) == len(values) else []

    # Calls.
    def call(self, node: ast.Call) -> Any:
        if self.is_subroutine(node.func):
            return self.subroutine(node, node.func)
        if self.is_outside(node):
            return self.scalar_outside(node)
        name = module_name(node.func)
        if isinstance(node.func, ast.Name):
            name = node.func.id if node.func.id in ("min", "max", "float") else ""
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
            return E.Cast(self.dtype(self.arguments(node, 1)[0]), self.expr(node.func.value))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("vload", "access_ptr"):
            return self.vector_load(node) if node.func.attr == "vload" else self.access_pointer(node)
        if not name:
            address = self.pointer(node)
            return self.python_call(node) if address is None else address
        read = _CALLS.get(name)
        if read is not None:
            return read(self, node)
        if name in _NAMED:
            a, b = self.arguments(node, 2)
            return self.combined(_NAMED[name], *self.meet(node, self.value(a), self.value(b)))
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*self.operands(node.args))
        if name in INTRINSICS:
            return self.intrinsic(node, INTRINSICS[name])
        if name in I.OPAQUE:
            return self.opaque(node, name)
        dtype = self.dtype_named(node, name)
        return self.number(node, dtype) if node.args else Var(name, dtype)

    def operands(self, nodes: Sequence[ast.expr]) -> list[PrimExpr]:
        """Read operands of one function; bare numbers get the type of the first expression."""
        values = [self.value(n) for n in nodes]
        kind = next((v.dtype for v in values if isinstance(v, PrimExpr)), None)
        return [
            v if isinstance(v, PrimExpr) else E.as_expr(v) if kind is None else self.beside(n, v, kind)
            for n, v in zip(nodes, values, strict=True)]

    def arguments(self, node: ast.Call, least: int, most: int | None = None) -> list[ast.expr]:
        """Return the positional arguments after a check of their number."""
        most = least if most is None else most
        if not least <= len(node.args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self.error(
                node,
                f"{ast.unparse(node.func)} takes {wanted} argument{'' if most == 1 else 's'}, but was given "
                f"{len(node.args)}")
        return node.args

    def keywords(self, node: ast.Call, *known: str) -> dict[str, ast.expr]:
        """Return the keyword arguments after a check of their names."""
        found = {k.arg or "**": k.value for k in node.keywords}
        for name in found:
            if name not in known:
                raise self.error(node, f"{ast.unparse(node.func)} has no argument '{name}'{nearest(name, known)}")
        return found

    def intrinsic(self, node: ast.Call, op: Intrinsic) -> PrimExpr:
        given = self.keywords(node, "dtype")
        if op is I.reinterpret and len(node.args) == 2:
            given, node = {"dtype": node.args[0]}, ast.copy_location(ast.Call(node.func, node.args[1:], []), node)
        args = [self.expr(a) for a in node.args]
        if op is I.address_of and "dtype" not in given:
            return E.Call("handle", op, args)
        if "dtype" not in given and not args:
            raise self.error(node, f"T.{op.spelling}() has no argument that determines its type; give dtype=")
        return E.Call(self.dtype(given["dtype"]) if "dtype" in given else args[0].dtype, op, args)

    def vector_load(self, node: ast.Call) -> PrimExpr:
        """Read `A.vload([i, j], "float32x4")`, which is `A[i, T.ramp(j, 1, 4)]`."""
        return self.expr(self.vector_place(node))

    def vector_place(self, node: ast.Call, dtype: DataType | None = None) -> ast.Subscript:
        """Return the elements that `A.vload(begin, dtype)` reads, or `A.vstore(begin, value)` writes, as `A[…]`."""
        given = self.keywords(node, "dtype")
        begin, *rest = node.args
        at = list(begin.elts) if isinstance(begin, (ast.List, ast.Tuple)) else [begin]
        kind = given.get("dtype") or (rest[0] if rest and dtype is None else None)
        lanes = (dtype or (DataType("int8") if kind is None else self.dtype(kind))).lanes
        if lanes > 1:
            ramp = ast.Attribute(ast.Name("T", ast.Load()), "ramp", ast.Load())
            at[-1] = ast.Call(ramp, [at[-1], ast.Constant(1), ast.Constant(lanes)], [])
        assert isinstance(node.func, ast.Attribute)
        made = ast.Subscript(node.func.value, at[0] if len(at) == 1 else ast.Tuple(at, ast.Load()), ast.Load())
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def access_pointer(self, node: ast.Call) -> PrimExpr:
        """Read `A.access_ptr("rw", offset=0)`, the address of a buffer for a function that reads or writes it."""
        assert isinstance(node.func, ast.Attribute)
        given = self.keywords(node, "access_mask", "ptr_type", "content_lanes", "offset", "extent")
        mask = given.get("access_mask") or (node.args[0] if node.args else ast.Constant("rw"))
        buffer = self.names.get(node.func.value.id) if isinstance(node.func.value, ast.Name) else None
        if not isinstance(buffer, Buffer):
            raise self.error(node, f"{ast.unparse(node.func.value)} is not a buffer, which access_ptr needs")
        offset = self.expr(given["offset"]) if "offset" in given else E.const(0, "int64")
        try:
            return address_for(buffer, self.literal(mask), offset)
        except CompileError as error:
            raise self.error(node, error.message) from None

    def opaque(self, node: ast.Call, name: str) -> PrimExpr:
        """Read a call of a built-in function without a meaning here; strings are a part of the function."""
        given = self.keywords(node, "dtype")
        if name == I.TYPED_LAST and "dtype" not in given and node.args and isinstance(node.args[-1], ast.Constant):
            given, node = {"dtype": node.args[-1]}, ast.copy_location(ast.Call(node.func, node.args[:-1], []), node)
        texts = [(i, a.value) for i, a in enumerate(node.args) if isinstance(a, ast.Constant)
                 and isinstance(a.value, str)]
        skipped = {i for i, _ in texts}
        args = [self.argument(a) for i, a in enumerate(node.args) if i not in skipped]
        dtype = self.dtype(given["dtype"]) if "dtype" in given else I.type_of_opaque(name, args)
        return E.Call(dtype, I.opaque(name, *texts), args)

    def number(self, node: ast.Call, dtype: DataType) -> PrimExpr:
        """Read `T.int8(3)` or `T.float32("inf")`; for an expression, return the cast."""
        (argument,) = self.arguments(node, 1)
        text = argument.value if isinstance(argument, ast.Constant) else None
        value = (
            float(text) if isinstance(text, str) and text.lower() in ("inf", "-inf", "nan") else self.value(argument)
        )
        if isinstance(value, PrimExpr):
            return E.Cast(dtype, value)
        if isinstance(value, float) and not dtype.is_float:
            raise self.error(argument, f"{value} is not a value of {dtype}")
        if dtype.lanes > 1:
            return self.typed(argument, value, dtype)
        return FloatImm(dtype, float(value)) if dtype.is_float else self.integer(argument, value, dtype)

    def cast(self, node: ast.Call) -> PrimExpr:
        """Read `T.cast(value, dtype)`, or `T.Cast(dtype, value)`."""
        given = self.keywords(node, "dtype")
        if "dtype" in given:
            return E.Cast(self.dtype(given["dtype"]), self.expr(self.arguments(node, 1)[0]))
        value, dtype = self.arguments(node, 2)
        if module_name(node.func) == "Cast":
            value, dtype = dtype, value
        return E.Cast(self.dtype(dtype), self.expr(value))

    def ramp(self, node: ast.Call) -> PrimExpr:
        base, stride, lanes = self.arguments(node, 3)
        start = self.expr(base)
        return E.Ramp(start, self.expr(stride, start.dtype), self.whole(lanes))

    def spread(self, node: ast.Call) -> PrimExpr:
        value, lanes = self.arguments(node, 2)
        return E.Broadcast(self.expr(value), self.whole(lanes))

    def let(self, node: ast.Call) -> PrimExpr:
        """Read `T.Let(value, where={x: 1})`, the value with expressions in place of variables."""
        where = self.keywords(node, "where").get("where")
        found = self.expr(self.arguments(node, 1)[0])
        if not isinstance(where, ast.Dict):
            raise self.error(node, "T.Let has the form T.Let(x + 1, where={x: 2})")
        for key, value in zip(where.keys, where.values, strict=True):
            var = self.names.get(key.id) if isinstance(key, ast.Name) else None
            if not isinstance(var, Var):
                raise self.error(where, "T.Let needs variables: x = T.int64()")
            found = F.Let(var, self.expr(value, var.dtype), found)
        return found

    def negated(self, node: ast.Call) -> PrimExpr:
        (value,) = self.arguments(node, 1)
        return E.Not(self.expr(value))

    def selected(self, node: ast.Call) -> PrimExpr:
        """Read `T.if_then_else(cond, x, y)`; with `dtype=`, both values have this type."""
        condition, yes, no = self.arguments(node, 3)
        dtype = self.keywords(node, "dtype").get("dtype")
        if dtype is None:
            return self.select(node, condition, yes, no)
        kind = self.dtype(dtype)
        return E.Select(
            self.expr(condition), *(E.cast(kind, self.expr(e, kind.element)) for e in (yes, no)))

    def python_float(self, node: ast.Call) -> float:
        (argument,) = self.arguments(node, 1)
        if not (isinstance(argument, ast.Constant) and argument.value in ("inf", "-inf", "nan")):
            raise self.error(argument, "float(…) takes only 'inf', '-inf' or 'nan'")
        return float(argument.value)

    def limit(self, node: ast.Call) -> PrimExpr:
        """Read `T.min_value(dtype)`, `T.max_value(dtype)` or `T.infinity(dtype)`."""
        dtype = self.dtype(self.arguments(node, 1)[0])
        name = module_name(node.func)
        return (
            min_value(dtype) if name == "min_value" else max_value(dtype) if name == "max_value"
            else FloatImm(dtype, math.inf)
        )

    # Compile-time values.
    def whole(self, node: ast.expr) -> int:
        """Read a positive integer."""
        value = self.value(node)
        value = value.value if isinstance(value, IntImm) else value
        if not isinstance(value, int) or value < 1:
            raise self.error(node, "a positive integer is expected here")
        return value

    def dtype(self, node: ast.expr) -> DataType:
        """Read a dtype: a string, also of the surrounding Python code, or `T.float32`."""
        word = self.outside(node) if self.is_outside(node) else getattr(node, "value", None)
        if isinstance(word, str):
            return self.dtype_named(node, word)
        name = "handle" if is_handle(node) else module_name(node)
        if not name:
            raise self.error(node, 'a data type is expected here, like "float32"')
        return self.dtype_named(node, name)

    def dtype_named(self, node: ast.AST, name: str) -> DataType:
        try:
            return DataType("bool" if name == "boolean" else name)
        except CompileError as error:
            if isinstance(node, ast.Call):
                raise self.error(
                    node.func, f"there is no T.{name}{nearest(name, [*INTRINSICS, *_CALLS, *_NAMED])}"
                ) from None
            raise self.error(node, str(error)) from None

    def extern(self, node: ast.Call) -> PrimExpr:
        """Read `T.call_extern("int32", "symbol", argument, …)`, or with `dtype="int32"` at the end."""
        given = self.keywords(node, "dtype")
        words = [given["dtype"], *node.args] if "dtype" in given else node.args
        if len(words) < 2:
            raise self.error(
                node, f'{ast.unparse(node.func)} takes the type of its result, the name of a C function, and '
                      'arguments: ("int32", "f", argument, …)'
            )
        if isinstance(words[1], ast.Call) and module_name(words[1].func) == "llvm_lookup_intrinsic_id":
            words = [words[0], *self.arguments(words[1], 1), *words[2:]]
        dtype, name = (str(self.literal(a)) for a in words[:2])
        called = str(module_name(node.func))
        try:
            return I.call_named(dtype, called, [name, *(self.argument(a) for a in words[2:])])
        except CompileError as error:
            raise self.error(node, error.message) from None

    def annotation(self, node: ast.expr) -> Any:
        """Read a plain Python value that may contain buffers."""
        match node:
            case ast.Name(id=name) if isinstance(self.names.get(name), Buffer):
                return self.names[name]
            case ast.Tuple() | ast.List():
                found = map(self.annotation, node.elts)
                return tuple(found) if isinstance(node, ast.Tuple) else list(found)
            case ast.Dict() if None not in node.keys:
                pairs = zip(node.keys, node.values, strict=True)
                return {self.literal(k): self.annotation(v) for k, v in pairs if k is not None}
            case _:
                return self.literal(node)

    def target_description(self, node: ast.Call) -> Any:
        """Read `T.target("cuda", host="llvm")`; both may be names of the Python code around."""
        (kind,), host = self.arguments(node, 1), self.keywords(node, "host").get("host")
        found = [None if n is None else self.outer[n.id] if isinstance(n, ast.Name) and n.id in self.outer
                 else self.literal(n) for n in (kind, host)]
        try:
            return dialects.target(*found)
        except CompileError as error:
            raise self.error(node, error.message) from None

    def literal(self, node: ast.expr) -> Any:
        """Read a plain Python value: a number, a string, None, or a container of these."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Call() if module_name(node.func) == "target":
                return self.target_description(node)
            case ast.Tuple():
                return tuple(map(self.literal, node.elts))
            case ast.List():
                return list(map(self.literal, node.elts))
            case ast.Dict() if None not in node.keys:
                return {
                    self.literal(k): self.literal(v) for k, v in zip(node.keys, node.values, strict=True)
                    if k is not None}
            case _:
                value = self.outside(node) if self.is_outside(node) else self.value(node)
                if isinstance(value, (IntImm, FloatImm)):
                    return bool(value.value) if value.dtype.code == "bool" else value.value
                if isinstance(value, PrimExpr):
                    raise self.error(
                        node, "a plain value is expected here: a number, a string, or a container of these")
                return value


def _described(node: ast.AST) -> str:
    kind = type(node).__name__
    return {
        "Lambda": "a function", "Dict": "a dictionary", "List": "a list", "Tuple": "a tuple", "Slice": "a slice"
    }.get(kind, f"Python's {kind}")


_VALUES: Final[dict[type[ast.expr], Callable[[ExprReader, Any], Any]]] = {
    ast.Constant: ExprReader.constant, ast.Name: ExprReader.named, ast.Subscript: ExprReader.load,
    ast.UnaryOp: ExprReader.unary,
    ast.BinOp: ExprReader.operator, ast.Compare: ExprReader.compare, ast.BoolOp: ExprReader.logic,
    ast.IfExp: ExprReader.choice,
    ast.Call: ExprReader.call, ast.Attribute: ExprReader.attribute,
}
_FUNCTIONS: Final[dict[str, Callable[..., PrimExpr]]] = {
    "abs": I.fabs, "power": I.pow, "round": I.nearbyint, "likely": F.likely, "ceildiv": F.ceildiv,
    "popcount": F.popcount, "clz": F.clz, "isfinite": F.isfinite, "log10": F.log10, "log1p": F.log1p, "hypot": F.hypot,
    "copysign": F.copysign, "atan2": F.atan2, "nextafter": F.nextafter, "exp10": F.exp10,
    "q_multiply_shift": F.q_multiply_shift, "q_multiply_shift_per_axis": F.q_multiply_shift_per_axis,
}
"""Functions without nodes of their own, under TVM's names."""
FUNCTIONS: Final[Mapping[str, Callable[..., PrimExpr]]] = {
    **INTRINSICS, **_FUNCTIONS, "reinterpret": F.reinterpret, "Cast": E.cast,
    "cast": lambda value, dtype: E.cast(dtype, value),
    "if_then_else": E.if_then_else, "Select": E.if_then_else,
}
"""Functions of expressions, by their names in TVMScript."""
_CALLS: Final[dict[str, Callable[[ExprReader, ast.Call], Any]]] = {
    "Call": ExprReader.called_by_name, "cast": ExprReader.cast, "Cast": ExprReader.cast,
    "if_then_else": ExprReader.selected,
    "Select": ExprReader.selected,
    "ramp": ExprReader.ramp, "Ramp": ExprReader.ramp, "broadcast": ExprReader.spread, "Broadcast": ExprReader.spread,
    "Let": ExprReader.let,
    "logical_not": ExprReader.negated, "Not": ExprReader.negated, "float": ExprReader.python_float,
    "call_packed": ExprReader.packed, "tvm_call_packed": ExprReader.packed,
    "call_extern": ExprReader.extern, "call_pure_extern": ExprReader.extern,
    "call_llvm_intrin": ExprReader.extern, "call_llvm_pure_intrin": ExprReader.extern,
    "min_value": ExprReader.limit, "max_value": ExprReader.limit, "infinity": ExprReader.limit,
}
