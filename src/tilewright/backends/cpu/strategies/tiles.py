"""The analytical choice of register tiles.

A micro-kernel keeps `rows x vectors` accumulators in registers and makes one fused multiply-add for each of them per
step of the reduction. Its cost per step is the maximum of several resources. There are two multiply-adds and two loads
a cycle: one broadcast a row, one vector a column (from beyond the first-level cache, two). Additions have a latency of
four cycles, which counts for fewer than eight accumulators. The last resource is the bandwidth of the cache that holds
the panel. A long sum is made of pieces. Adding a piece to the totals costs more without registers for both, because the
totals are then loaded and stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.machine import Machine
from tilewright.base.types import OpenSize

OPEN_ROWS: Final = 840
"""The symbolic number of rows, or length of a sum, for which tiles are chosen; all heights divide it."""
_OPEN_COLUMNS: Final = 64 * OPEN_ROWS

_MOST_VECTORS_OF_A_ROW = 8
_AS_CHEAP: Final = 1.02
"""Cycles of a taller tile by those of the best one, up to which it is chosen for a symbolic number of rows."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of `rows` rows of the left operand by `vectors` vectors of columns of the right one, each `lanes` wide."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def register_tile(
    rows: int, columns: int, depth: int, options: KernelOptions, *, most_rows: int = 16, most_sums: int = 32,
    stride: int = 0, taps: int = 1, names: tuple[str, str] = ("tile_y", "tile_x"),
) -> Tile:
    """Return the cheapest tile for a product of `rows x depth` by `depth x columns`, by the model above. Symbolic sizes
    count as large.

    For a convolution whose taps along a row share their inputs, `taps` is their number and `stride` the distance of
    neighbouring outputs in inputs. The tile has at most `most_sums` accumulators. Columns that do not fill a vector get
    a narrower one. `names` are the decisions for rows and columns.
    """
    machine = options.machine
    rows, depth = (OPEN_ROWS if isinstance(n, OpenSize) else n for n in (rows, depth))
    columns = _OPEN_COLUMNS if isinstance(columns, OpenSize) else columns
    best = _best(rows, columns, depth, machine, most_rows, most_sums, stride, taps)[1]
    height, width = options.decide(
        names, (best.rows, best.columns),
        lambda: [(t.rows, t.columns) for t in _tiles(rows, columns, machine, most_rows, most_sums, stride, taps)],
    )
    return _tile_of(int(height), int(width), columns, machine)


def whole_tile(rows: int, columns: int, depth: int, options: KernelOptions) -> Tile:
    """Return the tile of a product, of a height that divides `rows`, with the fewest cycles of a row. A sum of symbolic
    depth is one piece."""
    machine = options.machine
    depth = machine.core.product_piece - 1 if isinstance(depth, OpenSize) else depth
    whole = [
        t for t in _tiles(rows, columns, machine, 16, 32, 0, 1)
        if rows % t.rows == 0 and t.lanes == _widths(columns, machine)[0]]
    return min(whole, key=lambda t: -(-columns // t.columns) * _tile_cycles(t.rows, t, depth, machine) / t.rows)


def conv_tile(
    rows: int, columns: int, depth: int, options: KernelOptions, stride: int, taps: int, most_rows: int = 16,
    together: bool = False
) -> tuple[Tile, bool]:
    """Return the tile of a convolution along a row, and whether its taps are unrolled to share their inputs in
    registers.

    They are not unrolled if few registers would make tiles so small that the products wait for loads. Taps that are
    `together` in one block of code always share their inputs.
    """
    machine = options.machine
    best, best_shared = _best_along(rows, columns, depth, machine, stride, taps, most_rows, together)

    def others() -> Iterator[tuple[int, int, int]]:
        for shared in (True,) if together else (False,) if taps == 1 else (False, True):
            for t in _tiles(rows, columns, machine, most_rows, 32, stride if shared else 0, taps if shared else 1):
                yield int(shared), t.rows, t.columns

    chosen, height, width = options.decide(
        ("unroll_kw", "tile_ow", "tile_oc"), (int(best_shared), best.rows, best.columns), others
    )
    return _tile_of(int(height), int(width), columns, machine), bool(chosen)


def _best_along(
    rows: int, columns: int, depth: int, machine: Machine, stride: int, taps: int, most_rows: int, together: bool
) -> tuple[Tile, bool]:
    """Return the choice of the cost model for `conv_tile`."""
    shared, tile = _best(rows, columns, depth, machine, most_rows, 32, stride, taps)
    if together:
        return tile, True
    plain, larger = _best(rows, columns, depth, machine, most_rows, 32, 0, 1)
    return (larger, False) if taps == 1 or plain * machine.core.shared_taps_gain < shared else (tile, True)


def product_cycles(rows: int, columns: int, depth: int, machine: Machine) -> float:
    """Return the cycles of a whole product with the best tile, by the cost model."""
    return _best(rows, columns, depth, machine, 16, 32, 0, 1)[0]


def cycles_in_tiles(tile: Tile, rows: int, columns: int, depth: int, machine: Machine) -> float:
    """Return the cycles of a whole product of whole tiles, by the cost model."""
    return -(-columns // tile.columns) * -(-rows // tile.rows) * _tile_cycles(tile.rows, tile, depth, machine)


@lru_cache(maxsize=4096)
def _best(
    rows: int, columns: int, depth: int, machine: Machine, most_rows: int, most_sums: int, stride: int, taps: int
) -> tuple[float, Tile]:
    """Return the cycles of the cheapest tile, and the tile.

    For a symbolic number of rows, it is the tallest of those that take about as long, since few rows waste less of it.
    """
    found = list[tuple[float, Tile]]()
    widest = _widths(columns, machine)[0]
    for tile in _tiles(rows, columns, machine, most_rows, most_sums, stride, taps):
        across, r = -(-columns // tile.columns), tile.rows
        cost = across * (rows // r) * _tile_cycles(r, tile, depth, machine)
        if rows % r:
            cost = machine.core.uneven_tile * (cost + across * _tile_cycles(rows % r, tile, depth, machine))
        if tile.lanes < widest:
            cost *= machine.core.half_vectors
        if not found or rows == OPEN_ROWS or cost < found[-1][0] * 0.999:
            found.append((cost, tile))
    if rows != OPEN_ROWS:
        return found[-1]
    limit = _AS_CHEAP * min(cost for cost, _ in found)
    return max((f for f in found if f[0] <= limit), key=lambda f: (f[1].rows, -f[0]))


def _widths(columns: int, machine: Machine) -> list[int]:
    """Return the vector widths of a tile in lanes: whole registers or the columns, and half registers if they waste
    fewer lanes. For a symbolic number of columns, they may or may not."""
    lanes = min(machine.lanes("float32"), 1 << (columns - 1).bit_length())
    half = lanes // 2
    may_halve = 32 * lanes > machine.pipe_bits > 0 and not isinstance(columns, OpenSize)
    halves = may_halve and -(-columns // half) * half < -(-columns // lanes) * lanes
    return [lanes, half] if halves else [lanes]


def _tile_of(rows: int, width: int, columns: int, machine: Machine) -> Tile:
    lanes = next(n for n in _widths(columns, machine) if width % n == 0)
    return Tile(rows, width // lanes, lanes)


def _tiles(
    rows: int, columns: int, machine: Machine, most_rows: int, most_sums: int, stride: int, taps: int
) -> Iterator[Tile]:
    """Yield all tiles whose sums fit in registers with the operands of one step, and always one vector of one row. Even
    numbers of half vectors count as whole vectors."""
    widths = _widths(columns, machine)
    for lanes, r in itertools.product(widths, range(1, max(1, min(most_rows, rows)) + 1)):
        for v in range(1, 33, 1 if lanes == widths[0] else 2):
            if (v > 1 and (v - 1) * lanes >= columns) or (r == 1 and v > _MOST_VECTORS_OF_A_ROW):
                break
            if r * v == 1 or (r * v <= most_sums and r * v + _pressure(r, v, stride, taps) < machine.vector_registers):
                yield Tile(r, v, lanes)


def _pressure(rows: int, vectors: int, stride: int, taps: int) -> int:
    """Return the registers needed in addition to the accumulators: the columns of one step, and live broadcasts."""
    if taps == 1:
        return vectors
    shared = max(0, (rows - 1) * stride + taps) if stride == 1 else rows + taps // max(1, stride)
    return vectors + min(shared, rows + taps - 1)


def _tile_cycles(rows: int, tile: Tile, depth: int, machine: Machine) -> float:
    """Return the cycles of `rows` rows of a tile. A vector that a unit takes in one piece costs its share of one that
    is split."""
    vectors = tile.vectors
    part = max(32 * tile.lanes, machine.pipe_bits) / machine.vector_bits if machine.pipe_bits else 1.0
    core, sums = machine.core, rows * vectors
    loads, vector = (rows + vectors * part) / core.loads, _vector_cycles(vectors * part, depth, machine)
    latency = core.add_latency if sums < core.add_latency * core.multiplies else 0.0
    step = max(sums * part / core.multiplies, loads, latency, vectors * part * vector)
    waits = loads if vector <= core.l1_cycles else loads + vectors * part / core.loads
    pieces = _piece_cycles(rows, vectors, machine) * (depth // core.product_piece)
    return (step + waits * core.load_share) * depth + pieces + sums * core.store_cycles + core.tile_cycles


def _piece_cycles(rows: int, vectors: int, machine: Machine) -> float:
    """Return the cycles per piece of a sum, in addition to its steps: clearing accumulators, and adding them to the
    totals."""
    sums = rows * vectors
    fits = 2 * sums + vectors < machine.vector_registers
    return sums * (machine.core.add_cycles if fits else machine.core.add_in_memory_cycles) + machine.core.piece_cycles


def _vector_cycles(vectors: float, depth: int, machine: Machine) -> float:
    """Return the cycles between two vectors of a packed panel, by the cache that holds the panel from tile to tile."""
    panel = depth * vectors * machine.vector_bits // 8
    if panel <= machine.l1_bytes // 2:
        return machine.core.l1_cycles
    return machine.core.l2_cycles if panel <= machine.l2_bytes * 3 // 4 else machine.core.l3_cycles
