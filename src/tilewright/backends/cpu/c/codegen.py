"""Flat loop programs over scalars -> C99 text.

    void name(tw_context *context, const float *restrict x, float *restrict y)     a kernel of a program in this process
    static void name(const float *restrict x, float *restrict y)                   a kernel of a model that is one file

Loops stay loops, and buffers and variables keep their names. A parallel loop is a function over its free names, reached
through `context->parallel_for`; in a model that is one file it is a loop. Small memory of a kernel is on the stack, the
rest from `malloc`, or in the workspace of a model that is one file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.backends.cpu.c.expressions import Writer
from tilewright.backends.cpu.c.helpers import prelude
from tilewright.backends.cpu.c.memory import CONTEXT, memory_of
from tilewright.backends.cpu.c.text import c_type, comment, identifier
from tilewright.backends.cpu.c.tiles import DotLanes, dot_lanes, is_tile
from tilewright.backends.cpu.c.values import Values
from tilewright.backends.free_names import free_names
from tilewright.base.errors import CompileError, InternalError
from tilewright.base.recursion import KERNEL, room_for
from tilewright.runtime.scratch import Scratch, most
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.expr import Add, Buffer, Call, Cast, Load, PrimExpr, Var, add, as_expr, number_of
from tilewright.scalar.intrinsics import Extern, Opaque, prefetch, without_meaning
from tilewright.scalar.walk import has_effect, walk
from tilewright.tir.stmt import (
    NUMBERS,
    PARALLEL,
    SERIAL,
    Allocate,
    AssertStmt,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    While,
    expressions,
    stored_buffers,
    walk_stmt,
    without_code,
)
from tilewright.tir.transform.loop_facts import inside
from tilewright.tir.transform.verify import verify_flat

_ALIGNMENT: Final = 64
HEADERS: Final = ("math", "stdbool", "stddef", "stdint", "string")


@dataclass
class File:
    """One file: its helper functions, its declarations, and whether its functions use memory from the C library."""

    alone: bool = False
    """Whether the file is a whole model, without a context, threads or `malloc`."""
    overlapping: frozenset[str] = frozenset()
    """The functions whose parameters may be the same memory."""
    needs: set[str] = field(default_factory=set)
    prototypes: dict[str, str] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    scratch: dict[str, int] = field(default_factory=dict)
    """The bytes of scratch memory of each function, if the file is a whole model."""
    taken: list[Scratch] = field(default_factory=list)
    """The scratch memory of each function per thread."""
    allocates: bool = False

    def add(self, func: PrimFunc) -> None:
        """Write a function.

        Raises `CompileError` for types and names that C does not have, `InternalError` for a function that is not flat.
        """
        verify_flat(func)
        if identifier(func.name) != func.name:
            raise CompileError(
                f"'{func.name}' cannot be the name of a C function; give the function another one, such as "
                f"'{identifier(func.name)}'", code="TW0510")
        writer = _Function(func, self)
        text = writer.function()
        self.functions += [*writer.outlined, text]
        self.taken.append(writer.memory.taken)

    def text(self) -> str:
        """Return the whole file."""
        headers = [*HEADERS, *(["stdlib"] if self.allocates else [])]
        parts = [
            "\n".join(f"#include <{h}.h>" for h in headers), *([] if self.alone else [CONTEXT]),
            "\n".join(self.prototypes.values())
        ]
        return "\n\n".join(p for p in (*parts, *prelude(self.needs), *self.functions) if p) + "\n"


def emit_module(funcs: Iterable[PrimFunc], overlapping: frozenset[str] = frozenset()) -> str:
    """Return one C file with several flat functions over scalars, which are called with a context.

    Functions in `overlapping` may read memory that they write.
    """
    return emit_measured(funcs, overlapping)[0]


@room_for(KERNEL)
def emit_measured(funcs: Iterable[PrimFunc], overlapping: frozenset[str] = frozenset()) -> tuple[str, Scratch]:
    """Return the file, and the maximum scratch memory of one of the functions."""
    file = File(overlapping=overlapping)
    for func in funcs:
        file.add(func)
    return file.text(), most(file.taken)


class _Function:
    """One `PrimFunc` being written."""

    def __init__(self, func: PrimFunc, file: File) -> None:
        self.func, self.file = func, file
        self.outlined: list[str] = []
        self.writer = Writer(file.needs, file.prototypes)
        self.values = Values(self.writer, self.line, self.fresh)
        self.lines: list[str] = []
        self.depth = 1
        self.taken: set[str] = {"context", "closure", "begin", "end", func.name, *(["scratch"] if file.alone else [])}
        self.parallel = file.alone
        self.uses_context = False
        self.in_use = self.most_in_use = 0
        self.memory = memory_of(func)
        self.stored = set(stored_buffers(func.body))

    # Lines and names.
    def line(self, text: str) -> None:
        if text.startswith("}"):
            self.depth -= 1
        self.lines.append("  " * self.depth + text)
        if text.endswith("{"):
            self.depth += 1

    def fresh(self, name: str) -> str:
        found = identifier(name, self.taken)
        self.taken.add(found)
        return found

    def function(self) -> str:
        numbers = self.func.attrs.get(NUMBERS, ())
        self.given: set[Buffer | Var] = {*self.func.buffers, *numbers}
        self.used: set[Buffer | Var] = {x for s in walk_stmt(self.func.body) for x in _names(s)}
        params = [] if self.file.alone else ["tw_context *context"]
        params += [self.parameter(b) for b in self.func.buffers]
        params += [f"{c_type(v.dtype)} {self.variable(v)}" for v in numbers]
        self.stmt(self.func.body)
        if not self.file.alone and not self.uses_context:
            self.lines.insert(0, "  (void)context;")
        unused = [
            n
            for x, n in (
                *self.writer.buffers.items(), *self.writer.variables.items()
            ) if x in self.given and x not in self.used]
        self.lines[:0] = [f"  (void){name};" for name in unused]
        if self.most_in_use:
            self.file.scratch[self.func.name] = self.most_in_use
            params.append("unsigned char *restrict scratch")
        storage = "static " if self.file.alone else ""
        declared = "" if self.file.alone else f"void {self.func.name}({_wrapped(params)});\n"
        origin = comment(self.func.origin or self.func.name)
        return "\n".join([
            f"{origin}\n{declared}{storage}void {self.func.name}({_wrapped(params)}) {{", *self.lines, "}"
        ])

    def parameter(self, b: Buffer) -> str:
        self.writer.buffers[b] = self.fresh(b.name)
        constancy = "" if b in self.stored else "const "
        apart = "" if self.func.name in self.file.overlapping else "restrict "
        return f"{constancy}{c_type(b.dtype)} *{apart}{self.writer.buffers[b]}"

    def variable(self, v: Var) -> str:
        self.writer.variables[v] = self.fresh(v.name)
        return self.writer.variables[v]

    # Statements.
    def stmt(self, s: Stmt) -> None:
        match s:
            case Store():
                self.store(s)
            case Seq():
                for inner in s.stmts:
                    self.stmt(inner)
            case For():
                self.loop(s)
            case IfThenElse():
                self.branch(s)
            case Let():
                self.let(s)
            case Allocate():
                self.allocate(s)
            case Evaluate():
                self.evaluate(s.value)
            case While():
                self.repeat(s)
            case AssertStmt():
                raise without_code(s)
            case _:
                raise InternalError(
                    f"{type(s).__name__} reached code generation in '{self.func.name}'; lower the function first")

    def evaluate(self, e: PrimExpr) -> None:
        """Write `e` as a statement, if it is a call with an effect; a prefetch has none on values."""
        if isinstance(e, Call) and isinstance(e.op, Extern):
            self.line(f"{self.writer.text(e)};")
        elif isinstance(e, Call) and isinstance(e.op, Opaque):
            raise without_meaning(e.op)
        elif isinstance(e, Call) and e.op.effect and e.op is not prefetch:
            raise InternalError(f"the intrinsic '{e.op}' has no C text")

    def store(self, s: Store) -> None:
        (index,) = s.indices
        value = s.value
        self.values.prepare([index, value])
        name = f"{self.writer.buffer(s.buffer)}[{self.writer.subscript(index)}]"
        if isinstance(value, Add) and value not in self.writer.names and _adds_to(s, value):
            self.line(f"{name} += {self.writer.text(value.b)};")
        else:
            self.line(f"{name} = {self.writer.text(value)};")
        self.values.done()

    def let(self, s: Let) -> None:
        if s.var in self.used:
            outer = self.writer.ranges
            self.values.prepare([s.value])
            text = self.writer.text(s.value)
            self.values.done()
            self.line(f"const {c_type(s.var.dtype)} {self.variable(s.var)} = {text};")
            self.writer.ranges = outer.bind(s.var, *bounds(s.value, outer))
            self.stmt(s.body)
            self.writer.ranges = outer
        else:
            if has_effect(s.value):
                self.values.prepare([s.value])
                self.line(f"(void)({self.writer.text(s.value)});")
                self.values.done()
            self.stmt(s.body)

    def branch(self, s: IfThenElse) -> None:
        self.values.prepare([s.condition])
        condition = self.writer.text(s.condition)
        self.values.done()
        self.line(f"if ({condition}) {{")
        self.stmt(s.then_case)
        if s.else_case is not None:
            self.line("} else {")
            self.stmt(s.else_case)
        self.line("}")

    def repeat(self, s: While) -> None:
        self.line("for (;;) {")
        self.values.prepare([s.condition])
        condition = self.writer.text(s.condition)
        self.values.done()
        self.line(f"if (!({condition})) break;")
        self.stmt(s.body)
        self.line("}")

    def loop(self, s: For) -> None:
        if s.kind not in (SERIAL, PARALLEL):
            raise InternalError(
                f"loop '{s.var.name}' in '{self.func.name}' is still {s.kind}; lower the function first")
        if s.kind == PARALLEL and not self.parallel:
            self.split(s)
            return
        if found := dot_lanes(s):
            self.dot(found)
            return
        start, end = self.bound(s.min, "first"), self.bound(add(s.min, s.extent), "end")
        self.over(s, start, end)

    def dot(self, d: DotLanes) -> None:
        """Write products of four bytes, for the lanes of a vector at once."""
        self.values.prepare([d.word, d.total.indices[0], d.weights.indices[0]])
        places = [
            f"{self.writer.buffer(x.buffer)} + {self.writer.subscript(x.indices[0])}" for x in (d.total, d.weights)]
        text, _ = self.writer.call(f"dot4_x{d.lanes}", places[0], self.writer.text(d.word), places[1])
        self.line(f"{text};")
        self.values.done()

    def bound(self, e: PrimExpr, name: str) -> str:
        """Return the start or end of a loop: inline, or as a variable if it is long or reads memory."""
        if len([*walk(e)]) <= 3 and not any(isinstance(x, Load) for x in walk(e)):
            return self.writer.subscript(e)
        self.values.prepare([e])
        text, fresh = self.writer.subscript(e), self.fresh(f"{name}_of")
        self.values.done()
        self.line(f"const {c_type(e.dtype)} {fresh} = {text};")
        return fresh

    def over(self, s: For, start: str, end: str) -> None:
        name, outer = self.variable(s.var), self.writer.ranges
        self.writer.ranges = inside(s, outer)
        if is_tile(s):
            self.file.needs.add("UNROLL")
            self.line(f"UNROLL({number_of(s.extent)})")
        self.line(f"for ({c_type(s.var.dtype)} {name} = {start}; {name} < {end}; ++{name}) {{")
        self.stmt(s.body)
        self.line("}")
        self.writer.ranges = outer
        self.taken.discard(name)  # later loops may reuse the name

    # Memory.
    def allocate(self, s: Allocate) -> None:
        b, kind = s.buffer, c_type(s.buffer.dtype)
        if b not in self.used:
            self.stmt(s.body)
            return
        name = self.writer.buffers[b] = self.fresh(b.name)
        before, size = self.in_use, b.shape[0]
        if isinstance(size, int) and (
            size * b.dtype.itemsize <= _LEAST_SCRATCH if self.file.alone else b in self.memory.on_stack
        ):
            self.line(f"{kind} {name}[{max(1, size)}];")
        elif self.file.alone:
            if not isinstance(size, int):
                raise CompileError(
                    f"'{self.func.name}' needs memory of a size that is only known at run time, which one C file "
                    "cannot allocate; give all inputs known shapes", code="TW0510")
            self.line(f"{kind} *restrict {name} = ({kind} *)(void *)(scratch + {self.in_use});")
            self.in_use += -(-size * b.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
            self.most_in_use = max(self.most_in_use, self.in_use)
        else:
            self.file.allocates = self.uses_context = True
            self.line(
                f"{kind} *restrict {name} = malloc((size_t)({self.writer.subscript(as_expr(size))}) * sizeof *{name});")
            for line in (f"if ({name} == NULL) {{", "++context->refused;", "} else {"):
                self.line(line)
            self.stmt(s.body)
            self.line(f"free({name});")
            self.line("}")
            return
        self.stmt(s.body)
        self.in_use = before

    # Parallel loops.
    def split(self, s: For) -> None:
        """Write `parallel for i: body` as a function over the free names of the loop, and a call of it through the
        context."""
        buffers, variables = free_names(s.body)
        variables = [v for v in variables if v is not s.var]
        name = identifier(f"{self.func.name}_{s.var.name}", {f.split("(")[0].rsplit(" ", 1)[-1] for f in self.outlined})
        name = f"{name}_{len(self.outlined)}" if self.outlined else name
        writer = self.writer
        fields = [(self._pointer(b), writer.buffer(b), writer.buffer(b)) for b in buffers]
        fields += [(c_type(v.dtype) + " ", writer.variables[v], writer.variables[v]) for v in variables]
        kind = c_type(s.var.dtype)
        fields.append((f"{kind} ", "first_of_loop", writer.subscript(s.min)))
        if any(isinstance(x, Allocate) and x.buffer in self.used - self.memory.on_stack for x in walk_stmt(s.body)):
            fields.append(("tw_context *", "context", "context"))
        record = f"struct {name}_uses"
        self.outlined.append(self._outline(s, name, record, fields))
        closure = self.fresh(f"{name}_uses")
        self.line(f"{record} {closure} = {{{', '.join(value for _, _, value in fields)}}};")
        self.uses_context = True
        count = writer.text(Cast("int64", s.extent) if s.extent.dtype != "int64" else s.extent)
        self.line(f"context->parallel_for(context, {name}, &{closure}, {count}, {int(s.annotations.get('grain', 1))});")

    def _pointer(self, b: Buffer) -> str:
        constancy = "" if b in self.stored or b not in self.func.params else "const "
        return f"{constancy}{c_type(b.dtype)} *"

    def _outline(self, s: For, name: str, record: str, fields: Sequence[tuple[str, str, str]]) -> str:
        outer = self.lines, self.depth, set(self.taken)
        self.lines, self.depth, self.parallel = [], 1, True
        self.line(f"const {record} *const uses = closure;")
        self.taken.add("uses")
        for kind, field_name, _ in fields:
            apart = "" if self.func.name in self.file.overlapping or not kind.endswith("*") else "restrict "
            self.line(f"{kind if kind.endswith('*') else 'const ' + kind}{apart}{field_name} = uses->{field_name};")
        cast = "" if s.var.dtype == "int64" else f"({c_type(s.var.dtype)})"
        self.over(s, f"first_of_loop + {cast}begin", f"first_of_loop + {cast}end")
        head = f"static void {name}(void *closure, int64_t begin, int64_t end) {{"
        text = "\n".join([
            f"{record} {{", *(f"  {kind}{field_name};" for kind, field_name, _ in fields), "};", head, *self.lines, "}"
        ])
        self.lines, self.depth, self.taken = outer
        self.parallel = False
        return text


_LEAST_SCRATCH: Final = 1 << 10
"""Largest buffer in bytes that stays on the stack in a model that is one file."""


def _adds_to(s: Store, value: Add) -> bool:
    """Return whether a store of a sum is `x += y` of floats."""
    return value.dtype.is_float and value.a is Load(s.buffer, s.indices)


def _names(s: Stmt) -> Iterator[Buffer | Var]:
    """Yield the buffers and variables that a statement itself uses."""
    if isinstance(s, Store):
        yield s.buffer
    sizes = [d for d in s.buffer.shape if isinstance(d, PrimExpr)] if isinstance(s, Allocate) else []
    for top in (*expressions(s), *sizes):
        for e in walk(top):
            if isinstance(e, Load):
                yield e.buffer
            elif isinstance(e, Var):
                yield e


def _wrapped(params: Sequence[str]) -> str:
    return ", ".join(params) or "void"
