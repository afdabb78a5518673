"""Compiles the programs of one model, or takes them from the cache: everything that the values of a call do not
decide."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backends.targets.accelerators import identity
from tilewright.backends.targets.target import Target
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.compiler import tuning_advisor
from tilewright.compiler.cache import Cache
from tilewright.compiler.hook_digests import hooks_digest
from tilewright.compiler.model_source import ModelSource, build_key
from tilewright.compiler.open_shapes import OpenShapes
from tilewright.compiler.report import BuildReport
from tilewright.compiler.specialization import Specialization
from tilewright.runtime.artifact import Artifact

if TYPE_CHECKING:
    from tilewright.compiler.staged import Edge, Point
    from tilewright.compiler.symbolic_stages import SymbolicStage
    from tilewright.ir.instrument import PassInstrument
    from tilewright.ir.module import IRModule
    from tilewright.relay.expr import Function
    from tilewright.scalar.expr import PrimExpr, Var


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Options:
    """Arguments of a `PassContext`, as a value that is kept, compared and stored."""

    opt_level: int
    config: Mapping[str, Any]
    disabled_pass: tuple[str, ...]

    def context(self, instruments: Sequence[PassInstrument] = ()) -> Any:
        """Return the context, watched by `instruments`. Raises `OptionError` for a pass that does not exist."""
        from tilewright.ir.transform import PassContext, named_pass

        for name in self.disabled_pass:
            named_pass(name)
        return PassContext(
            self.opt_level, disabled_pass=self.disabled_pass, instruments=instruments, config=self.config)

    def to_json(self) -> list[Any]:
        """Return the options as they are stored."""
        return [self.opt_level, dict(self.config), list(self.disabled_pass)]

    @staticmethod
    def from_json(stored: list[Any]) -> Options:
        """Return the options that were stored."""
        level, config, disabled = stored
        return Options(int(level), dict(config), tuple(map(str, disabled)))

    def key(self) -> str:
        """Return a text that is the same for equal options."""
        return json.dumps(self.to_json(), sort_keys=True, default=str)


class ModelCompiler:
    """Compiles a source for a target, with the tuning records that are in effect when it is constructed."""

    def __init__(
        self, source: ModelSource, target: Target, options: Options, cache: Cache, report: BuildReport
    ) -> None:
        self.source, self.target, self.options, self.cache, self.report = source, target, options, cache, report
        self._advisor = tuning_advisor.current()

    @contextmanager
    def context(self, instruments: Sequence[PassInstrument] = ()) -> Iterator[None]:
        """Enter the context in which passes run and kernels are made."""
        with self.options.context(instruments), tuning_advisor.using(self._advisor):
            yield

    def stored(self, what: Any) -> Artifact | None:
        """Return the program in the cache for the shapes of all inputs, or for the path to a stage."""
        key = self._key(what)
        if key is None:
            return None
        with self.report.phase("cache"):
            return self.cache.get_artifact(key)

    def store(self, what: Any, artifact: Artifact) -> None:
        """Keep a program in the cache for other processes."""
        key = self._key(what)
        if key is not None:
            with self.report.phase("cache"):
                self.cache.put_artifact(key, artifact)

    def refusal(self, what: Any) -> str | None:
        """Return why the model has no program for these sizes, if the cache knows that."""
        key = self._key(["refused", what])
        found = None if key is None else self.cache.get(key)
        return None if found is None else found.decode()

    def store_refusal(self, what: Any, reason: str) -> None:
        """Keep the reason for which the model has no program for these sizes."""
        key = self._key(["refused", what])
        if key is not None:
            self.cache.put(key, reason.encode())

    def _key(self, what: Any) -> str | None:
        """Return the key of a program; None if a key cannot cover all that the program depends on."""
        hooks = hooks_digest()
        if not self.source.content or hooks is None:
            return None
        return build_key(
            "artifact", self.source.content, json.dumps(what), self.source.name, str(self.target),
            ",".join(sorted(self.target.features)), str(self.target.cores), self.options.key(),
            identity(self.target.accelerators), self.target.processor.backend.identity(self.target.processor),
            *([self._advisor.identity] if self._advisor is not None else []), *([f"hooks {hooks}"] if hooks else []))

    def read(self, shapes: Mapping[str, Any], report: BuildReport | None = None) -> IRModule:
        """Return the model as Relay, for these shapes of its inputs."""
        return self.source.read(shapes, report or self.report)

    def compile(
        self, make: Callable[[], IRModule], report: BuildReport | None = None,
        instruments: Sequence[PassInstrument] = (),
    ) -> Artifact:
        """Compile the module that `make` returns: the model, or a stage of it. The cache is not used."""
        from tilewright.compiler.pipeline import compile_module

        with self.context(instruments):
            return compile_module(make, self.target, self.source.name, report or self.report, self.cache)

    def compile_open(
        self, wanted: OpenShapes, report: BuildReport | None = None, instruments: Sequence[PassInstrument] = (),
    ) -> Artifact:
        """Compile one program for all of these sizes. Raises `OpenSizeError` if the model has no such program."""
        from tilewright.compiler.open_program import build_open

        kept = report or self.report
        with self.context(instruments):
            return build_open(
                self.reader(wanted, kept), wanted.symbol_ranges(), self.target, self.source.name, kept, self.cache)

    def reader(
        self, wanted: OpenShapes, report: BuildReport | None = None
    ) -> Callable[[Mapping[Var, PrimExpr]], Function]:
        """Return a function that reads the model for these dimensions, some replaced by expressions of others."""
        from tilewright.relay.transform.open_sizes import with_sizes
        from tilewright.runtime.sizes import value
        from tilewright.scalar.arith.ranges import Ranges
        from tilewright.scalar.arith.simplify import simplify
        from tilewright.scalar.expr import Var
        from tilewright.scalar.walk import substitute

        names = {d: wanted.symbol(d) for d in wanted.plain()}
        symbols: dict[str, Any] = {d: Var(name) * step for d, (name, step) in names.items()}
        symbols |= {d: value(d, symbols) for d in wanted.sums}

        def make(replaced: Mapping[Var, PrimExpr]) -> Function:
            sizes = {d: simplify(substitute(e, {**replaced}), Ranges()) for d, e in symbols.items()}
            shapes = {
                name: tuple(sizes[d] if isinstance(d, str) else d for d in dims) for name, dims in wanted.dims.items()}
            return with_sizes(self.read(shapes, report)["main"], replaced)

        return make

    def symbolic_edge(
        self, point: Point, values: Sequence[Array], foreseen: bool, threads: int | None, wanted: OpenShapes | None
    ) -> tuple[Edge | None, tuple[int, ...]]:
        """Return the edge of a point for all sizes, if it has one, and the numbers of the values that decide it.
        `wanted` are the dimensions of the inputs at the root. With `foreseen`, the values are not those of a call."""
        from tilewright.compiler.symbolic_stages import symbolic_edge

        def compiled(stage: SymbolicStage, edge: Edge) -> Specialization:
            return Specialization(self.compile_symbolic(stage, edge.name), threads)

        with no_garbage_collection(), self.context():
            if wanted is None:
                return symbolic_edge(point, values, compiled, foreseen=foreseen)
            return symbolic_edge(
                point, values, compiled, foreseen=foreseen, model=self.reader(wanted), ranges=wanted.symbol_ranges())

    def compile_symbolic(self, stage: SymbolicStage, name: str) -> Artifact:
        """Compile a stage for all sizes, or take it from the cache. Raises `OpenSizeError` if it has no such program.
        """
        found = self.stored(name)
        if found is None:
            found = stage.compiled(self.target.processor, self.source.name, self.report, self.cache)
            self.store(name, found)
        return found
