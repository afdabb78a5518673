"""The space of configurations of a task, and one configuration.

A space is a choice between *branches* (for example algorithms), each of which is a product of *axes*. An axis is one
name, or several names with a list of valid combinations, so that no index of a kernel's space is wasted. A template's
space has one branch of axes of one name each, and may have filters.

An index counts the configurations: branch after branch, the first axis of a branch fastest.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError, TVMError
from tilewright.base.forks import lazy_attribute
from tilewright.search.autotvm.task import entities as kinds
from tilewright.search.autotvm.task.entities import (
    ENTITIES,
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    Transform,
    VirtualAxis,
)

__all__ = [
    "AnnotateEntity", "ConfigEntity", "ConfigSpace", "Entity", "FallbackConfigEntity", "InstantiationError",
    "OtherOptionEntity",
    "ReorderEntity", "SplitEntity", "VirtualAxis",
]

Array = np.ndarray[Any, Any]
Point = tuple[int, ...]
"""A branch, and the number of the answer along each of its axes."""
_MAX_FILTERED: Final = 1 << 22


class InstantiationError(TVMError):
    """A configuration that gives no program; `ConfigSpace.raise_error` records the reason."""

    code = "TW1107"


@dataclass(frozen=True)
class Axis:
    """Names that are answered together, and the answers."""

    names: tuple[str, ...]
    answers: tuple[tuple[Entity, ...], ...]


Branch = tuple[Axis, ...]


class ConfigSpace:
    """The choices that a template leaves open. While it is filled, `space[name]` is the first answer."""

    is_fallback = False

    def __init__(self) -> None:
        self.space_map: OrderedDict[str, Transform] = OrderedDict()
        self.entity_map: OrderedDict[str, Entity] = OrderedDict()
        self.flop: float = 0
        self.code_hash: str | None = None
        self.errors: list[str] = []
        self.default_index = 0
        self._filters: list[Callable[[ConfigEntity], bool]] = []

    # Definitions, for templates.
    @staticmethod
    def axis(var: Any) -> VirtualAxis:
        """Return an axis to split or to order, of a stage or of a length."""
        return VirtualAxis(var)

    reduce_axis = axis

    def define_split(self, name: str, axis: Any, policy: str = "factors", **options: Any) -> list[VirtualAxis]:
        """Leave open how `axis` is split: see `entities.split`. Return as many axes as it is split into."""
        found = self._define(name, lambda: kinds.split(VirtualAxis(axis), policy, options))
        count = found.num_output if found is not None else int(options.get("num_outputs", options.get("num_output", 2)))
        return [VirtualAxis(0, f"{name}_{k}") for k in range(count)]

    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[Any]:
        """Leave open the order of `axes`: see `entities.reorder`."""
        self._define(name, lambda: kinds.reorder(axes, policy, options))
        return list(axes)

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[Any]:
        """Leave open how `axes` are marked: see `entities.annotate`."""
        self._define(name, lambda: kinds.annotate(axes, policy, options))
        return list(axes)

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """Leave open which of some values is used."""
        self._define(name, lambda: kinds.knob(candidate))

    def add_flop(self, flop: float) -> None:
        """Add operations of the task, for GFLOPS."""
        self.flop += float(flop)

    def multi_filter(self, filter: Callable[[ConfigEntity], bool]) -> None:
        """Leave out the configurations for which `filter(entity)` is false."""
        self._filters.append(filter)
        self._forget()

    def raise_error(self, msg: str) -> None:
        """Record that a configuration gives no program; it is measured as an instantiation error."""
        self.errors.append(msg)

    def valid(self) -> bool:
        """Return whether no error was raised."""
        return not self.errors

    def _define(self, name: str, make: Callable[[], Transform]) -> Transform | None:
        found = self.space_map[name] = make()
        self.entity_map[name] = found[0]
        self._forget()
        return found

    def _forget(self) -> None:
        for name in ("branches", "_sizes", "_valid"):
            self.__dict__.pop(name, None)

    def __getitem__(self, name: str) -> Any:
        """Return the answer of that name, an `Entity` of the class that its definition makes."""
        return self.entity_map[name]

    def __setitem__(self, name: str, entity: Entity) -> None:
        self.entity_map[name] = entity

    def __contains__(self, name: str) -> bool:
        return name in self.entity_map

    # Indices.
    @lazy_attribute
    def branches(self) -> tuple[Branch, ...]:
        """The branches; a template has one."""
        return (tuple(Axis((name,), tuple((e,) for e in t.entities)) for name, t in self.space_map.items()),)

    @lazy_attribute
    def _sizes(self) -> list[int]:
        return [math.prod(len(a.answers) for a in b) for b in self.branches]

    @property
    def range_length(self) -> int:
        """The number of indices, including those that a filter refuses."""
        return sum(self._sizes)

    @lazy_attribute
    def _valid(self) -> Array | None:
        """The indices that filters keep; None: all."""
        if not self._filters:
            return None
        if self.range_length > _MAX_FILTERED:
            raise OptionError(
                f"the space has {self.range_length} configurations, more than multi_filter can check "
                f"({_MAX_FILTERED}); define fewer values", code="TW1106")
        kept = [i for i in range(self.range_length) if all(keep(self._entity(i)) for keep in self._filters)]
        if not kept:
            raise OptionError("the filters of multi_filter leave no configuration", code="TW1106")
        return np.asarray(kept)

    def __len__(self) -> int:
        return self.range_length if self._valid is None else len(self._valid)

    def subrange_length(self, start: int, end: int) -> int:
        """Return the number of valid indices from `start` on and below `end`. Raises `OptionError` outside of the
        space."""
        if not 0 <= start <= end <= self.range_length:
            raise OptionError(
                f"the range from {start} to {end} is not inside the space, whose indices are below {self.range_length}",
                code="TW1106")
        return end - start if self._valid is None else self.position_of(end) - self.position_of(start)

    def position_of(self, index: int) -> int:
        """Return the number of valid indices below an index: its position, if it is valid."""
        return index if self._valid is None else int(np.searchsorted(self._valid, index))

    def is_index_valid(self, index: int) -> bool:
        """Return whether there is a configuration of this index."""
        if not 0 <= index < self.range_length or self._valid is None:
            return 0 <= index < self.range_length
        at = int(np.searchsorted(self._valid, index))
        return at < len(self._valid) and bool(self._valid[at] == index)

    def index_at(self, position: int) -> int:
        """Return the index of the configuration at a position among those that are valid."""
        return position if self._valid is None else int(self._valid[position])

    def get(self, index: int) -> ConfigEntity:
        """Return the configuration of an index. Raises `IndexError` if there is none."""
        if not self.is_index_valid(index):
            raise IndexError(f"there is no configuration {index}; the space has {len(self)}")
        return self._entity(index)

    def _entity(self, index: int) -> ConfigEntity:
        point = self.point(index)
        found: OrderedDict[str, Entity] = OrderedDict()
        for axis, k in zip(self.branches[point[0]], point[1:], strict=True):
            found.update(zip(axis.names, axis.answers[k], strict=True))
        return ConfigEntity(index, self.code_hash, found)

    def point(self, index: int) -> Point:
        """Return the branch of an index, and the number of the answer along each axis."""
        branch = 0
        while index >= self._sizes[branch]:
            index -= self._sizes[branch]
            branch += 1
        found = [branch]
        for axis in self.branches[branch]:
            index, k = divmod(index, len(axis.answers))
            found.append(k)
        return tuple(found)

    def decoded(self, indices: Sequence[int] | Array) -> Iterator[tuple[int, Array, list[Array]]]:
        """Iterate over the branches of `indices`: a branch, the rows in it, and their answers along each axis."""
        given, ends = np.asarray(indices, np.int64), np.cumsum([0, *self._sizes])
        which = np.searchsorted(ends, given, side="right") - 1
        for branch in map(int, np.unique(which)):
            rows, answers = np.nonzero(which == branch)[0], list[Array]()
            left = given[rows] - ends[branch]
            for axis in self.branches[branch]:
                left, k = left // len(axis.answers), left % len(axis.answers)
                answers.append(k)
            yield branch, rows, answers

    def index_of_point(self, point: Point) -> int:
        """Return the index of a point."""
        index = 0
        for axis, k in reversed(list(zip(self.branches[point[0]], point[1:], strict=True))):
            index = index * len(axis.answers) + k
        return sum(self._sizes[: point[0]]) + index

    def index_of(self, entity_map: Mapping[str, Entity]) -> int | None:
        """Return the index of the configuration with these answers, or None."""
        for b, branch in enumerate(self.branches):
            if {n for a in branch for n in a.names} != set(entity_map):
                continue
            wanted = [tuple(entity_map[n] for n in axis.names) for axis in branch]
            if all(w in axis.answers for w, axis in zip(wanted, branch, strict=True)):
                return self.index_of_point((b, *(a.answers.index(w) for w, a in zip(wanted, branch, strict=True))))
        return None

    def point2knob(self, point: int) -> list[int]:
        """Return the number of the answer along each axis of the branch of an index, under TVM's name."""
        return list(self.point(point)[1:])

    def knob2point(self, knob: Sequence[int]) -> int:
        """Return the index of answers along the axes of the first branch, under TVM's name."""
        return self.index_of_point((0, *knob))

    def get_next_index(self, index: int, n: int = 1, start: int | None = None, end: int | None = None) -> int | None:
        """Return the valid index `n` places after `index` (before, if negative), None outside of [start, end)."""
        position = self.position_of(index) + n
        if n > 0 and not self.is_index_valid(index):
            position -= 1
        if not 0 <= position < len(self):
            return None
        found = self.index_at(position)
        return found if (start or 0) <= found < (self.range_length if end is None else end) else None

    # Search.
    def get_rand_index(
        self, start: int | None = None, end: int | None = None, to_exclude: Iterable[int] | None = None
    ) -> int:
        """Draw a valid index from `start` on and below `end`, none of `to_exclude`. Raises `OptionError` without one.
        """
        low, high = start or 0, self.range_length if end is None else end
        excluded, rng = set(to_exclude or ()), np.random.default_rng()
        count = self.subrange_length(low, high)
        positions = (self.position_of(low) + int(k) for k in rng.permutation(count))
        found = next((i for i in map(self.index_at, positions) if i not in excluded), None)
        if found is None:
            raise OptionError(f"every index from {low} to {high} is excluded", code="TW1106")
        return found

    def random_walk(self, point: int) -> int:
        """Draw a configuration with another answer along one axis."""
        rng = np.random.default_rng()
        found = point
        while found == point and len(self) > 1:
            found = self.neighbour(point, rng)
        return found

    def random_index(self, rng: np.random.Generator) -> int:
        """Draw a configuration, each branch with its share of them."""
        return self.index_at(int(rng.integers(len(self))))

    def sample_ints(self, m: int, rng: np.random.Generator | None = None) -> list[int]:
        """Draw `m` different indices, or all if there are fewer."""
        rng = rng or np.random.default_rng()
        if len(self) <= 4 * m:
            return [self.index_at(int(p)) for p in rng.permutation(len(self))[:m]]
        found: dict[int, None] = {}
        while len(found) < m:
            found[self.random_index(rng)] = None
        return list(found)

    def neighbour(self, index: int, rng: np.random.Generator, far: float = 0.1) -> int:
        """Draw a configuration with another answer along one axis, preferably the next; with chance `far` any one."""
        for _ in range(8):
            point = list(self.point(index))
            axes = self.branches[point[0]]
            open_axes = [k for k, a in enumerate(axes) if len(a.answers) > 1]
            if not open_axes or rng.random() < far:
                return self.random_index(rng)
            k = int(rng.choice(open_axes))
            count = len(axes[k].answers)
            near = point[k + 1] + (1 if rng.random() < 0.5 else -1)
            point[k + 1] = near if rng.random() < 0.5 and 0 <= near < count else int(rng.integers(count))
            made = self.index_of_point(tuple(point))
            if made != index and self.is_index_valid(made):
                return made
        return self.random_index(rng)

    def crossed(self, a: int, b: int, rng: np.random.Generator) -> int:
        """Return the answers of `a` along its first axes and of `b` along the others, if both are in one branch."""
        one, other = self.point(a), self.point(b)
        if one[0] != other[0] or len(one) < 3:
            return a if rng.random() < 0.5 else b
        cut = int(rng.integers(2, len(one)))
        made = self.index_of_point((*one[:cut], *other[cut:]))
        return made if self.is_index_valid(made) else a

    @property
    def dims(self) -> list[int]:
        """The number of answers along each axis of the first branch."""
        return [len(a.answers) for a in self.branches[0]]

    def __repr__(self) -> str:
        lines = [f"ConfigSpace (len={len(self)}, range_length={self.range_length})"]
        for number, branch in enumerate(self.branches):
            lines += [f"  branch {number}:"] if len(self.branches) > 1 else []
            lines += [
                f"  {', '.join(a.names)}: {len(a.answers)} answers, {', '.join(map(str, a.answers[0]))} …"
                for a in branch]
        return "\n".join(lines)


class ConfigEntity(ConfigSpace):
    """One configuration: `cfg[name]` is an answer, whose `apply` performs it. Definitions change nothing."""

    def __init__(
        self, index: int, code_hash: str | None, entity_map: Mapping[str, Entity], constraints: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.index = index
        self.code_hash = code_hash
        self.entity_map = OrderedDict(entity_map)
        self.errors = list(constraints)

    def _define(self, name: str, make: Callable[[], Transform]) -> Transform | None:
        if name not in self.entity_map:
            raise InstantiationError(
                f"the configuration has no value for '{name}'; it was made for another template, or an older one")
        return None

    def multi_filter(self, filter: Callable[[ConfigEntity], bool]) -> None:
        """Do nothing: the configuration is in the space already."""

    @property
    def decisions(self) -> dict[str, Any]:
        """The answers as decisions of kernels (`backends/decisions.py`)."""
        return {n: e.size[-1] if isinstance(e, SplitEntity) else e.value for n, e in self.entity_map.items()}

    def to_json_dict(self) -> dict[str, Any]:
        """Return the configuration in the form of a record."""
        entities = [[n, e.kind, e.value] for n, e in self.entity_map.items()]
        return {"index": int(self.index), "code_hash": self.code_hash, "entity": entities}

    @staticmethod
    def from_json_dict(json_dict: Mapping[str, Any]) -> ConfigEntity:
        """Return the configuration of a record. Raises `OptionError` for a malformed one."""
        try:
            found = OrderedDict((str(name), ENTITIES[kind](value)) for name, kind, value in json_dict["entity"])
            return ConfigEntity(int(json_dict["index"]), json_dict.get("code_hash"), found)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise OptionError(
                f"this is not the configuration of a record: {str(json_dict)[:200]} ({type(error).__name__}: {error})",
                code="TW1106") from error

    def get_flatten_feature(self) -> Array:
        """Return the answers as numbers."""
        return np.asarray([v for e in self.entity_map.values() for v in e.features], np.float32)

    def get_other_option(self) -> dict[str, Any]:
        """Return the knobs."""
        return {n: e.val for n, e in self.entity_map.items() if isinstance(e, OtherOptionEntity)}

    def __repr__(self) -> str:
        return f"{list(self.entity_map.items())},{self.code_hash},{self.index}"


class FallbackConfigEntity(ConfigSpace):
    """The answers without a record: a template's first ones or those that it sets, a kernel's analytical ones."""

    is_fallback = True

    def _define(self, name: str, make: Callable[[], Transform]) -> Transform | None:
        known = self.entity_map.get(name)
        if known is not None:
            return self.space_map.get(name)
        return super()._define(name, make)

    def fallback_split(self, name: str, constraints: Sequence[Any]) -> None:
        """Use the largest parts that `constraints` allows, or the first suitable one of several; -1 allows any part.

        The outermost part is what the others leave. Raises `OptionError` if no split fits.
        """
        answers = [e for e in self.space_map[name].entities if isinstance(e, SplitEntity)]
        several: Sequence[Sequence[int]] = (
            [constraints] if all(isinstance(n, int) for n in constraints) else constraints)
        for limits in several:
            fitting = [
                e for e in answers if all(
                    limit == -1 or n <= limit for n, limit in zip(e.size[1:], limits[1:], strict=True))]
            if fitting:
                inner = max(fitting, key=lambda e: tuple(e.size[:0:-1])).size[1:]
                length = self.space_map[name].length
                whole = -(-length // math.prod(inner)) if length else -1
                self.entity_map[name] = SplitEntity([whole, *inner])
                return
        raise OptionError(f"no split of '{name}' fits any of {list(several)}", code="TW1106")
