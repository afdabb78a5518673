"""Memory plan of a fused function: the location of every value, and the order of its kernels.

Intermediate values share one workspace: values with overlapping live ranges never overlap in memory, and large values
are placed first, each into the tightest gap. A view (`reshape_only`), a slice, a part of a split and a field of a tuple
refer to existing memory. The parts of a concatenation are written in place. A concatenation that extends another one
contains it:

    a = f(x); b = g(x); c = concatenate((a, b), axis=1); d = concatenate((a, b, h(c)), axis=1)
    -> one allocation, that of d; c and a are boxes in it (`relay/analysis/subarrays.py`)

Python objects (strings) are numbered instead of placed in memory, and have no views.

A kernel writes a result of the model directly to the output. A returned input or constant, and a value returned twice,
are copied.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, InternalError
from tilewright.base.memory_placement import place_pieces
from tilewright.base.nd import Device
from tilewright.base.node import node
from tilewright.base.types import OpenSize, TensorType, TupleType, Type
from tilewright.relay.analysis.subarrays import Box, joined, whole, windows
from tilewright.relay.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op.elementwise import Copy
from tilewright.relay.transform.memory_order import least_memory_order
from tilewright.relay.visitor import operands, post_order

HOST: Final = Device()
"""The device that runs the program, and currently all of its steps."""


class MemorySpace(enum.Enum):
    """Kinds of memory of a kernel's arguments."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    WORKSPACE = "workspace"
    OBJECT = "object"
    PIECE = "piece"


@node
class Location:
    """A tensor in a device's memory. `index` selects an input, output, constant or object, `skip` bytes in; or it is
    the byte offset in the workspace.

    With `storage`, the tensor is the first corner of a larger array of that shape.
    """

    place: MemorySpace
    index: int
    type: TensorType
    skip: int = 0
    storage: tuple[int, ...] | None = None
    device: Device = HOST

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The byte strides of each dimension if the tensor is part of a larger array, else None."""
        if self.storage is None:
            return None
        return tuple(math.prod(self.storage[d + 1 :]) * self.type.dtype.itemsize for d in range(len(self.storage)))

    def __repr__(self) -> str:
        skip = f" + {self.skip}" if self.skip else ""
        corner = "" if self.storage is None else f" of {self.storage}"
        return f"{self.place.value}[{self.index}{skip}]: {self.type!r}{corner}"


@node
class PlanStep:
    """A call of a function on a device. Without `call`, a copy of the one input to the one output, possibly between
    devices."""

    call: Call | None
    inputs: tuple[Location, ...]
    outputs: tuple[Location, ...]
    device: Device = HOST


@node
class Piece:
    """A range of `nbytes` bytes in a workspace, live from step `birth` through `death`. `offset` is -1 if sizes are
    dynamic."""

    nbytes: int
    birth: int
    death: int
    offset: int = -1


@node
class Arena:
    """Workspace of one device: its size in bytes, and its pieces. With dynamic sizes, a `Location` has the index of its
    piece."""

    nbytes: int
    pieces: tuple[Piece, ...] = ()


@node
class MemoryPlan:
    """The steps in order, and the memory that they use on each device; `constants` are distinct arrays."""

    steps: tuple[PlanStep, ...]
    inputs: tuple[Var, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[np.ndarray[Any, Any], ...]
    arenas: Mapping[Device, Arena]

    @property
    def workspace_bytes(self) -> int:
        """The size of the host's workspace in bytes."""
        return self.arenas[HOST].nbytes

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of the host's workspace."""
        return self.arenas[HOST].pieces

    def __repr__(self) -> str:
        lines = [f"workspace: {self.workspace_bytes} bytes, {len(self.constants)} constants"]
        for s in self.steps:
            what = "copy" if s.call is None else str(s.call.span or "kernel")
            lines.append(f"{what}: {', '.join(map(repr, s.inputs))} -> {', '.join(map(repr, s.outputs))}")
        return "\n".join(lines)


@dataclass(eq=False, slots=True)
class _Memory:
    """A memory allocation, first written in step `birth` and last read in step `death`.

    With a `parent`, it is a part of the parent: rows of `width` elements at intervals of `pitch`, starting at `column`.
    `values` are its tensors, `children` its parts, and `parts` the sources of a concatenation.
    """

    place: MemorySpace
    index: int = -1
    nbytes: int = 0
    birth: int = 0
    death: int = 0
    parent: _Memory | None = None
    width: int = 0
    pitch: int = 0
    column: int = 0
    values: list[_Value] = field(default_factory=list)
    children: list[_Memory] = field(default_factory=list)
    parts: tuple[_Part, ...] = ()
    row: int = 0
    """Elements of one row of all parts of a concatenation."""


@dataclass(eq=False, slots=True)
class _Value:
    """A tensor value: a type and a box of a memory."""

    memory: _Memory
    type: TensorType
    box: Box

    def place(self) -> tuple[_Memory, Box | None]:
        """Return the outermost memory that contains the value, and its box there; None if it is not a box there."""
        memory, found = self.memory, self.box
        while memory.parent is not None:
            inside = found.within(memory.width, memory.pitch, memory.column)
            if inside is None:
                return memory, None
            memory, found = memory.parent, inside
        return memory, found

    @property
    def usable(self) -> bool:
        """Return whether a kernel can take the value as an argument."""
        _, found = self.place()
        return found is not None and found.storage(self.type.shape) is not None

    @property
    def key(self) -> _Part:
        """A key that is equal for two values with the same elements."""
        return id(self.memory), self.box

    @property
    def is_whole(self) -> bool:
        return self.box.size * self.type.dtype.itemsize == self.memory.nbytes


_Part = tuple[int, Box]
_Step = tuple[Call | None, list[_Value], list[_Value]]


def plan_memory(function: Function, limit: int | None = None) -> MemoryPlan:
    """Plan a function whose body calls functions. Raises `CompileError` for a symbolic shape and for control flow.

    If the workspace exceeds `limit` bytes, other placements are tried, then another order of steps. The result is the
    smallest plan found, even if it exceeds the limit.
    """
    plan = _planned(function, _order(function), limit)
    if limit is None or plan.workspace_bytes <= limit:
        return plan
    return min(plan, _planned(function, least_memory_order(function), limit), key=lambda p: p.workspace_bytes)


def _planned(function: Function, order: Sequence[Expr], limit: int | None) -> MemoryPlan:
    planner = _Planner()
    for k, p in enumerate(function.params):
        types = _tensors(p.checked_type, p)
        if not isinstance(p.checked_type, TensorType):
            raise CompileError(f"input '{p.name_hint}' is a tuple; pass its tensors as separate inputs", p.span,
                               code="TW0403")
        planner.values[p] = [_value(_Memory(MemorySpace.INPUT, k), types[0])]
    for e in order:
        planner.visit(e)
    outputs = planner.values[function.body]
    planner.finish(outputs)
    roots = planner.roots()
    workspace = _assign(roots, limit)
    pieces = tuple(Piece(m.nbytes, m.birth, m.death, -1 if m.place is MemorySpace.PIECE else m.index) for m in roots)
    steps = tuple(PlanStep(c, tuple(map(_location, i)), tuple(map(_location, o))) for c, i, o in planner.steps)
    arenas = {HOST: Arena(workspace, pieces)}
    return MemoryPlan(steps, function.params, tuple(v.type for v in outputs), tuple(planner.constants), arenas)


def _order(function: Function) -> list[Expr]:
    """Return the nodes, operands before users. Calls that make Python objects which only such calls or results need
    come last, so that native code runs without interruption."""
    order = post_order(function.body, inside=False)
    early: set[Expr] = set()
    late: set[Expr] = set()
    for e in reversed(order):
        if isinstance(e, Call) and e not in early and _makes_objects(e.known_type()):
            late.add(e)
        elif e is not function.body or isinstance(e, Call):
            early.update(operands(e))
    return [e for e in order if e not in late and e is not function.body] + [e for e in order if e in late
        or e is function.body] if late else order


def _makes_objects(t: Type | None) -> bool:
    return isinstance(t, TensorType) and t.dtype.is_object


class _Planner:
    def __init__(self) -> None:
        self.values: dict[Expr, list[_Value]] = {}
        self.steps: list[_Step] = []
        self.memories: list[_Memory] = []
        self.constants: list[np.ndarray[Any, Any]] = []
        self.known: dict[int, _Memory] = {}
        self.objects = 0

    def visit(self, e: Expr) -> None:
        """Record the location of `e`; those of its operands are known."""
        if e in self.values:
            return
        match e:
            case Constant():
                self.values[e] = [_value(self._constant(e.value), e.known_type())]  # type: ignore[arg-type]
            case Tuple():
                self.values[e] = [v for f in e.fields for v in self.values[f]]
            case TupleGetItem():
                self.values[e] = self._field(e)
            case Call():
                self.values[e] = self._named(e) or self._joined(e) or self._computed(e)
            case Let():
                self.values[e] = self.values[e.body]
            case Var():
                raise CompileError(f"the variable '{e.name_hint}' is bound by a let; convert to graph form first",
                                   e.span, code="TW0402")
            case _:
                raise CompileError(f"an expression of the kind {type(e).__name__} cannot be compiled to straight-line "
                                   "code; only calls and tuples can", e.span, code="TW0403")

    def _constant(self, array: np.ndarray[Any, Any]) -> _Memory:
        memory = self.known.get(id(array))
        if memory is None:
            memory = self.known[id(array)] = _Memory(MemorySpace.CONSTANT, len(self.constants))
            self.constants.append(array)
        return memory

    def _field(self, e: TupleGetItem) -> list[_Value]:
        whole = e.tuple_value.checked_type
        if not isinstance(whole, TupleType):
            raise CompileError(f"field {e.index} cannot be taken from a value of type {whole!r}, which is not "
                               "a tuple", e.span,
                               code="TW0402")
        before = sum(len(_tensors(t, e)) for t in whole.fields[: e.index])
        count = len(_tensors(whole.fields[e.index], e))
        return self.values[e.tuple_value][before : before + count]

    def _computed(self, e: Call) -> list[_Value]:
        """Return the results of a kernel."""
        return self._run(e, [v for a in e.args for v in self.values[a]], _tensors(e.checked_type, e))

    def _run(self, call: Call, inputs: list[_Value], types: list[TensorType]) -> list[_Value]:
        at = len(self.steps)
        outputs = [_value(_Memory(MemorySpace.WORKSPACE, nbytes=t.nbytes, birth=at, death=at), t) for t in types]
        for v in outputs:
            if v.type.dtype.is_object:
                v.memory.place, v.memory.index = MemorySpace.OBJECT, self.objects
                self.objects += 1
        self.memories += [v.memory for v in outputs]
        self._step(call, inputs, outputs)
        return outputs

    def _step(self, call: Call | None, inputs: list[_Value], outputs: list[_Value]) -> None:
        for v in inputs:
            v.memory.death = len(self.steps)
        self.steps.append((call, inputs, outputs))

    # Calls that only refer to existing memory.
    def _named(self, e: Call) -> list[_Value] | None:
        """Return views and parts of existing memory; None for calls that need a kernel."""
        if not isinstance(e.op, Function) or not e.args:
            return None
        source = self.values[e.args[0]]
        types = _tensors(e.checked_type, e)
        if any(v.type.dtype.is_object for v in source):
            return None
        boxes: list[Box | None]
        if e.op.attrs.get("reshape_only"):
            boxes = [source[0].box]
        else:
            call = _only_call(e.op)
            parts = windows(call) if call is not None and call.args[0] is e.op.params[0] else None
            if parts is None or source[0].memory.place is MemorySpace.CONSTANT:
                return None
            outer = source[0].box
            boxes = [p.within(outer.length, outer.pitch, outer.offset) for p in parts]
        named = [_Value(source[0].memory, t, b) for t, b in zip(types, boxes, strict=True) if b is not None]
        if len(named) < len(types) or not all(v.usable for v in named):
            return None
        source[0].memory.values += named
        return named

    def _joined(self, e: Call) -> list[_Value] | None:
        """Return a concatenation whose parts are written in place, or copied if that is impossible; None for other
        calls."""
        call = _only_call(e.op) if isinstance(e.op, Function) else None
        axis = None if call is None else joined(call)
        if call is None or axis is None:
            return None
        argument = dict(zip(e.op.params, e.args, strict=True))
        sources = [argument.get(f) for f in call.args[0].fields]  # type: ignore[attr-defined]
        (kind,) = _tensors(e.checked_type, e)
        if kind.dtype.is_object:
            return None
        result = _value(
            _Memory(MemorySpace.WORKSPACE, nbytes=kind.nbytes, birth=len(self.steps), death=len(self.steps)), kind)
        if any(s is None for s in sources) or not any(self._is_free(self.values[s][0]) for s in sources
                if s is not None):
            return None
        self.memories.append(result.memory)
        parts = [(s, self.values[s][0]) for s in sources if s is not None]
        inner = math.prod(kind.shape[axis + 1 :])
        widths = [v.type.shape[axis] * inner for _, v in parts]
        result.memory.parts = tuple(key for (_, v), width in zip(parts, widths, strict=True)
                                    for key in _leaves(v, width))
        pitch = result.memory.row = sum(widths)
        at = column = 0
        while at < len(parts):
            count = self._joined_before(result.memory, [v for _, v in parts[at:]], widths[at:])
            width = sum(widths[at : at + count])
            placed = _top(parts[at][1].memory) if count > 1 else parts[at][1].memory
            if not (count > 1 or self._is_free(parts[at][1])) or not _put(placed, result.memory, width, pitch, column):
                count, width = 1, widths[at]
                copied = self._copied(*parts[at])
                _put(copied.memory, result.memory, width, pitch, column)
            at, column = at + count, column + width
        return [result]

    def _is_free(self, v: _Value) -> bool:
        """Return whether the kernel that computes `v` can write it elsewhere."""
        return v.memory.place is MemorySpace.WORKSPACE and v.memory.parent is None and v.is_whole

    def _joined_before(self, result: _Memory, parts: list[_Value], widths: list[int]) -> int:
        """Return how many of the next parts form a complete earlier concatenation along the same axis, which then can
        stay in place; else 1."""
        earlier = _top(parts[0].memory)
        keys: list[_Part] = []
        for count, (v, width) in enumerate(zip(parts, widths, strict=True)):
            if earlier is result or len(keys) >= len(earlier.parts):
                return count if count and tuple(keys) == earlier.parts and sum(widths[:count]) == earlier.row else 1
            keys += _leaves(v, width)
        return len(parts) if tuple(keys) == earlier.parts and sum(widths) == earlier.row else 1

    def _copied(self, source: Expr, v: _Value) -> _Value:
        """Return a copy of a value, made by a kernel."""
        x = Var("x", v.type)
        call = Call(Function((x,), Copy()(x), attrs={"Primitive": 1}), [source], span=source.span)
        return self._run(call, [v], [v.type])[0]

    def finish(self, outputs: list[_Value]) -> None:
        """Write results directly to the program's outputs where possible; copy the others."""
        for k, v in enumerate(outputs):
            memory, found = v.place()
            if (memory.place in (MemorySpace.WORKSPACE, MemorySpace.OBJECT)
                    and found == whole(memory.nbytes // v.type.dtype.itemsize)):
                memory.place, memory.index = MemorySpace.OUTPUT, k
                continue
            result = _value(_Memory(MemorySpace.OUTPUT, k), v.type)
            contiguous = found is not None and found.rows == 1
            x = Var("x", v.type)
            call = None if contiguous else Call(Function((x,), Copy()(x), attrs={"Primitive": 1}), [x])
            self._step(call, [v], [result])

    def roots(self) -> list[_Memory]:
        """Return the root allocations in the workspace, with live ranges that include their parts, sorted by birth."""
        for m in self.memories:
            root = _top(m)
            root.birth, root.death = min(root.birth, m.birth), max(root.death, m.death)
        found = [m for m in self.memories if m.place is MemorySpace.WORKSPACE and m.parent is None]
        return sorted(found, key=lambda m: m.birth)


def _value(memory: _Memory, kind: TensorType) -> _Value:
    """Return a whole memory as a tensor."""
    made = _Value(memory, kind, whole(math.prod(kind.shape)))
    memory.values.append(made)
    return made


def _leaves(v: _Value, width: int) -> tuple[_Part, ...]:
    """Return the keys of a part of a concatenation with rows of `width`: the parts of another one along the same axis,
    or the part itself."""
    return v.memory.parts if v.is_whole and v.memory.row == width else (v.key,)


def _only_call(function: Function) -> Call | None:
    """Return the single call of a primitive function, or None."""
    body = function.body
    return body if isinstance(body, Call) and all(isinstance(a, (Var, Tuple)) for a in body.args) else None


def _top(memory: _Memory) -> _Memory:
    while memory.parent is not None:
        memory = memory.parent
    return memory


def _put(memory: _Memory, parent: _Memory, width: int, pitch: int, column: int) -> bool:
    """Make `memory` a part of `parent` if kernels can still take everything in it; return whether they can."""
    memory.parent, memory.width, memory.pitch, memory.column = parent, width, pitch, column
    inside = [memory]
    while inside:
        m = inside.pop()
        if not all(v.usable for v in m.values):
            memory.parent = None
            return False
        inside += m.children
    parent.children.append(memory)
    return True


def _tensors(kind: Type, e: Expr) -> list[TensorType]:
    """Return the tensors of a type with nested tuples flattened. Raises `CompileError` if a size is unknown."""
    if isinstance(kind, TensorType):
        if not kind.is_static:
            raise CompileError(f"the shape of {kind!r} is symbolic; fix the input shapes before compiling", e.span,
                               code="TW0303")
        return [kind]
    if isinstance(kind, TupleType):
        return [t for f in kind.fields for t in _tensors(f, e)]
    raise CompileError(f"a value of type {kind!r} cannot be stored in memory; only tensors and "
                       "tuples of tensors can", e.span, code="TW0403")


def _assign(memories: list[_Memory], limit: int | None) -> int:
    """Give every memory its workspace offset, or its piece number if sizes are dynamic. Return the size of the
    workspace in bytes."""
    if any(isinstance(m.nbytes, OpenSize) for m in memories):
        for k, m in enumerate(memories):
            m.place, m.index = MemorySpace.PIECE, k
        return 0
    offsets, total = place_pieces(memories, limit)
    for m, offset in zip(memories, offsets, strict=True):
        m.index = offset
    return total


def _location(v: _Value) -> Location:
    memory, found = v.place()
    if found is None:
        raise InternalError(f"a value of type {v.type!r} is not a contiguous box of its memory")
    storage = found.storage(v.type.shape)
    skip = found.offset * v.type.dtype.itemsize
    larger = None if storage == v.type.shape else storage
    if memory.place is MemorySpace.WORKSPACE:
        return Location(memory.place, memory.index + skip, v.type, 0, larger)
    return Location(memory.place, memory.index, v.type, skip, larger)
