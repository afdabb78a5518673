"""Reads declarations of memory in TVMScript: buffers, allocations and constants.

    A = T.alloc_buffer((16,), "float32")
    K = T.allocate_const([1, 2, 3], "int32", [3])
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeVar

import numpy as np

from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, Var
from tilewright.tir.parse_attributes import AttributeReader, Wrapper
from tilewright.tir.parse_expr import module_name
from tilewright.tir.parse_views import PLACES
from tilewright.tir.stmt import Allocate, AllocateConst

ALLOCATIONS: Final = ("allocate", "allocate_const", "decl_buffer")
"""Functions whose memory lasts to the end of the scope."""
N = TypeVar("N", Var, Buffer)


class MemoryReader(AttributeReader):
    """Reads declarations of memory."""

    known: dict[str, Var | Buffer]
    """The last variable or buffer of each name, in scope or not."""

    def memory(self, name: str, node: ast.Call) -> Wrapper:
        """Read an allocation."""
        if module_name(node.func) == "allocate_const":
            return self.constant_memory(name, node)
        notes = next((k for k in node.keywords if k.arg == "annotations"), None)
        if notes is None or module_name(node.func) != "allocate":
            buffer = self.new_buffer(name, node, node.args, "global")
            return lambda body: Allocate(buffer, body)
        plain = ast.copy_location(ast.Call(node.func, node.args, [k for k in node.keywords if k is not notes]), node)
        buffer, found = self.new_buffer(name, plain, node.args, "global"), self.annotation(notes.value)
        return lambda body: Allocate(buffer, body, found)

    def constant_memory(self, name: str, node: ast.Call) -> Wrapper:
        """Read `T.allocate_const(elements, dtype, extents)`."""
        given = self.keywords(node, "data", "dtype", "extents", "annotations")
        words = dict(zip(("data", "dtype", "extents"), node.args, strict=False)) | given
        if len(node.args) > 3 or not {"data", "dtype", "extents"} <= words.keys():
            raise self.error(node, 'T.allocate_const needs elements, a data type and extents: ([1, 2], "int32", [2])')
        kind, sizes = self.dtype(words["dtype"]), [E.number_of(E.as_expr(n)) or 0 for n in self.sizes(words["extents"])]
        elements = self.outside(words["data"]) if self.is_outside(words["data"]) else self.literal(words["data"])
        data = np.asarray(elements, kind.numpy())
        if data.size != prod(sizes):
            raise self.error(
                node, f"'{name}' has {data.size} elements, which do not fill {ast.unparse(words['extents'])}")
        buffer = self.bind(name, Buffer(name, sizes, kind), _same_buffer)
        return lambda body: AllocateConst(buffer, data.reshape(buffer.shape), body)

    def new_buffer(self, name: str, node: ast.Call, args: Sequence[ast.expr], scope: str) -> Buffer:
        """Read a buffer from `args`: shape, dtype and, optionally, scope."""
        given = self.keywords(node, "shape", "dtype", "scope", "strides", "buffer_type", *PLACES)
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
        made = Buffer(name, sizes, kind, str(self.literal(where)) if where is not None else scope, strides)
        return self.bind(name, made, _same_buffer)

    def sizes(self, node: ast.expr) -> list[Any]:
        """Read a shape: a tuple, or one size."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return [self.value(d) for d in node.elts]
        found = self.outside(node) if self.is_outside(node) else self.value(node)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    def new_var(self, name: str, dtype: DataType) -> Var:
        return self.bind(name, Var(name, dtype), lambda old, new: old.dtype is new.dtype)

    def bind(self, name: str, made: N, same: Callable[[N, N], bool]) -> N:
        """Bring a name into scope: reuse its previous object if that is out of scope and equal, else use `made`."""
        old = self.known.get(name)
        if isinstance(old, type(made)) and name not in self.names and same(old, made):
            made = old
        self.names[name] = self.known[name] = made
        return made


def _same_buffer(a: Buffer, b: Buffer) -> bool:
    same_shape = (
        len(a.shape) == len(b.shape)
        and all(x is y or (isinstance(x, int) and x == y) for x, y in zip(a.shape, b.shape, strict=True))
    )
    return same_shape and a.strides == b.strides and a.dtype is b.dtype and a.scope == b.scope
