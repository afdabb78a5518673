"""Schedules of TVM's tests (`tvm.testing.tir`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.tir.module_schedule import Schedule
from tilewright.tir.stmt import PrimFunc

Layout = Callable[..., Any]


def mma_schedule(
    workload: PrimFunc, k_inner: int, in_dtype: str, b_transposed: bool, i_factors: Sequence[int],
    j_factors: Sequence[int], k_factors: Sequence[int], index_map_A: Layout, index_map_B: Layout, index_map_C: Layout,
    ldmatrix_a_intrin: str, ldmatrix_b_intrin: str, mma_intrin: str, mma_fill_intrin: str, mma_store_intrin: str,
    shared_scope: str = "shared",
) -> Schedule:
    """Return the schedule of a product of matrices, block `C` of `workload`, by the tensor cores of a GPU.

    Tiles of 16 x 16 x `k_inner` are computed by the intrinsics. Five factors of the loops over rows and columns of
    tiles, and three of that over the reduction, give the tiles of a block of threads, of a warp, and of a step. The
    index maps are the layouts of tiles in a warp. Raises `ScheduleError` for factors that do not fit.
    """
    sch = Schedule(workload)
    block = sch.get_block("C")
    result = sch.cache_write(block, 0, "warp")
    i, j, k = sch.get_loops(block)
    i, i_tile = sch.split(i, [None, 16])
    j, j_tile = sch.split(j, [None, 16])
    k, k_tile = sch.split(k, [None, k_inner])
    sch.reorder(i, j, k, i_tile, j_tile, k_tile)
    tile = sch.blockize(i_tile)
    i0, i1, i2, i3, i4 = sch.split(i, [*i_factors])
    j0, j1, j2, j3, j4 = sch.split(j, [*j_factors])
    k0, k1, k2 = sch.split(k, [*k_factors])
    sch.reorder(i0, j0, i1, j1, j2, i2, k0, k1, i3, j3, k2, i4, j4)
    sch.bind(sch.fuse(i0, j0), "blockIdx.x")
    sch.bind(sch.fuse(i1, j1), "blockIdx.y")
    warp = sch.fuse(j2, i2)
    sch.bind(warp, "threadIdx.y")
    warps = i_factors[2] * j_factors[2]
    for operand in (0, 1):
        _fetch(sch, sch.cache_read(tile, operand, shared_scope), k0, warps, in_dtype)
    parts = [sch.cache_read(tile, operand, "warp") for operand in (0, 1)]
    for part in parts:
        sch.compute_at(part, k1)
    sch.reverse_compute_at(result, warp)
    widths = [(16, k_inner), (16, k_inner) if b_transposed else (k_inner, 16), (16, 16)]
    loops = [_tiled(sch, b, *sizes) for b, sizes in zip((*parts, result), widths, strict=True)]
    for b, end, (rows, columns), layout in zip(
        (*parts, result), ("write", "write", "read"), widths, (index_map_A, index_map_B, index_map_C), strict=True
    ):
        sch.transform_layout(b, (end, 0), _of_tiles(rows, columns, layout))
    sch.decompose_reduction(tile, sch.get_loops(tile)[3])
    intrinsics = (ldmatrix_a_intrin, ldmatrix_b_intrin, mma_store_intrin)
    for loop, intrinsic in zip(loops, intrinsics, strict=True):
        sch.tensorize(loop, intrinsic)
    sch.tensorize(sch.get_loops(sch.get_block("C_init"))[-2], mma_fill_intrin)
    sch.tensorize(sch.get_loops(block)[-3], mma_intrin)
    return sch


def _fetch(sch: Schedule, block: Any, loop: Any, warps: int, dtype: str) -> None:
    """Let all threads copy a tile to shared memory, in vectors of 16 bytes."""
    sch.compute_at(block, loop)
    lanes = 16 if dtype == "int8" else 8
    fused = sch.fuse(*sch.get_loops(block)[-2:])
    _, warp, thread, lane = sch.split(fused, [None, warps, 32, lanes])
    sch.bind(thread, "threadIdx.x")
    sch.bind(warp, "threadIdx.y")
    sch.vectorize(lane)
    sch.storage_align(block, 0, axis=-2, factor=32, offset=8)


def _tiled(sch: Schedule, block: Any, rows: int, columns: int) -> Any:
    """Split the last two loops of a block into tiles; return the outer loop of a tile."""
    i, j = sch.get_loops(block)[-2:]
    i, row = sch.split(i, [None, rows])
    j, column = sch.split(j, [None, columns])
    sch.reorder(i, j, row, column)
    return row


def _of_tiles(rows: int, columns: int, layout: Layout) -> Layout:
    """Return the map of indices to a tile and the place in it."""
    return lambda i, j: (i // rows, j // columns, *layout(i % rows, j % columns))


__all__ = ["mma_schedule"]
