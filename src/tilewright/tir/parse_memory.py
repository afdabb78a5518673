"""Reads declarations of variables and memory in TVMScript.

    A = T.allocate((8,), "float32", "local", annotations={…})      memory
    B = T.allocate_const([1, 2, 3], "int8", [3])                    constants
    with T.LetStmt(T.address_of(pool[64]), var=C.data): …           memory at an address, for a declared buffer C
    C = T.Buffer((16,), "uint8", data=p)                            memory at the address in a variable
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tilewright.base.errors import CompileError
from tilewright.base.types import DataType
from tilewright.scalar.expr import Buffer, PlacedBuffer, Var
from tilewright.tir.constructors import constant_elements
from tilewright.tir.parse_attributes import AttributeReader, Wrapper
from tilewright.tir.parse_expr import module_name
from tilewright.tir.parse_views import PLACES, call_name
from tilewright.tir.stmt import Allocate, AllocateConst, Let, Reducer

N = TypeVar("N", Var, Buffer)
ALLOCATIONS: Final = ("allocate", "allocate_const", "decl_buffer")
"""Functions whose result is memory for the statements after them, or those of a `with`."""


class MemoryReader(AttributeReader):
    """Reads declarations of variables and memory."""

    known: dict[str, Var | Buffer]
    """The last variable or buffer of each name, in scope or not."""

    def new_buffer(self, name: str, node: ast.Call, args: Sequence[ast.expr], scope: str) -> Buffer:
        """Read a buffer from `args`: shape, dtype and, optionally, scope."""
        notes = ("annotations",) if module_name(node.func) in ALLOCATIONS else ()
        given = self.keywords(node, "shape", "dtype", "scope", "strides", "buffer_type", *notes, *PLACES)
        self.check_kind(given)
        rest = list(args)
        shape = given.get("shape") or (rest.pop(0) if rest else None)
        dtype = given.get("dtype") or (rest.pop(0) if rest else None)
        where = given.get("scope") or (rest.pop(0) if rest else None)
        if shape is None or rest:
            raise self.error(
                node,
                f'{ast.unparse(node.func)} needs a shape, a data type and a scope: ((8,), "float32", scope="local")')
        sizes = self.sizes(shape)
        kind = self.dtype(dtype) if dtype is not None else DataType("float32")
        strides = self.sizes(given["strides"]) if "strides" in given else ()
        separators = self.literal(given["axis_separators"]) if "axis_separators" in given else ()
        first = self.expr(given["elem_offset"]) if "elem_offset" in given else 0
        made = Buffer(
            name, sizes, kind, str(self.literal(where)) or scope if where is not None else scope, strides, separators,
            first)
        return self.bind(name, made, _same_buffer)

    def buffers_named(self, call: ast.Call) -> list[Buffer]:
        """Return the buffers of `T.reads(A[i], B[0:4])`, without views."""
        given = [x for a in call.args for x in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]
        names = [x.value if isinstance(x, ast.Subscript) else x for x in given]
        found = [self.names.get(n.id) for n in names if isinstance(n, ast.Name)]
        return [b for b in found if isinstance(b, Buffer)]

    def sizes(self, node: ast.expr) -> list[Any]:
        """Read a shape: a tuple, or one size."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return [self.value(d) for d in node.elts]
        found = self.outside(node) if self.is_outside(node) else self.value(node)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    def reducer(self, call: ast.Call) -> Reducer:
        """Read `T.reducer("sum", lambda x, y: (x + y,), (0.0,))`. The parameters, old values then new ones, have the
        types of the neutral values."""
        name, function, start = self.arguments(call, 3)
        if (
            not isinstance(function, ast.Lambda) or not isinstance(function.body, ast.Tuple)
            or not isinstance(start, ast.Tuple)
        ):
            raise self.error(call, "a reducer has the form T.reducer(\"sum\", lambda x, y: (x + y,), (0.0,))")
        neutral = tuple(self.expr(e) for e in start.elts)
        names = [a.arg for a in function.args.args]
        if len(names) != 2 * len(neutral) or len(function.body.elts) != len(neutral):
            raise self.error(
                function,
                f"a reducer of {len(neutral)} value{'s' if len(neutral) > 1 else ''} takes {2 * len(neutral)} and "
                f"gives {len(neutral)}")
        before = dict(self.names)
        params = tuple(self.new_var(n, e.dtype) for n, e in zip(names, (*neutral, *neutral), strict=True))
        body = tuple(self.expr(e) for e in function.body.elts)
        self.names = before
        return Reducer(str(self.literal(name)), params, body, neutral)

    def new_var(self, name: str, dtype: DataType) -> Var:
        return self.bind(name, Var(name, dtype), lambda old, new: old.dtype is new.dtype)

    def bind(self, name: str, made: N, same: Callable[[N, N], bool]) -> N:
        """Bring a name into scope: reuse its previous object if that is out of scope and equal, else use `made`."""
        old = self.known.get(name)
        if isinstance(old, type(made)) and name not in self.names and same(old, made):
            made = old
        self.names[name] = self.known[name] = made
        return made

    def allocation(self, name: str, node: ast.Call) -> Wrapper:
        """Read `T.allocate(shape, dtype, scope)`, `T.decl_buffer` without data, or `T.allocate_const(data, dtype,
        shape)`."""
        note = next((k.value for k in node.keywords if k.arg == "annotations"), None)
        notes = {} if note is None else self.annotation(note)
        if module_name(node.func) != "allocate_const":
            buffer = self.new_buffer(name, node, node.args, "global")
            return lambda body: Allocate(buffer, body, notes)
        given = self.keywords(node, "data", "dtype", "extents", "annotations")
        words = dict(zip(("data", "dtype", "extents"), node.args, strict=False)) | given
        if not {"data", "dtype", "extents"} <= words.keys():
            raise self.error(node, 'T.allocate_const needs values, a data type and a shape: ([1, 2], "int8", [2])')
        made = self.bind(name, Buffer(name, self.sizes(words["extents"]), self.dtype(words["dtype"])), _same_buffer)
        try:
            given_data = self.outside(words["data"]) if self.is_outside(words["data"]) else self.literal(words["data"])
            values = constant_elements(given_data, made)
        except CompileError as error:
            raise self.error(node, error.message) from None
        return lambda body: AllocateConst(made, body, notes, values)

    def bound(self, node: ast.Call) -> Wrapper:
        """Read `T.LetStmt(value, var=x)` of a variable that is declared."""
        word = self.keywords(node, "var").get("var")
        if isinstance(word, ast.Attribute) and word.attr == "data":
            return self.placed(word, node)
        var = self.names.get(word.id) if isinstance(word, ast.Name) else None
        if not isinstance(var, Var):
            raise self.error(node, "T.LetStmt(value, var=x) needs a variable: x = T.int64()")
        value = self.expr(self.arguments(node, 1)[0], var.dtype)
        if value.dtype is not var.dtype:
            raise self.error(node, f"'{var.name}' is {var.dtype}, but its value is {value.dtype}; cast the value")
        return lambda body: Let(var, value, body)

    def placed(self, word: ast.Attribute, node: ast.Call) -> Wrapper:
        """Read `T.LetStmt(address, var=B.data)`; afterwards `B` is the memory at that address."""
        buffer = self.target(word.value)
        if not isinstance(word.value, ast.Name) or not isinstance(buffer, Buffer):
            raise self.error(word, "T.LetStmt(address, var=B.data) needs a buffer: B = T.Buffer((8,), \"float32\")")
        value = self.expr(self.arguments(node, 1)[0])
        var = Var(buffer.name, DataType("handle"))
        if value.dtype is not var.dtype:
            raise self.error(node, f"the address of '{buffer.name}' is a handle, but this value is {value.dtype}")
        self.names[word.value.id] = PlacedBuffer(buffer.name, buffer.shape, buffer.dtype, var)
        return lambda body: Let(var, value, body)


def unnamed_root(body: Sequence[ast.stmt]) -> ast.stmt | None:
    """Return the block without a name that is all of a function, if it allocates buffers: it is the root block."""
    *before, last = body
    if not isinstance(last, ast.With):
        return None
    known = (call_name(s.value) if isinstance(s, (ast.Assign, ast.Expr)) else "" for s in before)
    call, inside = last.items[0].context_expr, [call_name(s.value) for s in last.body if isinstance(s, ast.Assign)]
    is_unnamed = isinstance(call, ast.Call) and call_name(call) == "block" and not call.args
    return last if is_unnamed and "alloc_buffer" in inside and all(name in _AHEAD for name in known) else None


_AHEAD: Final = ("match_buffer", "func_attr", "int32", "int64")
"""Declarations before a block that is all of a function."""


def _same_buffer(a: Buffer, b: Buffer) -> bool:
    same_shape = (
        len(a.shape) == len(b.shape)
        and all(x is y or (isinstance(x, int) and x == y) for x, y in zip(a.shape, b.shape, strict=True))
    )
    same_place = a.strides == b.strides and a.elem_offset is b.elem_offset and a.scope == b.scope
    return same_shape and same_place and a.dtype is b.dtype
