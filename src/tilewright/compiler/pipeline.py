"""The compilation pipeline, from a Relay module to an artifact. Every entry point uses it.

    module                                           from a frontend, text, or `relay` itself
      | off_loaded       parts for accelerators become calls of the modules that other compilers make of them
      | front_half       control flow becomes blocks; each goes through the passes over graphs
                         (relay/transform/pipeline.py)
      v
    fused functions      `main`, or one for each block; tuning enumerates their kernels (fused.py)
      | planned          memory plan of each device: order of the steps, places of all values, copies   (memory.py)
      | KernelTable      distinct kernels and their symbols
                         (kernel_table.py)
      | compile_kernels  each lowered, emitted, compiled: a pure function of its entry in the table     (kernel_code.py)
      | StepMaker        steps of the manifest, from plan, table and code
                         (program_steps.py)
      v
    Unfinished           manifest, objects, constants that are not packed                               (program.py)
      | finish           constants packed last, when nothing else holds the graph
      v
    Artifact             runs here, or is saved (export.py)

Entry points: `tilewright.compile` (model.py), `relay.build` (build.py), C files (c_model.py), programs with dynamic
dimensions (open_program.py), stages of a program with data-dependent shapes (staged.py), tuning (fused.py), diagnosis
(diagnosis/ways.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tilewright.backends.targets.target import Target
from tilewright.base import interning, jit_policy
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.compiler.cache import Cache
from tilewright.compiler.entry_types import check_entry_types
from tilewright.compiler.entry_values import has_records, layout_of, with_plain_entry
from tilewright.compiler.external import offload, take_external, with_stand_ins
from tilewright.compiler.flow import Lowered, lower_control, needs_control
from tilewright.compiler.program import build_flow, build_program
from tilewright.compiler.report import BuildReport
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.qnn.choose_numerics import ChooseNumerics
from tilewright.relay.qnn.settle_numerics import SettleNumerics
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.object_boundaries import mixes_control_and_objects
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.transform.stages import needs_stages
from tilewright.relay.visitor import calls
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.modules import ModuleNode
from tilewright.tir.stmt import PrimFunc


def compile_module(
    make: Callable[[], IRModule], target: str | Target = "llvm", name: str = "default",
    report: BuildReport | None = None, cache: Cache | None = None,
) -> Artifact:
    """Compile the `main` of the module that `make` returns, under the current `PassContext`. Raises `CompileError`.

    If the caller holds no reference to the module, its weights are released while they are packed.
    """
    report, chosen, begin = report or BuildReport(), Target(target).compilable(), jit_policy.clock()
    with compiling():
        taken = off_loaded(with_plain_entry(make()), chosen)
        modules, operators = taken.modules, len(calls(taken.module["main"].body))
        with report.phase("graph"):
            front = front_half(taken.module, chosen.processor)
        if report.keeps_module:
            report.module = front.optimized
        lists, entry = front.main.attrs.get("output_lists", ()), layout_of(front.main)
        options = (chosen.processor, name, report, cache or Cache.default(), front.output_names)
        if front.control is None:
            program = build_program(front.functions[0], *options, loops=front.loops)
        else:
            program = build_flow(front.control, front.main, front.functions, *options, front.loops)
        del taken, front
        made = program.finish()
        jit_policy.COMPILING.took(operators, jit_policy.clock() - begin)
        return replace(made, manifest=replace(made.manifest, lists=lists, entry=entry), modules=modules)


def compile_fused(main: Function, target: Target, name: str) -> Artifact:
    """Compile a function that calls primitive functions already, without passes over graphs. Raises `CompileError`."""
    with compiling():
        return build_program(main, target, name, BuildReport(), Cache.default()).finish()


@contextmanager
def compiling() -> Iterator[None]:
    """Compile without garbage collection, and release the interned expressions at the end."""
    with no_garbage_collection():
        try:
            yield
        finally:
            interning.release()


def is_one_program(main: Function) -> bool:
    """Whether one program can compute a function: all its sizes are known, and it does not return to Python amid
    control flow."""
    return not needs_stages(main) and not mixes_control_and_objects(main)


@dataclass(frozen=True, slots=True)
class OffLoaded:
    """A module without the parts that other compilers take, and the modules made from these parts."""

    module: IRModule
    modules: tuple[ModuleNode, ...]


def off_loaded(mod: IRModule, target: Target) -> OffLoaded:
    """Give the accelerators of `target` their parts of a module, and external functions to their compilers."""
    return OffLoaded(*take_external(with_stand_ins(offload(mod, target)), target.processor))


@dataclass(frozen=True, slots=True)
class FrontHalf:
    """Result of the passes over graphs.

    `optimized` has `main`, or for a program with `control` flow `block_0`, `block_1`, …; `loops` are the loop programs
    that these call by name.
    """

    main: Function
    control: Lowered | None
    optimized: IRModule
    loops: Mapping[str, PrimFunc]

    @property
    def functions(self) -> list[Function]:
        """The optimized functions, in order."""
        names: Sequence[str] = ("main",) if self.control is None else [
            f"block_{k}" for k in range(len(self.control.blocks))]
        return [self.optimized[name] for name in names]

    @property
    def output_names(self) -> Sequence[str]:
        """The names that the model gives its outputs, if any."""
        names: Sequence[str] = self.main.attrs.get("output_tensor_names", ())
        return names


def front_half(mod: IRModule, processor: Target) -> FrontHalf:
    """Return the functions from which kernels are made, under the current `PassContext`. Raises `CompileError`."""
    main = mod["main"]
    loops = {n: f for n, f in mod.items() if isinstance(f, PrimFunc)}
    if not needs_control(main) and not has_records(main):
        check_entry_types(main)
        return FrontHalf(main, None, optimize(mod, processor), loops)
    control = lower_control(SettleNumerics()(ChooseNumerics()(InferType()(mod))))
    blocks = IRModule({f"block_{k}": f for k, f in enumerate(control.blocks)})
    return FrontHalf(main, control, optimize(blocks, processor), loops)
