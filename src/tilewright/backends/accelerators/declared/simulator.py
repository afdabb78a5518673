"""The simulator of an accelerator: runs a command stream bit-exactly, and counts its cycles.

Transfers and instructions are two concurrent in-order queues. A command begins when its queue is free and as many
commands of the other queue have ended as it specifies. Faults that hardware would not report are errors: accesses
outside a memory, reads of unwritten memory, conflicting accesses of both queues, and results of a wrong shape or dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.accelerators.declared.declaration import OUTPUT, Accelerator
from tilewright.backends.accelerators.declared.program import Program, TensorPlacement
from tilewright.backends.accelerators.declared.report import Cycles, LayerCycles
from tilewright.backends.accelerators.declared.stream import LOAD, STORE, Command, Compute, Move, Tile, decode
from tilewright.base.errors import RunError

Array = np.ndarray[Any, Any]
_JUNK: Final = 0xA5
"""Initial value of the bytes of a memory."""


class SimulatorError(RunError):
    """A program accesses memory outside its bounds, too early, or before it is written."""

    code = "TW0907"


class Simulator:
    """A program, ready to run."""

    def __init__(self, accelerator: Accelerator, program: Program) -> None:
        self.accelerator, self.program = accelerator, program
        self.commands: list[Command] = list(decode(program.commands, accelerator))
        self._cycles: Cycles | None = None

    def run(self, *inputs: Array) -> list[Array]:
        """Return the outputs for these inputs. Raises `SimulatorError` for an invalid command."""
        far = np.full(max(self.program.far_bytes, 1), _JUNK, np.uint8)
        near = np.full(self.accelerator.near.size, _JUNK, np.uint8)
        far[: len(self.program.constants)] = np.frombuffer(self.program.constants, np.uint8)
        for place, value in zip(self.program.inputs, inputs, strict=True):
            _at(far, place)[...] = value
        self.cycles()
        for command in self.commands:
            if isinstance(command.what, Move):
                _transfer(command.what, far, near)
            else:
                _compute(command, near)
        return [_at(far, place).copy() for place in self.program.outputs]

    def cycles(self) -> Cycles:
        """Return the cycles of each layer, which do not depend on values. Raises `SimulatorError` for an invalid
        command."""
        if self._cycles is None:
            self._cycles = _Clock(self).run()
        return self._cycles

    def text(self) -> str:
        """Return the commands as text, one per line."""
        return "\n".join(c.text() for c in self.commands)


def _at(memory: Array, place: TensorPlacement | Tile) -> Array:
    """Return a tensor in a memory as a view."""
    kind = np.dtype(place.dtype)
    size = int(np.prod(place.shape, dtype=np.int64)) * kind.itemsize
    if not 0 <= place.address <= memory.size - size:
        raise SimulatorError(f"{place} lies outside of a memory of {memory.size} bytes")
    view: Array = memory[place.address : place.address + size].view(kind).reshape(place.shape)
    return view


def _transfer(m: Move, far: Array, near: Array) -> None:
    kind = np.dtype(f"u{m.itemsize}")
    outside = np.ndarray(m.shape, kind, far.data, m.far, m.strides)
    inside: Array = near[m.near : m.near + m.size].view(kind).reshape(m.tile)
    box = tuple(slice(b, b + n) for b, n in zip(m.before, m.shape, strict=True))
    if m.opcode == STORE:
        outside[...] = inside[box]
        return
    if any(m.before) or any(m.after):
        inside[...] = np.asarray(m.fill, np.int32).astype(np.uint32).astype(kind)
    inside[box] = outside


def _compute(command: Command, near: Array) -> None:
    c = command.what
    assert isinstance(c, Compute)
    y = c.tiles[OUTPUT]
    found = c.instruction.meaning(*(_at(near, c.tiles[n]) for n in c.instruction.inputs), **c.fields)
    if found.shape != y.shape or found.dtype != np.dtype(y.dtype):
        raise SimulatorError(
            f"{c.instruction.name} gave {found.dtype}{list(found.shape)}, and its command says "
            f"{y.dtype}{list(y.shape)}: its meaning and its operands do not fit: {command.text()}")
    _at(near, y)[...] = found


class _Clock:
    """Computes begin and end of each command, and the time until which each granule of near memory is in use."""

    def __init__(self, simulator: Simulator) -> None:
        self.accelerator, self.commands, self.far_bytes = (
            simulator.accelerator, simulator.commands, simulator.program.far_bytes
        )
        program = simulator.program
        self.report = Cycles(program.symbol, self.accelerator.near.size, self.accelerator.macs_per_cycle)
        self.report.layers = [LayerCycles(x.name, x.operator, x.macs, x.near) for x in program.layers]
        self.grain = self.accelerator.near.align
        granules = self.accelerator.near.size // self.grain
        self.written = np.full((2, granules), -1, np.int64)
        """By queue, the end of the last write to each granule; -1: none."""
        self.read = np.zeros((2, granules), np.int64)
        self.ends: tuple[list[int], list[int]] = ([], [])

    def run(self) -> Cycles:
        frontier = 0
        for command in self.commands:
            queue = 0 if isinstance(command.what, Move) else 1
            begin, end = self._times(command, queue)
            for address, size, writes in _touched(command.what):
                self._touch(command, queue, address, size, writes, begin, end)
            self.ends[queue].append(end)
            layer = self.report.layers[command.layer]
            layer.commands += 1
            layer.cycles += max(end - frontier, 0)
            frontier = max(frontier, end)
            self._count(layer, command.what, end - begin)
        return self.report

    def _times(self, command: Command, queue: int) -> tuple[int, int]:
        if command.layer >= len(self.report.layers):
            raise SimulatorError(
                f"this command is of layer {command.layer}, and the program has {len(self.report.layers)}: "
                f"{command.text()}")
        other = self.ends[1 - queue]
        if command.wait > len(other):
            raise SimulatorError(
                f"this command waits for {command.wait} commands of the other queue, of which {len(other)} stand "
                f"before it, so it never begins: {command.text()}")
        begin = max(self.ends[queue][-1] if self.ends[queue] else 0, other[command.wait - 1] if command.wait else 0)
        what = command.what
        took = self.accelerator.transfer_cycles(what.moved) if isinstance(what, Move) else what.cycles
        if took <= 0:
            raise SimulatorError(f"this command takes {took} cycles, and each takes one or more: {command.text()}")
        return begin, begin + took

    def _touch(self, command: Command, queue: int, address: int, size: int, writes: bool, begin: int, end: int) -> None:
        if not 0 <= address <= self.accelerator.near.size - size:
            raise SimulatorError(
                f"this command reaches byte {address + size} of {self.accelerator.near.name}, which has "
                f"{self.accelerator.near.size}: {command.text()}")
        if address % self.grain:
            raise SimulatorError(
                f"this command uses byte {address} of {self.accelerator.near.name}, but addresses must be multiples of "
                f"{self.grain}: {command.text()}")
        part = slice(address // self.grain, -(-(address + size) // self.grain))
        if part.start >= part.stop:
            return
        other = 1 - queue
        busy = max(int(self.written[other, part].max()), int(self.read[other, part].max()) if writes else 0)
        if busy > begin:
            raise SimulatorError(
                f"this command begins at cycle {begin}, and the other queue works on its memory until cycle {busy}: "
                f"{command.text()}")
        if writes:
            self.written[queue, part] = end
            return
        if int(self.written[:, part].max(0).min()) < 0:
            raise SimulatorError(f"this command reads memory that nothing wrote: {command.text()}")
        self.read[queue, part] = end

    def _count(self, layer: LayerCycles, what: Move | Compute, took: int) -> None:
        if isinstance(what, Compute):
            layer.compute += took
        else:
            begin, end = what.span()
            if not 0 <= begin <= end <= self.far_bytes:
                raise SimulatorError(
                    f"this command reaches bytes {begin} to {end} of {self.accelerator.far.name}, "
                    f"where the program has {self.far_bytes}: {what.text()}")
            layer.transfer += took
            if what.opcode == LOAD:
                layer.bytes_in += what.moved
            else:
                layer.bytes_out += what.moved
        self.report.near_peak = max(self.report.near_peak, *(address + size for address, size, _ in _touched(what)))


def _touched(what: Move | Compute) -> Iterator[tuple[int, int, bool]]:
    """Yield (address, bytes, whether it writes) for the near-memory accesses of a command, writes last."""
    if isinstance(what, Move):
        yield what.near, what.size, what.opcode == LOAD
        return
    for name, tile in what.tiles.items():
        if name != OUTPUT:
            yield tile.address, tile.size, False
    yield what.tiles[OUTPUT].address, what.tiles[OUTPUT].size, True


def check_inputs(program: Program, inputs: Sequence[Array]) -> None:
    """Raise `RunError` if the arrays do not match the inputs of the program."""
    for place, value in zip(program.inputs, inputs, strict=True):
        if tuple(value.shape) != place.shape or str(value.dtype) != place.dtype:
            raise RunError(
                f"{program.symbol} takes {place.dtype}{list(place.shape)}, and was given "
                f"{value.dtype}{list(value.shape)}",
                code="TW0913")
