"""`tir.Schedule`: the steps of `tir/loop_schedule.py` under TVM v0.13's names, on one function or a module of several.

    sch = tir.Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    io, ii = sch.split(i, factors=[None, 4])
    sch.parallel(io)
    sch.show()
    print(sch.trace)                        # the calls, which do the same to another schedule `sch`
    again = tir.replay(func, sch.trace)     # the scheduled function; a trace is data: as_json, from_json
    again = tir.replay(func, sch.steps)     # the same; a step refers to loops by their positions

Blocks are identified by name, loops by their variable: a loop keeps its identity through steps on other loops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer
from tilewright.tir.block_scope import StmtSRef
from tilewright.tir.block_tree import child_blocks
from tilewright.tir.call_trace import CallTrace, call, traced
from tilewright.tir.instructions import InstructionKind
from tilewright.tir.loop_schedule import Schedule as Engine
from tilewright.tir.loop_steps import MAIN, LoopRV
from tilewright.tir.nested_blocks import ScopeSchedule
from tilewright.tir.sampling import SampleSteps
from tilewright.tir.schedule_state import ScheduleState
from tilewright.tir.schedule_trace import Trace
from tilewright.tir.steps import BlockAt, ScheduleStep
from tilewright.tir.stmt import (
    ROOT_BLOCK,
    Block,
    PrimFunc,
    loaded_buffers,
    stored_buffers,
    walk_stmt,
)

__all__ = ["LoopRV", "Schedule", "Trace", "replay"]


@traced
class Schedule(SampleSteps):
    """Steps on the functions of a module; each preserves the results of the program.

    `mod` is an `IRModule`, or a function, which becomes `main`. `seed` initializes the sampling steps. A step that
    cannot be applied raises `ScheduleError` and changes nothing.

    `debug_mask`, `error_render_level` and `enable_check` are TVM's arguments, and have no effect: every step is
    checked, and every error shows the loops around the fault.
    """

    def __init__(
        self, mod: PrimFunc | IRModule, seed: int | None = None, *, debug_mask: str | int = "none",
        error_render_level: str = "detail", enable_check: bool = True
    ) -> None:
        if error_render_level not in ("detail", "fast", "none"):
            raise ScheduleError(
                f"error_render_level must be 'detail', 'fast' or 'none', not {error_render_level!r}")
        if not isinstance(debug_mask, int) and debug_mask not in ("none", "all"):
            raise ScheduleError(f"debug_mask must be 'none', 'all' or an integer, not {debug_mask!r}")
        super().__init__(mod)
        self.random = random.Random(seed)
        self._worked_on = ""
        self._trace = CallTrace()
        self._state: tuple[dict[str, PrimFunc], ScheduleState] | None = None
        """The last value of `state`, and its functions."""

    # The whole schedule.
    @property
    def trace(self) -> Trace:
        """The calls so far."""
        return self._trace.copy()

    def call(self, kind: InstructionKind, inputs: list[Any], attrs: list[Any], decision: Any = None) -> list[Any]:
        """Perform an instruction, and return its results. Raises `ScheduleError` if it cannot be performed."""
        return call(self, kind, inputs, attrs, decision)

    @property
    def functions(self) -> dict[str, PrimFunc]:
        """The current functions by name."""
        return {name: e.func for name, e in self._engines.items()}

    @property
    def state(self) -> ScheduleState:
        """The blocks and loops of the current functions, and what is known of them."""
        now = self.functions
        if self._state is None or any(self._state[0].get(k) is not f for k, f in now.items()):
            self._state = now, ScheduleState(IRModule(dict(now)))
        return self._state[1]

    @property
    def func_working_on(self) -> Any:
        """The `GlobalVar` of the function chosen by `work_on`, in which unqualified block names are looked up; None
        without a choice."""
        return self._module.get_global_var(self._worked_on) if self._worked_on else None

    def work_on(self, func_name: str) -> None:
        """Look up unqualified block names in this function. Raises `ScheduleError` if there is no such function."""
        self._engine(func_name)
        self._worked_on = func_name

    def seed(self, seed: int | None) -> None:
        """Restart the random generator of the sampling steps."""
        self.random.seed(seed)

    def fork_seed(self) -> int:
        """Return a seed for another schedule, drawn from this one's generator."""
        return self.random.randrange(1, 1 << 31)

    def copy(self) -> Schedule:
        """Return another schedule in the same state, with the same loops and a new seed."""
        new = Schedule(self._module, self.fork_seed())
        for name, e in self._engines.items():
            new._engines[name] = Engine(e.func, checked=True)
        new.steps, new._worked_on, new._trace = list(self.steps), self._worked_on, CallTrace(self.trace)
        return new

    def show(self) -> None:
        """Print the current functions, and the steps that led to them."""
        print("\n\n".join(str(e.func) for e in self._engines.values()))
        if self.steps:
            print(f"\n{self.trace}")

    # Queries.
    def get_producers(self, block: BlockAt | str) -> list[BlockAt]:
        """Return the blocks that compute the inputs of a block, in order."""
        return self._linked(block, loaded_buffers, stored_buffers)

    def get_consumers(self, block: BlockAt | str) -> list[BlockAt]:
        """The blocks that read what a block makes, in order."""
        return self._linked(block, stored_buffers, loaded_buffers)

    def _linked(
        self, block: BlockAt | str, near: Callable[[Block], list[Buffer]], far: Callable[[Block], list[Buffer]],
    ) -> list[BlockAt]:
        """The blocks beside `block` of which `far` has a buffer that `near` has of `block`."""
        at, e = self._inside(block)
        node = e.block(at.block)
        shared = near(node)
        beside = child_blocks(e.func.body)
        return [replace(at, block=b.name) for b in beside if b is not node and any(x in shared for x in far(b))]

    def get_child_blocks(self, block_or_loop: BlockAt | LoopRV | str) -> list[BlockAt]:
        """Return the blocks inside a loop or a block, in order, without those inside of other blocks."""
        node = self.get(block_or_loop)
        func = block_or_loop.func if isinstance(block_or_loop, LoopRV) else self._block(block_or_loop).func
        return [BlockAt(b.name, func) for b in child_blocks(node.body)]

    def get_output_blocks(self, scope_block: BlockAt | str | None = None) -> list[BlockAt]:
        """Return the blocks in a block that store to buffers from outside, in order; by default those of the function
        that store to parameters, also for the name of a function."""
        if isinstance(scope_block, str):
            scope_block = BlockAt(ROOT_BLOCK, scope_block) if scope_block in self._engines else self._block(scope_block)
        at = BlockAt(ROOT_BLOCK, self._named(None)) if scope_block is None else scope_block
        e, node = self._engine(at.func), self.get(at)
        within = e if self._is_root(at) else ScopeSchedule(e, at.block)
        inside = (s for s in walk_stmt(node.body) if isinstance(s, Block))
        return [
            replace(at, block=b.name) for b in inside if any(x in within.func.params for x in stored_buffers(b))]

    def get_sref(self, block_or_loop: BlockAt | LoopRV | str) -> StmtSRef:
        """Return a reference to the statement of a block or a loop, with those around it."""
        node = self.get(block_or_loop)
        at = block_or_loop if isinstance(block_or_loop, LoopRV) else self._block(block_or_loop)
        if not isinstance(at, LoopRV) and self._is_root(at):
            node = self.state.root(self._named(at.func))
        return self.state.get_sref(node)

    def _named(self, func: str | None) -> str:
        return super()._named(func or getattr(self, "_worked_on", "") or None)


def replay(program: Any, steps: Trace | Iterable[ScheduleStep]) -> Any:
    """Apply a trace or steps to `program`, a function or a module, and return the result. Raises `ScheduleError` if one
    does not fit."""
    sch = Schedule(program)
    if isinstance(steps, Trace):
        steps.apply_to_schedule(sch)
    else:
        sch.apply(steps)
    return sch.mod[MAIN] if isinstance(program, PrimFunc) else sch.mod
