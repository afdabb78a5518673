"""Memory requirements of a program, and the peak of its arena: the step of the peak, and the live values at that
step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tilewright.base.errors import RunError
from tilewright.base.limits import shown_bytes
from tilewright.base.memory_placement import alive_bytes
from tilewright.runtime.manifest import Held, Manifest
from tilewright.runtime.program import WORKSPACE
from tilewright.runtime.stepping import step_name

_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Alive:
    """A value in the arena: its size and offset, the first and the last step of its live range, and its producer."""

    nbytes: int
    offset: int
    first: int
    last: int
    made_by: str
    origin: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of a program: constants, arena (all values between kernels), inputs and outputs, and scratch memory of a
    kernel per thread.

    `peak` are the bytes of the values that live at the step `peak_step`; the arena is larger only by gaps between them.
    `alive` are these values, the largest first, and `use` has the bytes that live at each step.
    """

    program: str
    constants: int
    arena: int
    inputs: int
    outputs: int
    scratch: int
    peak: int
    peak_step: int
    peak_name: str
    peak_origin: str
    steps: int
    alive: tuple[Alive, ...]
    use: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as dictionaries and lists."""
        return asdict(self)

    def __str__(self) -> str:
        head = [
            f"memory of '{self.program}'", f"  constants  {_bytes(self.constants)}",
            f"  arena      {_bytes(self.arena)}", f"  inputs     {_bytes(self.inputs)}",
            f"  outputs    {_bytes(self.outputs)}", f"  scratch    {_bytes(self.scratch)} of each thread at most",
        ]
        if not self.alive:
            return "\n".join([*head, "nothing lives in the arena"])
        head.append(
            f"peak of the arena: {_bytes(self.peak).strip()}, at step {self.peak_step} of {self.steps}, "
            f"{self.peak_name}{f' ({self.peak_origin})' if self.peak_origin else ''}; there live")
        rows = [
            f"  {_bytes(a.nbytes)}  {a.dtype}{list(a.shape)}  steps {a.first} to {a.last}  "
            f"{a.made_by}  {a.origin}".rstrip()
            for a in self.alive[:_SHOWN]]
        more = [f"  and {len(self.alive) - _SHOWN} more"] if len(self.alive) > _SHOWN else []
        return "\n".join([*head, *rows, *more])


def memory_report(manifest: Manifest) -> MemoryReport:
    """Return the memory requirements of a program of static shapes. Raises `RunError` for control flow or dynamic
    shapes."""
    if not manifest.steps or manifest.symbols:
        raise RunError(
            f"the memory requirements of '{manifest.name}' are only known at run time: it has "
            f"{'dynamic shapes' if manifest.symbols else 'control flow'}",
            code="TW0708")
    count = len(manifest.steps)
    use = [alive_bytes(manifest.arena, k) for k in range(count)]
    at = max(range(count), key=use.__getitem__)
    alive = sorted((h for h in manifest.arena if h.birth <= at <= h.death), key=lambda h: -h.nbytes)
    step = manifest.steps[at]
    return MemoryReport(
        manifest.name, manifest.constants_bytes, manifest.workspace_bytes, sum(t.nbytes for t in manifest.inputs),
        sum(t.nbytes for t in manifest.outputs),
        manifest.scratch_bytes, use[at], at, step_name(step), getattr(step, "origin", ""), count,
        tuple(_alive(h, manifest) for h in alive), tuple(use))


def _alive(held: Held, manifest: Manifest) -> Alive:
    shape: tuple[int, ...] = (held.nbytes,)
    dtype = "uint8"
    step = manifest.steps[held.birth]
    for value in manifest.notes[held.birth].outputs if manifest.notes else ():
        if value.place.kind == WORKSPACE and held.offset <= value.place.offset < held.offset + max(1, held.nbytes):
            shape, dtype = _sizes(value.shape), str(value.dtype)
            break
    return Alive(
        held.nbytes, held.offset, held.birth, held.death, step_name(step), getattr(step, "origin", ""), shape, dtype)


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(d) for d in shape)


def _bytes(count: int) -> str:
    return f"{count:>13,} bytes ({shown_bytes(count)})" if count >= 1024 else f"{count:>13,} bytes"
