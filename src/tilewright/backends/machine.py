"""The processor as strategies and schedules see it, without targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.base.types import DataType


@dataclass(frozen=True, slots=True)
class Core:
    """The numbers of one core by which schedules are chosen.

    A vector is as wide as a register. A cycle is the time in which a unit starts whole vectors: one of the clock, or
    two where units are half as wide as registers (`Machine.pipe_bits`).

    The defaults describe a core that multiplies two vectors a cycle. `backends/cpu/machine.py` has the rows of known
    microarchitectures and the source of each number; `benchmarks/peak.py` fits a row to an unknown one.
    """

    clock_ghz: float = 4.0
    """Cycles of one nanosecond."""
    multiplies: float = 2.0
    """Fused multiply-adds of vectors that are started in one cycle."""
    loads: float = 2.0
    """Vectors, or broadcast scalars, that are loaded from the first-level cache in one cycle."""
    store_cycles: float = 1.0
    """Cycles to store one vector."""
    add_latency: float = 4.0
    """Cycles from a multiply-add to the next one that needs its result."""

    l3_bytes: int = 16 << 20
    """The part of the third-level cache that a program may count on."""
    line_bytes: int = 64
    set_stride: int = 4096
    """Distance in bytes of addresses that compete for the same lines of the first-level cache."""
    l1_cycles: float = 0.5
    """Cycles between two vectors of a run that is in the first-level cache; `l2_cycles` and `l3_cycles` for the levels
    behind it.
    """
    l2_cycles: float = 2.05
    l3_cycles: float = 3.5
    l2_bytes_per_ns: float = 64.0
    """Bytes that one core reads from its second-level cache in one nanosecond."""
    memory_byte_cycles: float = 0.1
    """Cycles for one byte of weights from memory; `l3_byte_cycles` from the third-level cache."""
    l3_byte_cycles: float = 0.01
    spilled_byte_cycles: float = 0.1
    """Cycles for one byte of an image that leaves the second-level cache; `streamed_byte_cycles` for the longer runs of
    a volume.
    """
    streamed_byte_cycles: float = 0.05
    crowding: float = 2.0
    """Lines wanted in one place of the first-level cache over the lines that it holds, above which another order of
    loops is taken in any case.
    """

    tile_cycles: float = 12.0
    """Cycles to begin and end a register tile."""
    load_share: float = 0.08
    """Share of the loads of a tile that multiply-adds do not hide."""
    uneven_tile: float = 1.03
    """Time of a product with a smaller last tile, relative to the sum of its tiles."""
    half_vectors: float = 1.04
    """Time of a product with half-wide vectors, relative to its arithmetic."""
    shared_taps_gain: float = 1.06
    """Gain from which taps of a convolution that share inputs in registers are preferred to larger tiles."""
    accumulator_share: float = 0.75
    """Share of the vector registers that hold the accumulators of a window."""
    chunk_steps: int = 768
    """Steps of a product of which one panel stays in the second-level cache."""

    product_piece: int = 48
    """Steps of a product that are summed up apart before they are added to the total, which rounds less."""
    sum_piece: int = 256
    """Elements of a reduction that are summed up apart."""
    piece_cycles: float = 4.0
    """Cycles of a piece of a product beside its steps, and for each accumulator `add_cycles`, or `add_in_memory_cycles`
    without registers for both.
    """
    add_cycles: float = 0.5
    add_in_memory_cycles: float = 3.0

    winograd_gain: float = 0.85
    """Share of the direct time at which Winograd's algorithm is taken; `larger_tile_gain` for tiles of 4x4 instead of
    2x2, which round more.
    """
    larger_tile_gain: float = 0.85

    thread_ns: float = 5_000.0
    """Nanoseconds of work from which a second thread gains more than it costs."""
    pieces: int = 32
    """Pieces into which shared loops are cut, at most; `tile_pieces` for loops over register tiles."""
    tile_pieces: int = 64
    uneven_share: float = 1.25
    """Time with uneven shares of threads over that with even ones, from which rows are shared out in bands."""

    def weight_cycles(self, nbytes: int) -> float:
        """Return the cycles for one byte of weights that are read again, by the level that holds all `nbytes`."""
        return self.l3_byte_cycles if nbytes <= self.l3_bytes else self.memory_byte_cycles


GENERIC: Final = Core()


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor as schedules see it: sizes in bits and bytes."""

    vector_bits: int = 128
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    """First-level data cache of one core; `l2_bytes` is its second-level cache."""
    l2_bytes: int = 512 << 10
    cores: int = 1
    scalar: bool = False
    """Whether loops stay over scalars, of which a compiler behind the back end makes vectors; no dot-product
    instructions are used.
    """
    pipe_bits: int = 0
    """Bits of a vector that one unit multiplies at once, where vectors are wider and pass in pieces; else 0."""
    backend: str = "llvm"
    """The name of the back end whose strategies and loop passes make kernels for the machine."""
    core: Core = GENERIC

    def lanes(self, dtype: str | DataType = "float32") -> int:
        """Return the number of values of a type in one vector register."""
        return max(1, self.vector_bits // max(8, DataType(dtype).bits))

    @property
    def flops_per_ns(self) -> float:
        """Floating-point operations of float32 in one nanosecond, at most."""
        return 2 * self.core.multiplies * self.core.clock_ghz * self.lanes("float32")

    @property
    def window_outputs(self) -> int:
        """Neighboring outputs of a window that are computed together: they hide the latency of the adds and leave
        registers for inputs.
        """
        return 4 if self.vector_registers < 32 else 7


GENERIC_MACHINE: Final = Machine()
