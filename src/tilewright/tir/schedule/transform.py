"""Steps that prepare a block for an instruction: TVM's `tvm.tir.schedule.transform`."""

from __future__ import annotations

from tilewright.scalar.expr import Var, number_of
from tilewright.tir.loop_steps import LoopRV
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import Block
from tilewright.tir.tensorize import TensorIntrin


def tile_with_tensor_intrin(
    sch: Schedule, block: BlockAt | str, intrin_name: str, allow_padding: bool = False
) -> LoopRV | None:
    """Split the loops of a block into tiles of the intrinsic of that name, and move the loops in the tiles innermost.

    Return the outermost of these, for `tensorize`; None if the axes do not fit. The axes of the intrinsic take, from
    the last one on, the last axes of the same kind, and each of these must be one loop. With `allow_padding`, axes of
    a sum of products are rounded up to whole tiles. Raises `ScheduleError` for an unknown intrinsic.
    """
    tiles = _tiles(sch.get(block), TensorIntrin.get(intrin_name), allow_padding)
    if tiles is None:
        return None
    if allow_padding:
        sch.pad_einsum(block, [tiles.get(k, 1) for k in range(len(sch.get(block).iters))])
    bindings = sch.get(block).bindings
    by_var = {loop.var: loop for loop in sch.get_loops(block)}
    size_of = {v: size for k, size in tiles.items() if isinstance(v := bindings[k], Var)}
    inner = [sch.split(by_var[v], [None, size])[1] for v, size in sorted(
        size_of.items(), key=lambda item: list(by_var).index(item[0]))]
    loops = [loop for loop in sch.get_loops(block) if all(loop.var is not x.var for x in inner)]
    sch.reorder(*loops, *inner)
    return inner[0]


def _tiles(node: Block, intrin: TensorIntrin, allow_padding: bool) -> dict[int, int] | None:
    """Return the sizes of tiles by the positions of the axes of a block; None if the axes do not fit."""
    left = list(range(len(node.iters)))
    found: dict[int, int] = {}
    for wanted in reversed(intrin.pattern.iters):
        at = next((k for k in reversed(left) if node.iters[k].kind == wanted.kind), None)
        size, extent = number_of(wanted.extent), None if at is None else number_of(node.iters[at].extent)
        if at is None or extent is None or size is None or not isinstance(node.bindings[at], Var):
            return None
        if extent % size and not allow_padding:
            return None
        left = left[: left.index(at)]
        found[at] = int(size)
    return found


__all__ = ["tile_with_tensor_intrin"]
