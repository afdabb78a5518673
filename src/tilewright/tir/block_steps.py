"""The steps of `tir.Schedule` over blocks: moved, inlined, taken apart, made into tiles and instructions, laid out
anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import Buffer
from tilewright.tir import block_moves, layout_rewrites
from tilewright.tir.block_rewrites import check_scope
from tilewright.tir.blockize import blockize
from tilewright.tir.index_map import IndexMap
from tilewright.tir.legality import check_any_order, check_complete, check_threads, only_maker
from tilewright.tir.loop_steps import LoopRV, LoopSteps
from tilewright.tir.schedule import Schedule as Engine
from tilewright.tir.steps import BlockAt, recorded
from tilewright.tir.stmt import ALIGNED, THREAD, Block, For, loaded_buffers, stored_buffers
from tilewright.tir.tensorize import TensorIntrin

Layout = IndexMap | str | Callable[..., Any]


class BlockSteps(LoopSteps):
    """Steps over blocks, beside those over loops."""

    # Moves.
    @recorded
    def reverse_compute_at(self, block: BlockAt | str, loop: LoopRV, preserve_unit_loops: bool = False) -> None:
        """Compute a block inside of the loop that makes what it reads, for the part made in this trip."""
        at, e = self._in(block)
        e.func = block_moves.reverse_compute_at(e.func, at.block, loop.var, preserve_unit_loops)

    @recorded
    def reverse_compute_inline(self, block: BlockAt | str) -> None:
        """Store what the only reader of a value makes of it, instead of the value."""
        at, e = self._in(block)
        e.func = block_moves.reverse_compute_inline(e.func, at.block)

    @recorded
    def decompose_reduction(self, block: BlockAt | str, loop: LoopRV) -> BlockAt:
        """Store the initial values of a reduction in a block of its own before `loop`, and return that block."""
        at, e = self._in(block)
        e.func, name = block_moves.decompose_reduction(e.func, at.block, loop.var)
        return replace(at, block=name)

    @recorded
    def decompose_padding(self, block: BlockAt | str, loop: LoopRV) -> BlockAt:
        """A padded copy becomes a fill before `loop`, and a copy of what is inside. Returns the block that fills."""
        at, e = self._in(block)
        check_complete(e.func, e.block(at.block))
        e.func, name = layout_rewrites.decompose_padding(e.func, at.block, loop.var)
        return replace(at, block=name)

    @recorded
    def pad_einsum(self, block: BlockAt | str, padding: Sequence[int]) -> None:
        """A sum of products runs over axes rounded up to multiples of `padding`, one for each axis."""
        at, e = self._in(block)
        e.func = layout_rewrites.pad_einsum(e.func, at.block, [int(p) for p in padding])

    # Shapes of nests and blocks.
    @recorded
    def add_unit_loop(self, block_or_loop: BlockAt | LoopRV | str) -> LoopRV:
        """A loop of one trip around a block or a loop."""
        func = block_or_loop.func if isinstance(block_or_loop, LoopRV) else self._named(self._block(block_or_loop).func)
        e = self._engine(func)
        e.func, v = block_moves.add_unit_loop(e.func, self.get(block_or_loop))
        return LoopRV(v, func)

    @recorded
    def reorder_block_iter_var(self, block: BlockAt | str, new_order: Sequence[int]) -> None:
        """The axes of a block in another order."""
        at, e = self._in(block)
        e.func = block_moves.reorder_block_iter_var(e.func, at.block, list(new_order))

    @recorded
    def blockize(self, target: LoopRV) -> BlockAt:
        """A loop with all inside becomes one block over tiles. Returns it."""
        e = self._engine(target.func)
        e.func, name = blockize(e.func, target.var)
        return BlockAt(name, target.func)

    @recorded
    def tensorize(self, block_or_loop: BlockAt | LoopRV | str, tensor_intrin: str) -> None:
        """The loops from one in, or a block that `blockize` made, become what the intrinsic of that name runs for
        them."""
        func = block_or_loop.func if isinstance(block_or_loop, LoopRV) else self._named(self._block(block_or_loop).func)
        e, intrinsic = self._engine(func), TensorIntrin.get(tensor_intrin)
        check_any_order(e.func, self.get(block_or_loop), f"'{tensor_intrin}' cannot be used")
        if isinstance(block_or_loop, LoopRV):
            e.func, name = blockize(e.func, block_or_loop.var)
        else:
            name = self._block(block_or_loop).block
        e.tensorize(name, intrinsic)

    # Notes.
    @recorded
    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Annotate a loop with its thread axis; on a CPU the loop stays serial."""
        e = self._engine(loop.func)
        check_threads(e.func, e.loop(loop.var))
        e.annotate(loop.var, THREAD, thread_axis)

    @recorded
    def unannotate(self, block_or_loop: BlockAt | LoopRV | str, ann_key: str) -> None:
        """Take a note away."""
        func = block_or_loop.func if isinstance(block_or_loop, LoopRV) else self._named(self._block(block_or_loop).func)
        e, node = self._engine(func), self.get(block_or_loop)
        if ann_key not in node.annotations:
            what = f"loop '{node.var.name}'" if isinstance(node, For) else f"block '{node.name}'"
            raise ScheduleError(
                f"{what} has no note '{ann_key}'; its notes are {', '.join(node.annotations) or 'none'}"
            )
        kept = {k: v for k, v in node.annotations.items() if k != ann_key}
        e._replace(node, replace(node, annotations=kept))

    @recorded
    def storage_align(self, block: BlockAt | str, buffer_index: int | str, axis: int, factor: int, offset: int) -> None:
        """Elements of an inner value that are next to each other along `axis`, any but the last, lie `factor * k +
        offset` apart."""
        at, e = self._in(block)
        buffer = self._written(at, e, buffer_index)
        rank = len(buffer.shape)
        if buffer in e.func.params or not -rank <= axis < rank or axis % rank == rank - 1 or not 0 <= offset < factor:
            raise ScheduleError(
                f"'{buffer.name}' of {rank} dimensions cannot be aligned along axis {axis} by {factor} with the offset "
                f"{offset}: an inner value can be, along any axis but the last, with an offset from 0 to the factor"
            )
        node = e.block(at.block)
        place = stored_buffers(node).index(buffer)
        e.annotate(at.block, ALIGNED, (*node.annotations.get(ALIGNED, ()), (place, axis % rank, factor, offset)))

    @recorded
    def rolling_buffer(self, block: BlockAt | str, write_buffer_index: int | str = 0) -> None:
        """A value computed in a loop of its reader keeps what the next trip needs again, in a ring."""
        at, e = self._in(block)
        self._written(at, e, write_buffer_index)
        only_maker(e.func, e.block(at.block))
        check_complete(e.func, e.block(at.block))
        e.rolling_buffer(at.block)

    # Layouts.
    @recorded
    def transform_layout(self, block: BlockAt | str, buffer: int | str | tuple[str, int], index_map: Layout) -> None:
        """An inner value that the block writes (or `("read", k)` reads) lies in memory in another order."""
        at, e = self._in(block)
        found = self._buffer(at, e, buffer)
        if found in e.func.params:
            raise ScheduleError(
                f"'{found.name}' is a parameter, and the caller determines its layout; apply cache_read or "
                "cache_write, and change the copy"
            )
        e.func = layout_rewrites.transform_layout(e.func, found, IndexMap.of(index_map, len(found.shape)))

    @recorded
    def transform_block_layout(self, block: BlockAt | str, index_map: Layout) -> None:
        """The axes of a block and the loops around it are the results of a map of its axes."""
        at, e = self._in(block)
        e.func = layout_rewrites.transform_block_layout(
            e.func, at.block, IndexMap.of(index_map, len(e.block(at.block).iters))
        )

    @recorded
    def set_axis_separator(
        self, block: BlockAt | str, buffer: int | str | tuple[str, int], axis_separators: Sequence[int]
    ) -> None:
        """The memory of a CPU has one dimension: no separator can be set but none."""
        at, e = self._in(block)
        found = self._buffer(at, e, buffer)
        if list(axis_separators):
            raise ScheduleError(
                f"'{found.name}' lies in memory of one dimension, which has no axis separators; give []"
            )

    @recorded
    def reindex(self, block: BlockAt | str, buffer: tuple[str, int] | int | str) -> BlockAt:
        """The block reads or writes a copy that is laid out by its axes. Returns the block that copies."""
        return self._reindexed(block, buffer, "global", None, "reindex")

    @recorded
    def reindex_cache_read(
        self, block: BlockAt | str, read_buffer_index: int | str, storage_scope: str, index_map: Layout
    ) -> BlockAt:
        """The block reads a copy laid out by a map of those of its axes that the buffer is read at. Returns the block
        that copies."""
        which = ("read", read_buffer_index)
        return self._reindexed(block, which, storage_scope, index_map, storage_scope)

    @recorded
    def reindex_cache_write(
        self, block: BlockAt | str, write_buffer_index: int | str, storage_scope: str, index_map: Layout
    ) -> BlockAt:
        """The block writes to a copy laid out by a map of its axes. Returns the block that brings the result home."""
        which = ("write", write_buffer_index)
        return self._reindexed(block, which, storage_scope, index_map, storage_scope)

    def _reindexed(
        self, block: BlockAt | str, buffer: Any, scope: str, index_map: Layout | None, suffix: str
    ) -> BlockAt:
        check_scope(scope)
        at, e = self._in(block)
        found = self._buffer(at, e, buffer)
        node = e.block(at.block)
        writes = found in stored_buffers(node)
        if writes:
            only_maker(e.func, node)
            check_complete(e.func, node)
        how = None
        if index_map is not None:
            used = layout_rewrites.access_axes(node, found)
            how = IndexMap.of(index_map, len(used))
        make = layout_rewrites.reindex_write if writes else layout_rewrites.reindex_read
        e.func, name = make(e.func, at.block, found, scope, how, suffix)
        return replace(at, block=name)

    @recorded
    def cache_index(self, block: BlockAt | str, storage_scope: str = "global", cse_thresh: int = 0) -> list[BlockAt]:
        """Indices that are no plain sums are read from tables. Returns the blocks that make these."""
        check_scope(storage_scope)
        at, e = self._in(block)
        e.func, names = layout_rewrites.cache_index(e.func, at.block, storage_scope)
        return [replace(at, block=n) for n in names]

    @recorded
    def cache_inplace(self, block: BlockAt | str, read_buffer_index: int | str, storage_scope: str) -> list[BlockAt]:
        """A block that changes a value in place does so on a copy. Returns the blocks that bring it in and home."""
        check_scope(storage_scope)
        at, e = self._in(block)
        found = self._buffer(at, e, ("read", read_buffer_index))
        e.func, names = layout_rewrites.cache_inplace(e.func, at.block, found, storage_scope)
        return [replace(at, block=n) for n in names]

    # What is meant.
    def noted(self, arg: Any) -> Any:
        if isinstance(arg, IndexMap):
            return str(arg)
        if callable(arg):
            import inspect

            return str(IndexMap.of(arg, len(inspect.signature(arg).parameters)))
        return super().noted(arg)

    def _in(self, block: BlockAt | str) -> tuple[BlockAt, Engine]:
        at = self._block(block)
        return at, self._engine(at.func)

    def _written(self, at: BlockAt, e: Engine, index: int | str) -> Buffer:
        return self._pick(stored_buffers(e.block(at.block)), index, f"block '{at.block}' writes")

    def _buffer(self, at: BlockAt, e: Engine, which: Any) -> Buffer:
        """A buffer of a block: `("read", 0)`, `("write", 0)`, a number among those written, or a name among all."""
        node: Block = e.block(at.block)
        kind, index = which if isinstance(which, tuple) else ("either" if isinstance(which, str) else "write", which)
        read = [b for b in loaded_buffers(node) if b not in stored_buffers(node)] or loaded_buffers(node)
        if kind == "read":
            return self._pick(read, index, f"block '{at.block}' reads")
        if kind == "write":
            return self._written(at, e, index)
        return self._pick([*stored_buffers(node), *read], index, f"block '{at.block}' uses")


