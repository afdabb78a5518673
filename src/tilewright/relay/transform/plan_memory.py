"""Where every value of a fused function lives, and in which order its kernels run.

Intermediate values share one workspace: two values whose lifetimes overlap never overlap in memory, and large values
are placed first, each into the tightest gap. A view (`reshape_only`) and a field of a tuple are names for memory that
is there already. A kernel writes a result of the model straight into the output; an input or a constant that is
returned, or a value returned twice, is copied.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.errors import CompileError
from tilewright.node import node
from tilewright.relay.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import post_order
from tilewright.types import TensorType, TupleType, Type

ALIGNMENT: Final = 64


class Place(enum.Enum):
    """The memories that a kernel's argument may be in."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    WORKSPACE = "workspace"


@node
class Location:
    """A tensor in memory: number `index` of the inputs, outputs or constants, or `index` bytes into the workspace."""

    place: Place
    index: int
    type: TensorType

    def __repr__(self) -> str:
        return f"{self.place.value}[{self.index}]: {self.type!r}"


@node
class Step:
    """Run the function of `call` (None: copy the one input to the one output)."""

    call: Call | None
    inputs: tuple[Location, ...]
    outputs: tuple[Location, ...]


@node
class MemoryPlan:
    """The steps in order, and the memories they use; `constants` are distinct arrays."""

    steps: tuple[Step, ...]
    inputs: tuple[Var, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[np.ndarray[Any, Any], ...]
    workspace_bytes: int

    def __repr__(self) -> str:
        lines = [f"workspace: {self.workspace_bytes} bytes, {len(self.constants)} constants"]
        for s in self.steps:
            what = "copy" if s.call is None else str(s.call.span or "kernel")
            lines.append(f"{what}: {', '.join(map(repr, s.inputs))} -> {', '.join(map(repr, s.outputs))}")
        return "\n".join(lines)


@dataclass(eq=False, slots=True)
class _Memory:
    """One piece of memory; `birth` and `death` are the steps that first write and last read it."""

    place: Place
    index: int = -1
    nbytes: int = 0
    birth: int = 0
    death: int = 0
    clashes: list[_Memory] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Value:
    """A tensor value: a type over a piece of memory."""

    memory: _Memory
    type: TensorType


_Step = tuple[Call | None, list[_Value], list[_Value]]


def plan_memory(function: Function) -> MemoryPlan:
    """Plan a function whose body calls functions. Raises `CompileError` for a symbolic shape and for control flow."""
    planner = _Planner()
    for k, p in enumerate(function.params):
        types = _tensors(p.checked_type, p)
        if not isinstance(p.checked_type, TensorType):
            raise CompileError(f"input '{p.name_hint}' is a tuple; give its tensors as inputs of their own", p.span)
        planner.values[p] = [_Value(_Memory(Place.INPUT, k), types[0])]
    for e in post_order(function.body, inside=False):
        planner.visit(e)
    outputs = planner.values[function.body]
    planner.finish(outputs)
    workspace = _assign([m for m in planner.memories if m.place is Place.WORKSPACE])
    steps = tuple(Step(c, tuple(map(_location, i)), tuple(map(_location, o))) for c, i, o in planner.steps)
    return MemoryPlan(steps, function.params, tuple(v.type for v in outputs), tuple(planner.constants), workspace)


class _Planner:
    def __init__(self) -> None:
        self.values: dict[Expr, list[_Value]] = {}
        self.steps: list[_Step] = []
        self.memories: list[_Memory] = []
        self.constants: list[np.ndarray[Any, Any]] = []
        self.known: dict[int, _Memory] = {}

    def visit(self, e: Expr) -> None:
        """Know where the value of `e` is; its operands are known."""
        if e in self.values:
            return
        match e:
            case Constant():
                self.values[e] = [_Value(self._constant(e.value), e.known_type())]  # type: ignore[arg-type]
            case Tuple():
                self.values[e] = [v for f in e.fields for v in self.values[f]]
            case TupleGetItem():
                self.values[e] = self._field(e)
            case Call():
                self.values[e] = self._call(e)
            case Let():
                self.values[e] = self.values[e.body]
            case Var():
                raise CompileError(f"the variable '{e.name_hint}' is bound by a let; convert to graph form first", e.span)
            case _:
                raise CompileError(f"an expression of the kind {type(e).__name__} cannot be compiled to straight-line code; only calls and tuples can", e.span)

    def _constant(self, array: np.ndarray[Any, Any]) -> _Memory:
        memory = self.known.get(id(array))
        if memory is None:
            memory = self.known[id(array)] = _Memory(Place.CONSTANT, len(self.constants))
            self.constants.append(array)
        return memory

    def _field(self, e: TupleGetItem) -> list[_Value]:
        whole = e.tuple_value.checked_type
        if not isinstance(whole, TupleType):
            raise CompileError(f"field {e.index} is taken of a value of type {whole!r}, which is no tuple", e.span)
        before = sum(len(_tensors(t, e)) for t in whole.fields[: e.index])
        count = len(_tensors(whole.fields[e.index], e))
        return self.values[e.tuple_value][before : before + count]

    def _call(self, e: Call) -> list[_Value]:
        inputs = [v for a in e.args for v in self.values[a]]
        types = _tensors(e.checked_type, e)
        if isinstance(e.op, Function) and e.op.attrs.get("reshape_only"):
            return [_Value(inputs[0].memory, types[0])]
        at = len(self.steps)
        outputs = [_Value(_Memory(Place.WORKSPACE, nbytes=t.nbytes, birth=at, death=at), t) for t in types]
        self.memories += [v.memory for v in outputs]
        self._step(e, inputs, outputs)
        return outputs

    def _step(self, call: Call | None, inputs: list[_Value], outputs: list[_Value]) -> None:
        for v in inputs:
            v.memory.death = len(self.steps)
        self.steps.append((call, inputs, outputs))

    def finish(self, outputs: list[_Value]) -> None:
        """Let the results be written where the caller wants them."""
        for k, v in enumerate(outputs):
            if v.memory.place is Place.WORKSPACE:
                v.memory.place, v.memory.index = Place.OUTPUT, k
            else:
                self._step(None, [v], [_Value(_Memory(Place.OUTPUT, k), v.type)])


def _tensors(kind: Type, e: Expr) -> list[TensorType]:
    """The tensors of a type, nested tuples flattened; raises `CompileError` when a size is not known."""
    if isinstance(kind, TensorType):
        if not kind.is_static:
            raise CompileError(f"the shape of {kind!r} is symbolic; fix the input shapes before compiling", e.span)
        return [kind]
    if isinstance(kind, TupleType):
        return [t for f in kind.fields for t in _tensors(f, e)]
    raise CompileError(f"a value of type {kind!r} has no place in memory", e.span)


def _assign(memories: list[_Memory]) -> int:
    """Give every piece its offset in the workspace; returns the size of the workspace."""
    _find_clashes(memories)
    total = 0
    for m in sorted(memories, key=lambda m: -m.nbytes):
        size = _aligned(m.nbytes)
        taken = sorted((c.index, c.index + _aligned(c.nbytes)) for c in m.clashes if c.index >= 0)
        m.index = _best_gap(taken, size)
        total = max(total, m.index + size)
    return total


def _find_clashes(memories: list[_Memory]) -> None:
    """Note which lifetimes overlap; a kernel's inputs and outputs do."""
    alive: list[_Memory] = []
    for m in memories:  # in order of birth
        alive = [a for a in alive if a.death >= m.birth]
        for a in alive:
            a.clashes.append(m)
            m.clashes.append(a)
        alive.append(m)


def _best_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size`, else the end."""
    best, room, end = -1, 0, 0
    for begin, stop in taken:
        gap = begin - end
        if gap >= size and (best < 0 or gap < room):
            best, room = end, gap
        end = max(end, stop)
    return end if best < 0 else best


def _aligned(n: int) -> int:
    return max(ALIGNMENT, -(-n // ALIGNMENT) * ALIGNMENT)


def _location(v: _Value) -> Location:
    return Location(v.memory.place, v.memory.index, v.type)
