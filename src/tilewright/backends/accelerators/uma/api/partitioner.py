"""Gives the matches of a backend's patterns to its target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.backends.accelerators.uma.api.utils import PassPhase
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, Sequential
from tilewright.relay import transform
from tilewright.relay.op.contrib import register_partitioner, register_pattern_table
from tilewright.relay.transform.bind_params import bind_params

__all__ = ["UMAPartitioner"]


class UMAPartitioner:
    """The pattern table of a target, and the passes around its use."""

    def __init__(self, target_name: str, merge_compiler_regions: bool = True) -> None:
        """With `merge_compiler_regions`, neighbouring matches become one function."""
        self.target_name, self.merge_compiler_regions = target_name, merge_compiler_regions
        self._relay_passes: list[tuple[PassPhase, Pass]] = []
        self._patterns: list[tuple[Any, ...]] = []

    def add_pattern(
        self, name: str, pattern: Any, predicate: Callable[[Any], Any] | None = None
    ) -> None:
        """Add a row. Its name gets the prefix `<target>.`; `predicate` decides about a match."""
        row = (f"{self.target_name}.{name}", pattern)
        self._patterns.append(row if predicate is None else (*row, predicate))

    def _pattern_table(self) -> list[tuple[Any, ...]]:
        return list(self._patterns)

    def register(self) -> None:
        """Register the pattern table, so that the text of a target can name the accelerator: `my_npu, llvm`."""
        register_pattern_table(self.target_name, self._pattern_table)
        register_partitioner(self.target_name, lambda mod, params=None: self.partition(mod, params))

    def partition(self, mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
        """Return a module with a function for each region of matches."""
        if params:
            mod = bind_params(mod, params)
        passes = [
            transform.InferType(), *self._of(PassPhase.PRE_PARTITIONING),
            transform.MergeComposite(self._pattern_table()), transform.AnnotateTarget(self.target_name),
            *([transform.MergeCompilerRegions()] if self.merge_compiler_regions else []), transform.PartitionGraph(),
            *self._of(PassPhase.POST_PARTITIONING_0), *self._of(PassPhase.POST_PARTITIONING_1), transform.InferType(),
        ]
        return Sequential(passes, name=f"partition_for_{self.target_name}")(mod)

    def _of(self, phase: PassPhase) -> list[Pass]:
        return [p for at, p in self._relay_passes if at == phase]
