"""The processor model for strategies and schedules, independent of targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.base.types import DataType


@dataclass(frozen=True, slots=True)
class Core:
    """Parameters of one core, from which schedules are chosen.

    A vector fills a register. A cycle is the time in which a unit starts a whole vector: one clock cycle, or two if
    units are half as wide as registers (`Machine.pipe_bits`).

    The defaults describe a core that multiplies two vectors per cycle. `backends/cpu/machine.py` has the parameters of
    known microarchitectures and the source of each number; `benchmarks/peak.py` measures those of an unknown one.
    """

    clock_ghz: float = 4.0
    """Cycles per nanosecond."""
    multiplies: float = 2.0
    """Fused multiply-adds of vectors started per cycle."""
    loads: float = 2.0
    """Vectors, or broadcast scalars, loaded from the first-level cache per cycle."""
    store_cycles: float = 1.0
    """Cycles to store one vector."""
    add_latency: float = 4.0
    """Latency in cycles of a multiply-add."""

    l3_bytes: int = 16 << 20
    """Usable size of the third-level cache in bytes."""
    line_bytes: int = 64
    set_stride: int = 4096
    """Distance in bytes of addresses that map to the same set of the first-level cache."""
    l1_cycles: float = 0.5
    """Cycles per vector of a contiguous run in the first-level cache; `l2_cycles` and `l3_cycles` for the other levels.
    """
    l2_cycles: float = 2.05
    l3_cycles: float = 3.5
    l2_bytes_per_ns: float = 64.0
    """Bytes that one core reads from its second-level cache per nanosecond."""
    memory_byte_cycles: float = 0.1
    """Cycles per byte of weights from memory; `l3_byte_cycles` from the third-level cache."""
    l3_byte_cycles: float = 0.01
    spilled_byte_cycles: float = 0.1
    """Cycles per byte of an image evicted from the second-level cache; `streamed_byte_cycles` for the longer runs of a
    volume."""
    streamed_byte_cycles: float = 0.05
    crowding: float = 2.0
    """Ratio of the lines needed in one cache set to its associativity above which another loop order is always chosen.
    """

    tile_cycles: float = 12.0
    """Cycles to begin and end a register tile."""
    load_share: float = 0.08
    """Fraction of a tile's loads not hidden by multiply-adds."""
    uneven_tile: float = 1.03
    """Time of a product with a smaller last tile, relative to the sum of its tiles."""
    half_vectors: float = 1.04
    """Time of a product with half-wide vectors, relative to its arithmetic."""
    shared_taps_gain: float = 1.06
    """Minimum gain for which convolution taps that share inputs in registers are preferred to larger tiles."""
    accumulator_share: float = 0.75
    """Fraction of the vector registers used for the accumulators of a window."""
    chunk_steps: int = 768
    """Reduction steps of a product for which one panel stays in the second-level cache."""

    product_piece: int = 48
    """Reduction steps of a product per partial sum, which reduces rounding errors."""
    loop_products: int = 12
    """Vector products in an iteration of a loop, from which on the instructions of the loop itself take no time."""
    sum_piece: int = 256
    """Elements of a reduction per partial sum."""
    piece_cycles: float = 4.0
    """Overhead in cycles per partial sum of a product, plus `add_cycles` per accumulator, or `add_in_memory_cycles` if
    the registers do not hold both."""
    add_cycles: float = 0.5
    add_in_memory_cycles: float = 3.0

    winograd_gain: float = 0.85
    """Fraction of the direct time below which Winograd's algorithm is chosen; `larger_tile_gain` for tiles of 4x4
    instead of 2x2, which round more."""
    larger_tile_gain: float = 0.85

    thread_ns: float = 5_000.0
    """Nanoseconds of work from which a second thread pays."""
    pieces: int = 32
    """Maximum number of pieces of a parallel loop; `tile_pieces` for loops over register tiles."""
    tile_pieces: int = 64
    uneven_share: float = 1.25
    """Ratio of the time with uneven thread shares to that with even ones from which rows are distributed in bands."""

    def weight_cycles(self, nbytes: int) -> float:
        """Return the cycles per byte of weights that are read repeatedly, depending on the level that holds all
        `nbytes`."""
        return self.l3_byte_cycles if nbytes <= self.l3_bytes else self.memory_byte_cycles


GENERIC: Final = Core()


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor as schedules see it: sizes in bits and bytes."""

    vector_bits: int = 128
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    """Size of one core's first-level data cache; `l2_bytes` is that of its second-level cache."""
    l2_bytes: int = 512 << 10
    cores: int = 1
    scalar: bool = False
    """Whether loops stay over scalars, which the compiler of the back end vectorizes; dot-product instructions are not
    used."""
    pipe_bits: int = 0
    """Bits of a vector that one unit multiplies at once if that is less than a register; else 0."""
    backend: str = "llvm"
    """The name of the back end whose strategies and passes make kernels for the machine."""
    core: Core = GENERIC

    def lanes(self, dtype: str | DataType = "float32") -> int:
        """Return the number of values of a type in one vector register."""
        return max(1, self.vector_bits // max(8, DataType(dtype).bits))

    @property
    def flops_per_ns(self) -> float:
        """Peak float32 operations per nanosecond."""
        return 2 * self.core.multiplies * self.core.clock_ghz * self.lanes("float32")

    @property
    def window_outputs(self) -> int:
        """Number of neighbouring window outputs computed together: enough to hide the latency of additions, with
        registers left for inputs."""
        return 4 if self.vector_registers < 32 else 7


GENERIC_MACHINE: Final = Machine()
