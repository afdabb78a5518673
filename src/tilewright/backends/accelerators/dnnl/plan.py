"""A oneDNN program as primitives, made once per number of threads, with reordered weights and one workspace.

Between primitives, values have formats that the primitives choose (`any`), so blocked layouts persist inside a
subgraph. A value is reordered only if its reader needs another format, and at the borders, where tensors are row-major.
Memory of dead values is reused, and residuals are summed in place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.backends.accelerators.dnnl import library as dnnl
from tilewright.backends.accelerators.dnnl.library import Argument, Library, Objects
from tilewright.backends.accelerators.dnnl.program import CONSTANT, INPUT, Operation, Program
from tilewright.base.memory_placement import place_pieces
from tilewright.base.nd import aligned_empty

Array = np.ndarray[Any, Any]
OUTPUT, PIECE = "output", "piece"


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory: an input or output by number, a constant, or a piece of the workspace live from step `birth` to `death`.
    """

    kind: str
    index: int = 0
    array: Array | None = None
    nbytes: int = 0
    birth: int = 0
    death: int = 0


@dataclass(slots=True)
class Read:
    """An argument of a primitive: its role, its format, and its buffer."""

    arg: int
    desc: int
    buffer: Buffer


@dataclass(slots=True)
class PrimitiveStep:
    primitive: int
    reads: list[Read]


class Plan:
    """The steps of a program for a number of threads. `frame()` returns the state of one running call."""

    def __init__(self, library: Library, program: Program, threads: int) -> None:
        from tilewright.backends.accelerators.dnnl.primitives import BUILD

        self.library, self.program, self.threads = library, program, threads
        self.objects = Objects(library)
        self.steps: list[PrimitiveStep] = []
        self._stored: dict[int, tuple[int, Buffer]] = {}
        self._formats: dict[int, list[tuple[int, Buffer]]] = {}
        self._pieces: list[Buffer] = []
        library.use_threads(threads)
        self._roots, self._last = _lives(program)
        inputs = 0
        for k, v in enumerate(program.values):
            if v.kind == INPUT:
                self._stored[k] = self.objects.plain(v.shape), Buffer(INPUT, inputs)
                inputs += 1
            elif v.kind == CONSTANT:
                self._stored[k] = self.objects.plain(v.shape), Buffer(CONSTANT, array=v.data)
        for self._now, operation in enumerate(program.operations):
            BUILD[operation.kind](self, operation)
        self._give_results()
        self.offsets, self.workspace_bytes = place_pieces(self._pieces)
        self._formats.clear()

    # Values in the formats of primitives

    def shape(self, value: int) -> tuple[int, ...]:
        return self.program.values[value].shape

    def seen(self, value: int, order: Sequence[int] | None = None) -> int:
        """Return the format of a value, its axis k at `order[k]`."""
        desc = self._stored[value][0]
        return desc if order is None else self.objects.permuted(desc, order)

    def read(self, arg: int, value: int, source: int, wanted: int) -> Read:
        """Return an argument in the format `wanted` for a value with memory in the format `source`, which may
        differ."""
        if self.library.same(source, wanted):
            return Read(arg, wanted, self._stored[value][1])
        known = self._formats.setdefault(value, [])
        for desc, buffer in known:
            if self.library.same(desc, wanted):
                return Read(arg, wanted, buffer)
        buffer = (
            self._packed(self._stored[value][1], source, wanted) if self._stored[value][1].kind == CONSTANT
            else self._reordered(value, source, wanted)
        )
        known.append((wanted, buffer))
        return Read(arg, wanted, buffer)

    def rows(self, value: int) -> Read:
        """Return a value in row-major memory as an argument."""
        return self.read(dnnl.ARG_SRC, value, self.seen(value), self.objects.plain(self.shape(value)))

    def put(self, value: int, desc: int, buffer: Buffer, order: Sequence[int] | None = None) -> None:
        """Record the buffer of a value; `desc` has the axes of the primitive, in which axis k of the value is
        `order[k]`."""
        self._stored[value] = self._back(desc, order), buffer

    def _back(self, desc: int, order: Sequence[int] | None) -> int:
        """Convert a descriptor from the axes of a primitive to those of the graph."""
        return desc if order is None else self.objects.permuted(desc, [list(order).index(k) for k in range(len(order))])

    def view(self, value: int, of: int, desc: int) -> None:
        """Record that a value shares the memory of another one under a different descriptor."""
        self._stored[value] = desc, self._stored[of][1]

    def buffer_of(self, value: int) -> Buffer:
        return self._stored[value][1]

    # Steps

    def emit(self, primitive_desc: int, reads: list[Read], written: Read) -> None:
        """Add a step, with its scratch memory."""
        used = [*reads, written]
        scratch = self.library.description(primitive_desc, dnnl.QUERY_SCRATCHPAD)
        if size := self.library.size(scratch):
            used.append(Read(dnnl.ARG_SCRATCHPAD, scratch, self._piece(size)))
        primitive = self.objects.made("primitive", "primitive_create", ctypes.c_void_p(primitive_desc))
        for r in used:
            r.buffer.death = len(self.steps)
        self.steps.append(PrimitiveStep(primitive, used))

    def target(self, value: int, desc: int, order: Sequence[int] | None = None) -> Buffer:
        """Allocate memory for a new value: the caller's if it is a row-major result, else a piece of the workspace."""
        if (
            value in self.program.results
            and self.library.same(self._back(desc, order), self.objects.plain(self.shape(value)))
        ):
            return Buffer(OUTPUT, self.program.results.index(value))
        return self._piece(self.library.size(desc))

    def summed(self, value: int, residual: int, operation: Operation, desc: int, order: Sequence[int] | None) -> Buffer:
        """Return memory with `residual` in the format `desc`, to accumulate into: its own memory if this is its last
        use, else a copy."""
        source, buffer = self.seen(residual, order), self._stored[residual][1]
        root = self._roots[residual]
        free = self._last[root] <= self._now and all(self._roots[k] != root for k in operation.inputs)
        if free and buffer.kind == PIECE and self.library.same(source, desc):
            return buffer
        copy = self.target(value, desc, order)
        self._reorder(source, buffer, desc, copy)
        return copy

    def attributes(self, post: int | None = None) -> int:
        """Return the attributes of a primitive with user-managed scratch memory and these post-ops."""
        made = self.objects.made("primitive_attr", "primitive_attr_create")
        dnnl.check(
            self.library.code.dnnl_primitive_attr_set_scratchpad_mode(ctypes.c_void_p(made), dnnl.SCRATCHPAD_OF_USER),
            "primitive_attr_set_scratchpad_mode")
        if post is not None:
            dnnl.check(
                self.library.code.dnnl_primitive_attr_set_post_ops(ctypes.c_void_p(made), ctypes.c_void_p(post)),
                "primitive_attr_set_post_ops")
        return made

    def _piece(self, nbytes: int) -> Buffer:
        self._pieces.append(Buffer(PIECE, len(self._pieces), None, nbytes, len(self.steps), len(self.steps)))
        return self._pieces[-1]

    def _reordered(self, value: int, source: int, wanted: int) -> Buffer:
        made = self._piece(self.library.size(wanted))
        self._reorder(source, self._stored[value][1], wanted, made)
        return made

    def _reorder(self, source: int, from_: Buffer, wanted: int, to: Buffer) -> None:
        self.emit(
            self._reorder_desc(self.objects, source, wanted), [Read(dnnl.ARG_SRC, source, from_)],
            Read(dnnl.ARG_DST, wanted, to))

    def _reorder_desc(self, objects: Objects, source: int, wanted: int) -> int:
        engine = ctypes.c_void_p(self.library.engine)
        return objects.made(
            "primitive_desc", "reorder_primitive_desc_create", ctypes.c_void_p(source), engine, ctypes.c_void_p(wanted),
            engine, ctypes.c_void_p(self.attributes()))

    def _packed(self, constant: Buffer, source: int, wanted: int) -> Buffer:
        """Return a constant in another format, converted now."""
        assert constant.array is not None
        packed = aligned_empty((self.library.size(wanted),))
        objects = Objects(self.library)
        desc = self._reorder_desc(objects, source, wanted)
        scratch = self.library.description(desc, dnnl.QUERY_SCRATCHPAD)
        room = aligned_empty((max(1, self.library.size(scratch)),))
        given = [
            (dnnl.ARG_SRC, source, constant.array), (dnnl.ARG_DST, wanted, packed), (dnnl.ARG_SCRATCHPAD, scratch, room)
        ]
        arguments = (Argument * 3)(*(Argument(arg, objects.memory(d, address(a))) for arg, d, a in given))
        primitive, stream = objects.made("primitive", "primitive_create", ctypes.c_void_p(desc)), objects.stream()
        dnnl.check(self.library.execute(primitive, stream, 3, ctypes.addressof(arguments)), "primitive_execute")
        return Buffer(CONSTANT, array=packed)

    def _give_results(self) -> None:
        """Copy results that are in other memory or formats into the memory of the caller."""
        for k, value in enumerate(self.program.results):
            desc, buffer = self._stored[value]
            if buffer.kind != OUTPUT or buffer.index != k:
                self._reorder(desc, buffer, self.objects.plain(self.shape(value)), Buffer(OUTPUT, k))

    def frame(self) -> Frame:
        return Frame(self)


class Frame:
    """The memory of one running call, and the arguments of all its primitives."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.objects = Objects(plan.library)
        self.workspace = aligned_empty((plan.workspace_bytes,))
        self.stream = self.objects.stream()
        self._borders: list[tuple[int, bool, int]] = []
        self._memories: dict[tuple[int, int], int] = {}
        base = address(self.workspace)
        self._calls = []
        for step in plan.steps:
            arguments = (Argument * len(step.reads))(*(Argument(r.arg, self._memory(r, base)) for r in step.reads))
            self._calls.append((step.primitive, len(step.reads), ctypes.addressof(arguments), arguments))

    def _memory(self, r: Read, base: int) -> int:
        key = (r.desc, id(r.buffer))
        found = self._memories.get(key)
        if found is None:
            kind = r.buffer.kind
            where = (
                base + self.plan.offsets[r.buffer.index] if kind == PIECE else address(r.buffer.array)
                if r.buffer.array is not None else 0
            )
            found = self._memories[key] = self.objects.memory(r.desc, where)
            if kind in (INPUT, OUTPUT):
                self._borders.append((found, kind == INPUT, r.buffer.index))
        return found

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run on tensors at these addresses."""
        library = self.plan.library
        for memory, is_input, k in self._borders:
            dnnl.check(library.set_handle(memory, inputs[k] if is_input else outputs[k]), "memory_set_data_handle")
        library.use_threads(self.plan.threads)
        execute, stream = library.execute, self.stream
        for primitive, count, arguments, _ in self._calls:
            status = execute(primitive, stream, count, arguments)
            if status:
                dnnl.check(status, "primitive_execute")


def address(x: Array) -> int:
    """Return the address of an array's elements."""
    found: int = x.__array_interface__["data"][0]
    return found


_VIEWS: Final = ("reshape", "transpose")


def _lives(program: Program) -> tuple[list[int], list[int]]:
    """Return for each value the value whose memory it may share, and for each of these the last operation that reads
    it."""
    roots = list(range(len(program.values)))
    for o in program.operations:
        if o.kind in _VIEWS:
            roots[o.output] = roots[o.inputs[0]]
    last = [-1] * len(roots)
    for now, o in enumerate(program.operations):
        for v in o.reads():
            last[roots[v]] = now
    for v in program.results:
        last[roots[v]] = len(program.operations)
    return roots, last
