"""What tuning is worth in the end: the fastest configurations against the model's choice, in turn, first kernel by kernel, then the network.

A figure of one trial is luck in part, and the best of hundreds is the luckiest. So every candidate is measured again, in turn with what the compiler
does by itself, and is kept where it is surely faster. Then the tuned network is compared with the untuned one; where it is not surely
faster, kernels are left out by halves until it is, or none is left: so what is kept never makes the network slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.runtime.trial import machine_name
from tilewright.search import records
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.autotvm.network import TaskState
from tilewright.search.autotvm.record import write_lines
from tilewright.search.comparison import Comparison, compared, in_turn
from tilewright.search.measure import Measured
from tilewright.search.records import Record

_CANDIDATES: Final = 2
_ROUNDS: Final = 8
_PAIRS: Final = 80
_SHARE: Final = 0.25
"""Of the time for comparisons, what one takes."""


@dataclass(slots=True)
class Verdict:
    """What is taken for a task: a configuration, what it takes, and how it compares with the model's choice, where it is another."""

    state: TaskState
    config: Any
    measured: Measured
    default: Measured
    """What the model's choice takes."""
    comparison: Comparison | None = None
    is_kept: bool = False
    """Whether a configuration that is not the model's is taken."""

    @property
    def saved(self) -> float:
        """Seconds that the network should save by it."""
        c = self.comparison
        return 0.0 if c is None or not self.is_kept else self.state.calls * (c.first - c.second)

    def line(self) -> str:
        """The record of what is taken."""
        config, measured = (self.config, self.measured) if self.is_kept else (self.state.task.default_config, self.default)
        candidate = TaskCandidate.of(self.state.task, config)
        return records.encode(Record(candidate.target, candidate.key, candidate.config, measured))


def judge(state: TaskState, option: Mapping[str, Any], rounds: int = _ROUNDS) -> Verdict | None:
    """The fastest candidates of a task against the model's choice; None where that could not be measured."""
    default = state.task.default_config
    others = [c for _, c in state.fastest if c.index != default.index][:_CANDIDATES]
    built = option["builder"].build([TaskCandidate.of(state.task, c) for c in (default, *others)])
    results: list[list[Measured]] = [[] for _ in built]
    for k in range(rounds):
        order = [*range(k % len(built), len(built)), *range(k % len(built))]
        for which, measured in zip(order, option["runner"].run([built[i] for i in order]), strict=True):
            results[which].append(measured)
    if not all(m.ok for m in results[0]):
        return None
    base = [min(m.costs) for m in results[0]]
    plain = _summed(results[0])
    best = Verdict(state, default, plain, plain)
    for config, measured in zip(others, results[1:], strict=True):
        if all(m.ok for m in measured):
            found = compared(base, [min(m.costs) for m in measured])
            if found.is_faster and (best.comparison is None or found.ratio < best.comparison.ratio):
                best = Verdict(state, config, _summed(measured), plain, found, is_kept=True)
    return best


def unchanged(state: TaskState) -> Verdict:
    """The verdict on a task of which nothing better is known: the model's choice."""
    measured = Measured((state.default,), timestamp=time.time(), machine=state.machine or machine_name())
    return Verdict(state, state.task.default_config, measured, measured)


def _summed(measured: Sequence[Measured]) -> Measured:
    """One result of several rounds."""
    last = measured[-1]
    return Measured(tuple(min(m.costs) for m in measured), last.error_no, sum(m.all_cost for m in measured), time.time(), machine=last.machine, ir_hash=last.ir_hash)


def write(path: Any, verdicts: Sequence[Verdict]) -> None:
    """One record for each task: what is taken for it, be it the model's choice."""
    write_lines(path, [v.line() for v in verdicts])


def settle(
    verdicts: Sequence[Verdict], compiled: Callable[[Sequence[Verdict]], Callable[[], object]], seconds: float, said: Callable[[str], None] = lambda text: None,
) -> Comparison | None:
    """Compare the network with what is kept and without, leave out what does not help, and say how they compare in the end; None where nothing is kept.

    `compiled(verdicts)` is the network as a function, kernels as in those of them that are kept. `seconds` are for all comparisons together;
    what is not proven by then is left out.
    """
    plain, end = compiled([]), time.perf_counter() + seconds

    def helps(kept: Sequence[Verdict]) -> Comparison:
        tuned = compiled(kept)
        found = in_turn(plain, tuned, _PAIRS, seconds * _SHARE)
        if not found.is_faster and not found.is_slower and found.ratio < 1:  # perhaps: asked anew, with more patience
            found = in_turn(plain, tuned, 4 * _PAIRS, seconds * _SHARE)
        said(f"{len(kept)} tuned kernels: {found}")
        return found

    def proven(candidates: Sequence[Verdict]) -> list[Verdict]:
        """The part of `candidates` that makes the network surely faster."""
        if not candidates or helps(candidates).is_faster:
            return list(candidates)
        if len(candidates) == 1 or time.perf_counter() > end:
            return []
        half = len(candidates) // 2
        return [*proven(candidates[:half]), *proven(candidates[half:])]

    kept = sorted((v for v in verdicts if v.is_kept), key=lambda v: -v.saved)
    chosen = proven(kept)
    found = helps(chosen) if chosen else None
    if found is None or not found.is_faster:
        chosen, found = [], None
    for v in kept:
        v.is_kept = any(v is c for c in chosen)
    return found
