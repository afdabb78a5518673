"""`relay.build` and `relay.optimize`: entries to the pipeline (`compiler/pipeline.py`) for modules in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, InputError, OptionError
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.base.nd import Device
from tilewright.compiler.cache import Cache
from tilewright.compiler.entry_values import layout_of, with_plain_entry
from tilewright.compiler.model_compiler import Options
from tilewright.compiler.open_module import OpenStages, open_artifact
from tilewright.compiler.pipeline import compile_module, is_one_program
from tilewright.compiler.report import BuildReport
from tilewright.compiler.saved_stages import Way, save_stages
from tilewright.compiler.specialization import Specialization
from tilewright.compiler.stage_growth import grow, point_of, signature_of, typed, with_main
from tilewright.compiler.staged import Edge, Point, Stages
from tilewright.compiler.staged_session import StagedSession
from tilewright.compiler.symbolic_stages import symbolic_edge
from tilewright.ir.memory_pools import ConstantMemoryPools, WorkspaceMemoryPools
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.backend.executors import Executor, Runtime, check_conventions
from tilewright.relay.expr import Expr, Function, Tuple
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.transform.stages import needs_stages
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.c_source import CSourceModule
from tilewright.runtime.entry_layout import EntryLayout
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.module import FactoryModule, Session


def build_module(
    mod: IRModule, target: str | Target = "llvm", name: str = "default", report: BuildReport | None = None,
    cache: Cache | None = None,
) -> Artifact:
    """Optimize and compile the `main` of a module under the current `PassContext`."""
    return compile_module(lambda: mod, target, name, report, cache)


def build(
    mod: IRModule | Expr, target: str | Mapping[str, Any] | Target | Sequence[Any] | None = None,
    target_host: str | Target | None = None, params: Mapping[str, Any] | None = None, mod_name: str = "default", *,
    executor: Executor | None = None, runtime: Runtime | None = None,
    workspace_memory_pools: WorkspaceMemoryPools | None = None,
    constant_memory_pools: ConstantMemoryPools | None = None, report: BuildReport | None = None,
    for_all_sizes: bool = False,
) -> FactoryModule:
    """Compile a module or function under the current `PassContext`, with `params` bound to its parameters by name.

    `target` may be a list: a processor, and kinds of targets that compute parts, with their options. The default
    target is that of the enclosing `with Target(…):`. The host of a CPU is the CPU: `target_host` may
    repeat the target, and any other value is refused. A program is the same for each `executor` and `runtime`; the
    module keeps them. The workspace and the constants are one block each, for which one of the memory pools must have
    room. `report` receives the texts of the program. With `for_all_sizes`, a module with unknown dimensions is compiled
    now, as one program, where that is possible. Raises `CompileError`.
    """
    chosen = _target(target, target_host)
    executor, runtime = executor or Executor("graph"), runtime or Runtime("cpp")
    check_conventions(executor, runtime, PassContext.current().config)
    if not isinstance(mod, (IRModule, Expr)):
        raise CompileError(
            f"relay.build takes an IRModule or a Relay function, but was given a {type(mod).__name__}", code="TW0215")
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    with no_garbage_collection():
        bound = with_plain_entry(bind_params(module, params) if params else module)
        if needs_stages(bound["main"]):
            bound = typed(bound)
        built = _built(bound, chosen, mod_name, report, for_all_sizes)
    if "c" in chosen.processor.backend.stages:
        built.write_c = partial(_write_c, bound, chosen, mod_name, PassContext.current())
        built.c_source = CSourceModule(partial(_c_texts, bound, chosen, mod_name, PassContext.current()))
    built.executor, built.runtime = executor, runtime
    if workspace_memory_pools is not None:
        workspace_memory_pools.check(built.artifact.manifest.workspace_bytes)
    if constant_memory_pools is not None:
        constant_memory_pools.check(built.artifact.manifest.constants_bytes)
    return built


def _write_c(mod: IRModule, target: Target, name: str, context: PassContext, path: Path) -> Path:
    """Write a module as a Model Library in C, and return its path."""
    from tilewright.compiler.model import compile as compile_model

    model = compile_model(
        mod, target=target, opt_level=context.opt_level, config=context.config,
        disabled_pass=tuple(context.disabled_pass))
    return model.save_c_library(path, target=target, name=name, source=mod)


def _c_texts(mod: IRModule, target: Target, name: str, context: PassContext) -> tuple[str, str, str, int, int]:
    """Return the name, the source and the header of a module in C, and its numbers of inputs and outputs."""
    from tilewright.compiler.c_model import c_model

    options = PassContext(
        opt_level=context.opt_level, config=context.config, disabled_pass=tuple(context.disabled_pass))
    with options:
        found = c_model(lambda: mod, target, name)
    return found.name, found.source, found.header, len(found.inputs), len(found.outputs)


def _built(mod: IRModule, target: Target, name: str, report: BuildReport | None, for_all_sizes: bool) -> FactoryModule:
    """Compile a module whose `main` takes and returns tensors: one program, or stages."""
    if is_one_program(mod["main"]):
        report = report or BuildReport()
        built = FactoryModule(build_module(mod, target, name, report))
        built.sources = _sources(report, target)
        return built
    one = open_artifact(mod["main"], target, name, report or BuildReport()) if for_all_sizes else None
    return StagedModule.of(mod, target, name, one)


def _sources(report: BuildReport, target: Target) -> Mapping[str, Callable[[], str]]:
    """Return the texts of the kernels of a build, by format."""
    backend = target.processor.backend
    texts = [report.text] if backend.one_text else [*report.llvm.values()]

    def joined(stage: str) -> str:
        return "\n".join(backend.texts(text, target)[stage]() for text in texts)

    return {stage: partial(joined, stage) for stage in backend.stages}


class StagedModule(FactoryModule):
    """A module whose sizes differ between calls: stages that are compiled at run time, and one program for all sizes
    where there is one."""

    def __init__(self, stages: Stages, name: str, outputs: int, one: Artifact | None = None, entry: EntryLayout
                 | None = None, writer: Callable[[Path], Path] | None = None) -> None:
        """`outputs` is the number of outputs, `writer` saves the stages to a file."""
        self.stages, self.name, self._outputs, self._one, self._entry, self._writer = (
            stages, name, outputs, one, entry, writer
        )
        self._callable: Any = stages if one is None else OpenStages(Specialization(one, None), stages)

    @staticmethod
    def of(mod: IRModule, target: Target, name: str, one: Artifact | None = None) -> StagedModule:
        """Return a typed module, compiled under the context in which it was built."""
        context, main, cache = PassContext.current(), mod["main"], Cache.default()

        def compiled(make: Callable[[], Function], edge: Edge) -> Specialization:
            with context:
                return Specialization(compile_module(lambda: with_main(mod, make()), target, name, None, cache), None)

        def grown(point: Point, values: Sequence[Any] | None) -> tuple[Edge, set[int]]:
            with context, no_garbage_collection():
                return grow(point.function or main, values)

        def symbolic(point: Point, values: Sequence[Any], foreseen: bool) -> tuple[Edge | None, tuple[int, ...]]:
            with context, no_garbage_collection():
                return symbolic_edge(point, values, lambda stage, _: Specialization(
                    stage.compiled(target.processor, name, BuildReport(), cache), None), foreseen=foreseen)

        def written(path: Path) -> Path:
            options = Options(context.opt_level, dict(context.config), tuple(context.disabled_pass))
            return save_stages(stages, Way(name, target, options, entry=layout_of(main)), main, path)

        outputs = len(main.body.fields) if isinstance(main.body, Tuple) else 1
        stages = Stages(signature_of(main), point_of(main), grown, compiled, symbolic=symbolic)
        if one is None:
            stages.prepare()
        return StagedModule(stages, name, outputs, one, layout_of(main), written)

    @property
    def executable(self) -> Any:
        """The program as a callable."""
        return self._callable

    @property
    def artifact(self) -> Artifact:
        """The program for all sizes. Raises `InputError` if the model has no such program."""
        if self._one is None:
            raise InputError(self.stages.why_not_one(), code="TW0708")
        return self._one

    @property
    def libmod_name(self) -> str:
        return self.name

    @property
    def entry(self) -> EntryLayout | None:
        return self._entry

    @property
    def input_names(self) -> list[str]:
        return [name for name, *_ in self.stages.signature]

    def manifests(self) -> list[Manifest]:
        """Return the manifests of the programs that are compiled."""
        one = [] if self._one is None else [self._one.manifest]
        return one + [s.artifact.manifest for s in self.stages.programs()]

    def identity(self) -> str:
        """Return a text that identifies the program; for stages, their name and inputs."""
        return f"{self.name}({self.stages.described()})" if self._one is None else super().identity()

    def export_library(
        self, file_name: str | os.PathLike[str], fcompile: Any = None, addons: Sequence[str] | None = None,
        workspace_dir: str | None = None, *, cc: str | None = None, **_options: Any
    ) -> Path:
        """Write the program for all sizes, if there is one, else the stages, to a `.tar`."""
        if self._one is None and self._writer is not None:
            return self._writer(Path(file_name))
        return super().export_library(file_name, fcompile, addons, workspace_dir, cc=cc)

    def session(self, device: Device) -> Session:
        """Return a session, whose outputs exist after its first run."""
        return StagedSession(self.stages, device, self._outputs)


def optimize_module(
    mod: IRModule | Expr, target: str | Mapping[str, Any] | Target | None = None,
    params: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """Run all passes over graphs and return the module and an empty dictionary, because `params` become constants. This
    is TVM's `relay.optimize`."""
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    with no_garbage_collection():
        return optimize(bind_params(module, params) if params else module, _target(target, None)), {}


def _target(target: str | Mapping[str, Any] | Target | Sequence[Any] | None, host: str | Target | None) -> Target:
    given: Any = Target.current(allow_none=False) if target is None else target
    chosen = Target.combined(given if isinstance(given, Sequence) and not isinstance(given, str) else [given])
    if host is not None and Target(host) != chosen:
        raise OptionError(
            f"target_host is '{Target(host)}', but code for '{chosen}' runs on that target itself; omit "
            "target_host", code="TW0505")
    return chosen.compilable()
