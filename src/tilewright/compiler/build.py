"""`relay.build` and `relay.optimize`: entries to the pipeline (`compiler/pipeline.py`) for modules in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.backends.target import Target
from tilewright.base.errors import CompileError, InputError, OptionError
from tilewright.base.nd import Device
from tilewright.compiler.cache import Cache
from tilewright.compiler.entry_values import layout_of, with_plain_entry
from tilewright.compiler.garbage_collection import no_garbage_collection
from tilewright.compiler.pipeline import compile_module, is_one_program
from tilewright.compiler.report import BuildReport
from tilewright.compiler.specialization import Specialization
from tilewright.compiler.stage_growth import grow, point_of, signature_of, typed, with_main
from tilewright.compiler.staged import Edge, Point, Stages
from tilewright.compiler.staged_session import StagedSession
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.expr import Expr, Function, Tuple
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.transform.stages import needs_stages
from tilewright.runtime.artifact import Artifact
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
    mod: IRModule | Expr, target: str | Mapping[str, Any] | Target | None = None,
    target_host: str | Target | None = None, params: Mapping[str, Any] | None = None, mod_name: str = "default", *,
    report: BuildReport | None = None,
) -> FactoryModule:
    """Compile a module or function under the current `PassContext`, with `params` bound to its parameters by name.

    The default target is that of the enclosing `with Target(…):`. The host of a CPU is the CPU: `target_host` may
    repeat the target, and any other value is refused. `report` receives the texts of the program. Raises `CompileError`.
    """
    chosen = _target(target, target_host)
    if not isinstance(mod, (IRModule, Expr)):
        raise CompileError(
            f"relay.build takes an IRModule or a Relay function, but was given a {type(mod).__name__}", code="TW0215")
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    with no_garbage_collection():
        bound = with_plain_entry(bind_params(module, params) if params else module)
        if needs_stages(bound["main"]):
            bound = typed(bound)
        if is_one_program(bound["main"]):
            return FactoryModule(build_module(bound, chosen, mod_name, report))
        return StagedModule(bound, chosen, mod_name)


class StagedModule(FactoryModule):
    """A module with data-dependent shapes, compiled in stages at run time, under the context in which it was built."""

    def __init__(self, mod: IRModule, target: Target, name: str) -> None:
        context, main, cache = PassContext.current(), mod["main"], Cache.default()

        def compiled(make: Callable[[], Function], edge: Edge) -> Specialization:
            with context:
                return Specialization(compile_module(lambda: with_main(mod, make()), target, name, None, cache), None)

        def grown(point: Point, values: Sequence[Any] | None) -> tuple[Edge, set[int]]:
            with context, no_garbage_collection():
                return grow(point.function or main, values)

        self.name, self._outputs = name, len(main.body.fields) if isinstance(main.body, Tuple) else 1
        self._entry = layout_of(main)
        self.stages = Stages(signature_of(main), point_of(main), grown, compiled)
        self.stages.prepare()

    @property
    def executable(self) -> Any:
        """The tree of stages, a callable."""
        return self.stages

    @property
    def artifact(self) -> Artifact:
        """Raise `InputError`: the module is not a single program that can be saved."""
        raise InputError(self.stages.why_not_one(), code="TW0708")

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
        """Return the manifests of the stages that are compiled."""
        return [s.artifact.manifest for s in self.stages.programs()]

    def identity(self) -> str:
        """Return a text that identifies the program: its name and its inputs."""
        return f"{self.name}({self.stages.described()})"

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


def _target(target: str | Mapping[str, Any] | Target | None, host: str | Target | None) -> Target:
    chosen = Target.current(allow_none=False) if target is None else Target(target)
    assert chosen is not None
    if host is not None and Target(host) != chosen:
        raise OptionError(
            f"target_host is '{Target(host)}', but code for '{chosen}' runs on that target itself; omit "
            "target_host", code="TW0505")
    return chosen
