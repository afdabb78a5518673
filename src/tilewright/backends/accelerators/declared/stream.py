"""Command streams of accelerator programs, as bytes and as text.

    command   u8 opcode · u8 0 · u16 layer · u32 wait         begins when `wait` commands of the other queue have ended
    0x01 LOAD, 0x02 STORE
              u8 dimensions · u8 bytes of an element · u16 0 · u32 near address · u32 far address
              · i32 fill (its lowest bytes, as many as an element has)
              of each dimension: u16 elements · u16 before · u16 after · u16 0 · i32 far stride in bytes
    others    of each operand: u8 dtype · u8 dimensions · u16 0 · u32 near address · of each dimension u16 elements
              then the fields, each in its bits, the first in the lowest, to whole bytes

All numbers are little-endian. LOAD and STORE are one queue, all others the other; each queue runs in order. LOAD moves
elements from the far memory to the near one with `before` and `after` filled elements around each dimension; STORE
moves them back without padding.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tilewright.backends.accelerators.declared.access import extents
from tilewright.backends.accelerators.declared.declaration import OUTPUT, Accelerator, Instruction
from tilewright.backends.accelerators.declared.program import DTYPES
from tilewright.base.errors import ArtifactError, InternalError

LOAD, STORE = 0x01, 0x02
_ITEM: Final = {name: np.dtype(name).itemsize for name in DTYPES}
_HEAD: Final = struct.Struct("<BxHI")
_MOVE: Final = struct.Struct("<BBxxIIi")
_SIDE: Final = struct.Struct("<HHHxxi")
_TILE: Final = struct.Struct("<BBxxI")


@dataclass(frozen=True)
class Move:
    """A transfer between the memories: `shape` elements, with `strides` in bytes in the far memory, and `before` and
    `after` filled elements around them in the near memory."""

    opcode: int
    itemsize: int
    near: int
    far: int
    fill: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def tile(self) -> tuple[int, ...]:
        """The shape in the near memory."""
        return tuple(a + n + b for a, n, b in zip(self.before, self.shape, self.after, strict=True))

    @property
    def size(self) -> int:
        """Bytes in the near memory."""
        return math.prod(self.tile) * self.itemsize

    @property
    def moved(self) -> int:
        """Bytes moved between the memories."""
        return math.prod(self.shape) * self.itemsize

    def span(self) -> tuple[int, int]:
        """Return the first byte in the far memory and the end; an empty range if no element moves."""
        if not all(self.shape):
            return self.far, self.far
        reach = [s * (n - 1) for s, n in zip(self.strides, self.shape, strict=True)]
        return self.far + sum(min(r, 0) for r in reach), self.far + sum(max(r, 0) for r in reach) + self.itemsize

    def text(self) -> str:
        around = (
            f" around {list(self.before)}, {list(self.after)} of {self.fill}" if any(self.before) or any(self.after)
            else ""
        )
        arrow = "<-" if self.opcode == LOAD else "->"
        name = "LOAD" if self.opcode == LOAD else "STORE"
        return (
            f"{name:8s} near[{self.near:#x}] {arrow} far[{self.far:#x}] {list(self.shape)} by "
            f"{list(self.strides)}{around}"
        )


@dataclass(frozen=True)
class Tile:
    """An operand in the near memory."""

    address: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape) * _ITEM[self.dtype]


@dataclass(frozen=True)
class Compute:
    """An instruction of the accelerator on tiles."""

    instruction: Instruction
    tiles: Mapping[str, Tile]
    fields: Mapping[str, int]

    @property
    def cycles(self) -> int:
        found, wrong = extents(self.instruction.accesses, {n: t.shape for n, t in self.tiles.items()}, self.fields)
        if wrong:
            raise ArtifactError(f"the command {self.text()} contradicts itself: {wrong}", code="TW0918")
        return self.instruction.cycles(found, self.fields)

    def text(self) -> str:
        tiles = " ".join(f"{n}=near[{t.address:#x}]{list(t.shape)}" for n, t in self.tiles.items() if n != OUTPUT)
        fields = "".join(f" {n}={v}" for n, v in self.fields.items())
        y = self.tiles[OUTPUT]
        return f"{self.instruction.name:8s} near[{y.address:#x}]{list(y.shape)} <- {tiles}{fields}"


@dataclass(frozen=True)
class Command:
    """A transfer or an instruction, its layer, and the number of commands of the other queue that must end before it.
    """

    what: Move | Compute
    layer: int
    wait: int

    def text(self) -> str:
        return f"{self.what.text()}  ; layer {self.layer}" + (f", after {self.wait}" if self.wait else "")


def encode(command: Command) -> bytes:
    """Return the bytes of a command. Raises `InternalError` for numbers that do not fit."""
    what = command.what
    opcode = what.opcode if isinstance(what, Move) else what.instruction.opcode
    try:
        head = _HEAD.pack(opcode, command.layer, command.wait)
        return head + (_move(what) if isinstance(what, Move) else _compute(what))
    except struct.error as error:
        raise InternalError(f"a command cannot encode its values: {command.text()}: {error}") from error


def _move(m: Move) -> bytes:
    sides = (
        _SIDE.pack(n, before, after, s)
        for n, s, before, after in zip(m.shape, m.strides, m.before, m.after, strict=True))
    return _MOVE.pack(len(m.shape), m.itemsize, m.near, m.far, m.fill) + b"".join(sides)


def _compute(c: Compute) -> bytes:
    parts = [
        _TILE.pack(DTYPES.index(t.dtype), len(t.shape), t.address) + struct.pack(f"<{len(t.shape)}H", *t.shape)
        for t in c.tiles.values()]
    bits, at = 0, 0
    for name, width in c.instruction.fields.items():
        low, high = c.instruction.limits(name)
        if not low <= c.fields[name] <= high:
            raise InternalError(f"{c.instruction.name} has no room for {name}={c.fields[name]}")
        bits |= (c.fields[name] & ((1 << abs(width)) - 1)) << at
        at += abs(width)
    return b"".join(parts) + bits.to_bytes((at + 7) // 8, "little")


def decode(stream: bytes, accelerator: Accelerator) -> Iterator[Command]:
    """Decode the commands of a stream. Raises `ArtifactError` for an invalid stream."""
    known = {i.opcode: i for i in accelerator.instructions.values()}
    at = 0
    while at < len(stream):
        try:
            opcode, layer, wait = _HEAD.unpack_from(stream, at)
            begin = at + _HEAD.size
            if opcode in (LOAD, STORE):
                what, at = _read_move(opcode, stream, begin)
            elif opcode in known:
                what, at = _read_compute(known[opcode], stream, begin)
            else:
                raise ArtifactError(
                    f"the command stream has the opcode {opcode:#x} at byte {at}, which {accelerator.name} does not "
                    "have",
                    code="TW0918")
        except (struct.error, IndexError) as error:
            raise ArtifactError(
                f"the command stream for {accelerator.name} ends in the middle of a command, at byte {at}",
                code="TW0918"
            ) from error
        yield Command(what, layer, wait)


def _read_move(opcode: int, stream: bytes, at: int) -> tuple[Move | Compute, int]:
    rank, itemsize, near, far, fill = _MOVE.unpack_from(stream, at)
    at += _MOVE.size
    sides = [_SIDE.unpack_from(stream, at + k * _SIDE.size) for k in range(rank)]
    shape, before, after, strides = zip(*sides, strict=True) if sides else ((), (), (), ())
    return Move(opcode, itemsize, near, far, fill, shape, strides, before, after), at + rank * _SIDE.size


def _read_compute(instruction: Instruction, stream: bytes, at: int) -> tuple[Move | Compute, int]:
    tiles = {}
    for name in instruction.accesses:
        dtype, rank, address = _TILE.unpack_from(stream, at)
        at += _TILE.size
        tiles[name] = Tile(address, struct.unpack_from(f"<{rank}H", stream, at), DTYPES[dtype])
        at += 2 * rank
    size = (sum(map(abs, instruction.fields.values())) + 7) // 8
    if at + size > len(stream):
        raise IndexError(at)
    bits = int.from_bytes(stream[at : at + size], "little")
    fields = {}
    for name, width in instruction.fields.items():
        value = bits & ((1 << abs(width)) - 1)
        bits >>= abs(width)
        fields[name] = value - (1 << -width) if width < 0 and value >> (-width - 1) else value
    return Compute(instruction, tiles, fields), at + size
