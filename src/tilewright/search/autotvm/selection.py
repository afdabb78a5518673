"""Selects the tuned kernels of a network that are significantly faster.

The lowest of hundreds of measured costs is partly due to noise. So the fastest configurations of each task are measured
again, alternately with the compiler's own choice, and kept if they are significantly faster. Then the tuned network is
compared with the untuned one. If it is not significantly faster, kernels are removed by bisection until it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.runtime.trial import machine_name
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.autotvm.network import TaskState
from tilewright.search.comparison import Comparison, compared, in_turn
from tilewright.search.measure import Measured
from tilewright.search.records import Records

_CANDIDATES: Final = 2
_ROUNDS: Final = 8
_PAIRS: Final = 80
_SHARE: Final = 0.25
"""Fraction of the time for comparisons that one comparison takes."""


@dataclass(slots=True)
class Selection:
    """The configuration that is selected for a task, its time, and its comparison with the compiler's own choice."""

    state: TaskState
    config: Any
    measured: Measured
    default: Measured
    """The time of the compiler's own choice."""
    comparison: Comparison | None = None
    is_kept: bool = False
    """Whether a configuration other than the compiler's own is kept."""

    @property
    def saved(self) -> float:
        """Expected seconds saved per run of the network."""
        c = self.comparison
        return 0.0 if c is None or not self.is_kept else self.state.calls * (c.first - c.second)

    @property
    def kept(self) -> tuple[Any, Measured]:
        """The kept configuration and its time."""
        return (self.config, self.measured) if self.is_kept else (self.state.task.default_config, self.default)


def select(state: TaskState, option: Mapping[str, Any], rounds: int = _ROUNDS) -> Selection | None:
    """Compare the fastest candidates of a task with the compiler's own choice; None if that fails."""
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
    base, plain = [min(m.costs) for m in results[0]], _joined(results[0])
    best = Selection(state, default, plain, plain)
    for config, found in zip(others, results[1:], strict=True):
        if all(m.ok for m in found):
            comparison = compared(base, [min(m.costs) for m in found])
            if comparison.is_faster and (best.comparison is None or comparison.ratio < best.comparison.ratio):
                best = Selection(state, config, _joined(found), plain, comparison, is_kept=True)
    return best


def unchanged(state: TaskState) -> Selection:
    """Return the selection of a task without a faster configuration: the compiler's own choice."""
    measured = Measured((state.default,), timestamp=time.time(), machine=state.machine or machine_name())
    return Selection(state, state.task.default_config, measured, measured)


def _joined(measured: Sequence[Measured]) -> Measured:
    """Return one result of several rounds."""
    last, costs = measured[-1], tuple(min(m.costs) for m in measured)
    seconds = sum(m.all_cost for m in measured)
    return Measured(costs, last.error_no, seconds, time.time(), machine=last.machine, ir_hash=last.ir_hash)


def write(records: Records, selections: Sequence[Selection]) -> None:
    """Append one selected record for each task: its kept configuration, or the compiler's own choice."""
    for s in selections:
        config, measured = s.kept
        records.add(TaskCandidate.of(s.state.task, config), measured, selected=True)


def prove(
    selections: Sequence[Selection], compiled: Callable[[Sequence[Selection]], Callable[[], object]], seconds: float,
    report: Callable[[str], None] = lambda text: None,
) -> Comparison | None:
    """Keep the part of `selections` that makes the network surely faster; return its comparison, None if nothing is
    kept.

    `compiled(selections)` returns the network as a function, with these kernels. `seconds` are for all comparisons
    together; kernels that are not proven by then are left out.
    """
    plain, end = compiled([]), time.perf_counter() + seconds

    def compare(kept: Sequence[Selection]) -> Comparison:
        tuned = compiled(kept)
        found = in_turn(plain, tuned, _PAIRS, seconds * _SHARE)
        if not found.is_faster and not found.is_slower and found.ratio < 1:  # undecided: measure more pairs
            found = in_turn(plain, tuned, 4 * _PAIRS, seconds * _SHARE)
        report(f"{len(kept)} tuned kernels: {found}")
        return found

    def proven(candidates: Sequence[Selection]) -> list[Selection]:
        if not candidates or compare(candidates).is_faster:
            return list(candidates)
        if len(candidates) == 1 or time.perf_counter() > end:
            return []
        half = len(candidates) // 2
        return [*proven(candidates[:half]), *proven(candidates[half:])]

    kept = sorted((s for s in selections if s.is_kept), key=lambda s: -s.saved)
    chosen = proven(kept)
    found = compare(chosen) if chosen else None
    if found is None or not found.is_faster:
        chosen, found = [], None
    for s in kept:
        s.is_kept = any(s is c for c in chosen)
    return found
