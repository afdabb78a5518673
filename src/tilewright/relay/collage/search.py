"""Finds the cheapest choice of parts: every call in exactly one part, with the lowest sum of part and transfer costs.

Dynamic programming in evaluation order. A state is the set of computed calls and, for each live value, the target that
holds it and the targets that want it. A value is moved to a target at most once. The next part contains the first call
that is not computed yet, so that no choice is visited twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.ir.structural import structural_hash
from tilewright.relay.analysis.regions import DEFAULT, open_nodes
from tilewright.relay.collage.candidates import Candidate
from tilewright.relay.collage.cost import CostEstimator
from tilewright.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands

_NOWHERE: Final = -1
_HOST: Final = 0

Live = tuple[tuple[int, int, int], ...]
"""Live values: (number, number of the target that holds it or -1, bit set of the targets that want it)."""

State = tuple[int, Live]
"""Bit set of the computed calls, and the live values."""

Entry = tuple[float, Candidate | None, State | None]
"""The lowest cost of a state, the last part, and the previous state."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen parts in the order of their first calls, and their cost including transfers."""

    parts: tuple[Candidate, ...]
    cost: float


def cheapest_plan(function: Function, candidates: Sequence[Candidate], estimator: CostEstimator) -> Plan:
    """Return the cheapest choice of `candidates` that computes every call once; larger parts win ties.

    Parts that are structurally equal up to the values of their constants are estimated once. Raises `CompileError` for
    a call that no target can compute.
    """
    problem = _Problem(function, candidates, estimator)
    return problem.solve()


class _Problem:
    def __init__(self, function: Function, candidates: Sequence[Candidate], estimator: CostEstimator) -> None:
        self.estimator = estimator
        order = open_nodes(function)
        self.calls = [e for e in order if isinstance(e, Call)]
        self.number: dict[Expr, int] = {e: i for i, e in enumerate(self.calls)}
        self.targets = [DEFAULT, *dict.fromkeys(c.target for c in candidates if c.target != DEFAULT)]
        self.values = _values(order, self.number)
        self.reads = [frozenset(v for o in operands(e) for v in self._sources(o)) for e in self.calls]
        self.readers = self._readers(order)
        self.sizes = {i: _nbytes(e.known_type()) for e, i in self.number.items()}
        for p in function.params:
            self.sizes[self._outer(p)] = _nbytes(p.known_type())
        self.starting: list[list[tuple[Candidate, float, int]]] = [[] for _ in self.calls]
        self._estimate(candidates)

    def _outer(self, e: Expr) -> int:
        """Return the number of a value that no call computes and the host holds."""
        return self.number.setdefault(e, len(self.number))

    def _sources(self, e: Expr) -> frozenset[int]:
        return self.values.get(e, frozenset()) or (frozenset([self._outer(e)]) if isinstance(e, Var) else frozenset())

    def _readers(self, order: Sequence[Expr]) -> dict[int, int]:
        """Return the readers of each value as a bit set. Bit `len(calls)` is set for uses by the host outside of calls:
        results, conditions."""
        found: dict[int, int] = {}
        for e in order:
            if isinstance(e, (Tuple, TupleGetItem)):
                continue
            bit = 1 << self.number[e] if isinstance(e, Call) else 1 << len(self.calls)
            for v in (v for o in operands(e) for v in self._sources(o)):
                found[v] = found.get(v, 0) | bit
        return found

    def _estimate(self, candidates: Iterable[Candidate]) -> None:
        known: dict[tuple[str, str], float] = {}
        for c in candidates:
            mask = sum([1 << self.number[e] for e in c.calls])
            cost = 0.0
            if c.target != DEFAULT or (isinstance(c.root, Call) and isinstance(c.root.op, Op)):
                key = (c.target, structural_hash(c.function, constants="type"))
                if key not in known:
                    known[key] = float(self.estimator.estimate(c.function, c.target))
                cost = known[key]
            if cost != float("inf"):
                self.starting[(mask & -mask).bit_length() - 1].append((c, cost, mask))
        for parts in self.starting:
            parts.sort(key=lambda part: -len(part[0].calls))

    def solve(self) -> Plan:
        count = len(self.calls)
        outside = 1 << count
        needed = ((v, bits & outside) for v, bits in self.readers.items() if v >= count or bits & outside)
        live: Live = (
            tuple(sorted((v, _NOWHERE if v < count else _HOST, 1 << _HOST if by_host else 0) for v, by_host in needed)))
        # Per first uncomputed call: the reachable states, each with its cost, its last part, and the previous state.
        waiting: list[dict[State, Entry]] = [{} for _ in range(count + 1)]
        waiting[0][0, live] = (0.0, None, None)
        for n in range(count):
            if waiting[n] and not self.starting[n]:
                self._check(n)
            for state, (cost, _, _) in waiting[n].items():
                covered, live = state
                for part, own, mask in self.starting[n]:
                    if covered & mask:
                        continue
                    done = covered | mask
                    handed, after = self._after(live, part, done)
                    first = (~done & (done + 1)).bit_length() - 1
                    entry = waiting[first].get((done, after))
                    if entry is None or cost + own + handed < entry[0]:
                        waiting[first][done, after] = (cost + own + handed, part, state)
        best = min(waiting[count], key=lambda state: waiting[count][state][0], default=None)
        if best is None:
            raise CompileError("no combination of parts computes every call, because the parts "
                               "overlap; let 'default' accept each call", code="TW0419")
        return self._traced(waiting, best)

    def _check(self, n: int) -> None:
        call = self.calls[n]
        name = call.op.name if isinstance(call.op, Op) else type(call.op).__name__
        others = any(call in c.calls for parts in self.starting for c, _, _ in parts)
        if not others:
            raise CompileError(f"no target can compute {name}: every part that contains it "
                               "has infinite cost; add a target that supports it, or give "
                               "'default' a finite cost", call.span, code="TW0419")

    def _traced(self, waiting: list[dict[State, Entry]], last: State) -> Plan:
        parts: list[Candidate] = []
        count = len(self.calls)
        total = waiting[count][last][0]
        state: State | None = last
        while state is not None:
            first = (~state[0] & (state[0] + 1)).bit_length() - 1
            _, part, state = waiting[min(first, count)][state]
            if part is not None:
                parts.append(part)
        return Plan(tuple(reversed(parts)), total)

    def _after(self, live: Live, part: Candidate, done: int) -> tuple[float, Live]:
        """Return the cost of the transfers for `part`, and the live values afterwards; `done` includes the part's
        calls."""
        known = {v: (home, wants) for v, home, wants in live}
        target = self.targets.index(part.target)
        cost = 0.0
        own = {self.number[e] for e in part.calls}
        for v in {v for i in own for v in self.reads[i]} - own:
            home, wants = known.get(v, (_NOWHERE, 0))
            if home not in (_NOWHERE, target) and not wants >> target & 1:
                cost += self._transfer(v, home, target)
            known[v] = (home, wants | 1 << target)
        for root in self._sources(part.root):
            wants = known.get(root, (_NOWHERE, 0))[1]
            cost += sum(self._transfer(root, target, t) for t in range(len(self.targets)) if wants >> t & 1
                        and t != target)
            known[root] = (target, wants)
        calls = (1 << len(self.calls)) - 1
        return cost, tuple(sorted((v, home, wants) for v, (home, wants) in known.items() if home == _NOWHERE
                                  or self.readers.get(v, 0) & calls & ~done))

    def _transfer(self, v: int, source: int, destination: int) -> float:
        return self.estimator.transfer(self.sizes.get(v, 0), self.targets[source], self.targets[destination])


def _values(order: Sequence[Expr], number: dict[Expr, int]) -> dict[Expr, frozenset[int]]:
    """Return the numbers of the calls whose results a node is or contains, through tuples and fields. Values bound by a
    `let` are held by the host."""
    found: dict[Expr, frozenset[int]] = {e: frozenset([i]) for e, i in number.items()}
    for e in order:
        if isinstance(e, (Tuple, TupleGetItem)):
            found[e] = frozenset(v for o in operands(e) for v in found.get(o, ()))
    return found


def _nbytes(kind: Type | None) -> int:
    """Return the size of a value in bytes; 0 if it is unknown."""
    if isinstance(kind, TupleType):
        return sum(map(_nbytes, kind.fields))
    return kind.nbytes if isinstance(kind, TensorType) and kind.is_static else 0
