"""Builders: native code of programs, in files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.limits import usable_cores
from tilewright.compiler.functions import build as compile_functions
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.search import local
from tilewright.search.building import Lowered
from tilewright.search.measure import MeasureErrorNo
from tilewright.search.meta_schedule.candidates import BuilderInput, BuilderResult
from tilewright.search.meta_schedule.utils import (
    Extensible,
    TimedOut,
    get_global_func_with_default_on_worker,
    in_child,
    normalized_module,
)
from tilewright.te.unroll_by_hint import unroll_by_hint
from tilewright.tir.stmt import PrimFunc

__all__ = ["Builder", "BuilderInput", "BuilderResult", "LocalBuilder", "PyBuilder", "create", "default_build",
           "default_export"]


class Builder(Extensible):
    """Base of builders."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Return a file, or an error, for each input, in order."""
        raise NotImplementedError(f"{type(self).__name__} does not define build")

    @staticmethod
    def create(kind: Builder | str = "local", **options: Any) -> Builder:
        """Return the builder "local", or the given one. Raises `OptionError` for another name."""
        if isinstance(kind, Builder):
            return kind
        if kind != "local":
            raise OptionError(f"there is no builder '{kind}'; there is 'local'", code="TW1103")
        return LocalBuilder(**options)


PyBuilder = Builder
create = Builder.create


class LocalBuilder(Builder):
    """Builds in processes of this machine, `max_workers` at once.

    `f_build(mod, target, params)` and `f_export(module)` are functions, or names of registered ones; `initializer` runs
    in each process before. Errors begin with "LocalBuilder: ". Raises `OptionError` for an unknown name.
    """

    def __init__(
        self, *, max_workers: int | None = None, timeout_sec: float = 30.0,
        f_build: str | Callable[..., Any] | None = None, f_export: str | Callable[..., str] | None = None,
        initializer: Callable[[], Any] | None = None,
    ) -> None:
        self.max_workers, self.timeout_sec = max_workers or usable_cores(), timeout_sec
        self.f_build, self.f_export, self.initializer = f_build, f_export, initializer
        self._engine: local.LocalBuilder | None = None
        if self._is_custom:
            in_child(self._check, timeout_sec)

    def _check(self) -> None:
        """Raise `OptionError` for the name of an unknown function."""
        self._functions()

    @property
    def _is_custom(self) -> bool:
        return not (self.f_build is None and self.f_export is None and self.initializer is None)

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [*map(self._custom, build_inputs)] if self._is_custom else self._default(build_inputs)

    def _default(self, inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build by the workers of all searches."""
        if self._engine is None:
            self._engine = local.LocalBuilder(self.timeout_sec, self.max_workers)
        built = self._engine.build([_lowered(one, number) for number, one in enumerate(inputs)])
        found = []
        for one in built:
            if one.image is None:
                found.append(BuilderResult(None, self._error(one.error, one.error_no == MeasureErrorNo.BUILD_TIMEOUT)))
                continue
            path = _new_file()
            path.write_bytes(one.image.library)
            found.append(BuilderResult(str(path), None))
        return found

    def _custom(self, one: BuilderInput) -> BuilderResult:
        """Build by the given functions, in a forked process."""

        def run() -> str:
            f_build, f_export = self._functions()
            return str(f_export(f_build(one.mod, one.target, one.params)))

        try:
            return BuilderResult(in_child(run, self.timeout_sec), None)
        except TimedOut:
            return BuilderResult(None, self._error("", timed_out=True))
        except OptionError as error:
            return BuilderResult(None, self._error(error.message, timed_out=False))

    def _functions(self) -> tuple[Callable[..., Any], Callable[..., str]]:
        if self.initializer is not None:
            self.initializer()
        return (get_global_func_with_default_on_worker(self.f_build, default_build),
                get_global_func_with_default_on_worker(self.f_export, default_export))

    def _error(self, error: str, timed_out: bool) -> str:
        if timed_out:
            return f"LocalBuilder: Timeout, killed after {self.timeout_sec} seconds"
        return f"LocalBuilder: An exception occurred\n{error}"


def _lowered(one: BuilderInput, number: int) -> Lowered:
    mod = normalized_module(one.mod)
    funcs = IRModule({name: unroll_by_hint(f) for name, f in mod.items() if isinstance(f, PrimFunc)})
    return Lowered(f'["meta_schedule", [], {{}}, {number}]', str(structural_hash(funcs)), str(one.target), funcs)


def default_build(mod: IRModule, target: Any, params: Any = None) -> Any:
    """Build a module as `tvm.build` does, with the marks of `RewriteParallelVectorizeUnroll` applied."""
    if params:
        raise CompileError(
            "params belong to relay modules, which LocalBuilder does not build; use relay.build", code="TW1110")
    return compile_functions(
        IRModule({name: unroll_by_hint(f) for name, f in mod.items() if isinstance(f, PrimFunc)}), target=target)


def default_export(module: Any) -> str:
    """Write native functions to a file, and return its path."""
    path = _new_file()
    module.export_library(path)
    return str(path)


def _new_file() -> Path:
    return Path(tempfile.mkdtemp(prefix="tilewright-artifact-")) / "code.tar"
