"""The steps of template-free schedules, as records of the field (version 0.6) hold them: a code and numbers.

    ["SP", 2, 0, 512, [1, 64, 8], 1]     loop 0 of stage 2, of 512 trips, into four: ?, 1, 64 and 8 trips
    ["CA", 2, 3, 3]                      stage 2 is computed inside loop 3 of stage 3

A stage is named by its place among the stages at that point, a loop by its place among the loops of its stage. A step is a
small class: its code, its fields in the order of the record, and what it does to a `Replay`, which is a `te.Schedule` with the
list of its stages. `steps_from_json` refuses codes that no step has, naming them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tilewright.base.errors import ScheduleError

if TYPE_CHECKING:
    from tilewright.search.auto_scheduler.replay import Replay

UNROLL, VECTORIZE, PARALLEL, TENSORIZE = 1, 2, 3, 11
THREADS: Final = {4: "vthread", 5: "blockIdx.x", 6: "threadIdx.x", 7: "blockIdx.y", 8: "threadIdx.y", 9: "blockIdx.z", 10: "threadIdx.z"}
ANNOTATIONS: Final = {"none": 0, "unroll": UNROLL, "vectorize": VECTORIZE, "parallel": PARALLEL, **{name: k for k, name in THREADS.items()}, "tensorize": TENSORIZE}
"""The numbers of annotations in records."""


@dataclass(frozen=True, slots=True)
class TransformStep:
    """Base of steps: `stage_id` is the stage that it is about."""

    code: ClassVar[str] = ""
    stage_id: int

    def as_json(self) -> list[Any]:
        """The step as records hold it."""
        return [self.code, *(_plain(getattr(self, f.name)) for f in fields(self))]

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        """Do it; `before` are the steps before it. Raises `ScheduleError`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AnnotationStep(TransformStep):
    """A loop is unrolled, vectorized or parallel."""

    code = "AN"
    iter_id: int
    annotation: int

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.annotate(self.stage_id, self.iter_id, self.annotation)


@dataclass(frozen=True, slots=True)
class FuseStep(TransformStep):
    """Loops that stand directly inside each other become one."""

    code = "FU"
    fused_ids: tuple[int, ...]

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.fuse(self.stage_id, self.fused_ids)


@dataclass(frozen=True, slots=True)
class PragmaStep(TransformStep):
    """A hint on a loop: `auto_unroll_max_step$64`."""

    code = "PR"
    iter_id: int
    pragma_type: str

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.pragma(self.stage_id, self.iter_id, self.pragma_type)


@dataclass(frozen=True, slots=True)
class ReorderStep(TransformStep):
    """The loops of a stage in another order."""

    code = "RE"
    after_ids: tuple[int, ...]

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.reorder(self.stage_id, self.after_ids)


@dataclass(frozen=True, slots=True)
class SplitStep(TransformStep):
    """A loop of `extent` trips becomes `len(lengths) + 1`: the lengths are those of the inner ones, or of the outer ones."""

    code = "SP"
    iter_id: int
    extent: int | None
    lengths: tuple[int, ...]
    inner_to_outer: bool = True

    def as_json(self) -> list[Any]:
        return [self.code, self.stage_id, self.iter_id, self.extent, list(self.lengths), int(self.inner_to_outer)]

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.split(self.stage_id, self.iter_id, self.lengths, self.inner_to_outer)


@dataclass(frozen=True, slots=True)
class FollowSplitStep(TransformStep):
    """A loop is split into `n_split + 1` with the lengths of an earlier split, the innermost of those multiplied up."""

    code = "FSP"
    iter_id: int
    src_step_id: int
    n_split: int

    def lengths(self, before: Sequence[TransformStep]) -> tuple[int, ...]:
        known = _split(before, self.src_step_id, self).lengths
        return (*known[: self.n_split - 1], prod(known[self.n_split - 1 :]))

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.split(self.stage_id, self.iter_id, self.lengths(before), True)


@dataclass(frozen=True, slots=True)
class FollowFusedSplitStep(TransformStep):
    """A loop is split in two by the product of the lengths that earlier splits have at `level`."""

    code = "FFSP"
    iter_id: int
    src_step_ids: tuple[int, ...]
    level: int
    factor_or_nparts: bool

    def as_json(self) -> list[Any]:
        return [self.code, self.stage_id, self.iter_id, list(self.src_step_ids), self.level, int(self.factor_or_nparts)]

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        length = prod(_split(before, k, self).lengths[self.level] for k in self.src_step_ids)
        replay.split(self.stage_id, self.iter_id, (length,), self.factor_or_nparts)


@dataclass(frozen=True, slots=True)
class StorageAlignStep(TransformStep):
    """Elements along a loop's axis lie `factor * k + offset` apart."""

    code = "SA"
    iter_id: int
    factor: int
    offset: int

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.storage_align(self.stage_id, self.iter_id, self.factor, self.offset)


@dataclass(frozen=True, slots=True)
class ComputeAtStep(TransformStep):
    """A stage is computed inside a loop of another."""

    code = "CA"
    target_stage_id: int
    target_iter_id: int

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.compute_at(self.stage_id, self.target_stage_id, self.target_iter_id)


@dataclass(frozen=True, slots=True)
class ComputeInlineStep(TransformStep):
    """A stage is computed wherever it is read."""

    code = "CI"

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.compute_inline(self.stage_id)


@dataclass(frozen=True, slots=True)
class ComputeRootStep(TransformStep):
    """A stage is computed whole, before its readers."""

    code = "CR"

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.compute_root(self.stage_id)


@dataclass(frozen=True, slots=True)
class CacheReadStep(TransformStep):
    """Readers read a copy, which is a new stage behind this one."""

    code = "CHR"
    scope_name: str
    reader_stage_ids: tuple[int, ...]

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.cache_read(self.stage_id, self.scope_name, self.reader_stage_ids)


@dataclass(frozen=True, slots=True)
class CacheWriteStep(TransformStep):
    """The stage is computed elsewhere, by a new stage before this one, which then brings the result home."""

    code = "CHW"
    scope_name: str

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.cache_write(self.stage_id, self.scope_name)


@dataclass(frozen=True, slots=True)
class RfactorStep(TransformStep):
    """A reduction in two: each trip of the loop has a result of its own, in a new stage before this one."""

    code = "RF"
    iter_id: int
    factor_iter_id: int

    def apply(self, replay: Replay, before: Sequence[TransformStep]) -> None:
        replay.rfactor(self.stage_id, self.iter_id, self.factor_iter_id)


STEPS: Final[dict[str, type[TransformStep]]] = {
    s.code: s for s in (
        AnnotationStep, FuseStep, PragmaStep, ReorderStep, SplitStep, FollowSplitStep, FollowFusedSplitStep, StorageAlignStep,
        ComputeAtStep, ComputeInlineStep, ComputeRootStep, CacheReadStep, CacheWriteStep, RfactorStep,
    )
}
"""Every step by its code."""


def step_from_json(data: Any) -> TransformStep:
    """The step that a record holds. Raises `ScheduleError` for an unknown code or fields that do not fit."""
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise ScheduleError(f'{data!r} is not a step of a record; one is ["SP", stage, loop, extent, [lengths], 1]', code="TW1113")
    kind = STEPS.get(data[0])
    if kind is None:
        raise ScheduleError(f"step '{data[0]}' of the record is unknown here; the steps are {', '.join(STEPS)}", code="TW1113")
    values = [tuple(v) if isinstance(v, list) else v for v in data[1:]]
    names = [f.name for f in fields(kind)]
    if len(values) != len(names) or not all(_fits(n, v) for n, v in zip(names, values, strict=True)):
        raise ScheduleError(f"step {data!r} does not fit {kind.__name__}, whose fields are {', '.join(names)}", code="TW1113")
    flags = [bool(v) if n in ("inner_to_outer", "factor_or_nparts") else v for n, v in zip(names, values, strict=True)]
    made: TransformStep = kind(*flags)  # type: ignore[arg-type]
    return made


def steps_from_json(data: Any) -> tuple[TransformStep, ...]:
    """The steps of a record, in order."""
    if not isinstance(data, list):
        raise ScheduleError(f"the steps of a record are a list, and these are a {type(data).__name__}", code="TW1113")
    return tuple(map(step_from_json, data))


def steps_as_json(steps: Iterable[TransformStep]) -> list[list[Any]]:
    return [s.as_json() for s in steps]


def _fits(name: str, value: Any) -> bool:
    if name in ("scope_name", "pragma_type"):
        return isinstance(value, str)
    if name in ("fused_ids", "after_ids", "lengths", "src_step_ids", "reader_stage_ids"):
        return isinstance(value, tuple) and all(isinstance(v, int) for v in value)
    return isinstance(value, int) or (name == "extent" and value is None)


def _split(before: Sequence[TransformStep], place: int, asked: TransformStep) -> SplitStep:
    found = before[place] if 0 <= place < len(before) else None
    if not isinstance(found, SplitStep):
        raise ScheduleError(f"step {asked.as_json()} follows step {place}, which is no split ('SP')", code="TW1113")
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
