"""Transform steps, as Ansor's records (version 0.6) hold them: a code followed by numbers.

    ["SP", 2, 0, 512, [1, 64, 8], 1]     loop 0 of stage 2, of 512 trips, into four: ?, 1, 64 and 8 trips
    ["CA", 2, 3, 3]                      stage 2 is computed inside loop 3 of stage 3

A stage is named by its position among the stages at that point, a loop by its position among the loops of its stage. A
step is a dataclass whose fields have the order of the record; `method` names the method of `State` that performs the
step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any, ClassVar, Final

from tilewright.errors import ScheduleError

THREADS: Final = {
    4: "vthread", 5: "blockIdx.x", 6: "threadIdx.x", 7: "blockIdx.y", 8: "threadIdx.y", 9: "blockIdx.z",
    10: "threadIdx.z",
}
ANNOTATIONS: Final = {
    "none": 0, "unroll": 1, "vectorize": 2, "parallel": 3, **{name: k for k, name in THREADS.items()}, "tensorize": 11,
}
"""The numbers of annotations in records."""


@dataclass(frozen=True, slots=True)
class TransformStep:
    """Base class of steps. `stage_id` is the stage that the step changes."""

    code: ClassVar[str] = ""
    method: ClassVar[str] = ""
    stage_id: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the method of `State` that performs the step."""
        return tuple(getattr(self, f.name) for f in fields(self))

    def as_json(self) -> list[Any]:
        """Return the step as records hold it."""
        return [self.code, *(_plain(getattr(self, f.name)) for f in fields(self))]


@dataclass(frozen=True, slots=True)
class AnnotationStep(TransformStep):
    """Unrolls, vectorizes or parallelizes a loop. `annotation` is a number of `ANNOTATIONS`."""

    code, method = "AN", "annotate"
    iter_id: int
    annotation: int


@dataclass(frozen=True, slots=True)
class FuseStep(TransformStep):
    """Fuses directly nested loops into one."""

    code, method = "FU", "fuse"
    fused_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PragmaStep(TransformStep):
    """Attaches a hint to a loop: `auto_unroll_max_step$64`."""

    code, method = "PR", "pragma"
    iter_id: int
    pragma_type: str


@dataclass(frozen=True, slots=True)
class ReorderStep(TransformStep):
    """Reorders all loops of a stage."""

    code, method = "RE", "reorder"
    after_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitStep(TransformStep):
    """Splits a loop of `extent` trips into `len(lengths) + 1` loops; the lengths are the inner ones or the outer
    ones."""

    code, method = "SP", "split"
    iter_id: int
    extent: int | None
    lengths: tuple[int, ...]
    inner_to_outer: bool = True

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.stage_id, self.iter_id, self.lengths, self.inner_to_outer


@dataclass(frozen=True, slots=True)
class FollowSplitStep(TransformStep):
    """Splits a loop into `n_split + 1` with the lengths of an earlier split, whose innermost lengths are multiplied."""

    code, method = "FSP", "follow_split"
    iter_id: int
    src_step_id: int
    n_split: int

    def lengths(self, before: Sequence[TransformStep]) -> tuple[int, ...]:
        """Return the lengths of the inner loops; `before` are the steps so far."""
        known = _split(before, self.src_step_id, self).lengths
        return (*known[: self.n_split - 1], prod(known[self.n_split - 1 :]))


@dataclass(frozen=True, slots=True)
class FollowFusedSplitStep(TransformStep):
    """Splits a loop in two by the product of the lengths that earlier splits have at `level`."""

    code, method = "FFSP", "follow_fused_split"
    iter_id: int
    src_step_ids: tuple[int, ...]
    level: int
    factor_or_nparts: bool

    def lengths(self, before: Sequence[TransformStep]) -> tuple[int, ...]:
        """Return the one length; `before` are the steps so far."""
        return (prod(_split(before, k, self).lengths[self.level] for k in self.src_step_ids),)


@dataclass(frozen=True, slots=True)
class StorageAlignStep(TransformStep):
    """Places elements along the axis of a loop `factor * k + offset` apart."""

    code, method = "SA", "storage_align"
    iter_id: int
    factor: int
    offset: int


@dataclass(frozen=True, slots=True)
class ComputeAtStep(TransformStep):
    """Computes a stage inside a loop of another stage."""

    code, method = "CA", "compute_at"
    target_stage_id: int
    target_iter_id: int


@dataclass(frozen=True, slots=True)
class ComputeInlineStep(TransformStep):
    """Computes a stage wherever it is read."""

    code, method = "CI", "compute_inline"


@dataclass(frozen=True, slots=True)
class ComputeRootStep(TransformStep):
    """Computes a whole stage before its readers."""

    code, method = "CR", "compute_root"


@dataclass(frozen=True, slots=True)
class CacheReadStep(TransformStep):
    """Adds a stage after this one: a copy, which the readers read."""

    code, method = "CHR", "cache_read"
    scope_name: str
    reader_stage_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CacheWriteStep(TransformStep):
    """Adds a stage before this one, which computes the result in other memory; this stage copies it back."""

    code, method = "CHW", "cache_write"
    scope_name: str


@dataclass(frozen=True, slots=True)
class RfactorStep(TransformStep):
    """Adds a stage before this one, in which each trip of a reduction loop has its own result."""

    code, method = "RF", "rfactor"
    iter_id: int
    factor_iter_id: int


STEPS: Final[dict[str, type[TransformStep]]] = {
    s.code: s for s in (
        AnnotationStep, FuseStep, PragmaStep, ReorderStep, SplitStep, FollowSplitStep, FollowFusedSplitStep,
        StorageAlignStep, ComputeAtStep, ComputeInlineStep, ComputeRootStep, CacheReadStep, CacheWriteStep, RfactorStep,
    )
}
"""Step classes by code."""


def step_from_json(data: Any) -> TransformStep:
    """Return the step that a record holds. Raises `ScheduleError` for an unknown code or unsuitable fields."""
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise ScheduleError(
            f'{data!r} is not a step of a record; a step is ["SP", stage, loop, extent, [lengths], 1]', code="TW1113")
    kind = STEPS.get(data[0])
    if kind is None:
        raise ScheduleError(
            f"step '{data[0]}' of the record is unknown here; the steps are {', '.join(STEPS)}", code="TW1113"
        )
    values: list[Any] = [tuple(v) if isinstance(v, list) else v for v in data[1:]]
    names = [f.name for f in fields(kind)]
    if len(values) != len(names) or not all(_fits(n, v) for n, v in zip(names, values, strict=True)):
        raise ScheduleError(
            f"step {data!r} does not fit {kind.__name__}, whose fields are {', '.join(names)}", code="TW1113")
    flags = {"inner_to_outer", "factor_or_nparts"}
    return kind(*(bool(v) if n in flags else v for n, v in zip(names, values, strict=True)))


def steps_from_json(data: Any) -> tuple[TransformStep, ...]:
    """Return the steps of a record, in order. Raises `ScheduleError`."""
    if not isinstance(data, list):
        raise ScheduleError(
            f"the steps of a record are a list, and these are a {type(data).__name__}", code="TW1113")
    return tuple(map(step_from_json, data))


def steps_as_json(steps: Iterable[TransformStep]) -> list[list[Any]]:
    """Return steps as records hold them."""
    return [s.as_json() for s in steps]


def _fits(name: str, value: Any) -> bool:
    if name in ("scope_name", "pragma_type"):
        return isinstance(value, str)
    if name in ("fused_ids", "after_ids", "lengths", "src_step_ids", "reader_stage_ids"):
        return isinstance(value, tuple) and all(isinstance(v, int) for v in value)
    return isinstance(value, int) or (name == "extent" and value is None)


def _split(before: Sequence[TransformStep], at: int, follower: TransformStep) -> SplitStep:
    found = before[at] if 0 <= at < len(before) else None
    if not isinstance(found, SplitStep):
        raise ScheduleError(f"step {follower.as_json()} follows step {at}, which is no split ('SP')", code="TW1113")
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value
