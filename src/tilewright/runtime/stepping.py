"""Calls the steps of a program one by one from Python, for debuggers, and for profiles without the compiler."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.errors import ArtifactError, RunError
from tilewright.runtime.manifest import FIRST_MESSAGE, Manifest
from tilewright.runtime.program import (
    CONSTANT,
    INPUT,
    OUTPUT,
    WORKSPACE,
    Check,
    Code,
    Copy,
    KernelCall,
    OutsideStep,
    Place,
    Step,
)
from tilewright.runtime.size_table import part_bytes

Memory = Mapping[str, Sequence[int]]
"""Addresses of inputs and outputs by number, and of constants and the workspace."""


@dataclass(frozen=True)
class Subject:
    """A loaded program, ready to run. `context` has its threads, `frame` is the address of its block of addresses,
    `memory` has these addresses by kind. `outside` runs a step that is not native, and `failed` returns the error of a
    status."""

    manifest: Manifest
    code: Code
    context: int
    threads: int
    frame: int
    memory: Memory
    outside: Callable[[OutsideStep], None]
    failed: Callable[[int], Exception]

    @property
    def parts(self) -> int:
        """Number of times that the steps are repeated. Raises `RunError` if it is dynamic."""
        if not isinstance(self.manifest.parts, int):
            raise RunError(
                f"the steps of '{self.manifest.name}' cannot be timed separately: the number of its parts is only "
                "known at run time; time it as a whole", code="TW0714")
        return self.manifest.parts


def step_calls(subject: Subject, part: int = 0) -> list[Callable[[], object]]:
    """Return a function for each step of one of the program's parts. Raises `ArtifactError` if kernels are hidden in
    the code."""
    memory = memory_of_part(subject, part)
    return [_call(step, subject, memory) for step in subject.manifest.steps]


def memory_of_part(subject: Subject, part: int) -> Memory:
    """Return the addresses that one of the program's parts uses."""
    if not part:
        return subject.memory
    counts = len(subject.memory[INPUT])
    away = [part * int(n) for n in part_bytes(subject.manifest)]
    moved = {INPUT: away[:counts], OUTPUT: away[counts:]}
    return {
        kind: [a + b for a, b in zip(bases, moved.get(kind, [0]), strict=True)]
        for kind, bases in subject.memory.items()}


def step_name(step: Step) -> str:
    """Return the kernel or function that a step calls."""
    match step:
        case Copy():
            return "copy"
        case KernelCall():
            return step.symbol
    return str(getattr(step, "symbol", "") or getattr(step, "name", ""))


def kernel_address(code: Code, symbol: str) -> int:
    """Return the address of a kernel. Raises `ArtifactError` if it is hidden in the code."""
    try:
        return code.hidden_address(symbol)
    except KeyError as error:
        raise ArtifactError(
            f"the kernel '{symbol}' is not visible in the code, so it cannot be timed separately; save the program as "
            ".so, and load that", code="TW0714"
        ) from error


def _call(step: Step, subject: Subject, memory: Memory) -> Callable[[], object]:
    match step:
        case Copy():
            if not isinstance(step.nbytes, int):
                raise RunError(
                    "a copy of dynamic size cannot be timed separately; time the program as a whole", code="TW0714")
            to, source, count = address_of(step.destination, memory), address_of(step.source, memory), step.nbytes
            return lambda: ctypes.memmove(to, source, count)
        case KernelCall():
            function = ctypes.CFUNCTYPE(
                None, *[ctypes.c_void_p] * (1 + len(step.args))
            )(kernel_address(subject.code, step.symbol))
            given = [subject.context, *(address_of(place, memory) for place in step.args)]
            if step.checks:
                return _checked(functools.partial(function, *given), step.checks, subject, memory)
            return lambda: function(*given)
    return lambda: subject.outside(step)


def _checked(
    call: Callable[[], object], checks: Sequence[Check], subject: Subject, memory: Memory
) -> Callable[[], object]:
    """Return `call` preceded by its checks; a failed check raises the program's error."""
    faults = [(ctypes.c_int32.from_address(address_of(c.place, memory)), c.number) for c in checks]

    def checked() -> None:
        for found, number in faults:
            if found.value:
                raise subject.failed(FIRST_MESSAGE + number)
        call()

    return checked


def address_of(place: Place, memory: Memory) -> int:
    """Return the address of a place. Raises `RunError` if it is dynamic."""
    if not isinstance(place.skip, int):
        raise RunError(
            "a value at a dynamic location cannot be timed separately; time the program as a whole", code="TW0714")
    bases = memory[place.kind]
    return bases[0] + place.offset if place.kind in (CONSTANT, WORKSPACE) else bases[place.offset] + place.skip
