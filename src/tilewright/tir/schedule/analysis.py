"""Questions about the blocks of a schedule: TVM's `tvm.tir.schedule.analysis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.arith.iter_map import normalize_to_iter_sum
from tilewright.scalar.expr import Buffer, PrimExpr, Value, Var, add, as_expr, const, floordiv, floormod, mul, number_of
from tilewright.scalar.range import Range
from tilewright.tir.index_map import IndexMap
from tilewright.tir.module_schedule import Schedule
from tilewright.tir.schedule.tensor_mapping import (
    AutoTensorizeMappingInfo,
    TensorizeInfo,
    get_auto_tensorize_mapping_info,
    get_tensorize_loop_mapping,
)
from tilewright.tir.steps import BlockAt
from tilewright.tir.stmt import For, block_names

Number: TypeAlias = int | float | None


def has_block(sch: Schedule, block_name: str) -> bool:
    """Return whether a function of the schedule has a block of that name."""
    return any(block_name in block_names(f) for f in sch.functions.values())


def is_output_block(sch: Schedule, block: BlockAt) -> bool:
    """Return whether the block stores to a parameter of its function."""
    return block in sch.get_output_blocks(block.func)


def suggest_index_map(
    buffer: Buffer, indices: Sequence[Value], loops: Sequence[For], predicate: Value = True
) -> IndexMap | None:
    """Return a layout of a buffer in which loops, outermost first, visit its elements in the order of memory.

    The index of an element is a sum of parts of loop variables, whose order in memory becomes that of the loops. None
    if the sum is not made of such parts, or does not visit each element.
    """
    sizes = [number_of(as_expr(d)) for d in buffer.shape]
    if not all(isinstance(n, int) for n in sizes):
        return None
    place = normalize_to_iter_sum(_flat(indices, sizes), {f.var: Range.from_min_extent(f.min, f.extent) for f in loops})
    order: dict[object, int] = {f.var: k for k, f in enumerate(loops)}
    numbers = [[number_of(n) for n in (a.lower_factor, a.scale, a.extent)] for a in place.args]
    known = all(a.source.source in order for a in place.args) and all(isinstance(n, int) for p in numbers for n in p)
    if number_of(place.base) != 0 or not known or not _is_dense([(p[1], p[2]) for p in numbers], sizes):
        return None
    nested = sorted(
        zip(place.args, numbers, strict=True), key=lambda p: (order[p[0].source.source], -int(p[1][0] or 0)))
    params = [Var(f"i{k}", "int32") for k in range(len(sizes))]
    ranges, total = Ranges(), _flat(params, sizes)
    for v, n in zip(params, sizes, strict=True):
        ranges = ranges.bind_loop(v, const(0, v.dtype), const(n or 0, v.dtype))
    return IndexMap(tuple(params), tuple(
        simplify(floormod(floordiv(total, p[1] or 1), p[2] or 1), ranges) for _, p in nested))


def _flat(indices: Sequence[Value], sizes: Sequence[Number]) -> PrimExpr:
    """Return the place of an element in dense memory."""
    found: PrimExpr = as_expr(indices[0])
    for i, n in zip(indices[1:], sizes[1:], strict=True):
        found = add(mul(found, n or 0), i)
    return found


def _is_dense(parts: Sequence[tuple[Number, Number]], sizes: Sequence[Number]) -> bool:
    """Return whether parts of a sum, a scale and an extent each, take every value below the product of `sizes` once."""
    reached, total = 1, 1
    for scale, extent in sorted(parts, key=lambda p: p[0] or 0):
        if scale != reached:
            return False
        reached *= int(extent or 0)
    for n in sizes:
        total *= int(n or 0)
    return reached == total


__all__ = [
    "AutoTensorizeMappingInfo", "TensorizeInfo", "get_auto_tensorize_mapping_info", "get_tensorize_loop_mapping",
    "has_block", "is_output_block", "suggest_index_map",
]
