"""From a fused graph to an artifact: kernels lowered and compiled, constants packed, the memory plan, the entry function.

    plan = planned(main, name) -> one kernel for each different primitive function -> object files -> manifest -> artifact

Constants are packed at the very end, when their caller has let go of the graph: each of them is released once it has been
written to its place, so that a large model is in memory about once, and not twice.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright import __version__
from tilewright.backends.base import Backend
from tilewright.backends.cpu.llvm.backend import LLVM
from tilewright.backends.cpu.llvm.debug_info import Source
from tilewright.backends.cpu.llvm.entry import emit_blocks, emit_entry, fails, leaves
from tilewright.backends.cpu.llvm.external import symbol_of
from tilewright.backends.cpu.llvm.faults import faults_text
from tilewright.backends.cpu.llvm.flow import FIRST_CHUNK, Watch, emit_flow
from tilewright.backends.cpu.llvm.interrupts import look_text
from tilewright.backends.cpu.llvm.pool import pool_text
from tilewright.backends.flow import has_calls
from tilewright.backends.ownership import own
from tilewright.backends.target import Target
from tilewright.base.errors import CompileError, InternalError, NoNativeCompute, NotNativeWarning
from tilewright.base.memory_faults import Site
from tilewright.base.types import TensorType, Type, tensors_of
from tilewright.compiler import tuned
from tilewright.compiler.cache import Cache
from tilewright.compiler.constant_pool import ConstantPool
from tilewright.compiler.flow import Lowered
from tilewright.compiler.kernel import Argument, Kernel
from tilewright.compiler.memory import check_memory, check_scratch, planned
from tilewright.compiler.notes import arena_of, notes_of
from tilewright.compiler.open_sizes import written
from tilewright.compiler.report import Report
from tilewright.compiler.run_time import LONG, SPAN, looks_of, step_times
from tilewright.compiler.sources import MODEL, OFF, asked_for, kernel_source, loops_source
from tilewright.compiler.stand_ins import STAND_IN
from tilewright.compiler.target_hooks import host_kernel
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.interpreter import Meaning, prepared
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.op.registry import Op
from tilewright.relay.op.runtime_checks import RequireZero
from tilewright.relay.transform.plan_memory import Location, MemoryPlan, MemorySpace
from tilewright.relay.transform.plan_memory import Step as PlanStep
from tilewright.relay.transform.split_batch import PARTS
from tilewright.relay.visitor import calls, post_order
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.host import system_of
from tilewright.runtime.manifest import Manifest, Piece
from tilewright.runtime.manifest import Symbol as OpenSymbol
from tilewright.runtime.program import Check, Copy, ExternalStep, HostStep, HostValue, KernelCall, Place, Step, TensorInfo, overlapping
from tilewright.runtime.scratch import Scratch, most
from tilewright.runtime.size_table import derived_sizes
from tilewright.scalar.expr import Var as Symbol
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.transform.instrument_memory import Checks

Array = np.ndarray[Any, Any]


def build_program(
    main: Function, target: Target, name: str, report: Report, cache: Cache | None, output_names: Sequence[str] = (), symbols: Sequence[Symbol] = (),
    loops: Mapping[str, PrimFunc] | None = None,
) -> Unfinished:
    """Compile a function whose body calls primitive functions. `report` is filled in; `cache` keeps the object files.

    `symbols` are the sizes that are open, `loops` the external functions that are loop programs. Without a `cache`, loops are made, and no machine code.
    """
    with report.phase("plan"):
        plan = planned(main, name, symbols)
    check_memory(plan, target, name)
    builder = _Builder(target, report, cache, symbols=symbols, loops=loops)
    steps = builder.steps(plan)
    report.planned(plan, steps)
    _warn_of_host_steps(name, steps)
    manifest = _manifest(
        name, plan.inputs, plan.outputs, output_names, builder, main.attrs.get(PARTS, 1), steps=tuple(steps), workspace_bytes=plan.workspace_bytes,
        notes=() if symbols else notes_of(plan, builder.host_value), arena=() if symbols else arena_of(plan),
    )
    if symbols:
        pieces = tuple(Piece(written(p.nbytes), p.birth, p.death) for p in plan.pieces)
        manifest = replace(manifest, symbols=tuple(OpenSymbol(v.name) for v in symbols), pieces=pieces)
        manifest = replace(manifest, sizes=derived_sizes(manifest))
    looks = _looks(manifest, target)
    manifest = replace(manifest, interruptible=looks is not None)
    entry = builder.object("entry", emit_entry(manifest, looks=looks) + pool_text(target))
    return Unfinished(manifest, (*builder.code(overlapping(steps)), entry, *builder.others(manifest)), builder.constants, report)


def _looks(manifest: Manifest, target: Target) -> frozenset[int] | None:
    """Where a program looks for signals: after every step where its sizes are open, and nowhere on systems that have no Python."""
    if not system_of(target.mtriple):
        return None
    if manifest.symbols:
        return frozenset(range(len(manifest.steps) - 1))
    return looks_of(manifest.steps, step_times(manifest.notes), int(manifest.parts))


def build_parts(
    main: Function, target: Target, name: str, report: Report, output_names: Sequence[str] = (), loops: Mapping[str, PrimFunc] | None = None,
) -> tuple[Manifest, list[PrimFunc], Array]:
    """The program whose kernels are to be C: what it does, its kernels, and its constants. Raises `CompileError` for operators that run in Python."""
    plan = planned(main, name)
    builder = _Builder(target, report, Cache.default(), in_python=False, loops=loops)
    steps = builder.steps(plan)
    manifest = _manifest(name, plan.inputs, plan.outputs, output_names, builder, main.attrs.get(PARTS, 1), steps=tuple(steps), workspace_bytes=plan.workspace_bytes)
    return manifest, builder.together, builder.constants.blob()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A program whose constants are not packed yet."""

    manifest: Manifest
    objects: tuple[bytes, ...]
    constants: ConstantPool
    report: Report

    def finish(self) -> Artifact:
        """Pack the constants and make the artifact; to be called once."""
        with self.report.phase("pack"):
            return Artifact(self.manifest, self.objects, self.constants.blob())

    def sources(self) -> list[Sequence[Array]]:
        """What the constants are packed from, in order."""
        return [values for _, _, _, values in self.constants.pending]


def build_flow(
    lowered: Lowered, main: Function, blocks: IRModule, target: Target, name: str, report: Report, cache: Cache, output_names: Sequence[str] = (),
    loops: Mapping[str, PrimFunc] | None = None,
) -> Unfinished:
    """The same for a program with control flow, whose `blocks` have been optimized: functions `block_0`, `block_1`, …

    Raises `CompileError` where the target is not a Linux of 64 bits, for which alone its cells and its limit of the stack are written."""
    if not target.has_threads:
        raise CompileError(f"'{name}' has control flow (branches, loops, closures), whose native code is written for Linux of 64 bits, and the target is {target.mtriple}; "
                           "compile it for such a target, or evaluate it with relay.create_executor('debug')", code="TW0403")
    builder = _Builder(target, report, cache, in_python=False, loops=loops, failures=lowered.program.messages)
    _refuse_objects([(p.name_hint, p.checked_type) for b in (main, *(blocks[f"block_{k}"] for k in range(len(lowered.blocks)))) for p in b.params])
    made, work = [], []
    looks: dict[int, frozenset[int]] = {}
    for k in range(len(lowered.blocks)):
        with report.phase("plan"):
            block = blocks[f"block_{k}"]
            plan = planned(block, name)
        check_memory(plan, target, name)
        steps = tuple(builder.steps(plan))
        report.planned(plan, steps)
        made.append(_manifest(name, plan.inputs, plan.outputs, (), builder, block.attrs.get(PARTS, 1), steps=steps, workspace_bytes=plan.workspace_bytes))
        times, parts = step_times(notes_of(plan, builder.host_value)), block.attrs.get(PARTS, 1)
        work.append(parts * sum(times))
        found = looks_of(steps, times, parts)
        if found is not None or any(map(leaves, steps)):
            looks[k] = found or frozenset()
    constants = [builder.constants.add((a,), None, a.nbytes) for a in lowered.constants]
    workspace = max((m.workspace_bytes for m in made), default=0)
    results = tensors_of(main.ret_type)
    manifest = _manifest(
        name, main.params, results, output_names, builder, steps=(), workspace_bytes=workspace + FIRST_CHUNK,
    )
    made = [replace(m, constants_bytes=builder.constants.size, sites=manifest.sites) for m in made]
    program = replace(lowered.program, functions=[own(f) for f in lowered.program.functions])
    program.fallible.update(k for k, m in enumerate(made) if m.sites or m.scratch.heap or any(map(fails, m.steps)))
    watch = Watch(work, looks.keys(), SPAN) if looks or sum(work) >= LONG or has_calls(program) else None
    manifest = replace(manifest, calls=tuple(builder.calls), interruptible=watch is not None)
    text = emit_blocks(made, [len(c.inputs) + len(c.outputs) for c in builder.calls], looks)
    text += emit_flow(program, constants, [t.nbytes for t in results], workspace, watch)
    report.llvm["flow"] = text
    entries = (builder.object("flow", text), builder.object("pool", pool_text(target)))
    return Unfinished(manifest, (*builder.code(overlapping(step for m in made for step in m.steps)), *entries, *builder.others(manifest)), builder.constants, report)


def _refuse_objects(values: Sequence[tuple[str, Type | None]]) -> None:
    for name, kind in values:
        if any(t.dtype.is_object for t in tensors_of(kind)):
            raise CompileError(f"'{name}' is of type {kind!r}, and a program with control flow does not go back to Python, where alone there are such values; "
                               "keep strings out of the branches, or evaluate the program with relay.create_executor('debug')", code="TW0403")


def _manifest(
    name: str, inputs: Sequence[Var], outputs: Sequence[TensorType], output_names: Sequence[str], builder: _Builder, parts: int = 1, **rest: Any,
) -> Manifest:
    target = builder.target
    return Manifest(
        name=name,
        inputs=tuple(_info(p.name_hint, p.checked_type, parts) for p in inputs),
        outputs=tuple(_info(output_names[k] if k < len(output_names) else f"output_{k}", t, parts) for k, t in enumerate(outputs)),
        constants_bytes=builder.constants.size,
        parts=written(parts),
        target=str(target),
        triple=target.mtriple,
        cpu=target.mcpu,
        features=tuple(sorted(target.features)),
        compiler=__version__,
        scratch=most(builder.scratch),
        sites=tuple(builder.sites),
        failures=tuple(builder.failures),
        debug=builder.debug,
        **rest,
    )


def _warn_of_host_steps(name: str, steps: Sequence[Step]) -> None:
    """One warning for all that is not native, with the nodes of the model by operator; texts and other objects never are."""
    found: dict[str, list[str]] = {}
    for step in steps:
        if isinstance(step, HostStep) and not any(v.dtype.is_object for v in (*step.inputs, *step.outputs)):
            found.setdefault(step.name, []).append(step.origin or "no origin")
    if found:
        listed = "; ".join(f"{title}: {', '.join(at[:5])}{f' and {len(at) - 5} more' if len(at) > 5 else ''}" for title, at in sorted(found.items()))
        steps_said = f"{sum(map(len, found.values()))} of {len(steps)} steps"
        warnings.warn(NotNativeWarning(f"{steps_said} of '{name}' have no native kernel and run by their numpy meaning: {listed}"), stacklevel=2)


def _info(name: str, kind: Any, parts: int) -> TensorInfo:
    """An input or output of the whole program, of which `main` sees one of `parts` along the first axis."""
    shape = _static(kind, name)
    return TensorInfo(name, tuple(map(written, shape if parts == 1 else (shape[0] * parts, *shape[1:]))), kind.dtype)


def _static(t: Any, what: str) -> tuple[int, ...]:
    if not t.is_static:
        raise CompileError(f"the shape of {what} is {t!r}; give its symbolic dimensions a size (shapes={{name: (1, 3, 224, 224)}})", code="TW0303")
    return tuple(t.shape)


class _Builder:
    """The kernels and constants of one program while it is built."""

    def __init__(
        self, target: Target, report: Report, cache: Cache | None, in_python: bool = True, symbols: Sequence[Symbol] = (),
        loops: Mapping[str, PrimFunc] | None = None, failures: Sequence[str] = (),
    ) -> None:
        """`in_python` says whether operators without a native kernel may run in Python; `symbols` are the sizes that are open, `loops` external functions."""
        self.symbols, self.loops = symbols, loops or {}
        self.target, self.report, self.cache, self.in_python = target, report, cache, in_python
        self.known: Sequence[Array] = ()
        self.constants = ConstantPool()
        self.objects: dict[str, bytes] = {}
        self.together: list[PrimFunc] = []
        """Flat functions that become one text, for back ends of one text."""
        self.scratch: list[Scratch] = []
        """What each kernel takes of a thread."""
        self.calls: list[ExternalStep] = []
        """What is called back where control flow is native code."""
        self.names: dict[str, str] = {}
        """The symbols of loop programs, by the keys of their objects."""
        self.kernels: dict[str, tuple[str, Kernel] | None] = {}
        self.checks = Checks.current(in_place=True)
        self.sites: list[Site] = []
        self.failures: list[str] = [*failures]
        """What the program may end with, by the numbers of checks."""
        kind = asked_for(target)
        self.debug = "" if kind == OFF else kind

    def steps(self, plan: MemoryPlan) -> list[Step]:
        """The steps of a plan; its kernels and constants join those that are there."""
        self.known = plan.constants
        return [step for s in plan.steps for step in self._step(s)]

    def _step(self, s: PlanStep) -> list[Step]:
        if s.call is None:
            (source,), (destination,) = s.inputs, s.outputs
            if destination.type.dtype.is_object:
                known = self.known[source.index] if source.place is MemorySpace.CONSTANT else None
                return [self._on_host("copy", np.copy if known is None else functools.partial(np.copy, known), s, "", [known])]
            return [Copy(self.place(source), self.place(destination), written(destination.type.nbytes))]
        function = s.call.op
        if not isinstance(function, Function):
            raise InternalError(f"a step of the plan calls {type(function).__name__}; only primitive functions have kernels")
        origin = str(s.call.span or function.span or "")
        if isinstance(function.body, Call) and isinstance(function.body.op, ExternalCall):
            return [self._loop_program(function.body.op, s, origin) if function.body.op.symbol in self.loops else self._external_step(function.body.op, s, origin)]
        constant = [loc.place is MemorySpace.CONSTANT for loc in s.inputs]
        storage = [loc.storage for loc in (*s.inputs, *s.outputs)]
        in_python = _needs_python(function, s)
        key = f"{structural_hash(function)}{'p' * in_python}{''.join(map(str, map(int, constant)))}{storage if any(storage) else ''}{origin if self.debug == MODEL else ''}"
        if key not in self.kernels:
            try:
                self.kernels[key] = None if in_python else self._kernel(function, constant, storage)
            except CompileError as error:
                if error.origin is not None or not self.symbols:
                    raise
                raise type(error)(error.message, s.call.span or function.span, code=error.code) from error
        found = self.kernels[key]
        if found is None:
            return [self._host_step(function, s, origin)]
        symbol, kernel = found
        places = [self._argument(a, s.inputs) for a in kernel.arguments]
        return [KernelCall(symbol, (*places, *map(self.place, s.outputs)), origin, self._checks(function, s))]

    def _checks(self, function: Function, s: PlanStep) -> tuple[Check, ...]:
        """What must be zero before the kernel of `function` runs: the second arguments of its `require_zero`."""
        found = []
        for call in calls(function):
            if isinstance(call.op, RequireZero):
                where = next(k for k, p in enumerate(function.params) if p is call.args[1])
                if call.op.message not in self.failures:
                    self.failures.append(call.op.message)
                found.append(Check(self.place(s.inputs[where]), self.failures.index(call.op.message)))
        return tuple(found)

    def _kernel(self, function: Function, constant: Sequence[bool], storage: Sequence[tuple[int, ...] | None]) -> tuple[str, Kernel] | None:
        """The compiled kernel, or None when an operator in it has no native computation."""
        symbol = f"kernel_{len(self.kernels)}_{_title(function)}"
        with self.report.phase("lower"):
            try:
                kernel = tuned.lower(function, constant, self.target, symbol, storage=storage, symbols=self.symbols, flat=self.cache is not None,
                                      checks=self.checks, first_site=len(self.sites))
            except NoNativeCompute:
                return None
            except NotImplementedError as error:
                raise InternalError(f"lowering '{symbol}' reached a method that is not implemented: {error!r}") from error
        self.sites += kernel.sites
        self.report.kernels[symbol] = kernel
        if self.report.keeps_module:
            self.report.functions[symbol] = function
        if self.cache is None:
            return symbol, kernel
        self._make(symbol, symbol, kernel.func, lambda: kernel_source(self.debug, kernel.func, kernel.declared, function))
        return symbol, kernel

    def _make(self, key: str, symbol: str, func: PrimFunc, source: Callable[[], Source]) -> None:
        """Compile a flat function, with the lines of `source` where they are wanted; a back end of one text waits for all functions."""
        backend = self.target.backend
        if backend.one_text:
            self._note(backend.scratch(func))
            self.together.append(func)
            return
        with self.report.phase("emit"):
            text, scratch = backend.emit((func,), self.target, [source()] if self.debug else [])
        self._note(scratch)
        self.report.llvm[symbol] = text
        self.objects[key] = self.object(symbol, text, backend)

    def _note(self, scratch: Scratch) -> None:
        """Note what a kernel takes of each thread. Raises `CompileError` where that is more than the machine has."""
        check_scratch(scratch, self.target)
        self.scratch.append(scratch)

    def code(self, overlapping: frozenset[str] = frozenset()) -> list[bytes]:
        """The objects of all kernels; `overlapping` are those that may read the memory that they write."""
        backend = self.target.backend
        if self.together:
            with self.report.phase("emit"):
                self.report.text, _ = backend.emit(self.together, self.target, overlapping=overlapping)
            self.objects[backend.name] = self.object(backend.name, self.report.text, backend)
        return [*self.objects.values()]

    def object(self, symbol: str, text: str, backend: Backend = LLVM) -> bytes:
        """Return the object file of the text of a back end, LLVM text by default; from the cache where it is there."""
        if self.cache is None:
            return b""
        in_order = bool(self.debug)
        key = Cache.key("object", __version__, str(self.target), self.target.backend.identity(self.target), text, *(["in order"] if in_order else []))
        found = self.cache.get(key)
        if found is None:
            with self.report.phase("llvm"):
                found = backend.compile(text, self.target, in_order=in_order)
            self.cache.put(key, found)
        return found

    def others(self, manifest: Manifest) -> list[bytes]:
        """The objects of what checked code calls, and what interruptible entries call."""
        reporting = [self.object("faults", faults_text())] if self.sites else []
        return [*reporting, *([self.object("interrupts", look_text(self.target.mtriple))] if manifest.interruptible else [])]

    def place(self, loc: Location) -> Place:
        match loc.place:
            case MemorySpace.CONSTANT:
                value = self.known[loc.index]
                return Place("constant", self.constants.add((value,), None, value.nbytes))
            case MemorySpace.INPUT | MemorySpace.OUTPUT:
                return Place(loc.place.value, loc.index, loc.skip)
            case MemorySpace.OBJECT:
                return Place("object", loc.index)
            case MemorySpace.PIECE:
                return Place("piece", loc.index, written(loc.skip))
            case _:
                return Place("workspace", loc.index)

    def _argument(self, a: Argument, inputs: Sequence[Location]) -> Place:
        if a.pack is None:
            return self.place(inputs[a.sources[0]])
        return Place("constant", self.constants.add(tuple(self.known[inputs[k].index] for k in a.sources), a.pack, a.nbytes))

    def _host_step(self, function: Function, s: PlanStep, origin: str) -> HostStep:
        title = _title(function)
        if not self.in_python:
            raise CompileError(
                f"{title} ({origin or 'no origin'}) has no native kernel, and stands in a program with control flow, which does not go back to Python; "
                "replace it, or evaluate the program with relay.create_executor('debug')", code="TW0403"
            )

        kept = [self.known[loc.index] if loc.place is MemorySpace.CONSTANT and loc.type.dtype.is_object else None for loc in s.inputs]
        run = prepared(function, kept)
        return self._on_host(title, run, s, origin, kept)

    def _loop_program(self, call: ExternalCall, s: PlanStep, origin: str) -> KernelCall:
        """The call of a loop program that a target's hook made, compiled as our own kernels are."""
        places = (*s.inputs, *s.outputs)
        storage = [loc.storage for loc in places]
        key = f"{call.symbol}{storage if any(storage) else ''}"
        if key not in self.names:
            symbol = f"{call.symbol}_{len(self.names)}"
            with self.report.phase("lower"):
                loops = self.loops[call.symbol]
                func, sites = host_kernel(loops if loops.origin else replace(loops, origin=None if s.call is None else s.call.span), symbol, storage, self.target, self.checks, len(self.sites))
            self.sites += sites
            self._make(key, symbol, func, lambda: loops_source(func, loops, written=True))
            self.names[key] = symbol
        return KernelCall(self.names[key], tuple(map(self.place, places)), origin)

    def _external_step(self, call: ExternalCall, s: PlanStep, origin: str) -> ExternalStep | KernelCall:
        """A step of its own in a straight line; where control flow is native code, a call that native code makes."""
        if not self.in_python:
            inputs, outputs = ([replace(self.host_value(loc), place=Place(kind, k)) for k, loc in enumerate(locs)] for kind, locs in (("input", s.inputs), ("output", s.outputs)))
            self.calls.append(ExternalStep(call.symbol, tuple(inputs), tuple(outputs), origin))
            return KernelCall(symbol_of(len(self.calls) - 1), tuple(map(self.place, (*s.inputs, *s.outputs))), origin)
        return ExternalStep(call.symbol, tuple(map(self.host_value, s.inputs)), tuple(map(self.host_value, s.outputs)), origin)

    def _on_host(self, title: str, run: Callable[..., Any], s: PlanStep, origin: str, kept: Sequence[Array | None]) -> HostStep:
        """A step that runs in Python; constants that are Python objects are kept by the step itself."""
        inputs = [self.host_value(loc) for loc, k in zip(s.inputs, kept, strict=True) if k is None]
        return HostStep(title, run, tuple(inputs), tuple(map(self.host_value, s.outputs)), origin, isinstance(run, Meaning))

    def host_value(self, loc: Location) -> HostValue:
        """An array of the plan as steps that are no native code read and write it."""
        return HostValue(self.place(loc), _static(loc.type, "a value"), loc.type.dtype, loc.strides)


def _needs_python(function: Function, s: PlanStep) -> bool:
    """Whether a step makes objects, or reads others than texts of the program's inputs by operators that have kernels for them."""
    given = [(p, loc) for p, loc in zip(function.params, s.inputs, strict=True) if loc.type.dtype.is_object]
    if any(loc.place is not MemorySpace.INPUT or loc.type.dtype != "string" for _, loc in given) or any(loc.type.dtype.is_object for loc in s.outputs):
        return True
    readers = [e.op for e in post_order(function.body) if isinstance(e, Call) and any(p in e.args for p, _ in given)] if given else []
    return not all(isinstance(op, Op) and op.reads_texts for op in readers)


def _title(function: Function) -> str:
    """The operators of a primitive function, for symbols and messages: `conv2d_add_relu`."""
    if STAND_IN in function.attrs:
        return f"{re.sub(r'[^A-Za-z0-9_]', '_', str(function.attrs[STAND_IN]))}_stand_in"
    names = [e.op.name.rpartition(".")[2] for e in post_order(function.body) if isinstance(e, Call) and hasattr(e.op, "name")]
    return "_".join(names[:6]) or "copy"
