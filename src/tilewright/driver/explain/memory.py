"""The placement and live range of each value in the workspace of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilewright.compiler.notes import arena_of
from tilewright.runtime.manifest import Held

if TYPE_CHECKING:
    from tilewright.relay.transform.plan_memory import MemoryPlan


@dataclass(frozen=True, slots=True)
class Memory:
    """The values in the workspace, and its bytes. Blocks of a program with control flow share it, one after another."""

    workspace: int
    values: tuple[Held, ...]

    @property
    def peak(self) -> tuple[int, int]:
        """The step with the most live bytes, and these bytes; (0, 0) without values."""
        alive: dict[int, int] = {}
        for v in self.values:
            for step in range(v.birth, v.death + 1):
                alive[step] = alive.get(step, 0) + v.nbytes
        return max(alive.items(), key=lambda found: (found[1], -found[0]), default=(0, 0))


def memory_of(plans: Sequence[MemoryPlan]) -> Memory:
    """Return the workspace of all plans, with their steps numbered consecutively."""
    values: list[Held] = []
    first = 0
    for plan in plans:
        values += [replace(held, birth=first + held.birth, death=first + held.death) for held in arena_of(plan)]
        first += len(plan.steps)
    return Memory(max((p.workspace_bytes for p in plans), default=0), tuple(values))
