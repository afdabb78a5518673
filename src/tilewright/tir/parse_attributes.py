"""Reads attributes, assertions and threads of TVMScript.

    T.attr(A, "storage_scope", "global")                 an attribute of the statements after it
    T.realize(B[0:4, 0:8], "local")                      memory for a declared buffer, in the statements after it
    assert n > 0, "n is positive"                        a condition of the statements after it
    with T.launch_thread("threadIdx.x", 8) as tx: …      a loop whose trips are threads
    tx = T.env_thread("threadIdx.x")                     the variable of such loops: T.launch_thread(tx, 8)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from tilewright.base.types import INT64
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, PrimExpr, Var
from tilewright.tir.parse_expr import module_name
from tilewright.tir.parse_views import ViewReader
from tilewright.tir.stmt import SERIAL, THREAD, Allocate, AssertStmt, AttrStmt, For, Reducer, Stmt

Wrapper = Callable[[Stmt], Stmt]
ENCLOSING: Final = ("Assert", "attr", "launch_thread", "realize")
"""Functions whose statement contains the statements after it, or those of a `with`."""


class AttributeReader(ViewReader):
    """Reads attributes, assertions and threads."""

    threads: dict[Var, str]
    """The kinds of threads of the variables from `T.env_thread`."""
    without_memory: set[Buffer]
    """The declared buffers that are no parameters, and have no memory yet."""

    def enclosing(self, node: ast.Call, name: str = "") -> Wrapper:
        """Read `T.attr(node, key, value)`, or `T.launch_thread(thread, extent)` with the variable `name`."""
        if module_name(node.func) == "attr":
            what, key, value = self.arguments(node, 3)
            of, text = self.attributed(what), str(self.literal(key))
            given: Any = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else (
                self.expr(value))
            return lambda body: AttrStmt(of, text, given, body)
        if module_name(node.func) == "realize":
            return self.realized(*self.arguments(node, 2))
        if module_name(node.func) == "Assert":
            return self.asserted(node, *self.arguments(node, 2))
        thread, size = self.arguments(node, 2)
        extent = self.expr(size)
        if isinstance(thread, ast.Constant) and isinstance(thread.value, str):
            var, kind = Var(name or thread.value.replace(".", "_"), extent.dtype), thread.value
            if name:
                self.names[name] = var
        else:
            found = self.value(thread)
            if not isinstance(found, Var) or found not in self.threads:
                raise self.error(thread, "a thread is expected here: \"threadIdx.x\", or a result of T.env_thread")
            var, kind = found, self.threads[found]
            if name:
                self.names[name] = var
        trips = E.cast(var.dtype, extent)
        return lambda body: For(var, E.const(0, var.dtype), trips, SERIAL, body, {THREAD: kind})

    def realized(self, region: ast.expr, scope: ast.expr) -> Wrapper:
        """Read `T.realize(B[0:4, 0:8], "local")`: memory for the declared buffer `B`, of the size of the region if that
        begins at 0. A parameter has memory already."""
        buffer = self.target(region.value) if isinstance(region, ast.Subscript) else None
        if not isinstance(region, ast.Subscript) or not isinstance(buffer, Buffer):
            raise self.error(region, 'T.realize needs a region of a buffer: T.realize(B[0:4, 0:8], "")')
        if buffer not in self.without_memory:
            return lambda body: body
        box = self.region(region, buffer)
        sizes = [n for _, n in box] if all(E.number_of(low) == 0 for low, _ in box) else buffer.shape
        made = Buffer(buffer.name, sizes, buffer.dtype, str(self.literal(scope)) or buffer.scope)
        self.names.update({name: made for name, b in self.names.items() if b is buffer})
        return lambda body: Allocate(made, body)

    def asserted(self, node: ast.AST, test: ast.expr, message: ast.expr | None) -> Wrapper:
        """Read `assert condition, "message"`, or `T.Assert(condition, "message")`."""
        condition, text = self.condition(test), "" if message is None else str(self.literal(message))
        return lambda body: AssertStmt(condition, text, body)

    def condition(self, node: ast.expr) -> PrimExpr:
        """Read the condition of a branch, a loop or an assertion; an integer `n` is true if `n != 0`."""
        found = self.expr(node)
        if found.dtype.is_integer and found.dtype.lanes == 1:
            return E.NE(found, E.const(0, found.dtype))
        if found.dtype.element != "bool":
            raise self.error(node, f"a condition must be bool or an integer, but this is {found.dtype}; write a "
                                   "comparison")
        return found

    def attributed(self, node: ast.expr) -> Any:
        """Read the node of an attribute: a buffer, an expression, a reduction, a string, or None."""
        if isinstance(node, ast.Call) and module_name(node.func) == "comm_reducer":
            return self.comm_reducer(node)
        if isinstance(node, ast.Call) and module_name(node.func) == "target":
            return self.target_description(node)
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
            return node.value
        known = self.names.get(node.id) if isinstance(node, ast.Name) else None
        place = node.value if isinstance(node, ast.Attribute) and node.attr == "data" else None
        if place is not None:
            known = self.target(place)
        return known if isinstance(known, (Buffer, PrimExpr)) else self.expr(node)

    def comm_reducer(self, node: ast.Call) -> Reducer:
        """Read `T.comm_reducer(lambda x, y: x + y, [T.float32(0)])`: the combined values, and the neutral ones,
        which have TVM's types if they are bare numbers."""
        function, start = self.arguments(node, 2)
        if not isinstance(function, ast.Lambda) or not isinstance(start, (ast.List, ast.Tuple)):
            raise self.error(node, "a reduction has the form T.comm_reducer(lambda x, y: x + y, [0.0])")
        neutral = tuple(E.literal(self.value(e)) for e in start.elts)
        names = [a.arg for a in function.args.args]
        made = function.body.elts if isinstance(function.body, ast.Tuple) else [function.body]
        if len(names) != 2 * len(neutral) or len(made) != len(neutral):
            raise self.error(
                node, f"a reduction of {len(neutral)} takes {2 * len(neutral)} values and gives {len(neutral)}")
        before = dict(self.names)
        params = tuple(Var(n, e.dtype) for n, e in zip(names, (*neutral, *neutral), strict=True))
        self.names.update(zip(names, params, strict=True))
        body = tuple(map(self.expr, made))
        self.names = before
        return Reducer("comm_reducer", params, body, neutral)

    def env_thread(self, name: str, node: ast.Call) -> None:
        """Read `name = T.env_thread("threadIdx.x")`."""
        (kind,) = self.arguments(node, 1)
        var = Var(name, INT64)
        self.names[name] = var
        self.threads[var] = str(self.literal(kind))
