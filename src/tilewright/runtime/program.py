"""The steps of a compiled model: the kernels, and the memory that each kernel reads and writes.

Steps are data. `backends/cpu/llvm/entry.py` turns runs of native steps into functions, the executable calls these, and
the manifest of an artifact stores them. A `Place` names memory: a model input, a model output, or an offset into the
constants or the workspace. Python objects (strings) have numbers instead, and only host steps access them. Steps that
are not native are operators that run in numpy, and calls of modules from other compilers (`runtime/modules.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np

from tilewright.base.errors import ArtifactError
from tilewright.base.types import DataType
from tilewright.runtime.sizes import Size, check_size, value

INPUT, OUTPUT, CONSTANT, WORKSPACE, OBJECT, PIECE = "input", "output", "constant", "workspace", "object", "piece"
KEPT: Final = "kept"
_EXTERNAL: Final = "external."
_KINDS: Final = (INPUT, OUTPUT, CONSTANT, WORKSPACE, PIECE, KEPT)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, shape and element type of an input or output. In a program for dynamic shapes, a dimension may be an
    arithmetic expression, as text."""

    name: str
    shape: tuple[Any, ...]
    dtype: DataType

    @property
    def is_open(self) -> bool:
        """Whether a dimension is known only when the program is called."""
        return any(isinstance(d, str) for d in self.shape)

    @property
    def nbytes(self) -> int:
        size = self.dtype.itemsize
        for d in self.shape:
            size *= d
        return size

    def __str__(self) -> str:
        return f"{self.dtype} {self.name}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in memory: `offset` is the number of an input or output, or bytes into the constants or the workspace.

    `skip` is a byte offset inside an input or output. An `object` is the number of an array of Python objects instead
    of memory. A `piece` is a part of the workspace by number, placed when the sizes of a call are known; its `skip` may
    be symbolic. `kept` is the number of a value that the program computes from a constant and keeps.
    """

    kind: str
    offset: int
    skip: Size = 0


@dataclass(frozen=True, slots=True)
class Check:
    """An int32 at `place` that must be zero; otherwise the run ends with message `number` of the manifest's `failures`.
    """

    place: Place
    number: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """`symbol(context, *args)`, run after all `checks` have passed; `origin` names the model's nodes that it computes.
    """

    symbol: str
    args: tuple[Place, ...]
    origin: str = ""
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies `nbytes` between places: for an input or constant that is also an output."""

    source: Place
    destination: Place
    nbytes: Size


@dataclass(frozen=True, slots=True)
class HostValue:
    """A location that is accessed as an array; `strides` are in bytes; empty strides mean row-major without gaps. Both
    may be arithmetic over the sizes of a call."""

    place: Place
    shape: tuple[Any, ...]
    dtype: DataType
    strides: tuple[Any, ...] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the place or the shape depends on the sizes of a call."""
        sizes = (*self.shape, *(self.strides or ()), self.place.skip)
        return self.place.kind == PIECE or any(isinstance(n, str) for n in sizes)

    def at(self, known: Mapping[str, int], offsets: np.ndarray[Any, Any]) -> HostValue:
        """Return the value for sizes of a call and `offsets` of the pieces in the workspace."""
        shape, strides = (
            None if sizes is None else tuple(_number(n, known) for n in sizes) for sizes in (self.shape, self.strides))
        place = replace(self.place, skip=_number(self.place.skip, known))
        if place.kind == PIECE:
            place = Place(WORKSPACE, int(offsets[place.offset]) + int(place.skip))
        return HostValue(place, shape or (), self.dtype, strides)

    def view(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array in `memory`, which begins at the place."""
        flat = memory.reshape(-1).view(np.uint8)
        return np.ndarray(self.shape, self.dtype.numpy(), flat, 0, self.strides)


def _number(size: Size, known: Mapping[str, int]) -> int:
    """Return the value of a size whose names are all known."""
    found = value(size, known)
    assert found is not None
    return found


@dataclass(frozen=True, slots=True)
class HostStep:
    """Operators without a native kernel, run in numpy: `run(*inputs) -> outputs`, an array if there is one output."""

    name: str
    run: Callable[..., Any] = field(compare=False)
    inputs: tuple[HostValue, ...]
    outputs: tuple[HostValue, ...]
    origin: str = ""
    makes_new: bool = False
    """Whether `run` returns one new array of the output's shape and dtype."""
    meaning: object = None
    """The text of the operators of `run`, and their constants; steps that compute the same are equal."""


@dataclass(frozen=True, slots=True)
class ExternalStep:
    """A call of the function `symbol` of one of the program's modules: `function(*inputs, *outputs)`."""

    symbol: str
    inputs: tuple[HostValue, ...]
    outputs: tuple[HostValue, ...]
    origin: str = ""


def kernel_symbols(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the kernels that steps call, without duplicates."""
    return tuple(dict.fromkeys(s.symbol for s in steps if isinstance(s, KernelCall)))


NativeStep = KernelCall | Copy
OutsideStep = HostStep | ExternalStep
Step = NativeStep | OutsideStep


class Code(Protocol):
    """Machine code in this process, valid while this object lives."""

    def address(self, symbol: str) -> int:
        """Return the address of `symbol`. Raises `KeyError` for an unknown symbol."""

    def hidden_address(self, symbol: str) -> int:
        """Return the address of an internal symbol, such as a kernel that is timed. Raises `KeyError` if it is not
        listed."""


def segments(steps: Sequence[Step]) -> list[tuple[NativeStep, ...] | OutsideStep]:
    """Return the steps in order, native ones in maximal runs, others one by one."""
    result: list[tuple[NativeStep, ...] | OutsideStep] = []
    run: list[NativeStep] = []
    for step in steps:
        if isinstance(step, OutsideStep):
            if run:
                result.append(tuple(run))
                run = []
            result.append(step)
        else:
            run.append(step)
    if run or not result:
        result.append(tuple(run))
    return result


def entry_symbols(steps: Sequence[Step]) -> list[str]:
    """Return the names of a program's native functions: `tw_run`, or `tw_run_0`, `tw_run_1`, … between steps that are
    not native."""
    parts = segments(steps)
    native = sum(isinstance(part, tuple) for part in parts)
    return ["tw_run"] if len(parts) == native == 1 else [f"tw_run_{i}" for i in range(native)]


def interruptible_symbol(symbol: str) -> str:
    """Return the name of the variant of entry `symbol` that checks for signals; programs with long runs have it."""
    return f"{symbol}_interruptible"


def external_symbol(number: int) -> str:
    """The function of native code that makes call `number` of a module (`runtime/callbacks.py`)."""
    return f"{_EXTERNAL}{number}"


def is_external(step: Step) -> bool:
    """Whether a native step calls a module, and may fail there."""
    return isinstance(step, KernelCall) and step.symbol.startswith(_EXTERNAL)


def may_fail(step: Step) -> bool:
    """Whether a native step may end the program with a status."""
    return is_external(step) or (
        isinstance(step, KernelCall) and (bool(step.checks) or any(place.kind == KEPT for place in step.args)))


def overlapping(steps: Iterable[Step]) -> frozenset[str]:
    """Return the kernels that read and write the same place in some call."""
    return frozenset(s.symbol for s in steps if isinstance(s, KernelCall) and len(set(s.args)) < len(s.args))


def step_to_json(step: NativeStep | ExternalStep) -> list[Any]:
    """Return a step as plain lists, for the manifest."""
    if isinstance(step, ExternalStep):
        return [
            "external", step.symbol, step.origin, [*map(value_to_json, step.inputs)],
            [*map(value_to_json, step.outputs)]
        ]
    if isinstance(step, Copy):
        return ["copy", place_to_json(step.source), place_to_json(step.destination), step.nbytes]
    if step.checks:
        checks = [[place_to_json(c.place), c.number] for c in step.checks]
        return ["checked", checks, step.symbol, step.origin, *map(place_to_json, step.args)]
    return ["call", step.symbol, step.origin, *map(place_to_json, step.args)]


def step_from_json(fields: Any) -> NativeStep | ExternalStep:
    """Return the step that `step_to_json` encoded; raises `ArtifactError` for other data."""
    match fields:
        case ["copy", str(source), str(destination), int() | str() as nbytes]:
            return Copy(place_from_json(source), place_from_json(destination), nbytes)
        case ["external", str(symbol), str(origin), [*inputs], [*outputs]]:
            return ExternalStep(
                symbol, tuple(map(value_from_json, inputs)), tuple(map(value_from_json, outputs)), origin)
        case ["call", str(symbol), str(origin), *places]:
            return KernelCall(symbol, tuple(map(place_from_json, places)), origin)
        case ["checked", [*checks], str(symbol), str(origin), *places]:
            return KernelCall(
                symbol, tuple(map(place_from_json, places)), origin, tuple(map(_check_from_json, checks)))
        case _:
            raise ArtifactError(
                f"the manifest has an unknown step: {str(fields)[:80]}; compile the model again", code="TW0804"
            )


def _check_from_json(fields: Any) -> Check:
    match fields:
        case [place, int(number)]:
            return Check(place_from_json(place), number)
        case _:
            raise ArtifactError(
                f"the manifest has an unknown check: {str(fields)[:80]}; compile the model again",
                code="TW0804")


def value_to_json(value: HostValue) -> list[Any]:
    """Return a value as plain lists."""
    return [
        place_to_json(value.place), list(value.shape), value.dtype,
        *([] if value.strides is None else [list(value.strides)])
    ]


def value_from_json(fields: Any) -> HostValue:
    """Return the value that `value_to_json` encoded; raises `ArtifactError` for other data."""
    match fields:
        case [place, [*shape], str(dtype)]:
            return HostValue(place_from_json(place), tuple(map(int, shape)), DataType(dtype))
        case [place, [*shape], str(dtype), [*strides]] if len(strides) == len(shape):
            return HostValue(place_from_json(place), tuple(map(int, shape)), DataType(dtype), tuple(map(int, strides)))
        case _:
            raise ArtifactError(
                f"the manifest has an unknown value: {str(fields)[:80]}; compile the model again",
                code="TW0804")


def place_to_json(place: Place) -> str:
    """Return a place as text."""
    return f"{place.kind}:{place.offset}" + (f"+{place.skip}" if place.skip else "")


def place_from_json(text: Any) -> Place:
    """Return the place that `place_to_json` wrote; raises `ArtifactError` for other data."""
    kind, _, where = str(text).partition(":")
    offset, plus, skip = where.partition("+")
    try:
        if kind not in _KINDS or not offset.isdecimal():
            raise ValueError(f"{kind!r} is not a kind of place")
        if not plus or skip.isdecimal():
            return Place(kind, int(offset), int(skip or 0))
        if kind not in (PIECE, INPUT, OUTPUT):
            raise ValueError(f"a place of kind {kind!r} has no symbolic offset")
        return Place(kind, int(offset), check_size(skip))
    except ValueError as error:
        raise ArtifactError(
            f"the manifest has an unknown place: {str(text)[:40]}; compile the model again", code="TW0804") from error
