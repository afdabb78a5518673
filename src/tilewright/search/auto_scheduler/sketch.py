"""A sketch: a plan with knobs, and the steps that the plan and one setting of the knobs make.

The loops of a computation that is no sum are cut three times, `S0` blocks, `S1` tiles of a block, `S2` a tile in registers:

    for S0 (parallel): [blocks of what is computed here] for S1: { sum in registers: for reductions: for S2: … ;  for S2: result }

What is computed before may stand by itself, in the blocks of its reader, or inside of it. Sizes, orders and places are the knobs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias

from tilewright.base.errors import ScheduleError
from tilewright.base.forks import lazy_attribute
from tilewright.scalar.expr import number_of
from tilewright.search.auto_scheduler import rules
from tilewright.search.auto_scheduler.compute_dag import ComputeDAG
from tilewright.search.auto_scheduler.loop_state import Iterator, StageState, State
from tilewright.search.auto_scheduler.rules import CACHE_WRITE, INLINE, NEST, RFACTOR, ROWS, TILE, Plan
from tilewright.te.tensor import ComputeOp, Operation
from tilewright.topi.machine import Machine

ROOT: Final = "root"
INSIDE: Final = "inline"
BLOCK: Final = "block"
_TILES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_MOST_STATEMENTS: Final = 160
"""Of a region that is written out: the compiler keeps more values alive than there are registers where there are more."""

Setting: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Knob:
    """A decision: its name, and what may be chosen."""

    name: str
    choices: tuple[Any, ...]


class Sketch:
    """A plan, the knobs that it has for a machine, and the states they make."""

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
                found.append(Knob(f"{self._key(op)}.place", self._places(op)))
            if role.kind == RFACTOR:
                found.append(Knob(f"{self._key(op)}.parts", tuple(d for d in _divisors(_extent(op.reduce_axis[0])) if 1 < d <= 16 * self.machine.cores) or (1,)))
        return tuple(k for k in found if len(k.choices) > 1)

    def _tile_knobs(self, op: ComputeOp) -> list[Knob]:
        key, found = self._key(op), []
        lanes = self.machine.lanes(op.outputs[0].dtype)
        for n, axis in enumerate(op.axis):
            extent = _extent(axis)
            if n == len(op.axis) - 1:
                found.append(Knob(f"{key}.{n}.tile", _vector_tiles(extent, lanes)))
            else:
                found.append(Knob(f"{key}.{n}.tile", tuple(t for t in _TILES if t == 1 or (extent % t == 0) or (t in (4, 8) and extent > 3 * t)) or (1,)))
            found.append(Knob(f"{key}.{n}.block", tuple(b for b in (1, 2, 3, 4, 6, 8, 16, 32, 64) if b == 1 or b < extent)))
        found.append(Knob(f"{key}.order", ("first", "last")))
        found.append(Knob(f"{key}.shared", ("all", "outer")))
        return found

    def _sum_knobs(self, op: ComputeOp) -> list[Knob]:
        key, found = self._key(op), []
        for n, axis in enumerate(op.reduce_axis):
            extent = _extent(axis)
            last = n == len(op.reduce_axis) - 1
            found.append(Knob(f"{key}.r{n}.unroll", tuple(d for d in _divisors(extent) if d == 1 or d <= (8 if last else 7))))
        if len(op.reduce_axis) > 1:
            found.append(Knob(f"{key}.window", ("inside", "outside")))
        return found

    def _places(self, op: ComputeOp) -> tuple[str, ...]:
        later = list(self.dag.ops)[list(self.dag.ops).index(op) + 1 :]
        nests = [f"{BLOCK} {self._key(f)}" for f in self.nests if f in later and self._leads_to(op, f)]
        inside = (INSIDE,) if not op.reduce_axis else ()
        return (ROOT, *nests, *inside)

    def _leads_to(self, op: Operation, end: Operation) -> bool:
        """Whether all that needs `op` is `end`, or is needed by it alone."""
        stack, seen = list(self.dag.readers(op)), set[Operation]()
        while stack:
            r = stack.pop()
            if r is end or r in seen:
                continue
            if r in self.dag.output_ops:
                return False
            seen.add(r)
            stack.extend(self.dag.readers(r))
        return True

    def _key(self, op: Operation) -> str:
        return str(self.dag.ops.index(op))

    def sample(self, choose: random.Random) -> dict[str, Any]:
        """A random setting whose register tiles are not larger than registers are.

        Where computations stand is drawn for all together half of the time: chains gain when the whole chain stands in one nest.
        """
        setting: dict[str, Any] = {}
        for _ in range(64):
            together = choose.random() < 0.5
            setting = {k.name: k.choices[self._innermost(k)] if together and k.name.endswith(".place") else choose.choice(k.choices) for k in self.knobs}
            if self.fits(setting):
                break
        return setting

    @staticmethod
    def _innermost(place: Knob) -> int:
        """The choice of a place that is in the blocks of the last nest it can stand in; by itself where there is none."""
        return max((k for k, c in enumerate(place.choices) if c.startswith(BLOCK)), default=0)

    def fits(self, setting: Setting) -> bool:
        """Whether no register tile has more vectors than there are registers, and no code that is written out is too long."""
        registers = self.machine.vector_registers - 3
        for op, role in self.plan.roles.items():
            if role.kind == NEST and self.tile_vectors(op, setting) > 2 * registers:
                return False
            if role.kind in (TILE, CACHE_WRITE):
                tile = self.tile_vectors(role.reader or op, setting)
                unrolled = prod(int(v) for k, v in setting.items() if k.startswith(f"{self._key(op)}.r"))
                if tile > registers or tile * unrolled > _MOST_STATEMENTS:
                    return False
        return True

    def tile_vectors(self, op: Operation, setting: Setting) -> float:
        """The vectors of one register tile."""
        assert isinstance(op, ComputeOp)
        sizes = [self._tile(op, n, setting) for n in range(len(op.axis))]
        lanes = self.machine.lanes(op.outputs[0].dtype)
        return prod(sizes[:-1]) * max(1, sizes[-1] / lanes) if sizes else 1

    def _chosen(self, setting: Setting, name: str) -> Any:
        if name in setting:
            return setting[name]
        return next((k.choices[0] for k in self._all if k.name == name), None)

    @lazy_attribute
    def _all(self) -> tuple[Knob, ...]:
        """The knobs with those of one choice."""
        found: list[Knob] = []
        for op in self.nests:
            assert isinstance(op, ComputeOp)
            found += self._tile_knobs(op)
        return tuple(found)

    def _tile(self, op: ComputeOp, axis: int, setting: Setting) -> int:
        return int(self._chosen(setting, f"{self._key(op)}.{axis}.tile") or 1)

    def state(self, setting: Setting) -> State:
        """The steps of the plan with this setting. Raises `ScheduleError` where they contradict each other."""
        return _Maker(self, setting).make()


def sketches(dag: ComputeDAG, machine: Machine) -> list[Sketch]:
    """The sketches of a DAG for a machine."""
    return [Sketch(p, machine) for p in rules.plans(dag, machine)]


class _Maker:
    """Steps in the order in which they have to come: stages are added, then loops are cut, then stages get their places."""

    def __init__(self, sketch: Sketch, setting: Setting) -> None:
        self.sketch, self.setting, self.dag = sketch, setting, sketch.dag
        self.state = sketch.dag.init_state.copy()
        self.sums: dict[Operation, Any] = {}
        self.copies: dict[Operation, tuple[Operation, Any]] = {}
        self.blocks: dict[Operation, int] = {}
        """The place of the last loop over blocks."""
        self.tiles: dict[Operation, int] = {}
        """The place of the last loop over tiles."""

    def make(self) -> State:
        roles = self.sketch.plan.roles
        placed = {op: self._place(op) for op in roles}
        for op in reversed(list(roles)):
            if roles[op].kind == INLINE or placed[op] == INSIDE:
                self.state.compute_inline(op)
        parts: dict[Operation, str] = {}
        for op in reversed(list(roles)):
            if roles[op].kind == RFACTOR:
                self._rfactor(op)
                parts[op] = "made"
            self._added(op)
        for op in reversed(list(roles)):
            kind = roles[op].kind
            if kind in (NEST, CACHE_WRITE) and placed[op] != INSIDE:
                self._nest(op, placed[op])
            elif kind == ROWS:
                self._rows(op, placed[op])
        for op, role in roles.items():
            if role.kind in (TILE, CACHE_WRITE):
                self._sum(op, role.reader or op)
        return self.state

    def _place(self, op: Operation) -> str:
        return str(self.setting.get(f"{self.sketch._key(op)}.place", ROOT))

    def _added(self, op: Operation) -> None:
        """The stages that a role adds: the sum apart from its result, the copy of an operand."""
        role = self.sketch.plan.roles[op]
        if role.kind == CACHE_WRITE:
            k = self.state.cache_write(op, "local")
            self.sums[op] = self.state.stages[k]
        elif role.kind == TILE:
            self.sums[op] = self.state.stages[self.state.stage_id(op)]
        if role.packed is not None:
            k = self.state.cache_read(role.packed, "global", [self.state.stages.index(self.sums[op])])
            self.copies[role.reader or op] = (op, self.state.stages[k])

    # Loops.
    def _nest(self, op: Operation, place: str) -> None:
        assert isinstance(op, ComputeOp)
        s, key = self.state, self.sketch._key(op)
        stage = s.stages[s.stage_id(op)]
        lanes = self.sketch.machine.lanes(op.outputs[0].dtype)
        outer: list[Iterator] = []
        middle: list[Iterator] = []
        inner: list[Iterator] = []
        lane: Iterator | None = None
        for n, it in enumerate([i for i in stage.iters if i.kind == "spatial"]):
            tile = self.sketch._tile(op, n, self.setting)
            block = min(int(self.sketch._chosen(self.setting, f"{key}.{n}.block") or 1), -(-it.extent // tile))
            last = n == len(op.axis) - 1
            vectors = -(-tile // lanes) if last else 1
            sizes = [n_trips for n_trips in (block, vectors, min(tile, lanes) if last else tile) if n_trips > 1]
            parts = s.split(op, it, sizes) if sizes else [it]
            outer.append(parts.pop(0))
            if block > 1:
                middle.append(parts.pop(0))
            if last and tile > 1:
                lane = parts.pop()
            inner += parts
        if not outer:
            return
        rest = [i for i in stage.iters if i.kind != "spatial"]
        if self.sketch._chosen(self.setting, f"{key}.order") == "last" or op in self.copies:
            outer = [outer[-1], *outer[:-1]]
        s.reorder(op, [*outer, *middle, *rest, *inner, *([lane] if lane else [])])
        for it in inner:
            s.unroll(op, it)
        if lane is not None:
            s.vectorize(op, lane)
        fused = len(outer) if self.sketch._chosen(self.setting, f"{key}.shared") == "all" or len(outer) == 1 else len(outer) - 1
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
        _, copy = self.copies[op]
        s = self.state
        k = s.stages.index(copy)
        lanes = self.sketch.machine.lanes(copy.op.outputs[0].dtype)
        s.compute_at(k, op, at)
        *_, last = s.split(k, copy.iters[-1], [lanes])
        s.vectorize(k, last)

    def _rows(self, op: Operation, place: str) -> None:
        assert isinstance(op, ComputeOp)
        s = self.state
        stage = s.stages[s.stage_id(op)]
        spatial = [i for i in stage.iters if i.kind == "spatial"]
        lanes = min(self.sketch.machine.lanes(op.outputs[0].dtype), _extent(op.reduce_axis[-1]))
        if _extent(op.reduce_axis[-1]) % lanes == 0:
            *_, lane = s.split(op, stage.iters[-1], [lanes])
            s.vectorize(op, lane)
        if place == ROOT and spatial:
            fused = s.fuse(op, spatial) if len(spatial) > 1 else spatial[0]
            s.parallel(op, fused)
        elif place != ROOT:
            self._attach(stage, place)

    def _sum(self, op: Operation, reader: Operation) -> None:
        """The sum of one register tile, at the tiles of its reader."""
        assert isinstance(op, ComputeOp)
        s, key = self.state, self.sketch._key(op)
        stage = self.sums[op]
        k = s.stages.index(stage)
        s.compute_at(k, reader, self.tiles[reader])
        lanes = self.sketch.machine.lanes(op.outputs[0].dtype)
        count = len(op.axis)
        sizes = [self.sketch._tile(reader, n, self.setting) for n in range(count)]  # type: ignore[arg-type]
        reduce = stage.iters[count:]
        columns: list[Iterator] = []
        spatial = [(it, size > 1) for it, size in zip(stage.iters[: count - 1], sizes[:-1], strict=True)]
        if count:
            columns = s.split(k, stage.iters[count - 1], [min(sizes[-1], lanes)]) if sizes[-1] > lanes else [stage.iters[count - 1]]
        outer, inner = [], []
        for n, it in enumerate(reduce):
            most = int(self.setting.get(f"{key}.r{n}.unroll", 1))
            if most > 1:
                a, b = s.split(k, it, [most])
                outer.append(a)
                inner.append(b)
            else:
                outer.append(it)
        if self.setting.get(f"{key}.window") == "outside" and len(outer) > 1:
            outer = [*outer[1:], outer[0]]
        s.reorder(k, [*outer, *inner, *(it for it, _ in spatial), *columns])
        for it in (*inner, *(it for it, more in spatial if more), *columns[:-1]):
            s.unroll(k, _now(stage, it))
        if columns and sizes[-1] > 1:
            s.vectorize(k, columns[-1])

    def _rfactor(self, op: Operation) -> None:
        """Parts of a sum side by side on the cores, each with its own result; then these are added up."""
        assert isinstance(op, ComputeOp)
        s = self.state
        parts = int(self.setting.get(f"{self.sketch._key(op)}.parts", 1))
        stage = s.stages[s.stage_id(op)]
        first = next(i for i in stage.iters if i.kind == "reduce")
        outer, _ = s.split(op, first, [-(-first.extent // parts)])
        k = s.rfactor(op, outer, 0)
        made = s.stages[k]
        last = made.iters[-1]
        lanes = self.sketch.machine.lanes(op.outputs[0].dtype)
        if rules.along_lanes(op) and last.kind == "reduce" and last.extent % lanes == 0:
            *_, lane = s.split(k, last, [lanes])
            s.vectorize(k, lane)
        s.parallel(k, made.iters[0])

    def _attach(self, stage: Any, place: str) -> None:
        s = self.state
        target = self.dag.ops[int(place.split()[1])]
        if target not in self.blocks:
            raise ScheduleError(f"'{stage.name}' is to stand in the blocks of '{target.name}', which is computed inside of its reader")
        s.compute_at(s.stages.index(stage), target, self.blocks[target])


def _now(stage: StageState, it: Iterator) -> Iterator:
    """A loop of a stage as it is now: marks make new ones of the same name."""
    return next(i for i in stage.iters if i.name == it.name)


def _extent(axis: Any) -> int:
    return int(number_of(axis.extent) or 0)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _vector_tiles(extent: int, lanes: int) -> tuple[int, ...]:
    """Sizes of a tile along lanes: whole vectors, or for short axes what divides them."""
    whole = [lanes * m for m in (1, 2, 3, 4, 6, 8) if lanes * m <= extent and (extent % (lanes * m) == 0 or extent > 4 * lanes * m)]
    if whole:
        return tuple(whole)
    return tuple(sorted({d for d in _divisors(extent) if d <= lanes} | ({lanes} if extent > lanes else set()), reverse=True)) or (1,)

