"""Makes the programs of a model, or takes them from the cache: all that no call decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.backends.accelerator_targets import identity
from tilewright.backends.target import Target
from tilewright.compiler import tuning_advisor
from tilewright.compiler.cache import Cache
from tilewright.compiler.model_source import ModelSource, build_key
from tilewright.compiler.open_shapes import OpenShapes
from tilewright.compiler.options import Options
from tilewright.compiler.report import Report
from tilewright.runtime.artifact import Artifact

if TYPE_CHECKING:
    from tilewright.ir.instrument import PassInstrument
    from tilewright.ir.module import IRModule
    from tilewright.relay.expr import Function


class Maker:
    """Compiles a source for a target. How kernels are made is decided by who advised when it began."""

    def __init__(self, source: ModelSource, target: Target, options: Options, cache: Cache, report: Report) -> None:
        self.source, self.target, self.options, self.cache, self.report = source, target, options, cache, report
        self._advisor = tuning_advisor.current()

    @contextmanager
    def context(self, instruments: Sequence[PassInstrument] = ()) -> Iterator[None]:
        """How passes run and kernels are made."""
        with self.options.context(instruments), tuning_advisor.using(self._advisor):
            yield

    # ---- the cache
    def stored(self, what: Any) -> Artifact | None:
        """The program of the shapes of all inputs, or of the way to a stage, as the cache has it."""
        if not self.source.content:
            return None
        with self.report.phase("cache"):
            return self.cache.get_artifact(self._key(what))

    def store(self, what: Any, artifact: Artifact) -> None:
        """Keep it for other processes."""
        if self.source.content:
            with self.report.phase("cache"):
                self.cache.put_artifact(self._key(what), artifact)

    def _key(self, what: Any) -> str:
        return build_key(
            "artifact", self.source.content, json.dumps(what), self.source.name, str(self.target),
            ",".join(sorted(self.target.features)), str(self.target.cores), self.options.key(), identity(self.target.accelerators),
            self.target.processor.backend.identity(self.target.processor),
            *([self._advisor.identity] if self._advisor is not None else []),
        )

    # ---- programs
    def module(self, shapes: Mapping[str, Any], report: Report | None = None) -> IRModule:
        """The model as relay, for these shapes."""
        return self.source.read(shapes, report or self.report)

    def build(self, shapes: Mapping[str, Any], report: Report | None = None, instruments: Sequence[PassInstrument] = ()) -> Artifact:
        """The whole model for these shapes, which the cache is not asked for."""
        return self._built(lambda: self.module(shapes, report), report or self.report, instruments)

    def build_stage(self, make: Callable[[], Function]) -> Artifact:
        """A stage of the model."""
        return self._built(lambda: self.source.module_of(make()), self.report)

    def build_open(self, wanted: OpenShapes, report: Report | None = None, instruments: Sequence[PassInstrument] = ()) -> Artifact:
        """One program for all of these sizes. Raises `OpenSizeError` where there is none."""
        from tilewright.compiler.open_program import build_open
        from tilewright.scalar.expr import Var

        names = {d: wanted.symbol(d) for dims in wanted.dims.values() for d in dims if isinstance(d, str)}
        symbols = {d: Var(name) * step for d, (name, step) in names.items()}
        shapes = {name: tuple(symbols[d] if isinstance(d, str) else d for d in dims) for name, dims in wanted.dims.items()}
        with self.context(instruments):
            return build_open(lambda: self.module(shapes, report)["main"], wanted.symbol_ranges(), self.target, self.source.name, report or self.report, self.cache)

    def _built(self, make: Callable[[], IRModule], report: Report, instruments: Sequence[PassInstrument] = ()) -> Artifact:
        from tilewright.compiler.build import build_made

        with self.context(instruments):
            return build_made(make, self.target, self.source.name, report, self.cache)
