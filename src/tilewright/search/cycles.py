"""A model of a processor's cycles: estimates the time of a scheduled program without measuring.

A region of unrolled loops takes as long as its scarcest resource: multiply-adds, loads and stores, by the ports of the
core, or the latency of dependent sums. The cache lines that come from each level overlap with that. The estimate orders
candidates before anything was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.backends.machine import Machine
from tilewright.search.features import Statement, traffic

_LOOP: Final = 1.5
_LINE_CYCLES: Final = (2.0, 5.0, 12.0)
"""Cycles to load a line from the second level, the third, and memory."""
_OVERLAP: Final = 0.35
_LAUNCH: Final = 12000.0
"""Cycles to start and to end a parallel loop on all threads."""
_GUARD: Final = 1.15
_SCALAR_GATHER: Final = 1.6
_CODE: Final = 4000.0
"""Number of unrolled statements above which the code exceeds the instruction caches."""


def cycles(found: Sequence[Statement], machine: Machine) -> list[float]:
    """Estimate the cycles of each statement, on all cores that share its loops."""
    return [_cycles(s, machine) for s in found]


def _cycles(s: Statement, machine: Machine) -> float:
    lanes = machine.vector_bits // 32
    vectors = s.unrolled * max(1.0, -(-s.vector // lanes))
    operations = max(1.0, s.operations) * vectors
    loads = stores = 0.0
    for a in s.accesses:
        if s.sums and a.writes:
            if not s.in_registers:
                loads += vectors
                stores += vectors
            continue
        if a.buffer.scope == "local" and not a.writes and s.region < len(s.loops):
            continue
        touched = a.elements[s.region]
        if a.lanes == "contiguous":
            moves = touched / min(lanes, s.vector)
        elif a.lanes == "same":
            moves = touched
        else:
            moves = touched * _SCALAR_GATHER
        loads, stores = (loads, stores + moves) if a.writes else (loads + moves, stores)
    core = machine.core
    chain = _chain(s, core.add_latency)
    spilled = max(
        0.0, vectors / max(1.0, chain / core.add_latency) - (machine.vector_registers - 3)
    ) if s.in_registers else 0.0
    moved = (loads + 2 * spilled) / core.loads, (stores + spilled) * core.store_cycles
    region = max(operations / core.multiplies, *moved, chain) + 0.1 * loads + _LOOP
    compute = region * s.trips(s.region) * (_GUARD if s.guarded else 1.0) * (1.0 + s.unrolled / _CODE)
    sizes = (machine.l1_bytes * 0.75, machine.l2_bytes * 0.75, 16.0 * machine.l2_bytes)
    memory = sum(traffic(s, size) * cost for size, cost in zip(sizes, _LINE_CYCLES, strict=True))
    total = max(compute, memory) + _OVERLAP * min(compute, memory)
    share = s.parallel
    if share < 2 or machine.cores < 2:
        return total
    rounds = -(-share // machine.cores)
    outside = next((k for k, f in enumerate(s.loops) if f.kind == "parallel"), 0)
    return total * rounds / share + _LAUNCH * s.trips(outside)


def _chain(s: Statement, latency: float) -> float:
    """Return the cycles of the dependent steps of one sum in a region."""
    if not s.sums:
        return 0.0
    results = max((a.elements[s.region] for a in s.accesses if a.writes), default=1.0)
    points = s.unrolled * s.vector
    return latency * max(1.0, points / max(1.0, results))
