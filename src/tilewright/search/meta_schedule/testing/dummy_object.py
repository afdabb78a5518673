"""Parts of a search that do no work, for tests of the others."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tilewright.search.meta_schedule.builder import PyBuilder
from tilewright.search.meta_schedule.candidates import (
    BuilderInput,
    BuilderResult,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
)
from tilewright.search.meta_schedule.mutator import PyMutator
from tilewright.search.meta_schedule.runner import PyRunner
from tilewright.tir.schedule_trace import Trace


class DummyRunnerFuture(RunnerFuture):
    """A random result."""

    def done(self) -> bool:
        return True

    def result(self) -> RunnerResult:
        return RunnerResult([random.uniform(5, 30) for _ in range(random.randint(1, 10))], None)


class DummyBuilder(PyBuilder):
    """A builder that makes no files."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        return [BuilderResult("test_path", None) for _ in build_inputs]


class DummyRunner(PyRunner):
    """A runner with random results."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        return [DummyRunnerFuture() for _ in runner_inputs]


class DummyMutator(PyMutator):
    """A mutator that removes the decisions, which are drawn anew."""

    def apply(self, trace: Trace) -> Trace | None:
        return Trace(trace.insts, {})
