"""Compiles a function of operators to a program: addresses in the far memory, tiles in the near one, commands, and
dependences between commands.

Each operator's instructions are cut into steps: transfers in, the instruction, a transfer out. The input transfers of
the next step precede the current instruction if they touch nothing that it needs, so that both queues are busy. The
last access to its part of the near memory determines the command for which a command waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backends.accelerators.declared.declaration import OUTPUT, Accelerator, Emitted, Operand
from tilewright.backends.accelerators.declared.module import AcceleratorModule, module_of
from tilewright.backends.accelerators.declared.program import Layer, Program, TensorPlacement
from tilewright.backends.accelerators.declared.stream import LOAD, STORE, Command, Compute, Move, Tile, encode
from tilewright.backends.accelerators.declared.tiling import Tiling, box_of, choose
from tilewright.base.errors import CompileError

if TYPE_CHECKING:
    from tilewright.backends.accelerators.declared.regions import Region
    from tilewright.relay.expr import Function

Array = np.ndarray[Any, Any]
_ALIGN = 64
"""Alignment in bytes of tensors in the far memory."""


def generate(accelerator: Accelerator, function: Function) -> AcceleratorModule:
    """Compile a function for `relay.ext.<name>`. Raises `CompileError` for an unsupported operator."""
    from tilewright.backends.accelerators.declared.regions import read_region

    return module_of(accelerator)(_Builder(accelerator, read_region(accelerator, function)).program())


@dataclass
class TileStep:
    """One tile: its input transfers, its instruction, and its output transfer."""

    loads: list[Move]
    compute: Compute
    store: Move
    layer: int
    near: list[tuple[int, int]] = field(default_factory=list)
    """The parts of the near memory that the instruction and the store use."""


class _Builder:
    """The program of one function."""

    def __init__(self, accelerator: Accelerator, region: Region) -> None:
        self.accelerator, self.region = accelerator, region
        self.constants = bytearray()
        self.known: dict[bytes, int] = {}
        self.placed: dict[int, int] = {}
        self.base = 0

    def program(self) -> Program:
        """Lay out constants and tensors, make the steps of all layers, and emit the commands."""
        for _, emitted in self.region.layers:
            for e in emitted:
                for o in e.operands.values():
                    if not isinstance(o, Operand):
                        self._constant(o)
        self.address, far_bytes = _far_places(self.region, _aligned(len(self.constants), _ALIGN))
        if far_bytes > self.accelerator.far.size:
            raise CompileError(
                f"the function @{self.region.symbol} takes {far_bytes:,} bytes of {self.accelerator.far.name}, which "
                f"has {self.accelerator.far.size:,}; "
                "split the network, or declare the actual size of the memory", code="TW0906")
        steps: list[TileStep] = []
        layers = []
        for number, (named, emitted) in enumerate(self.region.layers):
            near = 0
            for e in emitted:
                tiling = choose(self.accelerator, e)
                near = max(near, tiling.near)
                steps += self._steps(e, tiling, number)
            layers.append(Layer(named.name, named.operator, named.macs, near))
        commands = _Commands(self.accelerator, steps).made()
        places = (
            [TensorPlacement(self.address[t.source], t.shape, t.dtype) for t in tensors]
            for tensors in (self.region.inputs, self.region.outputs))
        inputs, outputs = map(tuple, places)
        return Program(
            self.region.symbol, inputs, outputs, tuple(layers), far_bytes, bytes(self.constants),
            b"".join(map(encode, commands)))

    def _constant(self, value: Array) -> int:
        """Return the address of a constant, which an operator keeps alive; equal constants share one address."""
        if id(value) in self.placed:
            return self.placed[id(value)]
        data = np.ascontiguousarray(value).tobytes()
        if data not in self.known:
            self.constants.extend(bytes(-len(self.constants) % _ALIGN))
            self.known[data] = len(self.constants)
            self.constants.extend(data)
        self.placed[id(value)] = self.known[data]
        return self.known[data]

    def _steps(self, e: Emitted, tiling: Tiling, layer: int) -> list[TileStep]:
        """Return the steps of one instruction. Its tiles follow those of the previous one if there is room, so that it
        can begin to load earlier."""
        if self.base + tiling.near > self.accelerator.near.size:
            self.base = 0
        slots: dict[str, list[int]] = {}
        at = self.base
        for name in tiling.bytes:
            slots[name] = [at + k * tiling.bytes[name] for k in range(tiling.places[name])]
            at += tiling.places[name] * tiling.bytes[name]
        self.base = at
        held: dict[str, Any] = {}
        turn = dict.fromkeys(slots, -1)
        steps = []
        for ranges in tiling.steps(e.extents):
            loads, tiles = [], {}
            for name in e.instruction.accesses:
                box = box_of(e, name, ranges)
                fresh = name == OUTPUT or held.get(name) != box
                turn[name] += fresh
                near = slots[name][turn[name] % len(slots[name])]
                operand: Any = e.operands[name]
                tiles[name] = Tile(near, tuple(lead + n + trail for _, n, lead, trail in box), str(operand.dtype))
                if fresh and name != OUTPUT:
                    held[name] = box
                    loads.append(self._move(LOAD, operand, box, near))
            store = self._move(STORE, e.operands[OUTPUT], box_of(e, OUTPUT, ranges), tiles[OUTPUT].address)
            step = TileStep(loads, Compute(e.instruction, tiles, e.fields), store, layer)
            step.near = [(t.address, t.address + t.size) for t in tiles.values()]
            steps.append(step)
        return steps

    def _move(self, opcode: int, operand: Any, box: Sequence[tuple[int, int, int, int]], near: int) -> Move:
        item = np.dtype(str(operand.dtype)).itemsize
        whole = operand.whole if isinstance(operand, Operand) else operand.shape
        begin = operand.begin if isinstance(operand, Operand) else (0,) * operand.ndim
        far = self.address[operand.source] if isinstance(operand, Operand) else self._constant(operand)
        strides = [item * math.prod(whole[k + 1 :]) for k in range(len(whole))]
        far += sum((b + first) * s for b, (first, *_), s in zip(begin, box, strides, strict=True))
        fill = np.asarray(operand.fill if isinstance(operand, Operand) else 0, str(operand.dtype)).tobytes()
        shape, before, after = (tuple(side[k] for side in box) for k in (1, 2, 3))
        return Move(
            opcode, item, near, far, int.from_bytes(fill[:4].ljust(4, b"\0"), "little", signed=True), shape,
            tuple(strides), before, after)


def _aligned(size: int, align: int) -> int:
    return -(-size // align) * align


def _far_places(region: Region, begin: int) -> tuple[dict[Any, int], int]:
    """Return an address for each tensor, after the constants, and the end of the last one; memory of dead tensors is
    reused."""
    last: dict[Any, int] = {}
    sizes: dict[Any, int] = {}
    for k, (_, emitted) in enumerate(region.layers):
        for e in emitted:
            for o in e.operands.values():
                if isinstance(o, Operand):
                    last[o.source] = k
                    sizes[o.source] = _aligned(math.prod(o.whole) * np.dtype(o.dtype).itemsize, _ALIGN)
    for t in (*region.inputs, *region.outputs):
        last[t.source] = len(region.layers)
        sizes[t.source] = _aligned(math.prod(t.whole) * np.dtype(t.dtype).itemsize, _ALIGN)
    address: dict[Any, int] = {}
    live: list[tuple[int, int, int]] = []
    top = begin
    first: dict[Any, int] = dict.fromkeys([t.source for t in region.inputs], 0)
    for k, (_, emitted) in enumerate(region.layers):
        for e in emitted:
            for o in e.operands.values():
                if isinstance(o, Operand):
                    first.setdefault(o.source, k)
    for t in region.outputs:
        first.setdefault(t.source, len(region.layers))
    for source, k in sorted(first.items(), key=lambda item: item[1]):
        live = sorted(x for x in live if x[2] >= k)
        at = begin
        for a, b, _ in live:
            if at + sizes[source] <= a:
                break
            at = max(at, b)
        address[source] = at
        live.append((at, at + sizes[source], last[source]))
        top = max(top, at + sizes[source])
    return address, top


class _Commands:
    """Converts steps to commands in order, with their dependences."""

    def __init__(self, accelerator: Accelerator, steps: Sequence[TileStep]) -> None:
        self.steps, self.grain = steps, accelerator.near.align
        granules = accelerator.near.size // self.grain
        self.touched = np.zeros((2, granules), np.int64)
        """By queue, the number of its commands up to the last one that touched each granule."""
        self.issued = [0, 0]
        self.commands: list[Command] = []

    def made(self) -> list[Command]:
        early: list[Move] = []
        for k, step in enumerate(self.steps):
            for move in step.loads:
                if move not in early:
                    self._issue(move, step.layer)
            following = self.steps[k + 1] if k + 1 < len(self.steps) else None
            early = [m for m in following.loads if _independent(m, step)] if following else []
            for move in early:
                assert following is not None
                self._issue(move, following.layer)
            self._issue(step.compute, step.layer)
            self._issue(step.store, step.layer)
        return self.commands

    def _issue(self, what: Move | Compute, layer: int) -> None:
        queue = 0 if isinstance(what, Move) else 1
        ranges = (
            [(what.near, what.size)] if isinstance(what, Move) else [(t.address, t.size) for t in what.tiles.values()]
        )
        parts = [slice(a // self.grain, -(-(a + n) // self.grain)) for a, n in ranges if n]
        wait = max((int(self.touched[1 - queue, p].max()) for p in parts), default=0)
        self.issued[queue] += 1
        for p in parts:
            self.touched[queue, p] = self.issued[queue]
        self.commands.append(Command(what, layer, wait))


def _independent(load: Move, step: TileStep) -> bool:
    """Whether an input transfer may be moved before a preceding step."""
    if any(load.near < end and begin < load.near + load.size for begin, end in step.near):
        return False
    begin, end = step.store.span()
    first, last = load.span()
    return last <= begin or end <= first
