"""`tir.Schedule`: the steps of `tir/schedule.py` under the names of TVM v0.13, over one function or a module of
several.

    sch = tir.Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    io, ii = sch.split(i, factors=[None, 4])
    sch.parallel(io)
    sch.show()
    print(sch.trace)                        # the calls, which do the same to another schedule `sch`
    again = tir.replay(func, sch.trace)     # the scheduled function; a trace is data: as_json, from_json

Blocks are handled by name, loops by their variable: a loop stays what it is through steps on other loops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer
from tilewright.tir.loop_steps import MAIN, LoopRV
from tilewright.tir.sampling import SampleSteps
from tilewright.tir.schedule import Schedule as Engine
from tilewright.tir.steps import BlockAt, Step
from tilewright.tir.stmt import Block, PrimFunc, loaded_buffers, stored_buffers, walk_stmt
from tilewright.tir.trace import Trace

__all__ = ["LoopRV", "Schedule", "Trace", "replay"]


class Schedule(SampleSteps):
    """Steps over the functions of a module, each from loops and blocks to loops and blocks that compute the same.

    `mod` is an `IRModule`, or a function, which becomes `main`. `seed` is for the samples. Every step raises
    `ScheduleError` where it cannot be done, and nothing has changed then.
    """

    def __init__(self, mod: PrimFunc | IRModule, seed: int | None = None) -> None:
        super().__init__(mod)
        self.random = random.Random(seed)
        self._worked_on = ""

    # As a whole.
    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return Trace(self.steps)

    @property
    def state(self) -> dict[str, PrimFunc]:
        """The functions as they are now, by name."""
        return {name: e.func for name, e in self._engines.items()}

    @property
    def func_working_on(self) -> str | None:
        """The function that names of blocks are looked for in, where `work_on` chose one."""
        return self._worked_on or None

    def work_on(self, func_name: str) -> None:
        """Look for blocks in this function where none is named. Raises `ScheduleError`."""
        self._engine(func_name)
        self._worked_on = func_name

    def seed(self, seed: int | None) -> None:
        """Start the samples over."""
        self.random.seed(seed)

    def fork_seed(self) -> int:
        """A seed for another schedule, drawn from this one's."""
        return self.random.randrange(1, 1 << 31)

    def copy(self) -> Schedule:
        """Another schedule that is where this one is, with the same loops and a seed of its own."""
        new = Schedule(self._module, self.fork_seed())
        for name, e in self._engines.items():
            new._engines[name] = Engine(e.func, checked=True)
        new.steps, new._worked_on = list(self.steps), self._worked_on
        return new

    def show(self) -> None:
        """Print the functions as they are now, and the steps that led there."""
        print("\n\n".join(str(e.func) for e in self._engines.values()))
        if self.steps:
            print(f"\n{self.trace}")

    # What is there.
    def get_producers(self, block: BlockAt | str) -> list[BlockAt]:
        """The blocks that make what a block reads, in order."""
        return self._linked(block, loaded_buffers, stored_buffers)

    def get_consumers(self, block: BlockAt | str) -> list[BlockAt]:
        """The blocks that read what a block makes, in order."""
        return self._linked(block, stored_buffers, loaded_buffers)

    def _linked(
        self, block: BlockAt | str, near: Callable[[Block], list[Buffer]], far: Callable[[Block], list[Buffer]],
    ) -> list[BlockAt]:
        """The blocks of which `far` has a buffer that `near` has of `block`."""
        at, e = self._in(block)
        node = e.block(at.block)
        shared = near(node)
        return [replace(at, block=b.name) for b in _blocks(e) if b is not node and any(x in shared for x in far(b))]

    def get_child_blocks(self, block_or_loop: BlockAt | LoopRV | str) -> list[BlockAt]:
        """Return the blocks inside a loop, in order; a block contains none."""
        if not isinstance(block_or_loop, LoopRV):
            self.get(block_or_loop)
            return []
        inside = walk_stmt(self.get(block_or_loop))
        return [BlockAt(s.name, block_or_loop.func) for s in inside if isinstance(s, Block)]

    def get_output_blocks(self, func_name: str | None = None) -> list[BlockAt]:
        """The blocks that store to parameters, in order."""
        func = self._named(func_name)
        e = self._engine(func)
        return [BlockAt(b.name, func) for b in _blocks(e) if any(x in e.func.params for x in stored_buffers(b))]

    def _named(self, func: str | None) -> str:
        return super()._named(func or getattr(self, "_worked_on", "") or None)


def _blocks(e: Engine) -> list[Block]:
    return [s for s in walk_stmt(e.func.body) if isinstance(s, Block)]


def replay(program: Any, steps: Trace | Iterable[Step]) -> Any:
    """`program`, a function or a module, with the steps done to it. Raises `ScheduleError` when one does not fit."""
    sch = Schedule(program)
    sch.apply(steps)
    return sch.mod[MAIN] if isinstance(program, PrimFunc) else sch.mod
