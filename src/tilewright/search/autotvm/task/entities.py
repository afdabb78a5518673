"""What a template can leave open, and one answer to it: splits, orders, annotations of loops, and knobs.

    define_split("tile_y", y, num_outputs=2)        SplitSpace: all ways to split        SplitEntity([-1, 8])
    define_reorder("order", [yo, xo, k], "all")     ReorderSpace: permutations           ReorderEntity([0, 2, 1])
    define_annotate("inner", [yi, xi], "try_vec")   AnnotateSpace: what is marked        AnnotateEntity(["none", "vec"])
    define_knob("unroll", [0, 1])                   OtherOptionSpace: any values         OtherOptionEntity(1)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.errors import OptionError
from tilewright.tir.stmt import IterVar

SPLIT_POLICIES: Final = ("factors", "power2", "verbose", "candidate")
REORDER_POLICIES: Final = ("identity", "all", "interval_all", "candidate", "interleave", "interleave_cuda")
ANNOTATE_POLICIES: Final = ("unroll", "try_unroll", "vec", "try_vec", "try_unroll_vec", "bind_gpu", "locate_cache")


class VirtualAxis:
    """An axis that a template declares: a name and a length."""

    _count: ClassVar[itertools.count[int]] = itertools.count()

    def __init__(self, var: Any, name: str | None = None) -> None:
        """`var` is a length, an axis of a stage, or another virtual axis; raises `OptionError` for anything else."""
        self.name = name or f"axis_{next(self._count)}"
        self.length: int
        if isinstance(var, VirtualAxis):
            self.name, self.length = name or var.name, var.length
        elif isinstance(var, IterVar):
            extent = getattr(var.extent, "value", None)
            if extent is None:
                raise OptionError(f"axis '{var.var.name}' has an open size, {var.extent}, and a template splits axes of known sizes", code="TW1106")
            self.name, self.length = name or var.var.name, int(extent)
        elif isinstance(var, int):
            self.length = var
        else:
            raise OptionError(f"an axis of a template is a length, an axis of a stage or a virtual axis, and not a {type(var).__name__}", code="TW1106")

    def __repr__(self) -> str:
        return f"VirtualAxis({self.name}, {self.length})"


class Entity:
    """One answer; `kind` and `value` are how it stands in a record."""

    kind: ClassVar[str] = ""

    @property
    def value(self) -> Any:
        """The answer as JSON."""
        raise NotImplementedError

    @property
    def features(self) -> list[float]:
        """The answer as numbers, for a cost model."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash((self.kind, repr(self.value)))


@dataclass(frozen=True, eq=False)
class SplitEntity(Entity):
    """The sizes of the parts of an axis, outermost first; -1 is what is left."""

    size: tuple[int, ...]
    kind: ClassVar[str] = "sp"

    @property
    def value(self) -> list[int]:
        return list(self.size)

    @property
    def features(self) -> list[float]:
        return [math.log2(max(n, 1)) for n in self.size[1:]]

    def apply(self, sch: Any, op: Any, axis: IterVar) -> list[IterVar]:
        """The axes that `axis` of the stage of `op` is split into."""
        made = []
        for k in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, math.prod(self.size[k:]))
            made.append(outer)
        return [*made, axis]

    def __repr__(self) -> str:
        return str(list(self.size))


@dataclass(frozen=True, eq=False)
class ReorderEntity(Entity):
    """The order of axes, as numbers of those that were declared."""

    perm: tuple[int, ...]
    kind: ClassVar[str] = "re"

    @property
    def value(self) -> list[int]:
        return list(self.perm)

    @property
    def features(self) -> list[float]:
        return [float(p) for p in self.perm]

    def apply(self, sch: Any, op: Any, axes: Sequence[IterVar]) -> list[IterVar]:
        """`axes` in the new order."""
        ordered = [axes[p] for p in self.perm] if len(axes) == len(self.perm) else list(axes)
        if len(ordered) > 1:
            sch[op].reorder(*ordered)
        return ordered

    def __repr__(self) -> str:
        return str(list(self.perm))


@dataclass(frozen=True, eq=False)
class AnnotateEntity(Entity):
    """What is marked at each axis: `none`, `unroll`, `vec`, or the name of a thread axis."""

    anns: tuple[Any, ...]
    kind: ClassVar[str] = "an"

    @property
    def value(self) -> list[Any]:
        return list(self.anns)

    @property
    def features(self) -> list[float]:
        return [float(("none", "unroll", "vec").index(a)) if a in ("none", "unroll", "vec") else 3.0 if isinstance(a, str) else float(a) for a in self.anns]

    def apply(
        self, sch: Any, op: Any, axes: Sequence[IterVar], axis_lens: Sequence[int] | None = None, max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None, cfg: Any = None, source: Any = None,
    ) -> list[IterVar]:
        """Mark `axes`; with `source`, compute the stages in it at the axis that was located instead. Returns the axes.

        A loop is not unrolled where it is longer than `max_unroll`, and vectorized only where its length is in `vec_size`.
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

    def __repr__(self) -> str:
        return str(list(self.anns))


@dataclass(frozen=True, eq=False)
class OtherOptionEntity(Entity):
    """Any value."""

    val: Any
    kind: ClassVar[str] = "ot"

    @property
    def value(self) -> Any:
        return self.val

    @property
    def features(self) -> list[float]:
        return [float(self.val)] if isinstance(self.val, (int, float)) else []

    def __repr__(self) -> str:
        return str(self.val)


def _parts(value: Any) -> tuple[int, ...]:
    """The parts of a split in a record: at least one. Raises `ValueError`."""
    found = tuple(map(int, value))
    if not found:
        raise ValueError("a split has no parts")
    return found


ENTITIES: Final[dict[str, Callable[[Any], Entity]]] = {
    "sp": lambda v: SplitEntity(_parts(v)),
    "re": lambda v: ReorderEntity(tuple(map(int, v))),
    "an": lambda v: AnnotateEntity(tuple(v)),
    "ot": lambda v: OtherOptionEntity(tuple(v) if isinstance(v, list) else v),
}
"""The entity of a value in a record, by its kind."""


@dataclass(frozen=True)
class Transform:
    """One thing that a template leaves open: its answers, and how many axes come of it."""

    entities: tuple[Entity, ...]
    num_output: int = 0

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: int) -> Entity:
        return self.entities[index]

    def __repr__(self) -> str:
        return f"{type(self.entities[0]).__name__.removesuffix('Entity')}(len={len(self)})"


def split(axis: VirtualAxis, policy: str, options: Mapping[str, Any]) -> Transform:
    """All splits of an axis.

    `factors` are the divisors of its length, `power2` powers of two below it, `verbose` both; `candidate` are those in `options["candidate"]`.
    `num_outputs` parts (2), the inner ones at most `max_factor` long; `filter(entity)` leaves out what it refuses; `no_tail` keeps those that
    divide the length. Raises `OptionError`.
    """
    _known_policy(policy, SPLIT_POLICIES, "split")
    outputs = int(options.get("num_outputs", options.get("num_output", 2)))
    keep: Callable[[SplitEntity], bool] = options.get("filter", lambda e: True)
    if policy == "candidate":
        listed = [SplitEntity(tuple(map(int, sizes))) for sizes in options["candidate"]]
        return _found([e for e in listed if keep(e)], outputs, f"axis {axis.name}")
    length, most = axis.length, options.get("max_factor", axis.length)
    factors = {n for n in range(1, length + 1) if length % n == 0} if policy != "power2" else set()
    if policy != "factors":
        factors |= {1 << k for k in range(length.bit_length()) if 1 << k <= length}
    inner = sorted(n for n in factors if n <= most)
    made: list[Entity] = []
    for sizes in itertools.product(inner, repeat=outputs - 1):
        whole = math.prod(sizes)
        if whole <= length and ((policy != "factors" and not options.get("no_tail")) or length % whole == 0):
            entity = SplitEntity((-1, *sizes))
            if keep(entity):
                made.append(entity)
    return _found(made, outputs, f"axis {axis.name} of length {length}")


def reorder(axes: Sequence[Any], policy: str, options: Mapping[str, Any]) -> Transform:
    """Orders of axes: as they are, all of them, those of `candidate`, or those that interleave spatial and reduced axes."""
    _known_policy(policy, REORDER_POLICIES, "reorder")
    numbers = range(len(axes))
    match policy:
        case "identity":
            orders: list[tuple[int, ...]] = [tuple(numbers)]
        case "all":
            orders = list(itertools.permutations(numbers))
        case "interval_all":
            begin, end = options["interval"]
            orders = [(*range(begin), *middle, *range(end, len(axes))) for middle in itertools.permutations(range(begin, end))]
        case "candidate":
            where = {_axis_name(a): k for k, a in enumerate(axes)}
            orders = [tuple(where[_axis_name(a)] for a in order) for order in options["candidate"]]
        case _:
            spatial, reduced = ([[_axis_name(a) for a in part] for part in options[name]] for name in ("spatial", "reduce"))
            where = {_axis_name(a): k for k, a in enumerate(axes)}
            inner = [r for row in reduced for r in row]
            rows = [[row[k] for row in spatial if k < len(row)] for k in range(max(map(len, spatial)))]
            chosen = [[*rows[0], *(n for row in rows[1:cut] for n in row), *inner, *(n for row in rows[cut:] for n in row)] for cut in range(1, len(rows) + 1)]
            orders = [tuple(where[n] for n in order) for order in chosen]
    return _found([ReorderEntity(o) for o in dict.fromkeys(orders)], len(axes), "the axes")


def annotate(axes: Sequence[Any], policy: str, options: Mapping[str, Any]) -> Transform:
    """What is marked at axes: each unrolled or vectorized, that or not (`try_…`), or where a cache is computed (`locate_cache`)."""
    _known_policy(policy, ANNOTATE_POLICIES, "annotate")
    count = len(axes)
    if policy == "bind_gpu":
        raise OptionError("policy 'bind_gpu' binds axes to threads of a GPU, and code is made for CPUs here; use 'try_unroll_vec'", code="TW1106")
    if policy == "locate_cache":
        return _found([AnnotateEntity(p) for p in itertools.product(range(count), repeat=int(options["num_anchor"]))], count, "the axes")
    ways: dict[str, list[tuple[str, ...]]] = {
        "unroll": [("unroll",) * count],
        "try_unroll": [("none",) * (count - k) + ("unroll",) * k for k in range(count + 1)],
        "vec": [("none",) * (count - 1) + ("vec",)],
        "try_vec": [("none",) * count, ("none",) * (count - 1) + ("vec",)],
        "try_unroll_vec": [
            (*("none",) * (count - k - 1), *("unroll",) * k, last) for k in range(count) for last in ("none", "unroll", "vec")
        ],
    }
    return _found([AnnotateEntity(p) for p in dict.fromkeys(ways[policy])], count, "the axes")


def knob(values: Sequence[Any]) -> Transform:
    """Any of some values."""
    return _found([OtherOptionEntity(v) for v in values], 0, "the knob")


def _axis_name(axis: Any) -> str:
    return str(axis.var.name) if isinstance(axis, IterVar) else str(axis.name)


def _known_policy(policy: str, known: Sequence[str], what: str) -> None:
    if policy not in known:
        raise OptionError(f"there is no policy '{policy}' of define_{what}; the policies are {', '.join(known)}", code="TW1106")


def _found(entities: Sequence[Entity], outputs: int, what: str) -> Transform:
    if not entities:
        raise OptionError(f"nothing is left to choose from for {what}: the filter, the candidates or max_factor leave no answer", code="TW1106")
    return Transform(tuple(entities), outputs)
