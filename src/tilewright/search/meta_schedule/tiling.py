"""Rules that tile reductions: on CPUs, for an instruction, and on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import OptionError
from tilewright.search.meta_schedule import block_analysis as analysis
from tilewright.search.meta_schedule.bases import ScheduleRule
from tilewright.search.meta_schedule.block_analysis import TILED
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule.transform import tile_with_tensor_intrin
from tilewright.tir.steps import BlockAt
from tilewright.tir.tensorize import TensorIntrin

if TYPE_CHECKING:
    from tilewright.search.meta_schedule.tune_context import TuneContext

AUTO_TENSORIZE: Final = "meta_schedule.auto_tensorize"
"""Annotation of a block that an instruction replaces: the name of the instruction."""
COOPERATIVE_FETCH: Final = "meta_schedule.cooperative_fetch"
"""Annotation of a block that copies an input for all threads: elements of a vector."""
LEAST_THREADS, MOST_THREADS = "meta_schedule.thread_extent_low_inclusive", "meta_schedule.thread_extent_high_inclusive"
"""Annotations of a tiled block: the numbers of threads that the target allows."""
_KINDS: Final = (("spatial", "S"), ("reduce", "R"))
_VECTOR_BITS: Final = 128
"""Size of the vectors that one thread loads at once."""


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

    `reuse_write` keeps results in a copy that is written back after one of its levels of tiles. `filter_fn(sch, block)`
    tells which blocks to tile instead. The others are for GPUs: `tile_binds` are the threads of the first tiles,
    `reuse_read` copies inputs inside a level of tiles, and `vector_load_lens` are the possible vectors of these copies.
    """

    def __init__(
        self, structure: str, tile_binds: Sequence[str] | None = None, max_innermost_factor: int | None = None,
        vector_load_lens: Sequence[int] | None = None, reuse_read: ReuseType | None = None,
        reuse_write: ReuseType | None = None, filter_fn: Any = None,
    ) -> None:
        if set(structure) - {"S", "R"} or not structure:
            raise OptionError(f"a tiling structure consists of S and R, not {structure!r}", code="TW1103")
        self.structure, self.max_innermost_factor = structure, max_innermost_factor or 1 << 30
        self.tile_binds, self.vector_load_lens = list(tile_binds or ()), list(vector_load_lens or ())
        self.reuse_read = reuse_read or ReuseType("no", (), "")
        self.reuse_write, self.filter_fn = reuse_write or ReuseType("no", (), ""), filter_fn
        if self.reuse_read.req == "may":
            raise OptionError("reuse_read is 'no' or 'must', not 'may'", code="TW1103")
        self.threads: tuple[int, int] | None = None
        """The least and the largest number of threads of a block, if the target has them."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        attrs = {} if context.target is None else context.target.attrs
        if {"thread_warp_size", "max_threads_per_block"} <= attrs.keys():
            self.threads = int(attrs["thread_warp_size"]), int(attrs["max_threads_per_block"])

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        if analysis.is_root(sch, block) or not analysis.is_trivially_bound(sch, block):
            return [sch]
        fits = analysis.has_reuse(sch.get(block)) if self.filter_fn is None else self.filter_fn(sch, block)
        if not fits:
            return [sch]
        sch.annotate(block, TILED, self.structure)
        return self._variants(sch, block)

    def _variants(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        """Return the tilings of a block."""
        found = []
        for state, write_back, levels in self._copies(sch, block):
            tiles = self._bound(state, block, self._tiled(state, block))
            for level in levels:
                new = state.copy() if level != levels[-1] else state
                if write_back is not None and level is not None:
                    new.reverse_compute_at(write_back, tiles[level - 1][-1], preserve_unit_loops=True)
                for inner in self.reuse_read.levels:
                    self._fetch(new, block, tiles[inner - 1][-1])
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

    def _bound(self, sch: Schedule, block: BlockAt, tiles: list[list[Any]]) -> list[list[Any]]:
        """Bind the first tiles to threads, and return the loops of each tile."""
        if self.tile_binds and self.threads is not None:
            sch.annotate(block, LEAST_THREADS, self.threads[0])
            sch.annotate(block, MOST_THREADS, self.threads[1])
        bound = []
        for tile, thread in zip(tiles, self.tile_binds, strict=False):
            bound.append([sch.fuse(*tile) if len(tile) > 1 else tile[0]])
            sch.bind(bound[-1][0], thread)
        return [*bound, *tiles[len(bound) :]]

    def _fetch(self, sch: Schedule, block: BlockAt, at: Any) -> None:
        """Let a block read copies of its inputs, made inside a loop."""
        for k, buffer in enumerate(analysis.loads_of(sch.get(block))):
            copy = sch.cache_read(block, k, self.reuse_read.scope, consumer_blocks=[block])
            sch.compute_at(copy, at, preserve_unit_loops=True)
            loops = sch.get_loops(copy)[-len(buffer.shape) :]
            if len(loops) > 1:
                sch.fuse(*loops)
            lengths = [n for n in self.vector_load_lens if _is_loadable(n, buffer.dtype.bits)]
            if lengths:
                length = sch.sample_categorical(lengths, [1.0 / len(lengths)] * len(lengths))
                sch.annotate(copy, COOPERATIVE_FETCH, length)


def _is_loadable(length: int, bits: int) -> bool:
    """Return whether a thread can load a vector at once: odd vectors of 16-bit elements are no whole words."""
    return length * bits <= _VECTOR_BITS and (bits != 16 or length == 1 or length % 2 == 0)


class MultiLevelTilingWithIntrin(MultiLevelTiling):
    """Tiles reductions of which an instruction computes the innermost tile; other blocks stay as they are.

    The block of the innermost tile has the annotation `meta_schedule.auto_tensorize`.
    """

    def __init__(
        self, intrin_name: str, structure: str, tile_binds: Sequence[str] | None = None,
        max_innermost_factor: int | None = None, vector_load_lens: Sequence[int] | None = None,
        reuse_read: ReuseType | None = None, reuse_write: ReuseType | None = None,
    ) -> None:
        super().__init__(structure, tile_binds, max_innermost_factor, vector_load_lens, reuse_read, reuse_write)
        TensorIntrin.get(intrin_name)
        self.intrin_name = intrin_name

    def apply(self, sch: Schedule, block: BlockAt) -> list[Schedule]:
        if analysis.is_root(sch, block) or not analysis.is_trivially_bound(sch, block):
            return [sch]
        new = sch.copy()
        loop = tile_with_tensor_intrin(new, block, self.intrin_name)
        if loop is None or not analysis.attempt(new, "tensorize", loop, self.intrin_name):
            return [sch]
        new.annotate(block, TILED, self.structure)
        tile = new.blockize(loop)
        new.annotate(tile, AUTO_TENSORIZE, self.intrin_name)
        return self._variants(new, tile)
