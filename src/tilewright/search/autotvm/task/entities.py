"""The choices that a template leaves open, and the answers: splits, orders, annotations of loops, and knobs.

    define_split("tile_y", y, num_outputs=2)        all ways to split         SplitEntity([-1, 8])
    define_reorder("order", [yo, xo, k], "all")     permutations              ReorderEntity([0, 2, 1])
    define_annotate("inner", [yi, xi], "try_vec")   marks of loops            AnnotateEntity(["none", "vec"])
    define_knob("unroll", [0, 1])                   any values                OtherOptionEntity(1)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from tilewright.base.errors import OptionError
from tilewright.scalar.arith.divisors import divisors
from tilewright.tir.stmt import IterVar

SPLIT_POLICIES: Final = ("factors", "power2", "verbose", "candidate")
REORDER_POLICIES: Final = ("identity", "all", "interval_all", "candidate", "interleave", "interleave_cuda")
ANNOTATE_POLICIES: Final = ("unroll", "try_unroll", "vec", "try_vec", "try_unroll_vec", "bind_gpu", "locate_cache")
_MARKS: Final = ("none", "unroll", "vec")


class VirtualAxis:
    """An axis that a template declares: a name and a length."""

    _count: ClassVar[itertools.count[int]] = itertools.count()

    def __init__(self, var: Any, name: str | None = None) -> None:
        """`var` is a length, an axis of a stage, or another virtual axis. Raises `OptionError` for anything else."""
        self.name = name or f"axis_{next(self._count)}"
        self.length: int
        if isinstance(var, VirtualAxis):
            self.name, self.length = name or var.name, var.length
        elif isinstance(var, IterVar):
            extent = getattr(var.extent, "value", None)
            if extent is None:
                raise OptionError(
                    f"axis '{var.var.name}' has a dynamic size, {var.extent}, but a template splits axes of known "
                    "sizes",
                    code="TW1106")
            self.name, self.length = name or var.var.name, int(extent)
        elif isinstance(var, int):
            self.length = var
        else:
            raise OptionError(
                "an axis of a template is a length, an axis of a stage or a virtual axis, not a "
                f"{type(var).__name__}", code="TW1106")

    def __repr__(self) -> str:
        return f"VirtualAxis({self.name}, {self.length})"


class Entity:
    """An answer. `kind` and `value` are its form in a record."""

    __slots__ = ()
    kind: ClassVar[str] = ""
    field: ClassVar[str] = ""
    """The attribute that holds the answer."""

    @property
    def value(self) -> Any:
        """The answer as JSON."""
        found = getattr(self, self.field)
        return list(found) if isinstance(found, tuple) else found

    @property
    def features(self) -> list[float]:
        """The answer as numbers, for a cost model."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash((self.kind, repr(self.value)))

    def __repr__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, eq=False, repr=False)
class SplitEntity(Entity):
    """The lengths of the parts of an axis, outermost first; -1 is the remaining length."""

    size: Sequence[int]
    kind, field = "sp", "size"

    @property
    def features(self) -> list[float]:
        return [math.log2(max(n, 1)) for n in self.size[1:]]

    def apply(self, sch: Any, op: Any, axis: IterVar) -> list[IterVar]:
        """Split `axis` of the stage of `op`; return the parts."""
        made = []
        for k in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, math.prod(self.size[k:]))
            made.append(outer)
        return [*made, axis]


@dataclass(frozen=True, eq=False, repr=False)
class ReorderEntity(Entity):
    """The order of axes, as numbers of those that were declared."""

    perm: tuple[int, ...]
    kind, field = "re", "perm"

    @property
    def features(self) -> list[float]:
        return [float(p) for p in self.perm]

    def apply(self, sch: Any, op: Any, axes: Sequence[IterVar]) -> list[IterVar]:
        """Reorder `axes`; return them in the new order."""
        ordered = [axes[p] for p in self.perm] if len(axes) == len(self.perm) else list(axes)
        if len(ordered) > 1:
            sch[op].reorder(*ordered)
        return ordered


@dataclass(frozen=True, eq=False, repr=False)
class AnnotateEntity(Entity):
    """The mark of each axis: `none`, `unroll`, `vec`, or the name of a thread axis."""

    anns: tuple[Any, ...]
    kind, field = "an", "anns"

    @property
    def features(self) -> list[float]:
        return [float(_MARKS.index(a) if a in _MARKS else 3 if isinstance(a, str) else a) for a in self.anns]

    def apply(
        self, sch: Any, op: Any, axes: Sequence[IterVar], axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None, vec_size: Sequence[int] | None = None, cfg: Any = None, source: Any = None,
    ) -> list[IterVar]:
        """Mark `axes`; with `source`, compute its stages at the axis that was located instead. Return the axes.

        A loop is not unrolled if it is longer than `max_unroll`, and vectorized only if its length is in `vec_size`.
        """
        if source is not None:
            for src, to in zip(source, self.anns, strict=True):
                if to < len(axes):
                    sch[src].compute_at(sch[op], axes[to])
            return list(axes)
        for k, (axis, mark) in enumerate(zip(axes, self.anns, strict=True)):
            length = axis_lens[k] if axis_lens else 0
            if mark == "unroll" and not (max_unroll and length > max_unroll):
                sch[op].unroll(axis)
            elif mark == "vec" and not (vec_size and length not in vec_size):
                sch[op].vectorize(axis)
        return list(axes)


@dataclass(frozen=True, eq=False, repr=False)
class OtherOptionEntity(Entity):
    """Any value."""

    val: Any
    kind, field = "ot", "val"

    @property
    def features(self) -> list[float]:
        return [float(self.val)] if isinstance(self.val, (int, float)) else []


def _parts(value: Any) -> list[int]:
    """Return the parts of a split in a record. Raises `ValueError` if there are none."""
    found = list(map(int, value))
    if not found:
        raise ValueError("a split has no parts")
    return found


ENTITIES: Final[dict[str, Callable[[Any], Entity]]] = {
    "sp": lambda v: SplitEntity(_parts(v)),
    "re": lambda v: ReorderEntity(tuple(map(int, v))),
    "an": lambda v: AnnotateEntity(tuple(v)),
    "ot": lambda v: OtherOptionEntity(tuple(v) if isinstance(v, list) else v),
}
"""Makes the entity of a value in a record, by its kind."""


@dataclass(frozen=True, repr=False)
class Transform:
    """A choice that a template leaves open: its answers, and the number of axes that it makes."""

    entities: tuple[Entity, ...]
    num_output: int = 0
    length: int = 0
    """The length of the axis that is split, if it is known."""

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Entity:
        return self.entities[index]

    def __repr__(self) -> str:
        return f"{type(self.entities[0]).__name__.removesuffix('Entity')}(len={len(self)})"


def split(axis: VirtualAxis, policy: str, options: Mapping[str, Any]) -> Transform:
    """Return all splits of an axis. Raises `OptionError` if there are none.

    `factors` are the divisors of its length, `power2` powers of two below it, `verbose` both; `candidate` are those in
    `options["candidate"]`. `num_outputs` is the number of parts (2); the inner ones are at most `max_factor` long;
    `filter(entity)` leaves out answers; `no_tail` keeps those that divide the length.
    """
    _check_policy(policy, SPLIT_POLICIES, "split")
    outputs = int(options.get("num_outputs", options.get("num_output", 2)))
    keep: Callable[[SplitEntity], bool] = options.get("filter") or (lambda e: True)
    if policy == "candidate":
        listed = (SplitEntity(list(map(int, sizes))) for sizes in options["candidate"])
        return _found([e for e in listed if keep(e)], outputs, f"axis {axis.name}")
    length, longest = axis.length, options.get("max_factor", axis.length)
    factors = {*divisors(length)} if policy != "power2" else set()
    if policy != "factors":
        factors |= {1 << k for k in range(length.bit_length()) if 1 << k <= length}
    exact = policy == "factors" or options.get("no_tail")
    inner = sorted(n for n in factors if n <= longest)
    made = (
        SplitEntity([-1, *sizes]) for sizes in itertools.product(inner, repeat=outputs - 1)
        if (whole := math.prod(sizes)) <= length and not (exact and length % whole))
    found = _found([e for e in made if keep(e)], outputs, f"axis {axis.name} of length {length}")
    return replace(found, length=length)


def reorder(axes: Sequence[Any], policy: str, options: Mapping[str, Any]) -> Transform:
    """Return orders of axes: as declared, all, given ones, or those that interleave spatial and reduced axes."""
    _check_policy(policy, REORDER_POLICIES, "reorder")
    numbers, where = range(len(axes)), {_axis_name(a): k for k, a in enumerate(axes)}
    match policy:
        case "identity":
            orders: list[tuple[int, ...]] = [tuple(numbers)]
        case "all":
            orders = list(itertools.permutations(numbers))
        case "interval_all":
            begin, end = options["interval"]
            middles = itertools.permutations(range(begin, end))
            orders = [(*range(begin), *middle, *range(end, len(axes))) for middle in middles]
        case "candidate":
            orders = [tuple(where[_axis_name(a)] for a in order) for order in options["candidate"]]
        case _:
            spatial, reduced = ([[_axis_name(a) for a in part] for part in options[n]] for n in ("spatial", "reduce"))
            inner = [r for row in reduced for r in row]
            rows = [[row[k] for row in spatial if k < len(row)] for k in range(max(map(len, spatial)))]
            orders = []
            for cut in range(1, len(rows) + 1):
                outside, inside = ([n for row in part for n in row] for part in (rows[:cut], rows[cut:]))
                orders.append(tuple(where[n] for n in (*outside, *inner, *inside)))
    return _found(map(ReorderEntity, dict.fromkeys(orders)), len(axes), "the axes")


def annotate(axes: Sequence[Any], policy: str, options: Mapping[str, Any]) -> Transform:
    """Return marks of axes: each unrolled or vectorized, that or not (`try_…`), or where a cache is computed."""
    _check_policy(policy, ANNOTATE_POLICIES, "annotate")
    count = len(axes)
    if policy == "bind_gpu":
        raise OptionError(
            "policy 'bind_gpu' binds axes to threads of a GPU, but only CPUs are supported; use 'try_unroll_vec'",
            code="TW1106")
    if policy == "locate_cache":
        places = itertools.product(range(count), repeat=int(options["num_anchor"]))
        return _found(map(AnnotateEntity, places), count, "the axes")
    vectorized = (*("none",) * (count - 1), "vec")
    ways: dict[str, list[tuple[str, ...]]] = {
        "unroll": [("unroll",) * count],
        "try_unroll": [("none",) * (count - k) + ("unroll",) * k for k in range(count + 1)],
        "vec": [vectorized],
        "try_vec": [("none",) * count, vectorized],
        "try_unroll_vec": [
            (*("none",) * (count - k - 1), *("unroll",) * k, last) for k in range(count) for last in _MARKS],
    }
    return _found(map(AnnotateEntity, dict.fromkeys(ways[policy])), count, "the axes")


def knob(values: Sequence[Any]) -> Transform:
    """Return a choice between any values."""
    return _found(map(OtherOptionEntity, values), 0, "the knob")


def _axis_name(axis: Any) -> str:
    return str(axis.var.name) if isinstance(axis, IterVar) else str(axis.name)


def _check_policy(policy: str, known: Sequence[str], what: str) -> None:
    if policy not in known:
        raise OptionError(
            f"there is no policy '{policy}' of define_{what}; the policies are {', '.join(known)}", code="TW1106")


def _found(entities: Iterable[Entity], outputs: int, what: str) -> Transform:
    found = tuple(entities)
    if not found:
        raise OptionError(
            f"no value is left for {what}: the filter, the candidates or max_factor exclude all",
            code="TW1106")
    return Transform(found, outputs)
