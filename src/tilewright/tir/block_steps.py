"""Steps of `tir.Schedule` on blocks: moving, inlining, decomposing, tiling, tensorizing, and changing layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.base.types import DataType
from tilewright.scalar.expr import Buffer, Value
from tilewright.tir import block_moves, layout_rewrites, tile_copies
from tilewright.tir import padding as padding_rewrites
from tilewright.tir.block_regions import buffers_read
from tilewright.tir.block_rewrites import check_scope
from tilewright.tir.blockize import blockize
from tilewright.tir.index_map import IndexMap
from tilewright.tir.legality import check_any_order, check_complete, check_threads, only_maker
from tilewright.tir.loop_schedule import Schedule as Engine
from tilewright.tir.loop_steps import INLINE, LoopRV, LoopSteps
from tilewright.tir.steps import BlockAt, recorded
from tilewright.tir.stmt import ALIGNED, THREAD, Block, For, stored_buffers
from tilewright.tir.tensorize import TensorIntrin

Layout = IndexMap | str | Callable[..., Any]


class BlockSteps(LoopSteps):
    """Steps on blocks, in addition to those on loops."""

    # Moves.
    @recorded
    def reverse_compute_at(
        self, block: BlockAt | str, loop: LoopRV | int, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Compute a block inside the loop of its producer, for the part computed in each trip; `ROOT` leaves it where
        it is, `INLINE` inlines it. `index` is its position in the loop: -1 the last, -2 the first one possible."""
        at, e = self._inside(block)
        if not isinstance(loop, LoopRV):
            if loop == INLINE:
                e.func = block_moves.reverse_compute_inline(e.func, at.block)
            return
        e = self._shared_scope(at, loop)
        e.func = block_moves.reverse_compute_at(e.func, at.block, loop.var, preserve_unit_loops, int(index))

    @recorded
    def reverse_compute_inline(self, block: BlockAt | str) -> None:
        """Store the result of the only reader of a value instead of the value."""
        at, e = self._inside(block)
        e.func = block_moves.reverse_compute_inline(e.func, at.block)

    @recorded
    def decompose_reduction(self, block: BlockAt | str, loop: LoopRV) -> BlockAt:
        """Initialize a reduction in a separate block before `loop`, and return that block."""
        at, e = self._inside(block)
        e.func, name = block_moves.decompose_reduction(e.func, at.block, loop.var)
        return replace(at, block=name)

    @recorded
    def decompose_padding(self, block: BlockAt | str, loop: LoopRV) -> BlockAt:
        """Split a padded copy into a fill before `loop`, and a copy of the inner part. Return the block that fills."""
        at, e = self._inside(block)
        check_complete(e.func, e.block(at.block))
        e.func, name = padding_rewrites.decompose_padding(e.func, at.block, loop.var)
        return replace(at, block=name)

    def can_decompose_padding(self, block: BlockAt | str, loop: LoopRV) -> bool:
        """Return whether `decompose_padding` applies to a block and a loop."""
        at, e = self._inside(block)
        try:
            check_complete(e.func, e.block(at.block))
            padding_rewrites.decompose_padding(e.func, at.block, loop.var)
        except ScheduleError:
            return False
        return True

    @recorded
    def pad_einsum(self, block: BlockAt | str, padding: Sequence[int]) -> None:
        """Round up the axes of a sum of products to multiples of `padding`, one for each axis."""
        at, e = self._inside(block)
        e.func = padding_rewrites.pad_einsum(e.func, at.block, [int(p) for p in padding])

    # Shapes of nests and blocks.
    @recorded
    def add_unit_loop(self, block_or_loop: BlockAt | LoopRV | str) -> LoopRV:
        """Wrap a block or a loop in a loop of one trip."""
        if isinstance(block_or_loop, LoopRV):
            return LoopRV(self._engine(block_or_loop.func).add_unit_loop(block_or_loop.var), block_or_loop.func)
        at, e = self._in(block_or_loop)
        return LoopRV(e.add_unit_loop(at.block), self._named(at.func))

    @recorded
    def reorder_block_iter_var(self, block: BlockAt | str, new_order: Sequence[int]) -> None:
        """Reorder the axes of a block."""
        at, e = self._in(block)
        e.func = block_moves.reorder_block_iter_var(e.func, at.block, list(new_order))

    @recorded
    def blockize(self, target: LoopRV, preserve_unit_iters: bool = True) -> BlockAt:
        """Turn a loop with its body into one block over tiles, with the previous block inside, and return it. Loops of
        one trip get an axis of the inner block only with `preserve_unit_iters`."""
        e = self._scope(target)
        e.func, name = blockize(e.func, target.var, preserve_unit_iters)
        return BlockAt(name, target.func)

    @recorded
    def tensorize(self, block_or_loop: BlockAt | LoopRV | str, tensor_intrin: str) -> None:
        """Replace the loops from the given one inwards, or a block made by `blockize`, by the intrinsic of that name.
        """
        at = block_or_loop if isinstance(block_or_loop, LoopRV) else self._block(block_or_loop)
        e, intrinsic = self._scope(at), TensorIntrin.get(tensor_intrin)
        check_any_order(e.func, self.get(block_or_loop), f"'{tensor_intrin}' cannot be used")
        if isinstance(block_or_loop, LoopRV):
            e.func, name = blockize(e.func, block_or_loop.var)
        else:
            name = self._block(block_or_loop).block
        e.tensorize(name, intrinsic)

    # Annotations.
    @recorded
    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Annotate a loop with its thread axis; on a CPU the loop stays serial."""
        e = self._scope(loop)
        check_threads(e.func, e.loop(loop.var))
        e.annotate(loop.var, THREAD, thread_axis)

    @recorded
    def unannotate(self, block_or_loop: BlockAt | LoopRV | str, ann_key: str) -> None:
        """Remove an annotation."""
        func = block_or_loop.func if isinstance(block_or_loop, LoopRV) else self._named(self._block(block_or_loop).func)
        e, node = self._engine(func), self.get(block_or_loop)
        if ann_key not in node.annotations:
            what = f"loop '{node.var.name}'" if isinstance(node, For) else f"block '{node.name}'"
            raise ScheduleError(
                f"{what} has no annotation '{ann_key}'; its annotations are {', '.join(node.annotations) or 'none'}")
        kept = {k: v for k, v in node.annotations.items() if k != ann_key}
        if not isinstance(block_or_loop, LoopRV) and self._is_root(at := self._block(block_or_loop)):
            self._set_root(at, kept)
            return
        e._replace(node, replace(node, annotations=kept))

    @recorded
    def storage_align(self, block: BlockAt | str, buffer_index: int | str, axis: int, factor: int, offset: int) -> None:
        """Set the stride of an intermediate value along `axis` (any but the last) to `factor * k + offset` elements."""
        at, e = self._in(block)
        buffer = self._written(at, e, buffer_index)
        rank = len(buffer.shape)
        if buffer in e.func.params or not -rank <= axis < rank or axis % rank == rank - 1 or not 0 <= offset < factor:
            raise ScheduleError(
                f"'{buffer.name}' of {rank} dimensions cannot be aligned along axis {axis} by {factor} with the "
                f"offset {offset}: choose an intermediate value, an axis other than the last, and an offset from 0 to "
                "the factor")
        node = e.block(at.block)
        place = stored_buffers(node).index(buffer)
        others = [a for a in node.annotations.get(ALIGNED, ()) if tuple(a[:2]) != (place, axis % rank)]
        e.annotate(at.block, ALIGNED, (*others, (place, axis % rank, factor, offset)))

    @recorded
    def rolling_buffer(self, block: BlockAt | str, write_buffer_index: int | str = 0) -> None:
        """Keep the part of a value that the next trip of the reader's loop needs in a ring buffer. Requires
        `compute_at`."""
        at, e = self._inside(block)
        self._written(at, e, write_buffer_index)
        only_maker(e.func, e.block(at.block))
        check_complete(e.func, e.block(at.block))
        e.rolling_buffer(at.block)

    # Layouts and types.
    @recorded
    def unsafe_set_dtype(self, block: BlockAt | str, buffer_index: int | str, dtype: str) -> None:
        """Store an intermediate value that a block computes as another type. Values are converted when they are stored
        and when they are read, which may change results."""
        at, e = self._in(block)
        e.func = layout_rewrites.set_dtype(e.func, self._written(at, e, buffer_index), DataType(dtype))

    @recorded
    def transform_layout(
        self, block: BlockAt | str, buffer: int | str | tuple[str, int], index_map: Layout,
        pad_value: Value | Layout | None = None, *, assume_injective_transform: bool = False,
    ) -> None:
        """Change the layout of a value that the block writes (or reads, with `("read", k)`). A parameter gets the new
        shape, so the caller passes its elements in that layout.

        Places of the new layout without an element get `pad_value`, a number or a function of the new indices, when
        the value is computed. The padding of an input is the caller's. With `assume_injective_transform`, such places
        may stay unset: they are not read. A map that is not injective is refused.
        """
        at, e = self._in(block)
        found = self._buffer(at, e, buffer)
        how = IndexMap.of(index_map, len(found.shape))
        shape = layout_rewrites.sizes(found)
        func, new = layout_rewrites.transform_layout(e.func, found, how)
        if pad_value is not None:
            func = padding_rewrites.fill_padding(func, new, how, shape, padding_rewrites.pad_map(new, pad_value))
        elif not assume_injective_transform and padding_rewrites.has_padding(how, shape):
            raise ScheduleError(
                f"the layout '{how}' of '{found.name}' has places without an element; give their value as pad_value, "
                "or pass assume_injective_transform=True to leave them unset")
        e.func = func

    @recorded
    def transform_block_layout(self, block: BlockAt | str, index_map: Layout) -> None:
        """Replace the axes of a block and the loops around it by a map of its axes."""
        at, e = self._inside(block)
        e.func = layout_rewrites.transform_block_layout(
            e.func, at.block, IndexMap.of(index_map, len(e.block(at.block).iters)))

    @recorded
    def set_axis_separator(
        self, block: BlockAt | str, buffer: int | str | tuple[str, int], axis_separators: Sequence[int]
    ) -> None:
        """Give the dimensions of a value at which a further dimension of memory begins. They have no effect on a CPU,
        whose memory has one."""
        at, e = self._in(block)
        found = self._buffer(at, e, buffer)
        given = [int(s) for s in axis_separators]
        if any(not 0 < s < len(found.shape) for s in given) or given != sorted(set(given)):
            raise ScheduleError(
                f"the axis separators {given} of '{found.name}' must be increasing numbers from 1 to "
                f"{len(found.shape) - 1}")

    @recorded
    def reindex(self, block: BlockAt | str, buffer: tuple[str, int] | int | str) -> BlockAt:
        """Let the block read or write a copy whose layout follows its axes. Return the copying block."""
        return self._reindexed(block, buffer, "global", None, "reindex")

    @recorded
    def reindex_cache_read(
        self, block: BlockAt | str, read_buffer_index: int | str, storage_scope: str, index_map: Layout
    ) -> BlockAt:
        """Let the block read a copy whose layout is a map of the axes in the read's indices. Return the copying block.
        """
        which = ("read", read_buffer_index)
        return self._reindexed(block, which, storage_scope, index_map, storage_scope)

    @recorded
    def reindex_cache_write(
        self, block: BlockAt | str, write_buffer_index: int | str, storage_scope: str, index_map: Layout
    ) -> BlockAt:
        """Let the block write to a copy whose layout is a map of its axes. Return the block that copies the result
        back."""
        which = ("write", write_buffer_index)
        return self._reindexed(block, which, storage_scope, index_map, storage_scope)

    def _reindexed(
        self, block: BlockAt | str, buffer: Any, scope: str, index_map: Layout | None, suffix: str
    ) -> BlockAt:
        check_scope(scope)
        at, e = self._inside(block)
        found = self._buffer(at, e, buffer)
        node = e.block(at.block)
        writes = found in stored_buffers(node)
        if writes:
            only_maker(e.func, node)
            check_complete(e.func, node)
        how = None
        if index_map is not None:
            how = IndexMap.of(index_map, len(node.iters))
        make = layout_rewrites.reindex_write if writes else layout_rewrites.reindex_read
        e.func, name = make(e.func, at.block, found, scope, how, suffix)
        return replace(at, block=name)

    @recorded
    def read_at(
        self, loop: LoopRV, block: BlockAt | str, read_buffer_index: int | str, storage_scope: str
    ) -> BlockAt:
        """Let the statements in a loop around the block read a copy of the part of a value that a trip reads. Return
        the copying block."""
        at = self._block(block)
        e = self._shared_scope(at, loop)
        found = self._buffer(at, e, ("read", read_buffer_index))
        e.func, name = tile_copies.read_at(e.func, loop.var, at.block, found, storage_scope)
        return replace(at, block=name)

    @recorded
    def write_at(
        self, loop: LoopRV, block: BlockAt | str, write_buffer_index: int | str, storage_scope: str
    ) -> BlockAt:
        """Let the block compute into a copy of its result, whose part is copied back in each trip of a loop around the
        block. Return the copying block."""
        at = self._block(block)
        e = self._shared_scope(at, loop)
        found = self._written(at, e, write_buffer_index)
        e.func, name = tile_copies.write_at(e.func, loop.var, at.block, found, storage_scope)
        return replace(at, block=name)

    @recorded
    def cache_index(self, block: BlockAt | str, storage_scope: str = "global", cse_thresh: int = 0) -> list[BlockAt]:
        """Store indices that are not plain sums in tables. Return the blocks that compute the tables."""
        check_scope(storage_scope)
        at, e = self._inside(block)
        e.func, names = layout_rewrites.cache_index(e.func, at.block, storage_scope)
        return [replace(at, block=n) for n in names]

    @recorded
    def cache_inplace(self, block: BlockAt | str, read_buffer_index: int | str, storage_scope: str) -> list[BlockAt]:
        """Let a block that updates a value in place work on a copy. Return the blocks that copy it in and back."""
        check_scope(storage_scope)
        at, e = self._inside(block)
        found = self._buffer(at, e, ("read", read_buffer_index))
        e.func, names = layout_rewrites.cache_inplace(e.func, at.block, found, storage_scope)
        return [replace(at, block=n) for n in names]

    # Arguments.
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

    def _inside(self, block: BlockAt | str) -> tuple[BlockAt, Engine]:
        """Return a block with the schedule of the statements in the block or the function around it."""
        at = self._block(block)
        return at, self._scope(at)

    def _written(self, at: BlockAt, e: Engine, index: int | str) -> Buffer:
        made = self._from_outside(at, stored_buffers(e.block(at.block)))
        return self._pick(made, index, f"block '{at.block}' writes")

    def position_of(self, block: BlockAt | str, which: Any) -> tuple[str, int]:
        """Return a buffer of a block as `("write", index)` or `("read", index)`."""
        at, e = self._in(block)
        found, node = self._buffer(at, e, which), e.block(at.block)
        stored = stored_buffers(node)
        if found in stored and not (isinstance(which, tuple) and which[0] == "read"):
            return "write", stored.index(found)
        return "read", buffers_read(node).index(found)

    def _buffer(self, at: BlockAt, e: Engine, which: Any) -> Buffer:
        """Return a buffer of a block: `("read", 0)`, `("write", 0)`, an index among the written ones, or a name among
        all."""
        node: Block = e.block(at.block)
        if isinstance(which, Buffer):
            which = which.name
        kind, index = which if isinstance(which, tuple) else ("either" if isinstance(which, str) else "write", which)
        read = buffers_read(node)
        if kind == "read":
            return self._pick(read, index, f"block '{at.block}' reads")
        if kind == "write":
            return self._written(at, e, index)
        return self._pick([*stored_buffers(node), *read], index, f"block '{at.block}' uses")


