"""Flat loop programs -> LLVM text.

    emit(func, target)  ->  define void @name(ptr noalias %ctx, ptr noalias %p0, …)

Serial loops test at their end, after a guard unless the extent is a constant. Slots of register tiles are carried by
phis through loops and branches. The body of a parallel loop becomes a function over its free pointers and scalars,
which `tw_context.parallel_for` calls through a closure; parallel loops inside it run serially. Memory between stages is
on the stack up to a limit for each function, and above it from the C library (`scratch.py`). The text contains every
decision that matters for speed: LLVM selects instructions and allocates registers, and runs no optimization pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tilewright.backends.cpu.llvm.debug_info import DebugFunction, DebugInfo, Source
from tilewright.backends.cpu.llvm.extern import call_extern
from tilewright.backends.cpu.llvm.facts import Facts
from tilewright.backends.cpu.llvm.function import FunctionText, Value
from tilewright.backends.cpu.llvm.memory import prefetch as emit_prefetch
from tilewright.backends.cpu.llvm.memory import store
from tilewright.backends.cpu.llvm.scratch import MEMORY_ALIGNMENT, ScratchText
from tilewright.backends.cpu.llvm.text import LESS, VECTORIZED, comment, local_name, memory_type, register_type, symbol
from tilewright.backends.cpu.llvm.values import RULES, is_not_negative
from tilewright.backends.free_names import free_names
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, InternalError
from tilewright.base.recursion import KERNEL, room_for
from tilewright.runtime.scratch import Scratch, most
from tilewright.scalar.expr import Buffer, Call, IntImm, Load, PrimExpr, Var, add, as_expr, floordiv, mul
from tilewright.scalar.intrinsics import Extern, Opaque, prefetch, without_meaning
from tilewright.tir.stmt import (
    NUMBERS,
    PARALLEL,
    SCALAR_LOOPS,
    SERIAL,
    VERSIONED,
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
    bodies,
    handed_out,
    without_code,
)
from tilewright.tir.transform.verify import verify_flat


def emit(func: PrimFunc, target: Target, source: Source | None = None) -> str:
    """Return the LLVM module of one flat function; with a `source`, its instructions have the lines of that text."""
    return emit_module((func,), target, () if source is None else (source,))


def emit_module(funcs: Iterable[PrimFunc], target: Target, sources: Sequence[Source] = ()) -> str:
    """Return one LLVM module with several flat functions."""
    return emit_measured(funcs, target, sources)[0]


@room_for(KERNEL)
def emit_measured(funcs: Iterable[PrimFunc], target: Target, sources: Sequence[Source] = ()) -> tuple[str, Scratch]:
    """Return one LLVM module with several flat functions, and the maximum scratch memory of one of them.

    With `sources`, one for each function, it has debug information. Raises `InternalError` for a function that is not
    flat or not well typed, and `CompileError` for one with the name of a C function that the module calls.
    """
    declarations: dict[str, str] = {}
    given = tuple(funcs)
    for func in given:
        verify_flat(func)
    debug = DebugInfo(full=any(s.locals for s in sources)) if sources else None
    inner = (
        [None] * len(given) if debug is None
        else [debug.function(s, func.name) for func, s in zip(given, sources, strict=True)]
    )
    made = [_Codegen(func, target, declarations, d) for func, d in zip(given, inner, strict=True)]
    bodies = [text for one in made for text in one.function()]
    called = next((func.name for func in given if func.name in declarations), None)
    if called is not None:
        raise CompileError(
            f"function '{called}' has the name of a C function that the program calls; give it another name, such as "
            f"'{called}_values'", code="TW0611")
    bits = target.vector_bits
    # gdb uses it to find the end of a function's prologue
    frame = ' "frame-pointer"="all"' if any(s.locals for s in sources) else ""
    level = f" {LESS}" if any(func.attrs.get(VERSIONED) for func in given) else ""
    loops = f" {VECTORIZED}" if any(func.attrs.get(SCALAR_LOOPS) for func in given) else ""
    attributes = (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        f"{frame}{level}{loops} }}"
    )
    return "\n".join([
        *declarations.values(), "", *bodies, attributes, *([] if debug is None else [debug.text()]), ""
    ]), most(one.scratch for one in made)


class _Codegen:
    """The functions that one `PrimFunc` becomes: itself, and the bodies of its parallel loops."""

    def __init__(
        self, func: PrimFunc, target: Target, declarations: dict[str, str], debug: DebugFunction | None = None
    ) -> None:
        self.debug, self.origin = debug, func.origin
        self.func, self.target, self.declarations = func, target, declarations
        self.facts = Facts(func)
        self.outlined: list[str] = []
        self.parallel = False
        self.f = self._function_text()
        self.memory = ScratchText(self.f, bool(func.attrs.get(NUMBERS)))
        self.within: list[Scratch] = []
        """The scratch memory of the bodies of parallel loops."""

    def _function_text(self) -> FunctionText:
        text = FunctionText(self.target, self.facts, RULES, self.declarations)
        text.at = "" if self.debug is None else self.debug.begin
        return text

    def function(self) -> list[str]:
        names = [f"%{local_name(p.name)}.p{i}" for i, p in enumerate(self.func.buffers)]
        self.f.pointers.update((p, (name, 0)) for p, name in zip(self.func.buffers, names, strict=True))
        arguments = [f"ptr noalias {name}" for name in ("%ctx", *names)]
        for k, v in enumerate(self.func.attrs.get(NUMBERS, ())):
            arguments.append(f"{register_type(v.dtype)} %{local_name(v.name)}.n{k}")
            self._bind(v, (arguments[-1].rsplit(" ", 1)[1], 0), not_negative=v in self.facts.sizes)
        for p in self.func.buffers:
            self._show_buffer(p, parameter=True)
        self._open_memory(self.func.body)
        self._stmt(self.func.body)
        head = f"define void {symbol(self.func.name)}({', '.join(arguments)})"
        return [*self.outlined, f"{comment(self.func.origin or self.func.name)}\n{self._define(head)}"]

    def _define(self, head: str) -> str:
        scope, at = ("", "") if self.debug is None else (f" !dbg {self.debug.scope}", self.f.at)
        return "\n".join([f"{head} #0{scope} {{", *self.memory.body(at), "}"])

    @property
    def scratch(self) -> Scratch:
        """The memory that a call takes of one thread, known after the text is written."""
        inner = most(self.within)
        return Scratch(
            self.memory.stack + inner.stack, self.memory.heap + inner.heap, str(self.func.origin or self.func.name))

    def _stmt(self, s: Stmt) -> None:
        if self.debug is None:
            self._statement(s)
            return
        before, origin = self.f.at, self.origin
        if isinstance(s, For):
            self.origin = s.origin or origin
        self.f.at = self.debug.at(s, self.origin) or before
        self._statement(s)
        self.f.at, self.origin = before, origin

    def _statement(self, s: Stmt) -> None:
        match s:
            case Store():
                store(self.f, s)
            case Seq():
                for inner in s.stmts:
                    self._stmt(inner)
            case For():
                self._for(s)
            case IfThenElse():
                self._if(s)
            case _:
                self._binding(s)

    def _binding(self, s: Stmt) -> None:
        match s:
            case Let():
                self._rebind(s.var, self.f.value(s.value), is_not_negative(self.f, s.value))
                self._show(s.var, self.f.variables[s.var][0])
                self._stmt(s.body)
            case Allocate():
                self._allocate(s)
            case Evaluate():
                self._evaluate(s.value)
            case While():
                self._while(s)
            case AssertStmt():
                raise without_code(s)
            case _:
                raise InternalError(
                    f"{type(s).__name__} reached code generation in '{self.func.name}'; lower the function first")

    def _rebind(self, var: Var, value: Value, not_negative: bool) -> None:
        """Bind a variable that an earlier copy of the same statement may have bound to another value."""
        if var in self.f.variables:
            self.f.forget_variable(var)
        self._bind(var, value, not_negative)

    def _bind(self, var: Var, value: Value, not_negative: bool) -> None:
        if not_negative:
            self.f.not_negative.add(var)
        elif var in self.f.not_negative:
            self.f.forget_variable(var)
        self.f.variables[var] = value

    # Variables for debuggers.
    def _show(self, v: Var, value: str) -> None:
        """Store a number where a debugger can read it."""
        if self.debug is not None and self.debug.source.locals:
            place, line = f"%{self.f.name('shown')}", self.debug.source.first
            self.f.entry.append(f"  {place} = alloca {memory_type(v.dtype)}, align 8")
            self.f.entry.append(self.debug.declare(place, self.debug.variable(v, line), line))
            kind = register_type(v.dtype)
            stored = self.f.put(f"zext i1 {value} to i8", self.f.here) if kind == "i1" else value
            self.f.do(f"store volatile {memory_type(v.dtype)} {stored}, ptr {place}, align 1")

    def _show_buffer(self, b: Buffer, *, parameter: bool = False) -> None:
        """Store the address of a buffer where a debugger can read it."""
        if self.debug is not None and self.debug.source.locals:
            place, line = f"%{self.f.name('shown')}", self.debug.source.first
            self.f.entry.append(f"  {place} = alloca ptr, align 8")
            # without a line, debuggers stop after it
            self.f.entry.append(f"  store volatile ptr {self.f.pointers[b][0]}, ptr {place}, align 8")
            self.f.entry.append(self.debug.declare(place, self.debug.buffer(b, line, parameter=parameter), line))

    def _evaluate(self, e: PrimExpr) -> None:
        if isinstance(e, Call) and e.op is prefetch and isinstance(e.args[0], Load):
            level = e.args[1] if len(e.args) > 1 else None
            emit_prefetch(self.f, e.args[0], level.value if isinstance(level, IntImm) else 1)
        elif isinstance(e, Call) and isinstance(e.op, Extern):
            call_extern(self.f, e)
            for b in handed_out(e, writes=True):
                self.f.forget(b)
        elif isinstance(e, Call) and isinstance(e.op, Opaque):
            raise without_meaning(e.op)
        elif isinstance(e, Call) and e.op.effect:
            raise InternalError(f"the intrinsic '{e.op}' has no LLVM text")

    def _allocate(self, s: Allocate) -> None:
        buffer = s.buffer
        if buffer not in self.facts.tiles:
            # copies of a loop body allocate it consecutively, and known addresses stay valid
            if buffer not in self.f.pointers:
                self.f.pointers[buffer] = (self._memory(buffer), 0)
                if all(isinstance(d, int) for d in buffer.shape):
                    self._show_buffer(buffer)
            self._stmt(s.body)
            return
        keys = [(buffer, offset) for offset in self.facts.slots(buffer)]
        for key in keys:
            self.f.set_slot(key, ("poison", 0))
        self._stmt(s.body)
        for key in keys:
            del self.f.slots[key]
            self.f.forget(key)

    def _memory(self, buffer: Buffer) -> str:
        """Return the address of memory for a buffer of known size."""
        size = buffer.dtype.itemsize
        for extent in buffer.shape:
            if not isinstance(extent, int):
                raise InternalError(
                    f"buffer '{buffer.name}' of '{self.func.name}' is allocated where its size is not known when the "
                    "function begins")
            size *= extent
        return self.memory.known(f"%{self.f.name(local_name(buffer.name))}", size)

    def _open_memory(self, s: Stmt) -> None:
        """Request, at the start of the function, the memory for buffers whose size is known only at run time."""
        found = [
            b
            for b in dict.fromkeys(self._allocated(s)) if not all(
                isinstance(d, int) for d in b.shape
            ) and b not in self.facts.tiles]
        for b in found:
            name = f"%{self.f.name(local_name(b.name))}"
            self.memory.open(name, self.f.value(_rounded_size(b))[0])
            self.f.pointers[b] = (name, 0)
        if found:
            self.memory.check_open()

    def _allocated(self, s: Stmt) -> Iterator[Buffer]:
        """Yield the buffers that the function itself allocates, without those of the bodies of its parallel loops."""
        if isinstance(s, For) and s.kind == PARALLEL and not self.parallel:
            return
        if isinstance(s, Allocate):
            yield s.buffer
        for inner in bodies(s):
            yield from self._allocated(inner)

    # Loops.
    def _for(self, s: For) -> None:
        if s.kind not in (SERIAL, PARALLEL):
            raise InternalError(
                f"loop '{s.var.name}' in '{self.func.name}' is still {s.kind}; lower the function first")
        if isinstance(s.extent, IntImm) and s.extent.value <= 0:
            return
        if s.kind == PARALLEL and not self.parallel:
            self._parallel(s)
        elif isinstance(s.extent, IntImm) and s.extent.value == 1:
            self._rebind(s.var, self.f.value(s.min), is_not_negative(self.f, s.min))
            self._show(s.var, self.f.variables[s.var][0])
            self._stmt(s.body)
        elif isinstance(s.extent, IntImm):
            self._loop(s, self.f.value(s.min)[0], self.f.value(add(s.min, s.extent))[0])
        else:
            self._guarded(s)

    def _guarded(self, s: For) -> None:
        """Write a loop that may have no iterations."""
        f = self.f
        kind = register_type(s.var.dtype)
        start, (stop, _) = f.value(s.min)[0], f.value(add(s.min, s.extent))
        some = f.put(f"icmp slt {kind} {start}, {stop}", f.here)
        self._branch(some, lambda: self._loop(s, start, stop), None, s)

    def _loop(self, s: For, start: str, stop: str) -> None:
        f, effects = self.f, self.facts.effects(s)
        kind, before = register_type(s.var.dtype), f.block
        for key in effects:
            f.forget(key)
        label, end = f.name(local_name(s.var.name)), f.name("end")
        var, following = f"%{f.name(local_name(s.var.name))}", f"%{f.name('next')}"
        head = f.start_block(label, f"br label %{label}")
        f.enter(is_loop=True, stores=effects)
        carried = [(key, f"%{f.name(local_name(key[0].name))}") for key in f.slots if key in effects]
        entering = {key: f.slots[key][0] for key, _ in carried}
        for key, name in carried:
            f.set_slot(key, (name, f.here))
        self._bind(s.var, (var, f.here), is_not_negative(f, s.min))
        self._show(s.var, var)
        self._stmt(s.body)
        latch = f.block
        f.do(f"{following} = add nsw {kind} {var}, 1")
        again = f.put(f"icmp slt {kind} {following}, {stop}", f.here)
        head.append(f"  {var} = phi {kind} [ {start}, %{before} ], [ {following}, %{latch} ]")
        for key, name in carried:
            slot = self._slot_type(key)
            head.append(f"  {name} = phi {slot} [ {entering[key]}, %{before} ], [ {f.slots[key][0]}, %{latch} ]")
        f.leave()
        f.start_block(end, f"br i1 {again}, label %{label}, label %{end}")
        f.fresh_chunk()
        for key, _ in carried:
            f.set_slot(key, (f.slots[key][0], f.here))

    def _while(self, s: While) -> None:
        f, effects, before = self.f, self.facts.effects(s), self.f.block
        for key in effects:
            f.forget(key)
        label, inside, end = f.name("while"), f.name("do"), f.name("end")
        head = f.start_block(label, f"br label %{label}")
        f.enter(is_loop=True, stores=effects)
        carried = [(key, f"%{f.name(local_name(key[0].name))}") for key in f.slots if key in effects]
        entering = {key: f.slots[key][0] for key, _ in carried}
        for key, name in carried:
            f.set_slot(key, (name, f.here))
        again, _ = f.value(s.condition)
        f.start_block(inside, f"br i1 {again}, label %{inside}, label %{end}")
        f.enter(is_loop=False, stores=effects)
        self._stmt(s.body)
        latch = f.block
        for key, name in carried:
            slot = self._slot_type(key)
            head.append(f"  {name} = phi {slot} [ {entering[key]}, %{before} ], [ {f.slots[key][0]}, %{latch} ]")
        f.leave()
        f.leave()
        f.start_block(end, f"br label %{label}")
        f.fresh_chunk()
        for key, name in carried:
            f.set_slot(key, (name, f.here))

    def _slot_type(self, key: tuple[Buffer, int]) -> str:
        buffer, offset = key
        return register_type(buffer.dtype.with_lanes(self.facts.slots(buffer)[offset]))

    # Branches.
    def _if(self, s: IfThenElse) -> None:
        condition, _ = self.f.value(s.condition)
        other = s.else_case
        self._branch(
            condition, lambda: self._stmt(s.then_case), None if other is None else lambda: self._stmt(other), s)

    def _branch(self, condition: str, then: Callable[[], None], other: Callable[[], None] | None, s: Stmt) -> None:
        """Run one of two statements; slots that they change are merged by phis."""
        f = self.f
        effects = self.facts.effects(s)
        changed = {key: f.slots[key] for key in f.slots if key in effects}
        labels = [f.name(hint) for hint in ("then", "else", "join")]
        ends: list[tuple[str, list[str]]] = []
        end_of_last = f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}"
        for label, side in zip(labels, (then, other), strict=False):
            for key, value in changed.items():
                f.set_slot(key, value)
            f.start_block(label, end_of_last)
            f.enter(is_loop=False, stores=effects)
            if side is not None:
                side()
            ends.append((f.block, [f.slots[key][0] for key in changed]))
            f.leave()
            end_of_last = f"br label %{labels[2]}"
        head = f.start_block(labels[2], end_of_last)
        f.fresh_chunk()
        for n, key in enumerate(changed):
            name = f"%{f.name(local_name(key[0].name))}"
            incoming = ", ".join(f"[ {values[n]}, %{block} ]" for block, values in ends)
            head.append(f"  {name} = phi {self._slot_type(key)} {incoming}")
            f.set_slot(key, (name, f.here))

    # Parallel loops.
    def _parallel(self, s: For) -> None:
        """Write `parallel for i: body` as a function over the loop's free names, and a call of it through the context.
        """
        f = self.f
        buffers, variables = free_names(s.body)
        variables = [v for v in variables if v is not s.var]
        shared = [("ptr", f.pointers[b][0]) for b in buffers] + [
            (register_type(v.dtype), f.value(v)[0]) for v in variables]
        start, count = f.value(s.min)[0], f.value(s.extent)[0]
        shared += [(register_type(s.var.dtype), start), ("ptr", "%ctx")]
        layout = f"{{ {', '.join(kind for kind, _ in shared)} }}"
        name = symbol(f"{self.func.name}.{local_name(s.var.name)}.{len(self.outlined)}")
        self.outlined.append(self._outline(s, name, buffers, variables, layout))
        closure = f"%{f.name('closure')}"
        f.entry.append(f"  {closure} = alloca {layout}, align 8")
        for k, (kind, text) in enumerate(shared):
            field = f.put(f"getelementptr {layout}, ptr {closure}, i32 0, i32 {k}", f.here)
            f.do(f"store {kind} {text}, ptr {field}")
        run = f.put("load ptr, ptr %ctx, align 8", f.here)
        f.do(
            f"call void {run}(ptr %ctx, ptr {name}, ptr {closure}, i64 {count}, i64 "
            f"{int(s.annotations.get('grain', 1))})")
        for key in self.facts.effects(s):
            f.forget(key)

    def _outline(self, s: For, name: str, buffers: list[Buffer], variables: list[Var], layout: str) -> str:
        """Write the function that runs iterations `[begin, end)`, and the one that unpacks the closure for it.

        There are two functions because only parameters can be declared not to alias.
        """
        outer, memory, debug = self.f, self.memory, self.debug
        inner = f"{name[:-1]}.body\"" if name.endswith('"') else f"{name}.body"
        if debug is not None:
            self.debug = debug.inner(inner.strip('@"'))
        f = self._function_text()
        if self.debug is not None:
            f.at = self.debug.at(s, self.origin) or f.at
        self.f, self.parallel, self.memory = f, True, ScratchText(f, memory.at_once)
        parameters = []
        for k, b in enumerate(buffers):
            parameters.append(f"ptr noalias %{local_name(b.name)}.p{k}")
            f.pointers[b] = (parameters[-1].rsplit(" ", 1)[1], 0)
        for k, v in enumerate(variables):
            parameters.append(f"{register_type(v.dtype)} %{local_name(v.name)}.v{k}")
            self._bind(v, (parameters[-1].rsplit(" ", 1)[1], 0), v in outer.not_negative)
        for b in buffers:
            self._show_buffer(b, parameter=b in self.func.params)
        for v in variables:
            self._show(v, f.variables[v][0])
        kind = register_type(s.var.dtype)
        parameters += [f"{kind} %start", "ptr %ctx"]
        ends = []
        for end in ("%begin", "%end"):
            cut = end if kind == "i64" else f.put(f"trunc i64 {end} to {kind}", 0)
            ends.append(f.put(f"add nsw {kind} {cut}, %start", 0))
        self._open_memory(s.body)
        self._loop(s, *ends)
        body = self._define(f"define internal void {inner}({', '.join([*parameters, 'i64 %begin', 'i64 %end'])})")
        unpack, arguments = [], []
        for k, parameter in enumerate(parameters):
            kind = parameter.split()[0]
            unpack.append(
                f"  %f{k} = getelementptr {layout}, ptr %closure, i32 0, i32 {k}\n  %x{k} = load {kind}, ptr %f{k}")
            arguments.append(f"{kind} %x{k}")
        call = f"  call void {inner}({', '.join([*arguments, 'i64 %begin', 'i64 %end'])})\n  ret void\n}}"
        self.within.append(Scratch(self.memory.stack, self.memory.heap))
        self.f, self.parallel, self.memory, self.debug = outer, False, memory, debug
        return "\n".join([
            body, f"define internal void {name}(ptr %closure, i64 %begin, i64 %end) #0 {{", *unpack, call
        ])


def _rounded_size(buffer: Buffer) -> PrimExpr:
    """Return the bytes of a flat buffer as `aligned_alloc` takes them: a multiple of the alignment, and not 0."""
    return mul(
        floordiv(add(mul(as_expr(buffer.shape[0]), buffer.dtype.itemsize), 2 * MEMORY_ALIGNMENT - 1), MEMORY_ALIGNMENT),
        MEMORY_ALIGNMENT)
