"""Maps from indices to indices, `lambda i, j: (i // 4, j, i % 4)`, for layouts of buffers and loops around blocks.

A map is data: a trace stores its text, from which only names, integers and `+ - * // %` are read.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.base.nd import NDArray
from tilewright.base.nd import array as from_numpy
from tilewright.base.types import INT64
from tilewright.scalar.arith import Ranges, bounds, linear, simplify
from tilewright.scalar.arith.iter_map import (
    IterMapLevel,
    IterMapResult,
    detect_iter_map,
    inverse_affine_iter_map,
    normalize_to_iter_sum,
)
from tilewright.scalar.arith.iter_nodes import IterSumExpr
from tilewright.scalar.expr import (
    Add,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    PrimExpr,
    Sub,
    Value,
    Var,
    add,
    as_expr,
    cast,
    const,
    floordiv,
    floormod,
    literal,
    mul,
    number_of,
    sub,
)
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars, substitute

_OPERATORS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Mod: floormod,
}
_MOST_POINTS: Final = 1 << 22
AXIS_SEPARATOR: Final = "axis_separator"
"""Marks the boundary of memory dimensions between the results of a map; without effect on a CPU, whose memory has one.
"""


@dataclass(frozen=True, slots=True)
class IndexMap:
    """The map from `params` to `results`."""

    AXIS_SEPARATOR: ClassVar = AXIS_SEPARATOR
    params: tuple[Var, ...]
    results: tuple[PrimExpr, ...]

    @staticmethod
    def of(what: IndexMap | str | Callable[..., Any], rank: int) -> IndexMap:
        """Return the map of a Python function, or of its text. Raises `ScheduleError` if it does not take `rank`
        indices."""
        if isinstance(what, IndexMap):
            found = what
        elif isinstance(what, str):
            found = _read(what)
        else:
            found = _called(what, rank)
        if len(found.params) != rank:
            raise ScheduleError(f"the index map '{found}' takes {len(found.params)} indices, but {rank} are needed")
        return found

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any], ndim: int | None = None, inverse_index_map: Any = None
    ) -> IndexMap:
        """Return the map of a Python function of `ndim` indices, by default as many as the function has parameters.
        `inverse_index_map` has no effect: the inverse is derived from the map. Raises `ScheduleError`."""
        kinds = [p.kind for p in inspect.signature(mapping_function).parameters.values()]
        if ndim is None and inspect.Parameter.VAR_POSITIONAL in kinds:
            raise ScheduleError("a function with *indices takes any number of them; pass ndim=")
        return IndexMap.of(mapping_function, len(kinds) if ndim is None else ndim)

    @property
    def initial_indices(self) -> tuple[Var, ...]:
        """TVM's name of `params`."""
        return self.params

    @property
    def final_indices(self) -> tuple[PrimExpr, ...]:
        """TVM's name of `results`."""
        return self.results

    def map_indices(self, indices: Sequence[Value]) -> list[PrimExpr]:
        """Return the simplified results for given indices, in their type."""
        given = [literal(i) for i in indices]
        return [_in_type_of(given, r) for r in self([cast(INT64, i) for i in given])]

    def map_shape(self, shape: Sequence[Value]) -> list[PrimExpr]:
        """Return the sizes of the results, in the type of the given ones. Some places may be unused: 14 elements by
        `(i // 4, i % 4)` take 4 x 4. Raises `ScheduleError` if the results have no form of iterators."""
        found = self._iterators(shape, IterMapLevel.NoCheck).indices
        return [_in_type_of([literal(n) for n in shape], _extent(x)) for x in found]

    def map_ndarray(self, array: NDArray) -> NDArray:
        """Return the array in the layout of the results; places without an element are 0. Raises `ScheduleError`."""
        given = array.numpy()
        made = np.zeros(self.shape(given.shape), given.dtype)
        grid = np.indices(given.shape, dtype=np.int64)
        values: dict[PrimExpr, Any] = dict(zip(self.params, grid, strict=True))
        made[tuple(_at_all(r, values) for r in self.results)] = given
        return from_numpy(made)

    def inverse(self, shape: Sequence[Value]) -> IndexMap:
        """Return the map from the results to the indices. Raises `ScheduleError` unless each place has an element."""
        return self._inverted(self._iterators(shape, IterMapLevel.Bijective))

    def non_surjective_inverse(self, shape: Sequence[Value]) -> tuple[IndexMap, PrimExpr]:
        """Return the map from the results to the indices, and the condition on its parameters under which a place has
        no element. Raises `ScheduleError` if the results have no form of iterators."""
        found = self._iterators(shape, IterMapLevel.NoCheck)
        back = self._inverted(found)
        points: dict[PrimExpr, PrimExpr] = dict(zip(self.params, back.results, strict=True))
        limits = Ranges()
        for v, x in zip(back.params, found.indices, strict=True):
            limits = limits.bind_loop(v, const(0, INT64), _extent(x))
        return back, simplify(substitute(found.padding_predicate, points), limits)

    def is_equivalent_to(self, other: IndexMap) -> bool:
        """Return whether the results are proved equal for all indices."""
        if (len(self.params), len(self.results)) != (len(other.params), len(other.results)):
            return False
        pairs = zip(self(other.params), other.results, strict=True)
        return all(number_of(simplify(sub(a, b), Ranges())) == 0 for a, b in pairs)

    def _iterators(self, shape: Sequence[Value], level: IterMapLevel) -> IterMapResult:
        domain = {v: Range(0, n) for v, n in zip(self.params, shape, strict=True)}
        found = detect_iter_map(self.results, domain, True, level, simplify_trivial_iterators=False)
        if len(found.indices) != len(self.results):
            raise ScheduleError(
                f"'{self}' has no inverse for the sizes ({', '.join(map(str, shape))}): {'; '.join(found.errors)}")
        return found

    def _inverted(self, found: IterMapResult) -> IndexMap:
        names = [r.name if isinstance(r, Var) else f"axis{k}" for k, r in enumerate(self.results)]
        own = tuple(Var(n) for n in names)
        values = inverse_affine_iter_map(found.indices, own)
        return IndexMap(own, tuple(values.get(v, const(0, INT64)) for v in self.params))

    def __str__(self) -> str:
        body = ", ".join(map(str, self.results))
        return f"lambda {', '.join(v.name for v in self.params)}: ({body}{',' if len(self.results) == 1 else ''})"

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each result: that of the parameter if it is one, else the names of its parameters with a number.
        """
        return tuple(
            r.name if isinstance(r, Var) else ".".join([*(v.name for v in self.params if v in free_vars(r)), str(k)])
            for k, r in enumerate(self.results))

    def __call__(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        points: dict[PrimExpr, PrimExpr] = dict(zip(self.params, indices, strict=True))
        return tuple(substitute(r, points) for r in self.results)

    def ranges(self, shape: Sequence[int]) -> Ranges:
        known = Ranges()
        for v, n in zip(self.params, shape, strict=True):
            known = known.bind(v, 0, n - 1)
        return known

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes that contain all results. Raises `ScheduleError` if a result is negative, or two points
        coincide."""
        made = []
        for r in self.results:
            low, high = bounds(simplify(r, self.ranges(shape)), self.ranges(shape))
            if low is None or high is None or low < 0:
                raise ScheduleError(
                    f"the index '{r}' of '{self}' has no known range from 0 up for sizes {tuple(shape)}")
            made.append(high + 1)
        if self._meets(shape, made):
            raise ScheduleError(
                f"'{self}' maps several elements of {tuple(shape)} to one place; a layout maps each element to a "
                "different place")
        return tuple(made)

    def _meets(self, shape: Sequence[int], made: Sequence[int]) -> bool:
        if self.by_digits(shape) is not None:
            return False
        total = int(np.prod(shape, dtype=np.int64))
        if total > _MOST_POINTS:
            return True
        grid = np.indices(shape, dtype=np.int64).reshape(len(shape), -1)
        values: dict[PrimExpr, Any] = dict(zip(self.params, grid, strict=True))
        flat = np.zeros(total, np.int64)
        for r, n in zip(self.results, made, strict=True):
            flat = flat * n + _at_all(r, values)
        return len(np.unique(flat)) != total

    def by_digits(self, shape: Sequence[int]) -> IndexMap | None:
        """Return the inverse map if the results are mixed radix numbers with digits `i // a % b` of the indices, else
        None.

        Every point of the sizes `self.shape(shape)` must be reached: the products of the sizes are equal.
        """
        ranges = self.ranges(shape)
        own = tuple(Var(f"x{k}") for k in range(len(self.results)))
        back: dict[Var, PrimExpr] = {v: const(0, INT64) for v in self.params}
        digits: dict[Var, list[tuple[int, int]]] = {v: [] for v in self.params}
        for x, r in zip(own, self.results, strict=True):
            sizes = dict(zip(self.params, shape, strict=True))
            parts = [(1, r, 1, sizes[r])] if isinstance(r, Var) else _digits(simplify(r, ranges), sizes)
            if parts is None:
                return None
            for coefficient, v, low, count in parts:
                value = x if r is v else floormod(floordiv(x, coefficient), count)
                back[v] = add(back[v], mul(value, low))
                digits[v].append((low, count))
        for v, n in zip(self.params, shape, strict=True):
            covered = 1
            for low, count in sorted(digits[v]):
                if low != covered:
                    return None
                covered *= count
            if covered != n:
                return None
        limits = Ranges()
        for x, r in zip(own, self.results, strict=True):
            high = bounds(simplify(r, ranges), ranges)[1]
            limits = limits if high == 0 else limits.bind(x, 0, high)  # an axis of one point stays a variable
        return IndexMap(own, tuple(simplify(back[v], limits) for v in self.params))


def _extent(x: IterSumExpr) -> PrimExpr:
    """Return the number of values of an iterator."""
    return x.args[0].extent if x.args else const(1, INT64)


def _in_type_of(given: Sequence[PrimExpr], e: PrimExpr) -> PrimExpr:
    """Return `e` simplified, as an integer of the widest type of `given`."""
    return simplify(cast(max((g.dtype for g in given), key=lambda d: d.bits), e), Ranges())


def map_by_loops(shape: Sequence[int], access: Sequence[PrimExpr], loops: Mapping[Var, int]) -> IndexMap | None:
    """Return the map that stores elements in the order in which loops access them; None for accesses that are no
    digits of loop variables.

    `access` are the indices of a buffer of this shape, and `loops` the extents of the loops, the outermost first. The
    result has a dimension for each digit: `[k0 * 4 + k1, j]` in loops k0, j, k1 of extents 4, 16, 4 gives
    `lambda i0, i1: (i0 // 4, i1, i0 % 4)`.
    """
    params = tuple(Var(f"i{k}") for k in range(len(shape)))
    places = {v: k for k, v in enumerate(loops)}
    found: list[tuple[int, int, PrimExpr]] = []
    for param, size, index in zip(params, shape, access, strict=True):
        parts, covered = normalize_to_iter_sum(index, {v: Range(0, n) for v, n in loops.items()}), 1
        for part in reversed(parts.args):
            v, (low, extent, scale) = part.source.source, map(number_of, (part.lower_factor, part.extent, part.scale))
            if v not in places or low is None or extent is None or scale != covered:
                return None
            found.append((places[v], -int(low), floormod(floordiv(param, covered), int(extent))))
            covered *= int(extent)
        if covered != size or number_of(parts.base) != 0:
            return None
    made = IndexMap(params, tuple(r for _, _, r in sorted(found, key=lambda f: f[:2])) or (const(0, INT64),))
    return IndexMap(params, tuple(simplify(r, made.ranges(shape)) for r in made.results))


def _digits(r: PrimExpr, sizes: dict[Var, int]) -> list[tuple[int, Var, int, int]] | None:
    """Return `r` as a sum of `coefficient * (v // low % count)` without gaps, least coefficient first; None for other
    forms."""
    form = linear(r)
    if form.const:
        return None
    found = []
    for atom, coefficient in form.coefs.items():
        e: Any = atom
        low, count = 1, None
        if isinstance(e, FloorMod) and isinstance(e.b, IntImm):
            e, count = e.a, e.b.value
        if isinstance(e, FloorDiv) and isinstance(e.b, IntImm):
            e, low = e.a, e.b.value
        if not isinstance(e, Var) or coefficient < 1 or e not in sizes:
            return None
        rest, left = divmod(sizes[e], low)
        if left or (count is not None and rest % count):
            return None
        found.append((coefficient, e, low, rest if count is None else count))
    found.sort(key=lambda d: d[0])
    covered = 1
    for coefficient, _, _, count in found:
        if coefficient != covered:
            return None
        covered *= count
    return found


def _at_all(e: PrimExpr, values: dict[PrimExpr, Any]) -> Any:
    """Evaluate `e` at all points at once."""
    if e in values:
        return values[e]
    if isinstance(e, IntImm):
        return e.value
    if not isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod)):
        raise ScheduleError(f"'{e}' is not allowed in an index map; use its parameters, integers and + - * // %")
    return type(e).fold(_at_all(e.a, values), _at_all(e.b, values))


def _called(what: Callable[..., Any], rank: int) -> IndexMap:
    given = inspect.signature(what).parameters
    last = [n for n, p in given.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    names = [n for n, p in given.items() if n not in last and p.kind is not inspect.Parameter.VAR_POSITIONAL]
    if len(names) + len(last) < len(given):  # *indices are those between the others
        names += [f"i{k}" for k in range(len(names), rank - len(last))]
    if len(names) + len(last) != rank:
        raise ScheduleError(f"an index map of {len(names) + len(last)} indices was given, but {rank} are needed")
    params = tuple(Var(n) for n in (*names, *last))
    made = what(*params[: len(names)], **dict(zip(last, params[len(names) :], strict=True)))
    results = made if isinstance(made, (tuple, list)) else (made,)
    return IndexMap(params, tuple(cast(INT64, as_expr(r)) for r in results if r is not AXIS_SEPARATOR))


def _read(text: str) -> IndexMap:
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ScheduleError(f"'{text}' is not an index map: {error.msg}") from None
    if not isinstance(tree, ast.Lambda):
        raise ScheduleError(f"'{text}' is not an index map; one is 'lambda i, j: (j, i)'")
    params = {a.arg: Var(a.arg) for a in tree.args.args}

    def value(e: ast.expr) -> PrimExpr:
        match e:
            case ast.Constant(value=int(n)):
                return const(n, INT64)
            case ast.Name(id=name) if name in params:
                return params[name]
            case ast.BinOp() if type(e.op) in _OPERATORS:
                return as_expr(_OPERATORS[type(e.op)](value(e.left), value(e.right)))
            case ast.UnaryOp(op=ast.USub()):
                return sub(const(0, INT64), value(e.operand))
        raise ScheduleError(
            f"'{ast.unparse(e)}' is not allowed in an index map; use its parameters, integers and + - * // %")

    results = tree.body.elts if isinstance(tree.body, (ast.Tuple, ast.List)) else [tree.body]
    return IndexMap(tuple(params.values()), tuple(map(value, results)))
