"""Sampling steps for loop factors, numbers and locations.

The trace keeps each sample as a decision, so that it can be repeated.

Draws come from a generator seeded by `seed`. Samples return plain numbers and loops, which later steps contain as
arguments.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.scalar.arith.divisors import divisors
from tilewright.scalar.expr import number_of
from tilewright.scalar.walk import free_vars
from tilewright.tir.block_steps import BlockSteps
from tilewright.tir.loop_steps import INLINE, ROOT, LoopRV
from tilewright.tir.steps import BlockAt, SampledInt, ScheduleStep, notes_itself, recorded
from tilewright.tir.stmt import Block, For, stored_buffers, walk_stmt


class SampleSteps(BlockSteps):
    """Sampling steps, in addition to the others."""

    random: random.Random

    def _decided(self, name: str, args: tuple[Any, ...], options: dict[str, Any], decision: Any) -> None:
        self.steps.append(
            ScheduleStep(
                name, self.noted(args),
                {**{k: self.noted(v) for k, v in options.items()}, "decision": self.noted(decision)}))

    @notes_itself
    def sample_categorical(self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None) -> int:
        """Sample one of the candidates with the probabilities `probs`; `decision` is its index. A step."""
        if len(candidates) != len(probs) or not candidates or min(probs) < 0 or abs(sum(probs) - 1) > 1e-6:
            raise ScheduleError(
                f"probabilities of {len(candidates)} candidates are {list(probs)}; give one for each, with the sum 1")
        chosen = self.random.choices(range(len(candidates)), probs)[0] if decision is None else int(decision)
        if not 0 <= chosen < len(candidates):
            raise ScheduleError(f"decision {chosen} is not an index of the {len(candidates)} candidates")
        self._decided("sample_categorical", (tuple(candidates), tuple(probs)), {}, chosen)
        return SampledInt(candidates[chosen])

    @notes_itself
    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[int]:
        """Sample `n` factors with the extent of `loop` as their product, the last at most `max_innermost_factor`. A
        step."""
        extent = self._engine(loop.func).extent(loop.var)
        drawn = self._factors(extent, n, max_innermost_factor) if decision is None else [int(d) for d in decision]
        total = 1
        for f in drawn:
            total *= f
        if len(drawn) != n or total != extent:
            raise ScheduleError(
                f"decision {drawn} is not {n} factors of the {extent} iterations of loop '{loop.var.name}'"
            )
        self._decided("sample_perfect_tile", (loop, n, max_innermost_factor), {}, tuple(drawn))
        return list(map(SampledInt, drawn))

    @notes_itself
    def sample_partitioned_tile(
        self, loop: LoopRV, n: int, partition_pos: int = 0, innerpart_factor: int = 1,
        decision: Sequence[int] | None = None
    ) -> list[int]:
        """Sample like `sample_perfect_tile`, with the product of the factors from `partition_pos` on a multiple of
        `innerpart_factor`. A step."""
        extent = self._engine(loop.func).extent(loop.var)
        if not 0 < partition_pos < n or extent % innerpart_factor:
            raise ScheduleError(
            f"the extent {extent} of loop '{loop.var.name}' has no split into {n} factors where the product from "
            f"position {partition_pos} on is a multiple of {innerpart_factor}")
        if decision is None:
            rest = self._factors(extent // innerpart_factor, n, extent)
            decision = [f * innerpart_factor if k == partition_pos else f for k, f in enumerate(rest)]
        drawn, total, inner = [int(d) for d in decision], 1, 1
        for k, f in enumerate(drawn):
            total, inner = total * f, inner * f if k >= partition_pos else inner
        if len(drawn) != n or total != extent or inner % innerpart_factor:
            raise ScheduleError(
                f"decision {drawn} is not {n} factors of the {extent} iterations of loop '{loop.var.name}' with the "
                f"inner factors a multiple of {innerpart_factor}")
        self._decided("sample_partitioned_tile", (loop, n, partition_pos, innerpart_factor), {}, tuple(drawn))
        return list(map(SampledInt, drawn))

    def _factors(self, extent: int, n: int, most: int) -> list[int]:
        if n < 1:
            raise ScheduleError(f"{n} factors cannot be drawn; ask for 1 or more")
        drawn: list[int] = []
        for k in range(n - 1):
            limit = most if k == 0 else extent
            fits = divisors(extent, limit)
            drawn.append(self.random.choice(fits))
            extent //= drawn[-1]
        return [extent, *reversed(drawn)]

    @notes_itself
    def sample_compute_location(self, block: BlockAt | str, decision: int | None = None) -> LoopRV | int:
        """Sample a loop of the block's first reader for `compute_at`, or `ROOT`, or `INLINE`; `decision` is the loop's
        index. A step."""
        at, e = self._in(block)
        node = e.block(at.block)
        loops = self._places(at, node)
        if decision is None:
            decision = self.random.choice(self.compute_locations(at))
        if not INLINE <= decision < len(loops):
            raise ScheduleError(
                f"decision {decision} is not a valid place to compute block '{at.block}'; there are {len(loops)} loops")
        self._decided("sample_compute_location", (at,), {}, decision)
        return SampledInt(decision) if decision < 0 else loops[decision]

    def compute_locations(self, block: BlockAt) -> list[int]:
        """Return the decisions from which `sample_compute_location` draws: `ROOT`, `INLINE` if it is possible, and the
        loops of the first reader that have several trips, up to its last reduction loop if there is one."""
        at, e = self._in(block)
        node = e.block(at.block)
        loops = self._places(at, node)
        reduced = [k for k, v in enumerate(loops) if self._reduces(at, v)]
        last = reduced[-1] if reduced else len(loops) - 1
        found = [k for k, v in enumerate(loops[: last + 1]) if number_of(self.get(v).extent) != 1]
        if node.init is None and not any(b in e.func.params for b in stored_buffers(node)):
            found.insert(0, INLINE)
        return [ROOT, *found]

    def _reduces(self, at: BlockAt, loop: LoopRV) -> bool:
        """Return whether the first reader of a block reduces over a loop."""
        reader = self.get(self.get_consumers(at)[0])
        axes = zip(reader.iters, reader.bindings, strict=True)
        return any(i.kind == "reduce" and loop.var in free_vars(b) for i, b in axes)

    def _places(self, at: BlockAt, node: Block) -> list[LoopRV]:
        readers = self.get_consumers(at)
        if not readers:
            return []
        inside = {s.var for s in walk_stmt(self.get(readers[0])) if isinstance(s, For)}
        return [v for v in self.get_loops(readers[0]) if v.var not in inside]

    def get_consumers(self, block: BlockAt | str) -> list[BlockAt]:
        """Return the blocks that read the results of a block, in order."""
        raise NotImplementedError

    @recorded
    def enter_postproc(self) -> None:
        """Mark the beginning of postprocessing steps, which `Trace.simplified(remove_postproc=True)` removes."""
