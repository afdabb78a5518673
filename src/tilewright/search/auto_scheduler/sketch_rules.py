"""Rules that derive sketches as Ansor does: tiles of several levels, with open lengths, for CPUs and GPUs.

    inline          a cheap value is computed where it is read
    tile            for i, j: for k: C += …   ->   i0 j0 i1 j1 k0 i2 j2 k1 i3 j3   (the structure SSRSRS)
    fuse            the reader of a tiled sum is split in the same way, and the sum is computed in one of its tiles
    cache write     a sum without such a reader gets one, a copy of the result
    factor          a long sum with few results is computed in parts; on GPUs, by several threads
    cache read      on GPUs, each block copies its inputs
    constants       loops over the indices of a constant matrix, as in Winograd's algorithm, are unrolled

`derivation.py` tries them in the order of `default_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import ScheduleError
from tilewright.search.auto_scheduler import access, rules
from tilewright.search.auto_scheduler.derivation import Next, SketchRule
from tilewright.search.auto_scheduler.loop_state import Iterator, State
from tilewright.search.auto_scheduler.stage_facts import has_cache_read, has_cache_write, is_tiled
from tilewright.search.auto_scheduler.transform_step import ANNOTATIONS
from tilewright.te.tensor import ComputeOp, Operation

CONSTANT_INDICES: Final = "auto_scheduler_simplify_const_tensor_indices"
"""Attribute of a computation: the names of its axes that index constant matrices."""
_JOBS: Final = 16
"""Number of results per core that give enough parallelism without parts of a sum."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The tiles of a kind of processor: the order of spatial (S) and reduction (R) tiles, the numbers of tiles in which
    a sum is computed in its reader, and the limits below which a sum is computed in parts."""

    structure: str
    fused: tuple[int, ...]
    max_results: int
    """Largest number of results of a sum in parts that could also be tiled."""
    min_length: int
    """A sum in parts that cannot be tiled is longer than this."""
    is_gpu: bool = False
    threads: int = 1
    """Number of threads that compute a sum together."""


def cpu_shape(cores: int) -> Shape:
    """Return the tiles of a CPU with a number of cores."""
    return Shape("SSRSRS", (1, 2), _JOBS * cores, cores)


def gpu_shape(max_threads: int, warp: int) -> Shape:
    """Return the tiles of a GPU with blocks of up to `max_threads` threads, `warp` of which run in step."""
    return Shape("SSSRRSRS", (3,), max_threads, warp, is_gpu=True, threads=warp)


@dataclass(frozen=True, slots=True)
class _Rule(SketchRule):
    """Base of the rules for a kind of processor."""

    shape: Shape

    def condition(self, policy: Any, state: State, stage_id: int) -> int:
        op = state.stages[stage_id].computed
        return self.applies(state, stage_id, op) if isinstance(op, ComputeOp) else self.PASS

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        """Return the condition for stage `k`, which computes `op`."""
        raise NotImplementedError(f"{type(self).__name__} does not define applies")


class Inline(_Rule):
    """Computes cheap values and constants where they are read; on GPUs, all values that are no sums."""

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        if op.reduce_axis or state.stages[k].op in state.compute_dag.output_ops:
            return self.PASS
        cheap = self.shape.is_gpu or access.is_cheap(op) or not access.elements_read(op)
        return self.APPLY_AND_SKIP_REST if cheap else self.PASS

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        new = state.copy()
        new.compute_inline(stage_id)
        return [(new, stage_id - 1)]


class UnrollConstantIndices(_Rule):
    """Unrolls the axes that index constant matrices, and splits the others in two."""

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        return self.APPLY_AND_SKIP_REST if CONSTANT_INDICES in op.attrs else self.PASS

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        new, outer, inner = state.copy(), list[Iterator](), list[Iterator]()
        stage = new.stages[stage_id]
        listed = {str(n) for n in stage.op.attrs[CONSTANT_INDICES]} if isinstance(stage.op, ComputeOp) else set()
        rest, unrolled = list[Iterator](), list[Iterator]()
        for it in list(stage.iters):
            if it.name in listed:
                unrolled.append(it)
            elif it.kind == "reduce":
                rest.append(it)
            else:
                first, second = new.split(stage_id, it, [None])
                outer.append(first)
                inner.append(second)
        spatial = [it for it in unrolled if it.kind == "spatial"]
        reduced = [it for it in unrolled if it.kind == "reduce"]
        new.reorder(stage_id, [*outer, *inner, *spatial, *rest, *reduced])
        for it in unrolled:
            new.unroll(stage_id, it)
        return [(new, stage_id - 1)]


class ComputeInUnrolledReader(_Rule):
    """On GPUs, computes a value inside its only reader, beside the unrolled axes of that."""

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        reader = _only_reader(state, k)
        inputs = access.elements_read(op)
        is_read = reader is not None and CONSTANT_INDICES in getattr(reader, "attrs", {})
        return self.APPLY_AND_SKIP_REST if is_read and inputs and not op.reduce_axis else self.PASS

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        new, reader = state.copy(), _only_reader(state, stage_id)
        target = new.stage_id(reader)
        first = next(n for n, it in enumerate(new.stages[target].iters) if it.annotation == ANNOTATIONS["unroll"])
        new.compute_at(stage_id, target, first - 1)
        return [(new, stage_id - 1)]


class Factor(_Rule):
    """Computes the parts of a long sum in parallel: the outer or the inner loop over the sum is an axis of the parts.
    """

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        return self.APPLY if _is_long(op, self.shape) and not has_cache_write(state, k) else self.PASS

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        split, found = state.copy(), list[Next]()
        place = len(_of_kind(split, stage_id, "spatial"))
        _split_sum(split, stage_id, None)
        for part in (0, 1):
            new = split.copy()
            try:
                new.rfactor(stage_id, place + part, place)
            except ScheduleError:
                continue  # such as a reducer without a neutral value
            made = list(new.stages[stage_id].iters)
            if part == 1:  # parts of neighbours are the lanes of vectors
                new.reorder(stage_id, [*made[:place], *made[place + 1 :], made[place]])
            found.append((new, stage_id - 1))
        return found


class ShareSum(_Rule):
    """On GPUs, lets several threads compute a long sum together."""

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        return self.APPLY if _is_long(op, self.shape) and not has_cache_write(state, k) else self.PASS

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        new = state.copy()
        new.bind(stage_id, _split_sum(new, stage_id, self.shape.threads)[1], "threadIdx.x")
        return [(new, stage_id - 1)]


class CacheRead(_Rule):
    """On GPUs, copies an input of a tiled sum to memory that the threads of a block share."""

    def condition(self, policy: Any, state: State, stage_id: int) -> int:
        reader = _only_reader(state, stage_id)
        if not isinstance(reader, ComputeOp) or not _is_tileable(reader) or has_cache_read(state, stage_id):
            return self.PASS
        structure, stage = self.shape.structure, state.stages[_computing(state, reader)]
        loops = structure.count("S") * len(reader.axis) + structure.count("R") * len(reader.reduce_axis)
        return self.APPLY_AND_SKIP_REST if len(stage.iters) == loops else self.PASS

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        new, reader = state.copy(), _only_reader(state, stage_id)
        assert isinstance(reader, ComputeOp)
        before, _, _ = self.shape.structure.partition("R")
        loops = len(before) * len(reader.axis) + len(reader.reduce_axis)
        new.cache_read(stage_id, "shared", [_computing(new, reader)])
        new.compute_at(stage_id + 1, _computing(new, reader), loops - 1)
        return [(new, stage_id)]


class CacheWrite(_Rule):
    """Computes a sum that no elementwise computation reads in a stage of its own, and copies the result."""

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        if not _is_tileable(op) or has_cache_write(state, k) or _elementwise_reader(state, k) is not None:
            return self.PASS
        return self.APPLY_AND_SKIP_REST if self.shape.is_gpu else self.APPLY

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        new = state.copy()
        new.cache_write(stage_id, "local")
        return [(new, stage_id)]


class TileWithReader(_Rule):
    """Tiles a sum, splits its elementwise reader in the same way, and computes the sum in a tile of that."""

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        if not _is_tileable(op) or _elementwise_reader(state, k) is None:
            return self.PASS
        return self.APPLY_AND_SKIP_REST if self.shape.is_gpu or has_cache_write(state, k) else self.APPLY

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        target, found = _elementwise_reader(state, stage_id), list[Next]()
        assert target is not None
        for levels in self.shape.fused:
            new = state.copy()
            splits = tile(new, stage_id, self.shape.structure)
            count = len(splits)
            _follow(new, target, splits, levels)
            if count:
                new.compute_at(stage_id, target, levels * count - 1)
            found.append((new, stage_id - 1))
        return found


class Tile(_Rule):
    """Tiles a sum by itself."""

    def applies(self, state: State, k: int, op: ComputeOp) -> int:
        return self.APPLY_AND_SKIP_REST if _is_tileable(op) else self.PASS

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        new = state.copy()
        tile(new, stage_id, self.shape.structure)
        return [(new, stage_id - 1)]


class Skip(_Rule):
    """Leaves a stage as it is."""

    def condition(self, policy: Any, state: State, stage_id: int) -> int:
        return self.APPLY

    def apply(self, policy: Any, state: State, stage_id: int) -> list[Next]:
        return [(state, stage_id - 1)]


def default_rules(shape: Shape) -> list[SketchRule]:
    """Return the rules for a kind of processor, in the order in which they are tried."""
    kinds = (
        (CacheRead, ComputeInUnrolledReader, Inline, UnrollConstantIndices, ShareSum) if shape.is_gpu
        else (Inline, UnrollConstantIndices, Factor))
    return [kind(shape) for kind in (*kinds, CacheWrite, TileWithReader, Tile, Skip)]


def tile(state: State, k: int, structure: str) -> list[int]:
    """Split all loops of a stage into open tiles, in the order of a structure. Return the numbers of the steps that
    split the spatial loops."""
    levels: dict[str, list[list[Iterator]]] = {"S": [], "R": []}
    steps: list[int] = []
    for it in list(state.stages[k].iters):
        kind = "S" if it.kind == "spatial" else "R"
        if kind == "S":
            steps.append(len(state.transform_steps))
        levels[kind].append(state.split(k, it, [None] * (structure.count(kind) - 1)))
    order, met = list[Iterator](), {"S": 0, "R": 0}
    for kind in structure:
        order += [parts[met[kind]] for parts in levels[kind]]
        met[kind] += 1
    state.reorder(k, order)
    return steps


def _follow(state: State, k: int, splits: Sequence[int], levels: int) -> None:
    """Split the loops of a stage as earlier steps did, into `levels + 1` tiles, outer tiles first."""
    parts = [
        state.follow_split(k, it, step, levels)
        for it, step in zip(list(state.stages[k].iters), splits, strict=True)]
    if parts:
        state.reorder(k, [it for level in zip(*parts, strict=True) for it in level])


def _split_sum(state: State, k: int, length: int | None) -> list[Iterator]:
    """Fuse the loops of a sum, and split the result in two. Return both loops."""
    reduced = _of_kind(state, k, "reduce")
    return state.split(k, state.fuse(k, reduced) if len(reduced) > 1 else reduced[0], [length])


def _of_kind(state: State, k: int, kind: str) -> list[Iterator]:
    return [it for it in state.stages[k].iters if it.kind == kind]


def _is_tileable(op: ComputeOp) -> bool:
    """Return whether tiles save memory accesses: a sum whose inputs serve several results."""
    return access.has_reuse(op) and CONSTANT_INDICES not in op.attrs


def _is_long(op: ComputeOp, shape: Shape) -> bool:
    """Return whether a sum should be computed in parts."""
    if not op.reduce_axis or len(op.body) != 1 or CONSTANT_INDICES in op.attrs:
        return False
    results, length = access.spatial_size(op), access.reduction_size(op)
    return results <= min(length, shape.max_results) if _is_tileable(op) else length > shape.min_length


def _elementwise_reader(state: State, k: int) -> int | None:
    """Return the untiled stage that reads a sum point by point, through inlined stages, or None."""
    if has_cache_write(state, k):
        return k + 1
    inlined: set[Operation] = {s.op for s in state.stages if s.stage.inlined}
    reader = rules.tile_reader(state.compute_dag, state.stages[k].op, inlined, zeros=True)
    target = None if reader is None else state.stage_id(reader)
    return None if target is None or is_tiled(state.stages[target]) else target


def _only_reader(state: State, k: int) -> Operation | None:
    """Return the computation that alone reads a stage, or None."""
    op = state.stages[k].op
    readers = state.compute_dag.readers(op)
    return readers[0] if len(readers) == 1 and op not in state.compute_dag.output_ops else None


def _computing(state: State, op: Operation) -> int:
    """Return the stage that computes a sum, which may be copied to the stage of its result."""
    k = state.stage_id(op)
    return k - 1 if k and has_cache_write(state, k - 1) else k
