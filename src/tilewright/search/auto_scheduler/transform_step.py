"""Transform steps, as Ansor's records (version 0.6) hold them: a code followed by numbers.

    ["SP", 2, 0, 512, [1, 64, 8], 1]     loop 0 of stage 2, of 512 trips, into four: ?, 1, 64 and 8 trips
    ["CA", 2, 3, 3]                      stage 2 is computed inside loop 3 of stage 3

A stage is named by its position among the stages at that point, a loop by its position among the loops of its stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tilewright.base.errors import ScheduleError

THREADS: Final = {
    4: "vthread", 5: "blockIdx.x", 6: "threadIdx.x", 7: "blockIdx.y", 8: "threadIdx.y", 9: "blockIdx.z",
    10: "threadIdx.z",
}
ANNOTATIONS: Final = {
    "none": 0, "unroll": 1, "vectorize": 2, "parallel": 3, **{name: k for k, name in THREADS.items()}, "tensorize": 11,
}
"""The numbers of annotations in records."""


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of step: the method of `State` that performs it, and its fields in the order of the record."""

    method: str
    fields: tuple[str, ...]


def _kind(method: str, fields: str = "") -> StepKind:
    return StepKind(method, ("stage_id", *fields.split()))


STEPS: Final = {
    "AN": _kind("annotate", "iter_id annotation"),
    "FU": _kind("fuse", "fused_ids"),
    "PR": _kind("pragma", "iter_id pragma_type"),
    "RE": _kind("reorder", "after_ids"),
    "SP": _kind("split", "iter_id extent lengths inner_to_outer"),
    "FSP": _kind("follow_split", "iter_id src_step_id n_split"),
    "FFSP": _kind("follow_fused_split", "iter_id src_step_ids level factor_or_nparts"),
    "SA": _kind("storage_align", "iter_id factor offset"),
    "CA": _kind("compute_at", "target_stage_id target_iter_id"),
    "CI": _kind("compute_inline"),
    "CR": _kind("compute_root"),
    "CHR": _kind("cache_read", "scope_name reader_stage_ids"),
    "CHW": _kind("cache_write", "scope_name"),
    "RF": _kind("rfactor", "iter_id factor_iter_id"),
}
"""Kinds of steps by code."""


class TransformStep:
    """A step: its code, and the values of its fields (lists are tuples). Equal steps compare equal."""

    __slots__ = ("code", "values")

    def __init__(self, code: str, *values: Any) -> None:
        self.code, self.values = code, values

    def __getattr__(self, name: str) -> Any:
        fields = STEPS[self.code].fields
        if name not in fields:
            raise AttributeError(name)
        return self.values[fields.index(name)]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the method of `State` that performs the step."""
        fields = STEPS[self.code].fields
        return tuple(v for n, v in zip(fields, self.values, strict=True) if n != "extent")

    def as_json(self) -> list[Any]:
        """Return the step as records hold it."""
        plain = (list(v) if isinstance(v, tuple) else int(v) if isinstance(v, bool) else v for v in self.values)
        return [self.code, *plain]

    def lengths_after(self, steps: Sequence[TransformStep]) -> tuple[int, ...]:
        """Return the lengths of a step that follows earlier splits (`FSP`, `FFSP`). Raises `ScheduleError` if these
        are not splits."""
        if self.code == "FSP":
            known = self._split_lengths(steps, self.src_step_id)
            return (*known[: self.n_split - 1], prod(known[self.n_split - 1 :]))
        return (prod(self._split_lengths(steps, k)[self.level] for k in self.src_step_ids),)

    def _split_lengths(self, steps: Sequence[TransformStep], at: int) -> list[int]:
        """Return the lengths of an earlier split; open ones are 1."""
        if not 0 <= at < len(steps) or steps[at].code != "SP":
            raise ScheduleError(f"step {self.as_json()} follows step {at}, which is not a split ('SP')", code="TW1113")
        return [1 if n is None else int(n) for n in steps[at].lengths]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransformStep) and (self.code, self.values) == (other.code, other.values)

    def __hash__(self) -> int:
        return hash((self.code, self.values))

    def __repr__(self) -> str:
        return repr(self.as_json())


def step_from_json(data: Any) -> TransformStep:
    """Return the step that a record holds. Raises `ScheduleError` for an unknown code or unsuitable fields."""
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise ScheduleError(
            f'{data!r} is not a step of a record; a step is ["SP", stage, loop, extent, [lengths], 1]', code="TW1113")
    code, *values = (tuple(v) if isinstance(v, list) else v for v in data)
    if code not in STEPS:
        raise ScheduleError(
            f"step '{code}' of the record is unknown here; the steps are {', '.join(STEPS)}", code="TW1113")
    fields = STEPS[code].fields
    if len(values) != len(fields) or not all(_fits(n, v) for n, v in zip(fields, values, strict=True)):
        raise ScheduleError(f"step {data!r} does not fit '{code}', whose fields are {', '.join(fields)}", code="TW1113")
    flags = ("inner_to_outer", "factor_or_nparts")
    return TransformStep(code, *(bool(v) if n in flags else v for n, v in zip(fields, values, strict=True)))


def steps_from_json(data: Any) -> tuple[TransformStep, ...]:
    """Return the steps of a record, in order. Raises `ScheduleError` if one is malformed."""
    if not isinstance(data, list):
        raise ScheduleError(
            f"the steps of a record are a list, not a {type(data).__name__}", code="TW1113")
    return tuple(map(step_from_json, data))


def steps_as_json(steps: Iterable[TransformStep]) -> list[list[Any]]:
    """Return steps as records hold them."""
    return [s.as_json() for s in steps]


def _fits(name: str, value: Any) -> bool:
    if name in ("scope_name", "pragma_type"):
        return isinstance(value, str)
    if name == "lengths" or name.endswith("_ids"):
        return isinstance(value, tuple) and all(isinstance(v, int) for v in value)
    return isinstance(value, int) or (name == "extent" and value is None)
