"""From optimized functions to an artifact: memory plans, kernels, steps, manifest, entry function, packed constants.

    optimized functions --planned--> memory plans --KernelTable--> distinct kernels --compile_kernels--> code
    plans + code --StepMaker--> steps --> manifest --> entry function --> Unfinished --finish--> Artifact

Constants are packed at the very end, when the caller has released the graph: each array is released once it is written
to its place, so that a large model is in memory about once, not twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tilewright import __version__
from tilewright.backends.flow import has_calls, sizes_of
from tilewright.backends.host_code import FIRST_CHUNK, ControlFlow, Watch
from tilewright.backends.ownership import own
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, NotNativeWarning
from tilewright.base.types import DataType, TensorType, Type, tensors_of
from tilewright.compiler.cache import Cache
from tilewright.compiler.constant_pool import ConstantPool
from tilewright.compiler.debug_texts import MODEL
from tilewright.compiler.flow import Lowered
from tilewright.compiler.kernel_code import CodeOptions, ObjectFiles, ProgramCode, compile_kernels
from tilewright.compiler.kernel_table import KernelTable
from tilewright.compiler.memory_limits import check_memory, planned
from tilewright.compiler.notes import LONG, SPAN, arena_of, looks_of, notes_of, spaced_looks, step_times
from tilewright.compiler.program_steps import StepMaker, static_shape, written
from tilewright.compiler.report import BuildReport
from tilewright.relay.expr import Function, Var
from tilewright.relay.transform.plan_memory import Location, MemoryPlan
from tilewright.relay.transform.split_batch import PARTS
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.host import system_of
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.manifest import Symbol as OpenSymbol
from tilewright.runtime.program import HostStep, HostValue, Step, TensorInfo, is_external, may_fail, overlapping
from tilewright.runtime.scratch import Scratch, most
from tilewright.runtime.size_table import derived_sizes, positions
from tilewright.scalar.expr import Var as Symbol
from tilewright.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]
ADDRESS: Final = TensorType((1,), DataType("int64"))
"""The input of a program that is a value of a data type: the address of its cell."""
ADDRESSES: Final = TensorType((2,), DataType("int64"))
"""The output of a program that returns a value of a data type: the addresses of its cell, and of the memory to free."""
GROWTH: Final = 32
"""Factor by which the time of a block with dynamic sizes may exceed that for their samples."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A program whose constants are not packed and whose objects may not be compiled yet."""

    manifest: Manifest
    objects: tuple[Future[bytes], ...]
    constants: ConstantPool
    report: BuildReport

    def finish(self) -> Artifact:
        """Pack the constants, wait for the objects, and make the artifact. To be called once."""
        with self.report.phase("pack"):
            constants = self.constants.blob()
        return Artifact(self.manifest, tuple(o.result() for o in self.objects), constants)

    def sources(self) -> list[Sequence[Array]]:
        """Return the arrays that the constants are packed from, in order."""
        return [values for _, _, _, values in self.constants.pending]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of a program that its manifest describes, with the options that they were made under."""

    name: str
    options: CodeOptions
    code: ProgramCode
    maker: StepMaker

    def manifest(
        self, inputs: Sequence[Var], outputs: Sequence[TensorType], scratch: Scratch, output_names: Sequence[str] = (),
        parts: int = 1, **rest: Any,
    ) -> Manifest:
        """Describe a program, or a block of one, that runs `parts` times along the first axis of its inputs and
        outputs."""
        target = self.options.target
        names = [*output_names, *(f"output_{k}" for k in range(len(output_names), len(outputs)))]
        return Manifest(
            name=self.name,
            inputs=tuple(_info(p.name_hint, p.checked_type, parts) for p in inputs),
            outputs=tuple(_info(n, t, parts) for n, t in zip(names, outputs, strict=False)),
            constants_bytes=self.maker.constants.size,
            parts=written(parts),
            target=str(target),
            triple=target.mtriple,
            cpu=target.mcpu,
            features=tuple(sorted(target.features)),
            compiler=__version__,
            scratch=scratch,
            sites=self.code.sites,
            failures=tuple(self.maker.failures),
            debug=self.options.debug,
            **rest,
        )

    def of_plan(self, plan: MemoryPlan, main: Function, output_names: Sequence[str] = ()) -> Manifest:
        """Describe what a plan of `main` does."""
        return self.manifest(
            plan.inputs, plan.outputs, most(self.code.scratch(map(self.maker.table.kernel_of, plan.steps))),
            output_names, main.attrs.get(PARTS, 1),
            steps=self.maker.steps(plan), workspace_bytes=plan.workspace_bytes,
        )


def build_program(
    main: Function, target: Target, name: str, report: BuildReport, cache: Cache | None,
    output_names: Sequence[str] = (), symbols: Sequence[Symbol] = (), loops: Mapping[str, PrimFunc] | None = None,
) -> Unfinished:
    """Compile a function whose body calls primitive functions, and record the results in `report`.

    `symbols` are the dynamic dimensions, `loops` the external functions that are loop programs. The `cache` keeps
    object files; without one, kernels are lowered to loops only. Raises `CompileError`.
    """
    with report.phase("plan"):
        plan = planned(main, name, symbols)
    check_memory(plan, target, name)
    options = CodeOptions.current(target, symbols, cache is not None)
    table = KernelTable([plan], loops or {}, options.debug == MODEL)
    with ObjectFiles(options, cache, report) as objects:
        code = compile_kernels(table, objects)
        maker = StepMaker(table, code)
        manifest = _Parts(name, options, code, maker).of_plan(plan, main, output_names)
        report.planned(plan, manifest.steps)
        _warn_of_host_steps(name, manifest.steps)
        if symbols:
            manifest = _with_symbols(manifest, maker, symbols)
            manifest = replace(manifest, sizes=derived_sizes(manifest))
        else:
            manifest = replace(manifest, notes=notes_of(plan, maker.value), arena=arena_of(plan))
        looks = _looks(manifest, target, plan, maker)
        manifest = replace(manifest, interruptible=looks is not None)
        kernels = code.complete(objects, overlapping(manifest.steps))
        host = target.backend.host_code
        entries = [objects.add(text, host) for text in host.entries(manifest, target, looks)]
        return Unfinished(manifest, (*kernels, *entries), maker.constants, report)


def _with_symbols(manifest: Manifest, maker: StepMaker, symbols: Sequence[Symbol]) -> Manifest:
    """Add the dynamic dimensions of a program, the pieces of memory that are placed when they are known, and the kept
    values."""
    return replace(
        manifest, symbols=tuple(OpenSymbol(v.name) for v in symbols), pieces=tuple(maker.pieces),
        kept=tuple(maker.kept))


def _looks(manifest: Manifest, target: Target, plan: MemoryPlan, maker: StepMaker) -> frozenset[int] | None:
    """Return the steps after which a program checks for signals; with dynamic sizes, any run may be long."""
    if not system_of(target.mtriple):
        return None
    if manifest.symbols:
        return spaced_looks(manifest.steps, _sampled_times(plan, maker))
    return looks_of(manifest.steps, step_times(manifest.notes), int(manifest.parts))


def _sampled_times(plan: MemoryPlan, maker: StepMaker) -> list[int]:
    """Return the estimated nanoseconds of each step; those of steps with dynamic sizes are `GROWTH` times those for
    their samples."""

    def sample(loc: Location) -> HostValue:
        return replace(maker.value(loc), shape=tuple(map(int, loc.type.shape)))

    is_open = any(loc.type.is_open for s in plan.steps for loc in (*s.inputs, *s.outputs))
    return [(GROWTH if is_open else 1) * t for t in step_times(notes_of(plan, sample))]


def build_parts(
    main: Function, target: Target, name: str, report: BuildReport, output_names: Sequence[str] = (),
    loops: Mapping[str, PrimFunc] | None = None,
) -> tuple[Manifest, list[PrimFunc], Array]:
    """Return the manifest of a program in C, its kernels, and its constants. Raises `CompileError` for operators that
    run in Python."""
    plan = planned(main, name)
    options = CodeOptions.current(target)
    table = KernelTable([plan], loops or {}, by_origin=False)
    with ObjectFiles(options, None, report) as objects:
        code = compile_kernels(table, objects)
    maker = StepMaker(table, code, in_python=False, external=True)
    manifest = _Parts(name, options, code, maker).of_plan(plan, main, output_names)
    return manifest, [c.func for c in code.native], maker.constants.blob()


def build_flow(
    lowered: Lowered, main: Function, blocks: Sequence[Function], target: Target, name: str, report: BuildReport,
    cache: Cache | None, output_names: Sequence[str] = (), loops: Mapping[str, PrimFunc] | None = None,
    symbols: Sequence[Symbol] = (),
) -> Unfinished:
    """Compile a program with control flow, whose straight-line `blocks` have been optimized; see `build_program`.

    Raises `CompileError` if the target is not a 64-bit Linux, the only system for which its cells and its stack limit
    are written.
    """
    if not target.has_threads:
        raise CompileError(
            f"'{name}' has control flow (branches, loops, closures), which is only supported on 64-bit Linux, but the "
            f"target is {target.mtriple}; compile it for such a target, or evaluate it with "
            "relay.create_executor('debug')",
            code="TW0403")
    _refuse_objects([(p.name_hint, p.checked_type) for b in (main, *blocks) for p in b.params])
    with report.phase("plan"):
        plans = [planned(block, name, symbols) for block in blocks]
    for plan in plans:
        check_memory(plan, target, name)
    options = CodeOptions.current(target, symbols, cache is not None)
    table = KernelTable(plans, loops or {}, options.debug == MODEL)
    with ObjectFiles(options, cache, report) as objects:
        code = compile_kernels(table, objects)
        maker = StepMaker(table, code, in_python=False, failures=lowered.program.messages)
        parts = _Parts(name, options, code, maker)
        made = [parts.of_plan(plan, block) for plan, block in zip(plans, blocks, strict=True)]
        if symbols and maker.calls:
            raise CompileError(
                f"'{name}' has control flow and calls modules of other compilers, which take known sizes only",
                code="TW0304")
        work = _Work.of(plans, made, maker)
        for plan, m in zip(plans, made, strict=True):
            report.planned(plan, m.steps)
        if symbols:
            made = _with_sizes(made, lowered, tensors_of(main.ret_type), maker, symbols)
        manifest, flow = _flow(lowered, main, parts, made, work, output_names)
        host = target.backend.host_code
        texts = host.flow(flow, manifest, target)
        report.llvm["flow"] = texts[0]
        report.control = flow.program, made
        kernels = code.complete(objects, overlapping(step for m in made for step in m.steps))
        entries = [objects.add(text, host) for text in texts]
        return Unfinished(manifest, (*kernels, *entries), maker.constants, report)


def _flow(
    lowered: Lowered, main: Function, parts: _Parts, made: Sequence[Manifest], work: _Work,
    output_names: Sequence[str],
) -> tuple[Manifest, ControlFlow]:
    """Return the manifest of a program with control flow, and its blocks (`made`) with the control between."""
    maker, looks = parts.maker, work.looks
    constants = [maker.constants.add((a,), None, a.nbytes) for a in lowered.constants]
    workspace = max((m.workspace_bytes for m in made), default=0)
    results = [ADDRESSES] if lowered.program.is_boxed else tensors_of(main.ret_type)
    inputs = [Var(p.name_hint, ADDRESS) if k in lowered.program.records else p for k, p in enumerate(main.params)]
    made = [replace(m, constants_bytes=maker.constants.size) for m in made]
    program = replace(lowered.program, functions=[own(f) for f in lowered.program.functions])
    program.fallible.update(k for k, m in enumerate(made) if m.sites or m.scratch.heap or any(map(may_fail, m.steps)))
    is_long = bool(looks) or sum(work.times) >= LONG or has_calls(program)
    watch = Watch(work.times, looks.keys(), SPAN) if is_long else None
    manifest = parts.manifest(
        inputs, results, most(parts.code.scratch(maker.table)), output_names, steps=(),
        workspace_bytes=workspace + FIRST_CHUNK, calls=tuple(maker.calls), interruptible=watch is not None,
    )
    if made:
        manifest = replace(
            manifest, symbols=made[0].symbols, sizes=made[0].sizes, pieces=made[0].pieces, kept=made[0].kept)
    calls = [len(c.inputs) + len(c.outputs) for c in maker.calls]
    return manifest, ControlFlow(
        program, made, looks, calls, constants, [] if program.is_boxed else [written(t.nbytes) for t in results],
        workspace, watch, positions(manifest))


def _with_sizes(
    made: Sequence[Manifest], lowered: Lowered, results: Sequence[TensorType], maker: StepMaker,
    symbols: Sequence[Symbol],
) -> list[Manifest]:
    """Return the blocks of a program with dynamic dimensions, which share one table of sizes and one layout of memory.
    """
    blocks = [_with_symbols(m, maker, symbols) for m in made]
    needed = (s for s in (*sizes_of(lowered.program), *(written(t.nbytes) for t in results)) if isinstance(s, str))
    sizes = dict.fromkeys((*(s for m in blocks for s in derived_sizes(m)), *needed))
    names = {v.name for v in symbols}
    return [replace(m, sizes=tuple(s for s in sizes if s not in names)) for m in blocks]


@dataclass(frozen=True, slots=True)
class _Work:
    """The estimated nanoseconds of each block, and for blocks that check for signals, the steps after which they check.
    """

    times: Sequence[int]
    looks: Mapping[int, frozenset[int]]

    @staticmethod
    def of(plans: Sequence[MemoryPlan], made: Sequence[Manifest], maker: StepMaker) -> _Work:
        """Return the work of blocks."""
        times = [_sampled_times(plan, maker) for plan in plans]
        runs = [m.parts if isinstance(m.parts, int) else 1 for m in made]
        found = [looks_of(m.steps, t, n) for m, t, n in zip(made, times, runs, strict=True)]
        return _Work(
            [n * sum(t) for n, t in zip(runs, times, strict=True)],
            {k: f or frozenset() for k, (m, f) in enumerate(zip(made, found, strict=True))
             if f is not None or any(map(is_external, m.steps))})


def _refuse_objects(values: Sequence[tuple[str, Type | None]]) -> None:
    for name, kind in values:
        if any(t.dtype.is_object for t in tensors_of(kind)):
            raise CompileError(
                f"'{name}' is of type {kind!r}, which only Python steps support, and a program with control flow has "
                "no Python steps; keep strings out of the branches, or evaluate the program with "
                "relay.create_executor('debug')",
                code="TW0403")


def _warn_of_host_steps(name: str, steps: Sequence[Step]) -> None:
    """Warn once of all steps that are not native, with the nodes of the model by operator; steps on Python objects
    never are."""
    found: dict[str, list[str]] = {}
    for step in steps:
        if isinstance(step, HostStep) and not any(v.dtype.is_object for v in (*step.inputs, *step.outputs)):
            found.setdefault(step.name, []).append(step.origin or "no node of a model")
    if found:
        listed = "; ".join(
            f"{title}: {', '.join(at[:5])}{f' and {len(at) - 5} more' if len(at) > 5 else ''}" for title,
            at in sorted(found.items())
        )
        steps_said = f"{sum(map(len, found.values()))} of {len(steps)} steps"
        warnings.warn(
            NotNativeWarning(f"{steps_said} of '{name}' have no native kernel and run in numpy: {listed}"), stacklevel=2
        )


def _info(name: str, kind: Any, parts: int) -> TensorInfo:
    """Describe an input or output of the whole program, of which `main` has one of `parts` along the first axis."""
    shape = static_shape(kind, name)
    return TensorInfo(name, tuple(map(written, shape if parts == 1 else (shape[0] * parts, *shape[1:]))), kind.dtype)
