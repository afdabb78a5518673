"""A sketch: a plan with knobs. A plan and a setting of the knobs make the steps of a schedule.

The loops of a computation without a reduction are split three times: `S0` blocks, `S1` tiles of a block, `S2` a tile in
registers.

    for S0 (parallel): [blocks of stages computed here]
      for S1: { the sum in registers: for reductions: for S2: … ;  for S2: result }

Earlier computations are computed by themselves, in the blocks of a later one, or inside their reader. Sizes, orders
and places are the knobs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias

from tilewright.backends.machine import Machine
from tilewright.base.errors import ScheduleError
from tilewright.base.forks import lazy_attribute
from tilewright.base.graphs import reachable
from tilewright.scalar.arith.divisors import divisors
from tilewright.search.auto_scheduler import rules
from tilewright.search.auto_scheduler.access import extent_of
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.search.auto_scheduler.loop_state import Iterator, Stage, State
from tilewright.search.auto_scheduler.rules import CACHE_WRITE, INLINE, NEST, RFACTOR, ROWS, TILE, Plan
from tilewright.te.tensor import ComputeOp, Operation

ROOT: Final = "root"
INSIDE: Final = "inline"
BLOCK: Final = "block"
_TILES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_BLOCKS: Final = (1, 2, 3, 4, 6, 8, 16, 32, 64)
_MAX_STATEMENTS: Final = 160
"""Largest number of statements in an unrolled region; larger regions have more live values than registers."""
_SAMPLES: Final = 64

Setting: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Knob:
    """A decision: its name and its choices."""

    name: str
    choices: tuple[Any, ...]


class Sketch:
    """A plan, the knobs that it has for a machine, and the states that they make."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.plan, self.machine, self.dag = plan, machine, plan.dag
        self.nests = [op for op, r in plan.roles.items() if r.kind in (NEST, CACHE_WRITE)]

    @lazy_attribute
    def knobs(self) -> tuple[Knob, ...]:
        """The decisions, in a fixed order."""
        found: list[Knob] = []
        for op, role in self.plan.roles.items():
            assert isinstance(op, ComputeOp)
            if role.kind in (NEST, CACHE_WRITE):
                found += self._tile_knobs(op)
            if role.kind in (TILE, CACHE_WRITE):
                found += self._sum_knobs(op)
            if role.kind in (NEST, CACHE_WRITE, ROWS) and op not in self.dag.output_ops:
                found.append(Knob(f"{self.key(op)}.place", self._places(op)))
            if role.kind == RFACTOR:
                parts = [d for d in divisors(extent_of(op.reduce_axis[0])) if 1 < d <= 16 * self.machine.cores]
                found.append(Knob(f"{self.key(op)}.parts", tuple(parts) or (1,)))
        return tuple(k for k in found if len(k.choices) > 1)

    def _tile_knobs(self, op: ComputeOp) -> list[Knob]:
        key, found = self.key(op), []
        for n, axis in enumerate(op.axis):
            extent = extent_of(axis)
            tiles = [t for t in _TILES if t == 1 or extent % t == 0 or (t in (4, 8) and extent > 3 * t)]
            last = n == len(op.axis) - 1
            found.append(Knob(f"{key}.{n}.tile", _vector_tiles(extent, self.lanes(op)) if last else tuple(tiles)))
            found.append(Knob(f"{key}.{n}.block", tuple(b for b in _BLOCKS if b == 1 or b < extent)))
        return [*found, Knob(f"{key}.order", ("first", "last")), Knob(f"{key}.shared", ("all", "outer"))]

    def _sum_knobs(self, op: ComputeOp) -> list[Knob]:
        key, found = self.key(op), []
        for n, axis in enumerate(op.reduce_axis):
            longest = 8 if n == len(op.reduce_axis) - 1 else 7
            lengths = tuple(d for d in divisors(extent_of(axis)) if d == 1 or d <= longest)
            found.append(Knob(f"{key}.r{n}.unroll", lengths))
        return [*found, Knob(f"{key}.window", ("inside", "outside"))] if len(op.reduce_axis) > 1 else found

    def _places(self, op: ComputeOp) -> tuple[str, ...]:
        later = list(self.dag.ops)[list(self.dag.ops).index(op) + 1 :]
        nests = [f"{BLOCK} {self.key(f)}" for f in self.nests if f in later and self._leads_to(op, f)]
        return (ROOT, *nests, *((INSIDE,) if not op.reduce_axis else ()))

    def _leads_to(self, op: Operation, end: Operation) -> bool:
        """Return whether all uses of `op` lead to `end` only."""
        users = reachable(self.dag.readers(op), lambda r: () if r is end else self.dag.readers(r))
        return all(r is end or r not in self.dag.output_ops for r in users)

    def key(self, op: Operation) -> str:
        """Return the name of a computation in the names of knobs: its number."""
        return str(self.dag.ops.index(op))

    def lanes(self, op: Operation) -> int:
        """Return the number of vector lanes of a computation's results."""
        return self.machine.lanes(op.outputs[0].dtype)

    def sample(self, choose: random.Random) -> dict[str, Any]:
        """Draw a setting whose register tiles fit the registers.

        Half of the time all computations are placed as far inside as possible: chains gain when they share one nest.
        """
        setting: dict[str, Any] = {}
        for _ in range(_SAMPLES):
            together = choose.random() < 0.5
            setting = {
                k.name: k.choices[_innermost(k)] if together and k.name.endswith(".place") else choose.choice(k.choices)
                for k in self.knobs}
            if self.fits(setting):
                break
        return setting

    def fits(self, setting: Setting) -> bool:
        """Return whether register tiles fit the registers, and unrolled code is not too long."""
        registers = self.machine.vector_registers - 3
        for op, role in self.plan.roles.items():
            if role.kind == NEST and self.tile_vectors(op, setting) > 2 * registers:
                return False
            if role.kind in (TILE, CACHE_WRITE):
                tile = self.tile_vectors(role.reader or op, setting)
                unrolled = prod(int(v) for k, v in setting.items() if k.startswith(f"{self.key(op)}.r"))
                if tile > registers or tile * unrolled > _MAX_STATEMENTS:
                    return False
        return True

    def tile_vectors(self, op: Operation, setting: Setting) -> float:
        """Return the vectors of one register tile."""
        assert isinstance(op, ComputeOp)
        sizes = [self.tile(op, n, setting) for n in range(len(op.axis))]
        return prod(sizes[:-1]) * max(1, sizes[-1] / self.lanes(op)) if sizes else 1

    def chosen(self, setting: Setting, name: str) -> Any:
        """Return the choice of a knob, including knobs with a single choice; None for an unknown knob."""
        return setting.get(name, self._first_choices.get(name))

    @lazy_attribute
    def _first_choices(self) -> dict[str, Any]:
        """The first choice of each knob of a nest, including knobs of one choice."""
        nests = [op for op in self.nests if isinstance(op, ComputeOp)]
        return {k.name: k.choices[0] for op in nests for k in self._tile_knobs(op)}

    def tile(self, op: Operation, axis: int, setting: Setting) -> int:
        """Return the size of the register tile along an axis."""
        return int(self.chosen(setting, f"{self.key(op)}.{axis}.tile") or 1)

    def state(self, setting: Setting) -> State:
        """Return the steps of the plan with a setting. Raises `ScheduleError` if they contradict each other."""
        return _Maker(self, setting).make()


def sketches(dag: ComputeDAG, machine: Machine) -> list[Sketch]:
    """Return the sketches of a DAG for a machine."""
    return [Sketch(p, machine) for p in rules.plans(dag, machine)]


class _Maker:
    """Performs steps in the necessary order: stages are added, then loops are split, then stages are attached."""

    def __init__(self, sketch: Sketch, setting: Setting) -> None:
        self.sketch, self.setting, self.dag = sketch, setting, sketch.dag
        self.state = sketch.dag.get_init_state()
        self.sums: dict[Operation, Stage] = {}
        self.copies: dict[Operation, tuple[Operation, Stage]] = {}
        self.blocks: dict[Operation, int] = {}
        """The number of the last loop over blocks."""
        self.tiles: dict[Operation, int] = {}
        """The number of the last loop over tiles."""

    def make(self) -> State:
        roles = self.sketch.plan.roles
        placed = {op: str(self.setting.get(f"{self.sketch.key(op)}.place", ROOT)) for op in roles}
        backwards = list(reversed(list(roles)))
        for op in backwards:
            if roles[op].kind == INLINE or placed[op] == INSIDE:
                self.state.compute_inline(op)
        for op in backwards:
            if roles[op].kind == RFACTOR:
                self._rfactor(op)
            self._add_stages(op)
        for op in backwards:
            if roles[op].kind in (NEST, CACHE_WRITE) and placed[op] != INSIDE:
                self._nest(op, placed[op])
            elif roles[op].kind == ROWS:
                self._rows(op, placed[op])
        for op, role in roles.items():
            if role.kind in (TILE, CACHE_WRITE):
                self._sum(op, role.reader or op)
        return self.state

    def _chosen(self, op: Operation, knob: str) -> Any:
        return self.sketch.chosen(self.setting, f"{self.sketch.key(op)}.{knob}")

    def _add_stages(self, op: Operation) -> None:
        """Add the stages of a role: a separate stage for the sum, and one for the copy of an operand."""
        role, s = self.sketch.plan.roles[op], self.state
        if role.kind == CACHE_WRITE:
            self.sums[op] = s[s.cache_write(op, "local")]
        elif role.kind == TILE:
            self.sums[op] = s[op]
        if role.packed is not None:
            copy = s.cache_read(role.packed, "global", [s.stages.index(self.sums[op])])
            self.copies[role.reader or op] = (op, s[copy])

    # Loops.
    def _nest(self, op: Operation, place: str) -> None:
        assert isinstance(op, ComputeOp)
        s, stage, lanes = self.state, self.state[op], self.sketch.lanes(op)
        outer, middle, inner = list[Iterator](), list[Iterator](), list[Iterator]()
        lane: Iterator | None = None
        for n, it in enumerate([i for i in stage.iters if i.kind == "spatial"]):
            tile = self.sketch.tile(op, n, self.setting)
            block = min(int(self._chosen(op, f"{n}.block") or 1), -(-it.extent // tile))
            last = n == len(op.axis) - 1
            sizes = (block, -(-tile // lanes), min(tile, lanes)) if last else (block, tile)
            lengths = [trips for trips in sizes if trips > 1]
            parts = s.split(op, it, lengths) if lengths else [it]
            outer.append(parts.pop(0))
            if block > 1:
                middle.append(parts.pop(0))
            if last and tile > 1:
                lane = parts.pop()
            inner += parts
        if not outer:
            return
        rest = [i for i in stage.iters if i.kind != "spatial"]
        if self._chosen(op, "order") == "last" or op in self.copies:
            outer = [outer[-1], *outer[:-1]]
        s.reorder(op, [*outer, *middle, *rest, *inner, *([lane] if lane else [])])
        for it in inner:
            s.unroll(op, it)
        if lane is not None:
            s.vectorize(op, lane)
        fused = len(outer) if self._chosen(op, "shared") == "all" or len(outer) == 1 else len(outer) - 1
        if op in self.copies:
            fused = 1
            self._copy(op, outer[0])
        if place == ROOT:
            s.parallel(op, s.fuse(op, outer[:fused]) if fused > 1 else outer[0])
        else:
            self._attach(stage, place)
            fused = 1
        self.blocks[op] = len(outer) - fused
        self.tiles[op] = len(outer) + len(middle) - fused

    def _copy(self, op: Operation, at: Iterator) -> None:
        """Copy an operand at a loop of its reader, in vectors."""
        copy = self.copies[op][1]
        k = self.state.stages.index(copy)
        self.state.compute_at(k, op, at)
        self._vectorize(k, copy.iters[-1], self.sketch.lanes(copy.op))

    def _vectorize(self, stage: Any, it: Iterator, lanes: int) -> None:
        """Split off a vector of a loop."""
        *_, lane = self.state.split(stage, it, [lanes])
        self.state.vectorize(stage, lane)

    def _rows(self, op: Operation, place: str) -> None:
        assert isinstance(op, ComputeOp)
        s, stage, length = self.state, self.state[op], extent_of(op.reduce_axis[-1])
        spatial = [i for i in stage.iters if i.kind == "spatial"]
        lanes = min(self.sketch.lanes(op), length)
        if length % lanes == 0:
            self._vectorize(op, stage.iters[-1], lanes)
        if place == ROOT and spatial:
            s.parallel(op, s.fuse(op, spatial) if len(spatial) > 1 else spatial[0])
        elif place != ROOT:
            self._attach(stage, place)

    def _sum(self, op: Operation, reader: Operation) -> None:
        """Compute the sum of one register tile, at the tiles of its reader."""
        assert isinstance(op, ComputeOp)
        s, stage, count, lanes = self.state, self.sums[op], len(op.axis), self.sketch.lanes(op)
        k = s.stages.index(stage)
        s.compute_at(k, reader, self.tiles[reader])
        sizes = [self.sketch.tile(reader, n, self.setting) for n in range(count)]
        reduce = stage.iters[count:]
        spatial = list(zip(stage.iters[: count - 1], sizes, strict=False))
        columns: list[Iterator] = []
        if count:
            last = stage.iters[count - 1]
            columns = s.split(k, last, [min(sizes[-1], lanes)]) if sizes[-1] > lanes else [last]
        outer, inner = list[Iterator](), list[Iterator]()
        for n, it in enumerate(reduce):
            unrolled = int(self._chosen(op, f"r{n}.unroll") or 1)
            outside, *inside = s.split(k, it, [unrolled]) if unrolled > 1 else [it]
            outer.append(outside)
            inner += inside
        if self._chosen(op, "window") == "outside" and len(outer) > 1:
            outer = [*outer[1:], outer[0]]
        s.reorder(k, [*outer, *inner, *(it for it, _ in spatial), *columns])
        for it in (*inner, *(it for it, size in spatial if size > 1), *columns[:-1]):
            s.unroll(k, it)
        if columns and sizes[-1] > 1:
            s.vectorize(k, columns[-1])

    def _rfactor(self, op: Operation) -> None:
        """Compute parts of a sum in parallel, each with its own result, and add these."""
        assert isinstance(op, ComputeOp)
        s, parts, lanes = self.state, int(self._chosen(op, "parts") or 1), self.sketch.lanes(op)
        first = next(i for i in s[op].iters if i.kind == "reduce")
        outer, _ = s.split(op, first, [-(-first.extent // parts)])
        k = s.rfactor(op, outer, 0)
        *others, split = s[k].iters
        reduce = [it for it in others if it.kind == "reduce"]
        if reduce:  # in the order of the sum
            s.reorder(k, [*(it for it in others if it.kind != "reduce"), split, *reduce])
        last = s[k].iters[-1]
        if rules.along_lanes(op) and last.kind == "reduce" and last.extent % lanes == 0:
            self._vectorize(k, last, lanes)
        s.parallel(k, s[k].iters[0])

    def _attach(self, stage: Stage, place: str) -> None:
        target = self.dag.ops[int(place.split()[1])]
        if target not in self.blocks:
            raise ScheduleError(
                f"'{stage.name}' is to be computed in the blocks of '{target.name}', which is computed inside of its "
                "reader")
        self.state.compute_at(self.state.stages.index(stage), target, self.blocks[target])


def _innermost(place: Knob) -> int:
    """Return the choice that places a computation in the blocks of the last possible nest, or by itself."""
    return max((k for k, c in enumerate(place.choices) if c.startswith(BLOCK)), default=0)


def _vector_tiles(extent: int, lanes: int) -> tuple[int, ...]:
    """Return sizes of a tile along lanes: whole vectors, or divisors of short axes."""
    sizes = [lanes * m for m in (1, 2, 3, 4, 6, 8)]
    whole = [t for t in sizes if t <= extent and (extent % t == 0 or extent > 4 * t)]
    if whole:
        return tuple(whole)
    short = {d for d in divisors(extent) if d <= lanes} | ({lanes} if extent > lanes else set())
    return tuple(sorted(short, reverse=True)) or (1,)
