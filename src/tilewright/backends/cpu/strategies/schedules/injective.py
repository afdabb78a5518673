"""Kernels without reductions: elementwise chains, broadcasts, transposes, slices, concatenations.

If every input is read at the element that is written, all axes are fused, or the contiguous ones for tensors in larger
arrays. Otherwise the last axis is vectorized.
"""

from __future__ import annotations

import itertools
import math

from tilewright.backends.cpu.strategies.schedules.kernel import parallel_over
from tilewright.backends.machine import Machine
from tilewright.base.types import OpenSize
from tilewright.scalar.arith.open_sizes import typical
from tilewright.scalar.expr import Buffer, IntImm, Load, PrimExpr, number_of
from tilewright.scalar.walk import walk
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.stmt import Block, Store, expressions, walk_stmt
from tilewright.topi.shapes import same

_VECTORS = 4


def schedule_injective(s: Schedule, output: str, machine: Machine) -> None:
    """Vectorize and parallelize the loops of one output block."""
    axes, _ = s.axes(output)
    if not axes:
        return
    block = s.block(output)
    elements = math.prod(typical(s.extent(v)) for v in axes)
    itemsize = max((b.dtype.itemsize for b in _buffers(block)), default=4)
    lanes = max(1, machine.vector_bits // 8 // itemsize)
    if _same_element(block):
        groups = _runs(block)
        fused = [s.fuse(*axes[a:b]) for a, b in itertools.pairwise([*groups, len(axes)])]
        loop = fused[-1]
        outer = fused[:-1] or [loop]
    else:
        kept = [v for v in axes if s.extent(v) > 1] or axes[-1:]
        loop = kept[-1]
        outer = axes[: axes.index(loop)]
    extent = s.extent(loop)
    is_open = isinstance(extent, OpenSize)
    while lanes > 1 and lanes > extent and not is_open:
        lanes //= 2
    if lanes >= 2:
        vectors = _VECTORS if (is_open or extent >= _VECTORS * lanes * 2) and outer == [loop] else 1
        around, vector, lane = s.split(loop, [None, vectors, lanes])
        s.unroll(vector)
        s.vectorize(lane)
        outer = [around] if outer == [loop] else outer
    parallel_over(s, outer, elements * 4 / machine.lanes("float32"), machine)


def _buffers(block: Block) -> list[Buffer]:
    return [
        e.buffer for st in walk_stmt(block.body) for top in expressions(st) for e in walk(top) if isinstance(e, Load)
    ]


def _same_element(block: Block) -> bool:
    """Return whether every load is at the indices of the store, or of a single element."""
    at = tuple(i.var for i in block.iters)
    sizes = tuple(i.extent for i in block.iters)
    single = tuple(number_of(n) == 1 for n in sizes)
    for st in walk_stmt(block.body):
        for top in expressions(st):
            for e in walk(top):
                if isinstance(e, Load) and not _scalar(e) and not _is_at(e, at, single):
                    return False
                if e in at and not any(e is a for a in at):
                    return False
    return _only_as_index(block, at) and all(number_of(n) != 0 for n in sizes)


def _is_at(e: Load, at: tuple[PrimExpr, ...], single: tuple[bool, ...]) -> bool:
    """Return whether a load is at these indices; along an axis of one element (`single`), 0 also counts."""
    return len(e.indices) == len(at) and all(
        a is b or (one and number_of(a) == 0) for a, b, one in zip(e.indices, at, single, strict=True)
    )


def _runs(block: Block) -> list[int]:
    """Return the first axes of runs that are contiguous in every buffer; a new run begins after an axis that is shorter
    than its buffer's."""
    extents = [i.extent.value if isinstance(i.extent, IntImm) else i.extent for i in block.iters]
    shapes = {b.shape for b in _buffers(block) if len(b.shape) == len(extents) and any(not same(d, 1) for d in b.shape)}
    shapes |= {st.buffer.shape for st in walk_stmt(block.body) if isinstance(st, Store)}
    return [0, *(d for d in range(1, len(extents)) if any(not same(shape[d], extents[d]) for shape in shapes))]


def _only_as_index(block: Block, at: tuple[PrimExpr, ...]) -> bool:
    """Return whether the axes are used only in the indices of loads and stores."""
    for st in walk_stmt(block.body):
        value = getattr(st, "value", None)
        if isinstance(value, PrimExpr) and _uses_outside_loads(value, at):
            return False
        condition = getattr(st, "condition", None)
        if isinstance(condition, PrimExpr):
            return False
    return True


def _uses_outside_loads(e: PrimExpr, at: tuple[PrimExpr, ...]) -> bool:
    stack, seen = [e], {e}
    while stack:
        x = stack.pop()
        if any(x is a for a in at):
            return True
        inner = () if isinstance(x, Load) else [o for o in x.operands() if o not in seen]
        seen.update(inner)
        stack.extend(inner)
    return False


def _scalar(e: Load) -> bool:
    return all(same(d, 1) for d in e.buffer.shape)
