"""Rules that make the design space: each maps a schedule and a block to schedules.

`ScheduleRule.create("llvm")` has those of CPUs: cheap values are inlined, long sums may be computed in two stages,
products are tiled, loops are marked for `RewriteParallelVectorizeUnroll`, and other values get a place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import CompileError, OptionError, ScheduleError
from tilewright.base.global_functions import get_global_func
from tilewright.search.meta_schedule import block_analysis as analysis
from tilewright.search.meta_schedule.bases import PyScheduleRule, ScheduleRule
from tilewright.search.meta_schedule.block_analysis import TILED
from tilewright.search.meta_schedule.thread_rules import AutoBind, CrossThreadReduction
from tilewright.search.meta_schedule.tiling import MultiLevelTiling, MultiLevelTilingWithIntrin, ReuseType
from tilewright.search.meta_schedule.utils import cores_of
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import IfThenElse, stored_buffers, walk_stmt

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext

PARALLEL, VECTORIZE = "meta_schedule.parallel", "meta_schedule.vectorize"
UNROLL_EXPLICIT, UNROLL_IMPLICIT = "meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit"
"""Annotations of the root block: iterations of the parallel loops, vector lanes, and steps of unrolled loops."""
PRODUCER: Final = "meta_schedule.random_compute_producer"
"""Annotation of a block: its producer gets a random place."""
INLINE_RULE: Final = "meta_schedule.inline_rule"

__all__ = [
    "AddRFactor", "ApplyCustomRule", "AutoBind", "AutoInline", "CrossThreadReduction", "InlineConstantScalars",
    "MultiLevelTiling", "MultiLevelTilingWithIntrin", "ParallelizeVectorizeUnroll", "PyScheduleRule",
    "RandomComputeLocation", "ReuseType", "ScheduleRule",
]


class ApplyCustomRule(ScheduleRule):
    """Applies the registered function `meta_schedule.cpu.NAME` to blocks with the annotation `schedule_rule` NAME."""

    is_custom = True

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        name = sch.get(block).annotations.get("schedule_rule")
        if name is None or name == "None":
            return [sch]
        found: Any = None
        for key in ("cpu", "llvm"):
            found = found or get_global_func(f"meta_schedule.{key}.{name}", allow_missing=True)
        if found is None:
            raise OptionError(
                f"block '{block.block}' has the rule '{name}', but no function 'meta_schedule.cpu.{name}' is "
                "registered", code="TW1103")
        try:
            made = found(sch, block)
        except CompileError:
            raise
        except Exception as error:
            raise OptionError(
                f"the rule '{name}' of block '{block.block}' failed: {type(error).__name__}: {error}", code="TW1103"
            ) from error
        return [made] if isinstance(made, Schedule) else list(made)


class InlineConstantScalars(ScheduleRule):
    """Inlines constants without dimensions into their readers."""

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        node = sch.get(block)
        stored = stored_buffers(node)
        constant = not analysis.loads_of(node) and len(stored) == 1 and all(_is_one(d) for d in stored[0].shape)
        if analysis.is_root(sch, block) or not constant:
            return [sch]
        stored_outside = analysis.stores_output(analysis.function_of(sch, block), node)
        if not stored_outside and analysis.attempt(sch, "compute_inline", block):
            sch.compute_inline(block)
        return [sch]


class AutoInline(ScheduleRule):
    """Inlines elementwise blocks into their readers, or into the block that makes their input."""

    def __init__(
        self, into_producer: bool, into_consumer: bool, inline_const_tensor: bool = True,
        disallow_if_then_else: bool = False, require_injective: bool = False, require_ordered: bool = False,
        disallow_op: Sequence[str] | None = None,
    ) -> None:
        self.into_producer, self.into_consumer = into_producer, into_consumer
        self.inline_const_tensor, self.disallow_if_then_else = inline_const_tensor, disallow_if_then_else
        self.require_injective, self.require_ordered = require_injective, require_ordered
        self.disallow_op = {str(getattr(op, "name", op)).removeprefix("tir.") for op in disallow_op or ()}

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        step = self._step(sch, block)
        if step:
            getattr(sch, step)(block)
        return [sch]

    def _step(self, sch: Schedule, block: BlockAt) -> str:
        """Return the step that inlines a block, or ""."""
        node = sch.get(block)
        if analysis.is_root(sch, block) or len(stored_buffers(node)) != 1 or analysis.is_reduction(node):
            return ""
        func = analysis.function_of(sch, block)
        readers = [] if analysis.stores_output(func, node) else _quietly(sch).get_consumers(block)
        if self.inline_const_tensor and not analysis.loads_of(node):
            return "compute_inline" if readers and analysis.attempt(sch, "compute_inline", block) else ""
        if not analysis.is_spatial_program(func) and not self._is_simple(node):
            return ""
        if node.annotations.get(INLINE_RULE) == "disable":
            return ""
        if self.into_consumer and readers and analysis.attempt(sch, "compute_inline", block):
            return "compute_inline"
        producers = _quietly(sch).get_producers(block)
        if self.into_producer and len(producers) == 1 and analysis.attempt(sch, "reverse_compute_inline", block):
            return "reverse_compute_inline"
        return ""

    def _is_simple(self, node: Any) -> bool:
        """Return whether a block beside reductions is cheap, and reads at its own axes as required."""
        calls = {name.removeprefix("tir.") for name in analysis.calls_of(node)}
        branches = "if_then_else" in calls or any(isinstance(s, IfThenElse) for s in walk_stmt(node.body))
        if self.disallow_op & calls or (self.disallow_if_then_else and (branches or analysis.selects(node))):
            return False
        exists, injective, ordered = analysis.access_pattern(node)
        if not (self.require_injective or self.require_ordered):
            return True
        return exists and (injective or not self.require_injective) and (ordered or not self.require_ordered)



class AddRFactor(ScheduleRule):
    """Computes long sums with few results in two stages: parts that may run in parallel, and the sum of these."""

    def __init__(self, max_jobs_per_core: int = 16, max_innermost_factor: int | None = None) -> None:
        self.max_jobs_per_core, self.max_innermost_factor = max_jobs_per_core, max_innermost_factor or 1 << 30
        self.cores = 1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.cores = cores_of(context.target)

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        most = self.cores * self.max_jobs_per_core
        if not analysis.is_long_sum(sch, block, most, self.cores):
            return [sch]
        before = sch.copy()
        node = sch.get(block)
        spatial: list[Any] = []
        reduced: list[Any] = []
        for loop in sch.get_loops(block):
            (reduced if "reduce" in analysis.axis_kinds(node, loop.var) else spatial).append(loop)
        if [*spatial, *reduced] != sch.get_loops(block):
            sch.reorder(*spatial, *reduced)
        fused = sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]
        parts = sch.split(fused, sch.sample_perfect_tile(fused, 2, self.max_innermost_factor))
        found = []
        for part in parts:
            new = sch.copy()
            try:
                new.rfactor(part, len(spatial))
            except ScheduleError:
                continue  # such as a reducer without a neutral value
            new.annotate(block, PRODUCER, 1)
            found.append(new)
        return [*found, before]


class ParallelizeVectorizeUnroll(ScheduleRule):
    """Marks the root block, for the postprocessor `RewriteParallelVectorizeUnroll`. -1 omits a mark."""

    def __init__(
        self, max_jobs_per_core: int = 16, max_vectorize_extent: int = 16,
        unroll_max_steps: Sequence[int] | None = None, unroll_explicit: bool = True,
    ) -> None:
        self.max_jobs_per_core, self.max_vectorize_extent = max_jobs_per_core, max_vectorize_extent
        self.unroll_max_steps, self.unroll_explicit = list(unroll_max_steps or ()), unroll_explicit
        self.cores = 1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.cores = cores_of(context.target)

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        if not analysis.is_root(sch, block):
            return [sch]
        if self.max_jobs_per_core != -1:
            sch.annotate(block, PARALLEL, self.max_jobs_per_core * self.cores)
        if self.max_vectorize_extent != -1:
            sch.annotate(block, VECTORIZE, self.max_vectorize_extent)
        if self.unroll_max_steps and not analysis.is_spatial_program(analysis.function_of(sch, block)):
            n = len(self.unroll_max_steps)
            steps = sch.sample_categorical(self.unroll_max_steps, [1.0 / n] * n)
            sch.annotate(block, UNROLL_EXPLICIT if self.unroll_explicit else UNROLL_IMPLICIT, steps)
        return [sch]


class RandomComputeLocation(ScheduleRule):
    """Draws a place for values that are not tiled: by themselves, inside a loop of their reader, or inlined."""

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        if not self._may_move(sch, block):
            return [sch]
        producers: list[BlockAt] = []
        if PRODUCER in sch.get(block).annotations:
            sch.unannotate(block, PRODUCER)
            producers = sch.get_producers(block)
        for at in (block, *producers):
            if sch.get_consumers(at):
                self._move(sch, at)
        return [sch]

    def _may_move(self, sch: Schedule, block: BlockAt) -> bool:
        if analysis.is_root(sch, block):
            return False
        loops = sch.get_loops(block)
        if not loops or len(analysis.blocks_inside(sch.get(loops[0]))) > 1 or TILED in sch.get(block).annotations:
            return False
        return bool(sch.get_consumers(block)) or PRODUCER in sch.get(block).annotations

    @staticmethod
    def _move(sch: Schedule, block: BlockAt) -> None:
        place = sch.sample_compute_location(block)
        sch.compute_at(block, place, preserve_unit_loops=True)


def default_rules(kind: str) -> list[ScheduleRule]:
    """Return the rules for a kind of target: "llvm", "c" or "cuda". Raises `OptionError` for others."""
    if kind == "cuda":
        return [
            ApplyCustomRule(),
            MultiLevelTiling(
                "SSSRRSRS", tile_binds=["blockIdx.x", "vthread.x", "threadIdx.x"], max_innermost_factor=64,
                vector_load_lens=[1, 2, 3, 4, 8, 16], reuse_read=ReuseType("must", levels=[4], scope="shared"),
                reuse_write=ReuseType("must", levels=[3], scope="local")),
            InlineConstantScalars(),
            AutoInline(into_producer=True, into_consumer=True),
            CrossThreadReduction([4, 8, 16, 32, 64, 128, 256, 512]),
            ParallelizeVectorizeUnroll(
                max_jobs_per_core=-1, max_vectorize_extent=-1, unroll_max_steps=[0, 16, 64, 512, 1024],
                unroll_explicit=True),
            AutoBind(),
        ]
    if kind not in ("llvm", "c"):
        raise OptionError(f"there are no rules for '{kind}'; the kinds are 'llvm', 'c' and 'cuda'", code="TW1103")
    return [
        ApplyCustomRule(),
        InlineConstantScalars(),
        AutoInline(
            into_producer=False, into_consumer=True, inline_const_tensor=True, disallow_if_then_else=True,
            require_injective=True, require_ordered=True, disallow_op=["tir.exp"]),
        AddRFactor(max_jobs_per_core=16, max_innermost_factor=64),
        MultiLevelTiling(
            "SSRSRS", max_innermost_factor=64, reuse_write=ReuseType("may", levels=[1, 2], scope="global")),
        ParallelizeVectorizeUnroll(
            max_jobs_per_core=16, max_vectorize_extent=64, unroll_max_steps=[0, 16, 64, 512], unroll_explicit=True),
        RandomComputeLocation(),
    ]


def _is_one(size: Any) -> bool:
    return bool(size == 1)


def _quietly(sch: Schedule) -> Schedule:
    """Return a copy for queries that are not part of the trace."""
    return sch.copy()
