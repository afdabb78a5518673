"""How long each step of a program takes: the steps one by one, in order, on the memory of a call.

What is timed is a call through Python, so a step of a microsecond is shown as two; the share of a step says more than the sum.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import ArtifactError, OptionError, RunError
from tilewright.runtime.library import SharedLibrary
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.program import CONSTANT, WORKSPACE, Code, Copy, KernelCall, OutsideStep, Place, Step

Memory = Mapping[str, Sequence[int]]
"""Where inputs and outputs are, by number, and constants and the workspace."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step, on average; `name` is its kernel or function, `origin` the nodes of the model that it computes."""

    name: str
    origin: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The steps of a program in order."""

    steps: tuple[StepTime, ...]

    @property
    def seconds(self) -> float:
        """The sum."""
        return sum(s.seconds for s in self.steps)

    def __str__(self) -> str:
        """A table, the longest first."""
        width = max([len(s.name) for s in self.steps] + [4])
        lines = [f"{'step':<{width}}  {'us':>10}  {'share':>6}  origin"]
        whole = self.seconds or 1.0
        lines += [f"{s.name:<{width}}  {1e6 * s.seconds:10.2f}  {s.seconds / whole:6.1%}  {s.origin}" for s in sorted(self.steps, key=lambda s: -s.seconds)]
        return "\n".join([*lines, f"{'all':<{width}}  {1e6 * self.seconds:10.2f}  {1:6.1%}"])


def time_steps(manifest: Manifest, code: Code, context: int, memory: Memory, outside: Callable[[OutsideStep], None], number: int) -> Profile:
    """Run the steps of a program `number` times, after once unmeasured. `outside` runs those that are no native code.

    A program in equal parts is measured on the first, as many times as there are parts. Raises `ArtifactError` where kernels are hidden in the code.
    """
    if number < 1:
        raise OptionError(f"number={number} must be at least 1", code="TW0209")
    if not isinstance(manifest.parts, int):
        raise RunError(f"the steps of '{manifest.name}' cannot be timed apart: how many parts it is computed in is known when it is called; time it as a whole", code="TW0714")
    calls = [_call(step, code, context, memory, outside) for step in manifest.steps]
    totals = [0.0] * len(calls)
    for turn in range(number + 1):
        for k, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            totals[k] += (time.perf_counter() - begin) * bool(turn)
    times = zip(manifest.steps, totals, strict=True)
    return Profile(tuple(StepTime(_name(step), getattr(step, "origin", ""), seconds * manifest.parts / number) for step, seconds in times))


def _name(step: Step) -> str:
    match step:
        case Copy():
            return "copy"
        case KernelCall():
            return step.symbol
    return str(getattr(step, "symbol", "") or getattr(step, "name", ""))


def _call(step: Step, code: Code, context: int, memory: Memory, outside: Callable[[OutsideStep], None]) -> Callable[[], object]:
    match step:
        case Copy():
            if not isinstance(step.nbytes, int):
                raise RunError("a copy whose size is known when the program is called cannot be timed apart; time the program as a whole", code="TW0714")
            to, source, count = _address(step.destination, memory), _address(step.source, memory), step.nbytes
            return lambda: ctypes.memmove(to, source, count)
        case KernelCall():
            try:
                entry = code.hidden_address(step.symbol) if isinstance(code, SharedLibrary) else code.address(step.symbol)
            except KeyError as error:
                raise ArtifactError(f"the kernel '{step.symbol}' is hidden in the code, and cannot be timed apart; save the program as .so, and load that", code="TW0714") from error
            function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(step.args)))(entry)
            given = [context, *(_address(place, memory) for place in step.args)]
            return lambda: function(*given)
    return lambda: outside(step)


def _address(place: Place, memory: Memory) -> int:
    if not isinstance(place.skip, int):
        raise RunError("a value whose place is known when the program is called cannot be timed apart; time the program as a whole", code="TW0714")
    bases = memory[place.kind]
    return bases[0] + place.offset if place.kind in (CONSTANT, WORKSPACE) else bases[place.offset] + place.skip
