"""Parser of TIR text: `parse(str(func))` is structurally equal to `func`. The text is not executed.

    func = tir.parse(text)              the one function of a text
    mod = tir.parse_module(text)        all functions of a text, by name

The grammar is in `docs/tir.md`: the output of `tir/printer.py`, and TVMScript (v0.13) for the same constructs. A name
denotes one variable in the whole text, even if several consecutive loops bind it: copies of a body have such loops.
`tir/transform/convert_ssa.py` gives each loop its own variable. Parsing stops at the first `ParseError`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import Origin, ParseError
from tilewright.base.types import BOOL, DataType
from tilewright.ir import diagnostics
from tilewright.ir.module import IRModule
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Buffer, PrimExpr, Var
from tilewright.tir.buffers import fitted
from tilewright.tir.parse_attributes import ENCLOSING, Wrapper
from tilewright.tir.parse_expr import is_handle, module_name
from tilewright.tir.parse_memory import ALLOCATIONS, MemoryReader, unnamed_root
from tilewright.tir.parse_python import OwnNames, Source, around
from tilewright.tir.parse_views import call_name, is_view
from tilewright.tir.printer import extent_between
from tilewright.tir.stmt import (
    INNER,
    OWN_READS,
    PARALLEL,
    ROOT_ATTRS,
    ROOT_BLOCK,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    Block,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    While,
    stored_buffers,
    walk_stmt,
)
from tilewright.tir.view_indices import in_loops
from tilewright.tir.views import View

_LOOPS: Final = {
    "serial": SERIAL, "parallel": PARALLEL, "vectorized": VECTORIZED, "unrolled": UNROLLED, "unroll": UNROLLED,
    "thread_binding": SERIAL}
_AXES: Final = {"S": "spatial", "R": "reduce", **{k: k for k in ("spatial", "reduce", "scan", "opaque")}}


def parse(text: str, file: str = "") -> PrimFunc:
    """Parse the function that `text` defines; `file` is for messages. Raises `ParseError`."""
    with diagnostics.reporting():
        functions = _functions(text, file)
        if len(functions) != 1:
            raise ParseError(
                f"{file or 'the text'} defines {len(functions)} functions, but one is expected; use parse_module for "
                "several")
    return functions[0]


def parse_module(text: str, file: str = "") -> IRModule:
    """Parse the functions that `text` defines, by name. Raises `ParseError`."""
    with diagnostics.reporting():
        return IRModule({f.name: f for f in _functions(text, file)})


def parse_python(function: Callable[..., Any]) -> PrimFunc:
    """Parse a Python function written in TIR; its source file is read, and the function is never called.

    Numbers bound in the surrounding Python code can be used by name. Each loop and axis gets a variable of its own.
    Raises `ParseError`.
    """
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise ParseError(
            f"the source of '{getattr(function, '__name__', function)}' is not in a file; pass the text to tir.parse"
        ) from None
    from tilewright.tir.transform.convert_ssa import convert_ssa

    source = Source(textwrap.dedent("".join(lines)), inspect.getsourcefile(function) or "", first)
    with diagnostics.reporting():
        ((_, definition),) = _definitions(source)
        return convert_ssa(_read(source, around(function), definition, _class_around(function)))


def _functions(text: str, file: str) -> list[PrimFunc]:
    source = Source(textwrap.dedent(text), file)
    return [_read(source, {}, d, module) for module, d in _definitions(source)]


def _read(source: Source, outer: Mapping[str, Any], definition: ast.FunctionDef, module: str) -> PrimFunc:
    reader = FunctionReader(source, outer)
    reader.module = module
    try:
        return reader.function(definition)
    except RecursionError:
        raise source.error(definition, f"function '{definition.name}' is {_TOO_DEEP}") from None


_TOO_DEEP: Final = "nested too deeply; assign inner values to names, and split long sums into several statements"


def _class_around(function: Callable[..., Any]) -> str:
    """Return the name of the class that a function is defined in, or an empty text."""
    *_, around, _ = ("", *function.__qualname__.split("."))
    return "" if around == "<locals>" else around


def _definitions(source: Source) -> list[tuple[str, ast.FunctionDef]]:
    """Return the functions of a text, each with the name of the class that it is in, or an empty text; imports are
    skipped."""
    try:
        tree = ast.parse("\n".join(source.lines))
    except (MemoryError, RecursionError):
        raise ParseError(f"{source.file or 'the text'} is {_TOO_DEEP}") from None
    except SyntaxError as error:
        row, column = error.lineno or 1, max(error.offset or 1, 1) - 1
        raise source.located(row, column, column + 1, f"this is not valid Python: {error.msg}") from None
    found: list[tuple[str, ast.FunctionDef]] = []
    for s in tree.body:
        module = s.name if isinstance(s, ast.ClassDef) else ""
        for x in s.body if isinstance(s, ast.ClassDef) else [s]:
            if isinstance(x, ast.FunctionDef):
                found.append((module, x))
            elif not isinstance(x, (ast.Import, ast.ImportFrom)):
                raise source.error(
                    x, "a function is expected here: @T.prim_func, then def name(A: T.Buffer((8,), \"float32\")):")
    return found


@dataclass
class _Header:
    """The axes, predicate and annotations of a block, from its first lines."""

    iters: list[IterVar] = field(default_factory=list)
    bindings: list[PrimExpr] = field(default_factory=list)
    predicate: PrimExpr = field(default_factory=lambda: E.const(1, BOOL))
    given: set[str] = field(default_factory=set)
    """Names of lines that are given at most once, such as `where`, and of the axes."""
    init: Stmt | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    reads: list[Buffer] = field(default_factory=list)
    """The buffers that the block reads, as far as they are given."""


class FunctionReader(MemoryReader):
    """Reads one function."""

    def __init__(self, source: Source, outer: Mapping[str, Any]) -> None:
        super().__init__(source, outer)
        self.known = {}
        self.threads, self.without_memory = {}, set()
        self.attrs: dict[str, Any] = {}
        self.inner: list[Buffer] = []
        self.root_node: ast.stmt | None = None
        self.handles: dict[str, Buffer | None] = {}
        self.addresses: dict[str, Var] = {}
        self.extents: dict[Any, PrimExpr] = {}
        """Extents of the loops by their variables, for `T.axis.remap`."""

    def function(self, node: ast.FunctionDef) -> PrimFunc:
        node = OwnNames(self.outer).visit(node)
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        self.declare_sizes(body)
        self.root_node = unnamed_root(body)
        numbers = {place: v for place, a in enumerate(node.args.args) if (v := self.scalar(a)) is not None}
        params = [  # numbers come first, since they may be sizes of the buffers before them
            numbers[place] if place in numbers else self.parameter(a) for place, a in enumerate(node.args.args)]
        if node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.posonlyargs or node.args.defaults:
            raise self.error(node, f"the parameters of '{node.name}' must be positional and without defaults")
        read = in_loops(self.sequence(body), self.of_views)
        given = tuple(map(self.matched, params))
        if self.attrs.get("runner_function"):
            self.attrs["argument_names"] = tuple(a.arg for a in node.args.args)
        self.attrs = {k: self.with_buffers(v) for k, v in self.attrs.items()}
        return PrimFunc(
            self.symbol(node), given, read, self.attributes(read), self.origin(node, node.name, "function"))

    def symbol(self, node: ast.FunctionDef) -> str:
        for d in node.decorator_list:
            for k in d.keywords if isinstance(d, ast.Call) else ():
                if k.arg == "name":
                    return str(self.literal(k.value))
        return node.name

    def attributes(self, body: Stmt) -> dict[str, Any]:
        """Return the attributes. A function with blocks lists its intermediate buffers, even if empty, unless the text
        differs."""
        stated = self.attrs.get(INNER, ())
        inner = tuple(self.inner)
        if (
            inner
            or (stated is not None and (INNER in self.attrs or any(isinstance(s, Block) for s in walk_stmt(body))))
        ):
            return {**self.attrs, INNER: inner}
        return {k: v for k, v in self.attrs.items() if k != INNER}

    def origin(self, node: ast.AST, name: str, kind: str) -> Origin | None:
        return Origin(name, kind, self.source.file, self.source.line(node)) if self.source.file else None

    # Parameters and names.
    def declare_sizes(self, body: Sequence[ast.stmt]) -> None:
        """Read declarations of variables, `n = T.int64()`. They precede the parameters because parameters may have them
        as dimensions."""
        for s in body:
            if (
                isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
                and (dtype := self.declared(s.value)) is not None
            ):
                self.names[s.targets[0].id] = self.known[s.targets[0].id] = Var(s.targets[0].id, dtype)
            elif isinstance(s, ast.Assign) and (several := self.declared_together(s)):
                for name, dtype in several:
                    self.names[name] = self.known[name] = Var(name, dtype)

    def scalar(self, node: ast.arg) -> Var | None:
        """Return the variable of a parameter like `n: T.int64`, or None."""
        kind = module_name(node.annotation) if isinstance(node.annotation, (ast.Attribute, ast.Name)) else ""
        if not kind.startswith(("int", "uint", "float", "bfloat", "bool")):
            return None
        return self.new_var(node.arg, self.dtype_named(node, kind))

    def parameter(self, node: ast.arg) -> str | Buffer:
        """Read a buffer, or the name of a handle that is matched to a buffer later."""
        kind = node.annotation
        if kind is not None and is_handle(kind):
            self.handles[node.arg] = None
            self.addresses[node.arg] = self.new_var(node.arg, DataType("handle"))
            return node.arg
        if isinstance(kind, ast.Subscript) and module_name(kind.value) == "Buffer":
            items = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
            kind = ast.copy_location(ast.Call(kind.value, items, []), kind)
        if not isinstance(kind, ast.Call) or module_name(kind.func) != "Buffer":
            raise self.error(node, f"parameter '{node.arg}' must have a buffer type: {node.arg}: T.Buffer((8,), "
                                   "\"float32\")")
        return self.new_buffer(node.arg, kind, kind.args, "global")

    def matched(self, param: str | Buffer | Var) -> Buffer | Var:
        """Return a parameter; that of a handle is its buffer, or without one, its address."""
        if not isinstance(param, str):
            return param
        buffer = self.handles[param]
        return self.addresses[param] if buffer is None else buffer

    def literal(self, node: ast.expr) -> Any:
        """Read a plain Python value, or a parameter that is a handle."""
        found = self.addresses.get(node.id) if isinstance(node, ast.Name) else None
        return super().literal(node) if found is None else found

    def with_buffers(self, value: Any) -> Any:
        """Return an attribute with the buffers that handles are matched to."""
        if isinstance(value, list):
            return [self.with_buffers(v) for v in value]
        name = next((n for n, v in self.addresses.items() if v is value), "")
        return self.handles.get(name) or value

    # Statements.
    def sequence(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """Read the statements of a scope; the scope of a `Let` or an allocation extends to its end."""
        before = dict(self.names)
        parts = self.parts(nodes)
        self.names = before
        return _together(parts)

    def parts(self, nodes: Sequence[ast.stmt]) -> list[Stmt]:
        frames: list[tuple[Wrapper | None, list[Stmt]]] = [(None, [])]
        for n in nodes:
            wrapper = self.opening(n)
            if wrapper is not None:
                frames.append((wrapper, []))
            elif not self.declares(n):
                frames[-1][1].append(self.stmt(n))
        while True:
            wrapper, parts = frames.pop()
            if wrapper is None:
                return parts
            frames[-1][1].append(wrapper(_together(parts)))

    def opening(self, node: ast.stmt) -> Wrapper | None:
        """Return the statement that encloses all following ones, for `x = value` and `A = T.allocate(…)`, else None."""
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            return (
                None if call_name(node.value) in _DECLARATIONS or self.declared(node.value) or is_view(node.value)
                else self.opened(node.targets[0].id, node.value)
            )
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            return self.opened(node.target.id, node.value, self.dtype(node.annotation))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and call_name(node.value) in ENCLOSING:
            return self.enclosing(node.value)
        if isinstance(node, ast.Assert):
            return self.asserted(node, node.test, node.msg)
        if isinstance(node, ast.Expr) and call_name(node.value) == "LetStmt" and isinstance(node.value, ast.Call):
            return self.bound(node.value)
        return None

    def opened(self, name: str, node: ast.expr, dtype: DataType | None = None) -> Wrapper:
        if isinstance(node, ast.Call) and module_name(node.func) in ALLOCATIONS:
            return self.allocation(name, node)
        if isinstance(node, ast.Call) and module_name(node.func) == "launch_thread":
            return self.enclosing(node, name)
        if isinstance(node, ast.Call) and module_name(node.func) in ("let", "LetStmt"):
            (node,) = self.arguments(node, 1)
        if isinstance(node, ast.Call) and self.is_outside(node.func) and not self.is_outside(node):
            found = self.called(node)
            if isinstance(found, (Buffer, View)):
                self.names[name] = found
                return lambda body: body
            value = self.typed_number(node, self.number_returned(node, found), dtype)
        else:
            value = self.expr(node, dtype)
        var = self.new_var(name, value.dtype)
        return lambda body: Let(var, value, body)

    def declares(self, node: ast.stmt) -> bool:
        """Read a declaration about the function or its memory; return False for other statements."""
        if (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            and module_name(node.value.func) == "func_attr"
        ):
            self.attrs.update(self.literal(self.arguments(node.value, 1)[0]))
            return True
        if self.bound_together(node):
            return True
        if several := self.declared_together(node):
            for name, kind in several:
                if name not in self.names:
                    self.new_var(name, kind)
            return True
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            return False
        name, call = node.targets[0].id, call_name(node.value)
        if isinstance(node.value, ast.Call) and call == "env_thread":
            self.env_thread(name, node.value)
            return True
        if isinstance(node.value, ast.Call) and call == "meta_var":
            self.names[name] = self.value(self.arguments(node.value, 1)[0])
            return True
        if isinstance(node.value, ast.Call) and is_view(node.value):
            self.names[name] = self.of_parameter(name, node.value) or self.view(name, node.value)
            return True
        if isinstance(node.value, ast.Call) and call in _DECLARATIONS:
            args = node.value.args
            if call == "match_buffer":
                handle = args[0].id if args and isinstance(args[0], ast.Name) else ""
                if handle not in self.handles:
                    raise self.error(
                        node.value,
                        "T.match_buffer takes a parameter that is a handle; these are "
                        f"{', '.join(self.handles) or 'none'}"
                    )
                args = args[1:]
            known = self.names.get(name)
            made = self.new_buffer(name, node.value, args, "global")
            if call == "match_buffer":
                self.handles[handle] = made
            elif call == "alloc_buffer":
                if made in self.inner or any(b is known for b in self.inner):
                    raise self.error(node, f"the buffer '{name}' is declared twice here; give it another name")
                self.inner.append(made)
            else:
                self.without_memory.add(made)
            return True
        dtype = self.declared(node.value)
        if dtype is not None and name not in self.names:
            self.new_var(name, dtype)
        return dtype is not None

    def of_parameter(self, name: str, node: ast.Call) -> Buffer | None:
        """Read `B = T.Buffer((4,), data=A)`, the memory of a parameter `A: T.handle("float32")` without a buffer yet;
        None for views."""
        handle = next((k.value.id for k in node.keywords if k.arg == "data" and isinstance(k.value, ast.Name)), "")
        if self.handles.get(handle, self) is not None:
            return None
        plain = ast.copy_location(ast.Call(node.func, node.args, [k for k in node.keywords if k.arg != "data"]), node)
        made = self.new_buffer(name, plain, node.args, "global")
        self.handles[handle] = self.names[handle] = made
        return made

    def bound_together(self, node: ast.stmt) -> bool:
        """Read `i, j = f(k)`, where a function of the surrounding Python code returns several values."""
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple):
            return False
        target, call = node.targets[0], node.value
        if not isinstance(call, ast.Call) or not self.is_outside(call.func):
            return False
        values = self.python_values(call)
        if len(values) != len(target.elts) or not all(isinstance(t, ast.Name) for t in target.elts):
            raise self.error(node, f"'{ast.unparse(call.func)}' returned {len(values)} values for "
                                   f"{len(target.elts)} names")
        self.names.update({t.id: v for t, v in zip(target.elts, values, strict=True) if isinstance(t, ast.Name)})
        return True

    def stmt(self, node: ast.stmt) -> Stmt:
        read = _STATEMENTS.get(type(node))
        if read is None:
            raise self.error(node, f"Python's {type(node).__name__} is not a statement of TVMScript")
        return read(self, node)

    def loop(self, node: ast.For) -> Stmt:
        call = node.iter
        name = call_name(call)
        if not isinstance(call, ast.Call) or node.orelse or (name not in _LOOPS and name not in ("grid", "range")):
            raise self.error(call, f"a loop must iterate over one of {', '.join(f'T.{k}' for k in _LOOPS)}, T.grid or "
                                   "range")
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        before = dict(self.names)
        call = _with_thread(call) if name == "thread_binding" else call
        trips = [self.trips(call, [a]) for a in call.args] if name == "grid" else [self.trips(call, call.args)]
        if len(targets) != len(trips):
            raise self.error(node.target, f"{len(trips)} loop variables are needed, but {len(targets)} were given")
        given = self.keywords(call, "annotations", "dtype", "extent", *(["thread"] if name == "thread_binding" else []))
        notes = self.literal(given["annotations"]) if "annotations" in given else {}
        if name == "thread_binding" and "thread" not in given:
            raise self.error(call, 'the thread is missing: T.thread_binding(128, thread="threadIdx.x")')
        if "thread" in given:
            notes = {**notes, THREAD: str(self.literal(given["thread"]))}
        loops = []
        for t, (low, extent) in zip(targets, trips, strict=True):
            if not isinstance(t, ast.Name):
                raise self.error(t, "the variable of a loop must be a name")
            var = self.new_var(t.id, self.dtype(given["dtype"]) if "dtype" in given else extent.dtype)
            self.extents[var] = extent
            loops.append(
                For(var, low, extent, _LOOPS.get(name, SERIAL), Seq(()), notes, self.origin(node, t.id, "loop")))
        body = self.sequence(node.body)
        self.names = before
        for f in reversed(loops):
            body = For(f.var, f.min, f.extent, f.kind, body, f.annotations, f.origin)
        return body

    def trips(self, call: ast.Call, args: Sequence[ast.expr]) -> tuple[PrimExpr, PrimExpr]:
        """Return the first value and the number of trips of a loop."""
        exact = next((k.value for k in call.keywords if k.arg == "extent"), None)
        if not 1 <= len(args) <= (1 if exact is not None else 2):
            raise self.error(call, f"{ast.unparse(call.func)} takes one argument (end) or two (start, end)")
        if exact is not None:
            return self.expr(args[0]), self.expr(exact)
        if len(args) == 1:
            extent = self.expr(args[0])
            return E.const(0, extent.dtype), extent
        low, end = self.meet(call, self.value(args[0]), self.value(args[1]))
        return low, extent_between(low, end)

    def branch(self, node: ast.If) -> Stmt:
        condition, then = self.condition(node.test), self.sequence(node.body)
        return IfThenElse(condition, then, self.sequence(node.orelse) if node.orelse else None)

    def repetition(self, node: ast.While) -> Stmt:
        if node.orelse:
            raise self.error(node.orelse[0], "a while loop has no else")
        return While(self.condition(node.test), self.sequence(node.body))

    def assign(self, node: ast.Assign) -> Stmt:
        (target,) = node.targets if len(node.targets) == 1 else (None,)
        if not isinstance(target, ast.Subscript):
            raise self.error(node, "an assignment must be A[i] = value, x = value, or A = T.allocate(…)")
        return self.store(target, node.value)

    def store(self, target: ast.Subscript, value: ast.expr) -> Stmt:
        other = self.other_type(target.value)
        if other is not None:
            return other.store(self.indices(target, other), E.cast(other.dtype, self.expr(value, other.dtype)))
        (buffer, indices), mask = self.access(target), None
        if isinstance(value, ast.Call) and module_name(value.func) == "masked":
            condition, value = self.arguments(value, 2)
            mask = self.expr(condition)
        lanes = max((i.dtype.lanes for i in indices), default=1)
        stored = self.expr(value, buffer.dtype.with_lanes(lanes))
        if stored.dtype.lanes > lanes * buffer.dtype.lanes:
            raise self.error(
                value, f"{stored.dtype.lanes} elements cannot be stored in one element of '{buffer.name}'; give it a "
                       "slice, or a vector of indices")
        fitting = fitted(stored, buffer.dtype)
        if fitting is None and "handle" not in (stored.dtype, buffer.dtype):  # numbers are converted, as in TVM
            fitting = E.cast(buffer.dtype.with_lanes(stored.dtype.lanes), stored)
        if fitting is None:
            raise self.error(
                value,
                f"a value of {stored.dtype} cannot be stored in '{buffer.name}', which holds {buffer.dtype}; write "
                f"T.cast(value, \"{buffer.dtype}\")")
        return Store(buffer, fitting, indices, mask)

    def update(self, node: ast.AugAssign) -> Stmt:
        """Read `A[i] += x`."""
        if not isinstance(node.target, ast.Subscript):
            raise self.error(node, "only elements of buffers can be updated; a name keeps its value")
        old = ast.copy_location(ast.Subscript(node.target.value, node.target.slice, ast.Load()), node.target)
        return self.store(node.target, ast.copy_location(ast.BinOp(old, node.op, node.value), node))

    def evaluate(self, node: ast.Expr) -> Stmt:
        if isinstance(node.value, ast.Call) and module_name(node.value.func) == "evaluate":
            return Evaluate(self.argument(self.arguments(node.value, 1)[0]))
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute) and len(
            node.value.args
        ) == 2 and node.value.func.attr == "vstore":
            return self.vector_store(node.value)
        if isinstance(node.value, ast.Call) and module_name(node.value.func) in _HEADERS:
            raise self.error(node, f"{ast.unparse(node.value.func)} must be at the beginning of a block: with "
                                   "T.block(\"name\"):")
        return Evaluate(self.expr(node.value))

    def vector_store(self, node: ast.Call) -> Stmt:
        """Read `A.vstore([i, j], value)`, which is `A[i, T.ramp(j, 1, lanes)] = value`."""
        return self.store(self.vector_place(node, self.expr(node.args[1]).dtype), node.args[1])

    def nothing(self, node: ast.Pass) -> Stmt:
        return Seq(())

    def scope(self, node: ast.With) -> Stmt:
        """Read `with T.block(…)`, `T.seq`, `T.allocate` or `T.let`."""
        (item,) = node.items if len(node.items) == 1 else (node.items[0],)
        call = call_name(item.context_expr)
        if call == "block" and isinstance(item.context_expr, ast.Call):
            if item.optional_vars is not None:
                raise self.error(item.optional_vars, "a block has no value; its axes are T.axis.spatial(extent, i)")
            return self.block(node, item.context_expr)
        if call == "seq":
            return Seq(self.scoped(node.body))
        if call in _BINDING and isinstance(item.optional_vars, ast.Name):
            before = dict(self.names)
            wrapper = self.opened(item.optional_vars.id, item.context_expr)
            body = self.sequence(node.body)
            self.names = before
            return wrapper(body)
        if isinstance(item.context_expr, ast.Call) and call in ENCLOSING:
            return self.enclosing(item.context_expr)(self.sequence(node.body))
        if call == "LetStmt" and isinstance(item.context_expr, ast.Call):
            before = dict(self.names)
            wrapper = self.bound(item.context_expr)
            body = self.sequence(node.body)
            self.names = before
            return wrapper(body)
        raise self.error(
            item.context_expr, "`with` supports only T.block(\"name\"), T.allocate(…) as A, T.let(value) as x, and "
                               "T.seq()")

    def scoped(self, nodes: Sequence[ast.stmt]) -> tuple[Stmt, ...]:
        before = dict(self.names)
        parts = self.parts(nodes)
        self.names = before
        return tuple(parts)

    # Blocks.
    def block(self, node: ast.With, call: ast.Call) -> Stmt:
        name = str(self.literal(self.arguments(call, 0, 1)[0])) if call.args else "block"
        before = dict(self.names)
        header, rest = _Header(), []
        for s in node.body:
            if not self.header(s, header):
                rest.append(s)
        body = self.sequence(rest)
        self.names = before
        if (
            (name == ROOT_BLOCK or node is self.root_node) and not header.iters and header.init is None
            and (self.inner or any(isinstance(s, Block) for s in walk_stmt(body)))
        ):
            if header.annotations:
                self.attrs[ROOT_ATTRS] = header.annotations
            return body
        if header.init is not None and any(b in stored_buffers(body) for b in header.reads):
            header.annotations[OWN_READS] = True
        return Block(
            name, tuple(header.iters), tuple(header.bindings), header.predicate, header.init, body, header.annotations,
            self.origin(node, name, "block"))

    def header(self, node: ast.stmt, header: _Header) -> bool:
        """Read one line of a block's header; return False if it belongs to the body."""
        if isinstance(node, ast.Assign) and (is_view(node.value) or call_name(node.value) == "alloc_buffer"):
            return self.declares(node)  # in order: views can be of the memory allocated before
        if isinstance(node, ast.With) and call_name(node.items[0].context_expr) == "init":
            self.once(node.items[0].context_expr, "T.init", header)
            header.init = self.sequence(node.body)
            return True
        if (
            isinstance(node, ast.Assign) and call_name(node.value).startswith("axis.")
            and isinstance(node.value, ast.Call)
        ):
            self.axes(node.targets[0], node.value, header)
            return True
        call = node.value if isinstance(node, ast.Expr) else None
        name = module_name(call.func) if isinstance(call, ast.Call) else ""
        if not isinstance(call, ast.Call) or name not in _HEADERS:
            return False
        self.once(call, f"T.{name}", header)
        if name == "where":
            header.predicate = self.expr(self.arguments(call, 1)[0])
        elif name == "block_attr":
            header.annotations.update(self.annotation(self.arguments(call, 1)[0]))
        elif name == "reducer":
            header.annotations["combiner"] = self.reducer(call)
        elif name == "reads":
            header.reads = self.buffers_named(call)
        return True

    def once(self, node: ast.expr, name: str, header: _Header) -> None:
        """Raise `ParseError` if a block has this line, or an axis of this name, already."""
        if name in header.given:
            raise self.error(node, f"this block has '{name}' already")
        header.given.add(name)

    def axes(self, target: ast.expr, call: ast.Call, header: _Header) -> None:
        """Read `v = T.axis.spatial(extent, binding)` or `v, r = T.axis.remap("SR", [i, k])`."""
        word = module_name(call.func).removeprefix("axis.")
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        axes: list[tuple[str, PrimExpr | None, PrimExpr, ast.expr]]
        if word == "remap":
            kinds, loops = self.arguments(call, 2)
            bound = loops.elts if isinstance(loops, (ast.List, ast.Tuple)) else []
            letters = str(self.literal(kinds))
            if not len(names) == len(bound) == len(letters):
                raise self.error(
                    call, f"{len(names)} names, {len(letters)} letters and {len(bound)} loops were given; the numbers "
                          "must be equal")
            axes = [(k, None, self.extent_of(b), b) for k, b in zip(letters, bound, strict=True)]
        else:
            extent, binding = self.arguments(call, 2)
            axes = [(word, *self.domain(extent), binding)]
        given = self.keywords(call, "dtype")
        for name, (kind, low, extent_expr, binding) in zip(names, axes, strict=True):
            if kind not in _AXES or not isinstance(name, ast.Name):
                raise self.error(
                    call,
                    "an axis of a block must be T.axis.spatial(extent, i), T.axis.reduce(extent, k), "
                    "T.axis.scan(extent, t), T.axis.opaque(extent, i) or T.axis.remap(\"SR\", [i, k])")
            self.once(name, name.id, header)
            if not extent_expr.dtype.is_integer:
                raise self.error(call, f"the extent of an axis is an integer, but this is {extent_expr.dtype}")
            value = self.expr(binding)
            header.bindings.append(value if low is None else E.sub(*E.match(value, low)))
            var = self.new_var(name.id, self.dtype(given["dtype"]) if "dtype" in given else extent_expr.dtype)
            header.iters.append(IterVar(var, extent_expr, _AXES[kind]))
            if low is not None:
                self.names[name.id] = E.add(*E.match(var, low))

    def domain(self, node: ast.expr) -> tuple[PrimExpr | None, PrimExpr]:
        """Read the first value of an axis, None for 0, and its extent: `n`, or `(first, end)`. The axis of the block
        begins at 0, so the name of another axis is a sum."""
        if not isinstance(node, ast.Tuple):
            return None, self.expr(node)
        if len(node.elts) != 2:
            raise self.error(node, "the domain of an axis is an extent, or (first, end)")
        low, end = self.meet(node, *map(self.value, node.elts))
        return None if E.number_of(low) == 0 else low, extent_between(low, end)

    def extent_of(self, node: ast.expr) -> PrimExpr:
        """Return the extent of the loop that an axis is bound to."""
        found = self.extents.get(self.value(node))
        if found is None:
            raise self.error(
                node,
                "T.axis.remap takes only variables of surrounding loops; write T.axis.spatial(extent, value) for "
                "anything else")
        return found


def _together(parts: Sequence[Stmt]) -> Stmt:
    """Return the statements of a scope; one without statements, only declarations, is `T.evaluate(0)` as in TVM."""
    return parts[0] if len(parts) == 1 else Seq(tuple(parts)) if parts else Evaluate(E.const(0, "int64"))


def _with_thread(call: ast.Call) -> ast.Call:
    """Return `T.thread_binding(0, 128, thread="threadIdx.x")` for a call with the thread as last argument."""
    last = call.args[-1] if call.args else None
    if not isinstance(last, ast.Constant) or not isinstance(last.value, str):
        return call
    made = ast.Call(call.func, call.args[:-1], [*call.keywords, ast.keyword("thread", last)])
    return ast.copy_location(made, call)


_DECLARATIONS: Final = ("alloc_buffer", "env_thread", "match_buffer", "meta_var", "Buffer", "buffer_decl")
_BINDING: Final = (*ALLOCATIONS, "launch_thread", "let", "LetStmt")
_HEADERS: Final = ("where", "block_attr", "reducer", "reads", "writes")
_STATEMENTS: Final[dict[type[ast.stmt], Callable[[FunctionReader, Any], Stmt]]] = {
    ast.For: FunctionReader.loop, ast.If: FunctionReader.branch, ast.Assign: FunctionReader.assign,
    ast.AugAssign: FunctionReader.update,
    ast.Expr: FunctionReader.evaluate, ast.Pass: FunctionReader.nothing,
    ast.With: FunctionReader.scope, ast.While: FunctionReader.repetition,
}
