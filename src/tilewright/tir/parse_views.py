"""Reads declarations of views in TVMScript (`tir/views.py`)."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.base.types import DataType
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, PlacedBuffer, PrimExpr, Var
from tilewright.tir.parse_expr import ExprReader, module_name
from tilewright.tir.parse_python import MODULES
from tilewright.tir.printer import extent_between
from tilewright.tir.reinterpreted import Reinterpreted, reinterpreted
from tilewright.tir.views import View, dense_strides, part, reshaped, same_size, source_of

PLACES: Final = ("elem_offset", "align", "offset_factor", "axis_separators")
"""Arguments about the address of a buffer, which is determined when the function is called, and about memory with
several dimensions, which a CPU does not have. They are notes, or have no effect."""


def call_name(node: ast.expr) -> str:
    """Return the name of a called function: `block` for `T.block(…)`, or `range`."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) and node.func.id not in MODULES else module_name(node.func)


def is_view(node: ast.expr) -> bool:
    """Whether a declaration has the memory of another buffer: `data=`, or a region in `T.match_buffer`."""
    name = call_name(node)
    if not isinstance(node, ast.Call) or name not in ("Buffer", "decl_buffer", "buffer_decl", "match_buffer"):
        return False
    if name == "match_buffer":
        return bool(node.args) and isinstance(node.args[0], ast.Subscript)
    third = node.args[2] if len(node.args) > 2 else ast.Constant("")  # the memory, or a scope
    return any(k.arg == "data" for k in node.keywords) or not isinstance(third, ast.Constant)


class ViewReader(ExprReader):
    """Reads views."""

    def check_kind(self, given: Mapping[str, ast.expr]) -> None:
        """Raise `ParseError` for a `buffer_type=` of buffers whose dimensions of size 1 are broadcast."""
        kind = given.get("buffer_type")
        if kind is not None and self.literal(kind) not in ("", "default", "auto"):
            raise self.error(
                kind, 'dimensions of size 1 are not broadcast; the buffer type is "default" or "auto"')

    def view(self, name: str, node: ast.Call) -> Buffer | View | Reinterpreted:
        """Read `T.Buffer(shape, dtype, data=A.data)`, `T.decl_buffer` with data, or `T.match_buffer(A[i:i + 4], (4,))`.
        """
        given = self.keywords(node, "shape", "dtype", "scope", "strides", "data", "type", "buffer_type", *PLACES)
        self.check_kind(given)
        args, is_part = list(node.args), module_name(node.func) == "match_buffer"
        where = args.pop(0) if is_part else given["data"] if "data" in given else args.pop(2)
        shape = given.get("shape") or (args.pop(0) if args else None)
        dims = None if shape is None else shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
        sizes = None if dims is None else [number if (number := E.number_of(self.expr(d))) is not None
                                           else self.expr(d) for d in dims]
        dtype = given.get("dtype") or (args.pop(0) if args else None)
        pointer = self.names.get(where.id) if isinstance(where, ast.Name) else None
        if isinstance(pointer, Var) and pointer.dtype == "handle":
            return self.placed_at(name, given, pointer, sizes or (), "float32" if dtype is None else self.dtype(dtype))
        if is_part and isinstance(where, ast.Subscript):
            target = self.target(where.value)
            made = part(name, target, self.region(where, target), sizes)
        else:
            place = where.value if isinstance(where, ast.Attribute) and where.attr == "data" else where
            target, _ = source_of(self.target(place))  # the address of a view is that of its memory
            offset = self.expr(given["elem_offset"]) if "elem_offset" in given else E.as_expr(0)
            if sizes is None:
                raise self.error(node, f"{ast.unparse(node.func)} with data= needs a shape")
            if dtype is not None and self.dtype(dtype) is not target.dtype and "strides" not in given:
                return self.of_other_type(name, node, target, sizes, self.dtype(dtype), offset)
            made = reshaped(name, target, sizes, offset, self.other_strides(given, sizes))
        if isinstance(made, str):
            raise self.error(node, made)
        if dtype is not None and self.dtype(dtype) is not made.dtype:
            raise self.error(node, f"'{name}' is {self.dtype(dtype)}, but the memory of '{target.name}' holds "
                                   f"{made.dtype}; the types must be equal")
        if is_part:
            self.match_places(node, given, made)
        return made

    def placed_at(
        self, name: str, given: Mapping[str, ast.expr], pointer: Var, sizes: Sequence[Any], dtype: str | DataType
    ) -> PlacedBuffer:
        """Return the memory at an address."""
        scope = str(self.literal(given["scope"])) if "scope" in given else "global"
        apart = given.get("strides")
        steps = apart.elts if isinstance(apart, (ast.Tuple, ast.List)) else []
        return PlacedBuffer(name, sizes, dtype, pointer, scope, [self.value(s) for s in steps])

    def of_other_type(
        self, name: str, node: ast.Call, target: Buffer | View, sizes: Sequence[Any], dtype: DataType, offset: PrimExpr
    ) -> Reinterpreted:
        made = reinterpreted(name, target, sizes, dtype, offset)
        if isinstance(made, str):
            raise self.error(node, made)
        return made

    def other_strides(self, given: Mapping[str, ast.expr], sizes: Sequence[Any]) -> list[int]:
        """Return the strides of a view if they are numbers, and not those of dense memory; else bind the variables for
        them."""
        apart = given.get("strides")
        steps = apart.elts if isinstance(apart, (ast.Tuple, ast.List)) else []
        dense = dense_strides(View("", Buffer("", sizes), tuple(sizes), tuple))
        if steps and len(steps) == len(sizes):
            found = [None if self.is_free(s) else E.number_of(self.expr(s)) for s in steps]
            if None not in found and found != [*dense]:
                return [int(n) for n in found if n is not None]
        self.bind_places(steps, dense)
        return []

    def is_free(self, node: ast.expr) -> bool:
        """Whether a stride is a variable, or a name without a meaning, that gets the value of the memory."""
        return isinstance(node, ast.Name) and isinstance(self.names.get(node.id), (Var, type(None)))

    def bind_places(self, steps: Sequence[ast.expr], values: Sequence[Any]) -> None:
        for word, value in zip(steps, values, strict=False):
            if isinstance(word, ast.Name) and self.is_free(word):
                self.names[word.id] = E.as_expr(value)

    def match_places(self, node: ast.Call, given: Mapping[str, ast.expr], made: View) -> None:
        """Bind the variables for the strides and the offset of a view of a part to their values."""
        apart = given.get("strides")
        values = dense_strides(made.buffer)
        values = values[len(values) - len(made.shape):]
        steps = apart.elts if isinstance(apart, (ast.Tuple, ast.List)) else []
        offset = given.get("elem_offset")
        first = made.places([E.const(0, "int64") for _ in made.shape])
        place = E.const(0, "int64") if offset is None else _dot(first, dense_strides(made.buffer))
        for word, value in [*zip(steps, values, strict=False), *([(offset, place)] if offset is not None else [])]:
            if isinstance(word, ast.Name) and isinstance(self.names.get(word.id), (Var, type(None))):
                self.names[word.id] = E.as_expr(value)
            elif word is not offset and not same_size(self.expr(word), value):
                raise self.error(node, f"a stride of '{made.name}' is {ast.unparse(word)}, but its memory has {value}")

    def region(self, node: ast.Subscript, target: Buffer | View) -> list[tuple[PrimExpr, PrimExpr]]:
        """Return the first index and the extent of each dimension of `A[i, j:j + 4]`."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != len(target.shape):
            raise self.error(
                node, f"buffer '{target.name}' has {len(target.shape)} dimensions, but was given {len(items)} indices")
        found = []
        for item, n in zip(items, target.shape, strict=True):
            if not isinstance(item, ast.Slice):
                found.append((self.expr(item), E.as_expr(1)))
                continue
            low = E.as_expr(0) if item.lower is None else self.expr(item.lower)
            high = E.as_expr(n) if item.upper is None else self.expr(item.upper)
            found.append((low, extent_between(*E.match(low, high))))
        return found


def _dot(indices: Sequence[PrimExpr], strides: Sequence[Any]) -> PrimExpr:
    total: PrimExpr = E.const(0, "int64")
    for i, n in zip(indices, strides, strict=True):
        total = E.add(total, E.mul(i, n))
    return total
