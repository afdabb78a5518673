"""Rules that make the design space: each maps a schedule and a block to schedules.

`ScheduleRule.create("llvm")` has those of CPUs: cheap values are inlined, long sums may be computed in two stages,
products are tiled, loops are marked for `RewriteParallelVectorizeUnroll`, and other values get a place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import OptionError, ScheduleError
from tilewright.base.global_functions import get_global_func
from tilewright.search.meta_schedule import block_analysis as analysis
from tilewright.search.meta_schedule.block_analysis import TILED
from tilewright.search.meta_schedule.utils import Extensible
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


class ScheduleRule(Extensible):
    """Base of rules."""

    is_custom = False
    """Whether the rule applies to blocks that name a rule of their own."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take what the rule needs from the task."""

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        """Return the schedules for a block; `[sch]` leaves it as it is."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    @staticmethod
    def create(kind: str) -> list[ScheduleRule]:
        """Return the rules for a kind of target, "llvm" or "c". Raises `OptionError` for others."""
        if kind not in ("llvm", "c"):
            raise OptionError(f"there are no rules for '{kind}'; the kinds are 'llvm' and 'c'", code="TW1103")
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


PyScheduleRule = ScheduleRule


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
        made = found(sch, block)
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


class ReuseType:
    """Whether tiles are computed in, or read through, a copy: "no", "may" or "must"; after which tiles, in which scope.
    """

    def __init__(self, req: str, levels: Sequence[int], scope: str) -> None:
        if req not in ("no", "may", "must"):
            raise OptionError(f"reuse is 'no', 'may' or 'must', not {req!r}", code="TW1103")
        self.req, self.levels, self.scope = req, [int(n) for n in levels], scope

    def as_dict(self) -> dict[str, Any]:
        """Return the three settings by name."""
        return {"req": self.req, "levels": self.levels, "scope": self.scope}


class MultiLevelTiling(ScheduleRule):
    """Tiles reductions whose inputs are used several times. `structure` is the order of tiles: spatial and reduction.

    `reuse_write` keeps results in a copy that is written back after one of its levels of tiles.
    """

    def __init__(
        self, structure: str, tile_binds: Sequence[str] | None = None, max_innermost_factor: int | None = None,
        vector_load_lens: Sequence[int] | None = None, reuse_read: ReuseType | None = None,
        reuse_write: ReuseType | None = None, filter_fn: Any = None,
    ) -> None:
        if set(structure) - {"S", "R"} or not structure:
            raise OptionError(f"a tiling structure consists of S and R, not {structure!r}", code="TW1103")
        if tile_binds or vector_load_lens or (reuse_read is not None and reuse_read.req != "no"):
            raise OptionError(
                "tile_binds, vector_load_lens and reuse_read belong to GPUs, for which no code is generated; omit them",
                code="TW1103")
        self.structure, self.max_innermost_factor = structure, max_innermost_factor or 1 << 30
        self.reuse_write, self.filter_fn = reuse_write or ReuseType("no", (), ""), filter_fn

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        if analysis.is_root(sch, block) or not (self.filter_fn or analysis.has_reuse)(sch.get(block)):
            return [sch]
        if not analysis.is_trivially_bound(sch, block):
            return [sch]
        sch.annotate(block, TILED, self.structure)
        found = []
        for state, write_back, levels in self._copies(sch, block):
            tiles = self._tiled(state, block)
            for level in levels:
                new = state.copy() if level != levels[-1] else state
                if write_back is not None and level is not None:
                    new.reverse_compute_at(write_back, tiles[level - 1][-1], preserve_unit_loops=True)
                found.append(new)
        return found

    def _copies(self, sch: Schedule, block: BlockAt) -> list[tuple[Schedule, BlockAt | None, list[int | None]]]:
        """Return schedules with the block that writes results back, and the levels of tiles after which it does."""
        reuse = self.reuse_write
        levels: list[int | None] = [*reuse.levels]
        if reuse.req == "no":
            return [(sch, None, [None])]
        readers = sch.get_consumers(block)
        if reuse.req == "may" and len(readers) == 1 and analysis.reads_in_order(sch.get(readers[0])):
            return [(sch, readers[0], [*levels, None])]
        found: list[tuple[Schedule, BlockAt | None, list[int | None]]] = []
        if reuse.req == "may":
            found.append((sch.copy(), None, [None]))
        found.append((sch, sch.cache_write(block, 0, reuse.scope), levels))
        return found

    def _tiled(self, sch: Schedule, block: BlockAt) -> list[list[Any]]:
        """Tile the loops around a block, and return the loops of each tile."""
        places = {kind: [k for k, c in enumerate(self.structure) if c == c_of] for kind, c_of in _KINDS}
        tiles: list[list[Any]] = [[] for _ in self.structure]
        for loop in sch.get_loops(block):
            kinds = analysis.axis_kinds(sch.get(block), loop.var)
            at = places["reduce" if "reduce" in kinds else "spatial"]
            parts = [loop]
            if len(at) > 1:
                factors = sch.sample_perfect_tile(loop, len(at), self.max_innermost_factor)
                parts = sch.split(loop, factors)
            for k, part in zip(at, parts, strict=True):
                tiles[k].append(part)
        sch.reorder(*(part for tile in tiles for part in tile))
        return [t or tiles[k - 1] for k, t in enumerate(tiles)]


_KINDS: Final = (("spatial", "S"), ("reduce", "R"))


class AddRFactor(ScheduleRule):
    """Computes long sums with few results in two stages: parts that may run in parallel, and the sum of these."""

    def __init__(self, max_jobs_per_core: int = 16, max_innermost_factor: int | None = None) -> None:
        self.max_jobs_per_core, self.max_innermost_factor = max_jobs_per_core, max_innermost_factor or 1 << 30
        self.cores = 1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self.cores = context.target.cores if context.target is not None else 1

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        if not self._is_long(sch, block):
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

    def _is_long(self, sch: Schedule, block: BlockAt) -> bool:
        """Return whether a sum is long, and has too few results to occupy the processor."""
        node = sch.get(block)
        if analysis.is_root(sch, block) or not analysis.is_reduction(node) or node.init is None or TILED in (
            node.annotations
        ) or not analysis.is_trivially_bound(sch, block):
            return False
        spatial, reduced = analysis.lengths(node)
        if spatial < 0 or reduced <= 1:
            return False
        if analysis.has_reuse(node):
            return spatial <= reduced and spatial <= self.cores * self.max_jobs_per_core
        return spatial <= self.cores


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
        self.cores = context.target.cores if context.target is not None else 1

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


def _is_one(size: Any) -> bool:
    return bool(size == 1)


def _quietly(sch: Schedule) -> Schedule:
    """Return a copy for queries that are not part of the trace."""
    return sch.copy()
