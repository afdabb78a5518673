"""Stages for every count: sizes that the values at a point have, or state, become symbols of the stage's program.

    point (places, count)    %0 = dyn.strided_slice(%places, 0, %count, 1); …       count = [3], [5], …
    stage                    fn (%places, %n: Tensor[(n, 0), bool]) { %0 = strided_slice(%places, 0, n, 1); … }

A size is an element of an integer value that an operator asks for, or a dimension of a value of unknown size. The
stage takes it as the first dimension of an additional, empty parameter, so that the guards and the plan of programs of
dynamic sizes (`runtime/open_program.py`) serve stages, too. Other values that decide are the key of the edge, as they
are for stages of known sizes. A point without such a stage, and counts outside the range of its symbols, get stages of
known sizes (`stage_growth.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, InputError
from tilewright.base.nd import content
from tilewright.base.types import OpenSize, TensorType, Type, tensors_of
from tilewright.compiler.cache import Cache
from tilewright.compiler.open_program import OpenSizeError, Range, build_open, equations, required_sizes
from tilewright.compiler.report import BuildReport
from tilewright.compiler.specialization import Specialization
from tilewright.compiler.stage_growth import Sizer, point_of
from tilewright.compiler.stage_sizes import with_sizes_from_shapes
from tilewright.compiler.staged import Edge, Point, SizeOf, is_condition
from tilewright.ir.structural import structural_equal
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.frontend.core.known import ShapeValues
from tilewright.relay.op.dynamic import DynStridedSlice
from tilewright.relay.op.registry import Op
from tilewright.relay.sequence_values import with_known_outputs
from tilewright.relay.transform.eliminate_common_subexpr import merge_equal
from tilewright.relay.transform.open_sizes import with_samples
from tilewright.relay.transform.stages import Cut, cut, is_known, resolve
from tilewright.relay.visitor import calls, post_order, rewrite
from tilewright.runtime.artifact import Artifact
from tilewright.scalar.arith.open_sizes import Samples, greatest, samples
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import simplify
from tilewright.scalar.expr import IntImm, PrimExpr, UnknownDim, as_expr
from tilewright.scalar.expr import Var as Symbol
from tilewright.scalar.walk import free_vars, substitute

Array = np.ndarray[Any, Any]

_MOST_ELEMENTS: Final = 16
"""Largest number of integers in a value whose elements are sizes."""
_FIRST_SAMPLE: Final = 1009
_MOST_EQUAL: Final = 32
"""Largest number of equations between sizes that no size is solved for."""
_MOST_NAMED: Final = 16
"""Number of samples for dimensions with names."""
_OTHER_SAMPLE: Final = 5003
"""First sample of a second cut, where no program is compiled for two samples."""
Made = TypeVar("Made")
_CutResult = tuple[Cut, tuple[Var, ...], frozenset[int]]
Make = Callable[[Mapping[Symbol, PrimExpr]], Function]
"""Returns what is left to do, with these symbols replaced by expressions of others."""


class _Asked(ShapeValues):
    """Answers operators that ask for values: by symbols for `sizes`, by the `values` of the call for others."""

    def __init__(self, sizes: Mapping[Expr, Array], values: Mapping[Expr, Array]) -> None:
        super().__init__()
        self._sizes, self._values = sizes, values
        self.found: dict[Expr, None] = {}
        """The parameters that were asked for."""

    def of(self, e: Expr | None) -> Array | None:
        known = super().of(e)
        if known is not None or e is None:
            return known
        value = self._sizes.get(e)
        value = self._values.get(e) if value is None else value
        if value is not None:
            self.found[e] = None
        return value

    def __call__(self, e: Expr) -> Array | None:
        if isinstance(e, Var):
            return self.of(e)
        before = dict(self.found)
        value = super().__call__(e)
        if value is None:
            self.found = before
        return value


@dataclass(frozen=True, slots=True)
class SymbolicStage:
    """The rest of a program at a point, cut for symbolic sizes.

    `values` are those of the parameters that decide and are no sizes; they are the same in all calls of the stage.
    """

    make: Make
    symbols: Mapping[SizeOf, PrimExpr]
    values: Mapping[int, Array]
    cut: Cut
    lists: Sequence[Any]
    ranges: Mapping[str, Range]
    """The known ranges of the symbols, by name."""
    most_after: Mapping[SizeOf, int]
    """Upper bounds of dimensions of the values at the next point."""

    @property
    def sizes(self) -> tuple[SizeOf, ...]:
        """The sizes, in the order of the empty parameters."""
        return tuple(self.symbols)

    def compiled(self, target: Target, name: str, report: BuildReport, cache: Cache) -> Artifact:
        """Compile the stage for all sizes. Raises `OpenSizeError` if it has no such program, or none without steps in
        Python."""

        def make(replaced: Mapping[Symbol, PrimExpr]) -> Function:
            return _converted(self.make, self.symbols, self.values, replaced).function

        def stage(sampled: Function) -> Function:
            made, empty, _ = _cut(sampled, len(self.symbols), self.values)
            if not _same(made, self.cut):
                raise OpenSizeError("what comes after the stage depends on the sizes")
            assert made.stage is not None
            return Function(
                (*made.stage.params, *empty), made.stage.body, attrs=made.stage.attrs, span=made.stage.span)

        made = build_open(make, self.ranges, target, name, report, cache, stage, counts=True)
        if steps := made.manifest.host_steps:
            raise OpenSizeError(f"{steps[0].name} has no native kernel for all sizes")
        return made


@dataclass(frozen=True, slots=True)
class Bounds:
    """The known ranges of sizes: of dimensions with names (`named`), and those from `least` of counts, of which some
    have upper bounds `most`."""

    named: Mapping[str, Range]
    most: Mapping[SizeOf, int]
    least: int = 0

    def of(self, symbols: Mapping[SizeOf, PrimExpr], function: Function) -> dict[str, Range]:
        """Return the ranges of the symbols, by name."""
        counts = {size: v for size, v in symbols.items() if _named(function, size) is None}
        return {v.name: (self.least, self.most.get(s)) for s, v in counts.items() if isinstance(v, Symbol)} | {
            **self.named}


def symbolic_stage(make: Make, values: Sequence[Array], bounds: Bounds) -> SymbolicStage | None:
    """Return the stage at a point for symbolic sizes in these bounds; None if it has none. `make` returns what is left
    to do.

    At first, all integers that decide are sizes. Those for which no operator takes a symbol decide by their values.
    """
    function = _first(make, bounds.named)
    if function is None:
        return None
    sizes: list[SizeOf] = []
    named: set[PrimExpr] = set()
    for k, p in enumerate(function.params):
        for axis, d in enumerate(_shape(p)):
            if not isinstance(d, int) and d not in named:
                sizes.append(SizeOf(k, axis, True))
                named.update([] if isinstance(d, UnknownDim) else [d])
    integers = [
        SizeOf(k, at, False) for k, (p, v) in enumerate(zip(function.params, values, strict=True))
        if _is_integers(p.known_type()) and not np.any(v < 0) for at in range(v.size)]
    counts = {
        c.args[2] for c in calls(function.body) if isinstance(c.op, DynStridedSlice) and isinstance(c.args[2], Var)}
    known = dict(enumerate(values))
    found = _explored(make, function, [*sizes, *integers], known, bounds)
    if found is None:
        few = [s for s in integers if function.params[s.value] in counts]
        return _explored(make, function, [*sizes, *few], known, bounds)
    fewer = len(found.sizes) < len(sizes) + len(integers)
    again = _explored(make, function, found.sizes, known, bounds) if fewer else found
    return found if again is None or _left(again) > _left(found) else again


def _first(make: Make, ranges: Mapping[str, Range]) -> Function | None:
    """Return what is left to do, with sizes that must be equal as one; None if there is no such function."""
    with _sampled(ranges, 0) as known:
        try:
            return _with_equations(make, known)
        except (CompileError, TypeError):
            return None


def _sampled(
    ranges: Mapping[str, Range], count: int, first: int = _FIRST_SAMPLE
) -> AbstractContextManager[Samples]:
    """Return a context with samples from `first` for `count` sizes, and for dimensions with names."""
    spare = range(first, first + 14 * (count + _MOST_NAMED + _MOST_EQUAL), 14)
    least = {name: low for name, (low, _) in ranges.items()}
    return samples({}, spare, least, most={n: high for n, (_, high) in ranges.items() if high is not None}, clamps=True)


def _shape(p: Var) -> Sequence[Any]:
    t = p.known_type()
    return t.shape if isinstance(t, TensorType) else ()


def _is_integers(t: Type | None) -> bool:
    return isinstance(t, TensorType) and t.is_static and t.dtype.is_integer and t.size <= _MOST_ELEMENTS


def _left(stage: SymbolicStage) -> int:
    """Return the number of operators after a stage."""
    return 0 if stage.cut.rest is None else len(calls(stage.cut.rest.body))


def _explored(
    make: Make, function: Function, candidates: Sequence[SizeOf], values: Mapping[int, Array], bounds: Bounds
) -> SymbolicStage | None:
    """Return the stage whose sizes are those of the `candidates` that it contains."""
    if not candidates or not all(isinstance(p.known_type(), TensorType) for p in function.params):
        return None
    symbols = {size: _symbol_of(function, size) for size in candidates}
    ranges = bounds.of(symbols, function)
    found = _cut_for(make, symbols, values, ranges)
    if found is None:
        return None
    general = found.general
    if general.stage is None:  # the compiler compares no programs of two samples
        other = _cut_for(make, symbols, values, ranges, _OTHER_SAMPLE) if general.sizers else None
        if other is None or not _agree(other.general, general):
            return None
    used = _symbols_in(general.stage) if general.stage is not None else set()
    elements = {
        size.value for size, e in zip(candidates, found.empty, strict=True)
        if not size.is_dimension and not used.isdisjoint(free_vars(as_expr(e.tensor_type.shape[0])))}
    sizes = [size for size in candidates if size.is_dimension or size.value in elements]
    if not sizes and general.stage is not None:
        return None
    decided = {k: values[k] for k in found.asked if k not in elements}
    taken = {s: symbols[s] for s in sizes}
    return SymbolicStage(
        make, taken, decided, general, found.lists, bounds.of(taken, function), found.most_after)


def _named(function: Function, size: SizeOf) -> PrimExpr | None:
    """Return a dimension with a name; None for other sizes."""
    d = _shape(function.params[size.value])[size.place] if size.is_dimension else None
    return d if isinstance(d, PrimExpr) and not isinstance(d, UnknownDim) else None


def _symbol_of(function: Function, size: SizeOf) -> PrimExpr:
    """Return the symbol of a size: the dimension itself if it has a name."""
    found = _named(function, size)
    return Symbol(f"{'n' if size.is_dimension else 'c'}{size.value}_{size.place}") if found is None else found


@dataclass(frozen=True, slots=True)
class _Found:
    """A cut without samples, for which the values of the parameters numbered in `asked` decide, with the `empty`
    parameters of its sizes, the grouping of its outputs, and upper bounds of dimensions after it."""

    general: Cut
    asked: frozenset[int]
    empty: tuple[Var, ...]
    lists: Sequence[Any]
    most_after: Mapping[SizeOf, int]


def _cut_for(
    make: Make, symbols: Mapping[SizeOf, PrimExpr], values: Mapping[int, Array], ranges: Mapping[str, Range],
    first: int = _FIRST_SAMPLE,
) -> _Found | None:
    """Convert and cut what is left to do, for samples from `first`; None if it has no symbolic form."""
    variables = {v: v for e in symbols.values() for v in free_vars(e)}
    counts = {size.value for size in symbols if not size.is_dimension}
    decisive = {k: v for k, v in values.items() if k not in counts}

    def convert(replaced: Mapping[Symbol, PrimExpr]) -> tuple[_Converted, _CutResult]:
        made = _converted(make, symbols, values, replaced)
        return made, _cut(with_samples(made.function, variables), len(symbols), decisive)

    with _sampled(ranges, len(symbols), first) as known:
        try:
            made, (found, empty, asked) = _with_equations(convert, known)
            general = _general(found)
            most_after = {} if found.stage is None else _bounds_after(found)
        except (CompileError, TypeError):  # Python raises the latter for a symbolic size in the place of a number
            return None
    return _Found(general, made.asked | asked, empty, made.lists if general.rest is None else (), most_after)


def _bounds_after(made: Cut) -> dict[SizeOf, int]:
    """Return the known upper bounds of the dimensions of the values after a stage with samples."""
    bounds = {
        SizeOf(k, axis, True): greatest(d) for k, p in enumerate(made.rest.params if made.rest is not None else ())
        for axis, d in enumerate(_shape(p)) if isinstance(d, OpenSize)}
    return {size: most for size, most in bounds.items() if most is not None}


@dataclass(frozen=True, slots=True)
class _Converted:
    """A function with symbolic dimensions, whose last parameters are empty, one for each symbol; `asked` are the
    numbers of the parameters whose values decide."""

    function: Function
    asked: frozenset[int]
    lists: Sequence[Any]


def _with_equations(make: Callable[[Mapping[Symbol, PrimExpr]], Made], known: Samples) -> Made:
    """Return what `make` returns with sizes that must be equal as one. Raises its other errors."""
    replaced: dict[Symbol, PrimExpr] = {}
    equal: list[tuple[PrimExpr, PrimExpr]] = []
    while True:
        try:
            return make(replaced)
        except CompileError as error:
            sizes, found = required_sizes(error), equations(error, replaced)
            if found is not None:
                replaced = found
            elif sizes is not None and sizes not in equal and len(equal) < _MOST_EQUAL:
                equal.append(sizes)
                known.equations([sizes])
            else:
                raise


def _converted(
    make: Make, symbols: Mapping[SizeOf, PrimExpr], values: Mapping[int, Array],
    replaced: Mapping[Symbol, PrimExpr],
) -> _Converted:
    """Convert what waits for values, with symbols for the sizes."""
    function = make(replaced)
    known: dict[SizeOf, Any] = {size: simplify(substitute(v, {**replaced}), Ranges()) for size, v in symbols.items()}
    known = {size: e.value if isinstance(e, IntImm) else e for size, e in known.items()}
    dimensions = {_shape(function.params[s.value])[s.place]: e for s, e in known.items() if s.is_dimension}
    params: list[Var] = []
    elements: dict[Expr, Array] = {}
    for k, p in enumerate(function.params):
        t = p.tensor_type
        dims = [
            known.get(SizeOf(k, axis, True), d if isinstance(d, int) else dimensions.get(d, d))
            for axis, d in enumerate(t.shape)]
        params.append(Var(p.name_hint, TensorType(dims, t.dtype), p.span))
        found = [known[s] for s in symbols if s.value == k and not s.is_dimension]
        if found:
            elements[params[k]] = np.array([*found, None], object)[:-1].reshape(t.shape)
    ask = _Asked(elements, {params[k]: v for k, v in values.items() if params[k] not in elements})
    resolved = with_known_outputs(resolve(function, params, ask, is_known))
    places: dict[Expr, int] = {p: k for k, p in enumerate(params)}
    empty = [Var(f"size_{k}", TensorType((known[size], 0), "bool")) for k, size in enumerate(symbols)]
    return _Converted(
        Function((*params, *empty), resolved.body, attrs=resolved.attrs, span=function.span),
        frozenset(places[p] for p in ask.found), resolved.attrs.get("output_lists", ()))


def _cut(sampled: Function, count: int, values: Mapping[int, Array]) -> _CutResult:
    """Convert what waits for sizes of a function with samples, and cut it where values decide again. Return its `count`
    empty parameters, too, and the numbers of the parameters whose `values` decide.

    A node that does not take the symbols of values stays unconverted: a conversion that reads a sample as a number, and
    clamps it, could be the same for both samples of a size.
    """
    params = sampled.params[:len(sampled.params) - count]
    ask = _Asked({}, {params[k]: v for k, v in values.items()})
    resolved = resolve(Function(params, sampled.body, attrs=sampled.attrs), params, ask)
    asked = frozenset(k for k, p in enumerate(params) if p in ask.found)
    merged = merge_equal(resolved)
    return with_sizes_from_shapes(cut(merged), merged), tuple(sampled.params[len(params):]), asked


def _symbols_in(stage: Function) -> set[Symbol]:
    """Return the symbols in the types and attributes of a stage."""
    found: set[Symbol] = set()
    for e in post_order(stage.body):
        values = [d for t in tensors_of(e.known_type()) for d in t.shape]
        if isinstance(e, Call) and isinstance(e.op, Op):
            values += _flat(list(e.op.attributes().values()))
        found.update(v for d in values if isinstance(d, OpenSize) for v in free_vars(d.expr))
    return found


def _flat(values: list[Any]) -> list[Any]:
    """Return the elements of nested tuples."""
    found = []
    while values:
        value = values.pop()
        if isinstance(value, tuple):
            values += value
        else:
            found.append(value)
    return found


def _general(made: Cut) -> Cut:
    """Return the cut with unknown dimensions in the rest in the place of samples. Raises `OpenSizeError` if the rest
    contains a size of the stage."""
    for call, _ in made.sizers:
        _refuse_sizes(call)
    if made.rest is None:
        return made
    for e in post_order(made.rest.body):
        _refuse_sizes(e)
    params = [Var(p.name_hint, _unknown(p.known_type()), p.span) for p in made.rest.params]
    body = rewrite(
        made.rest.body, lambda _: None, inside=True, memo=dict(zip(made.rest.params, params, strict=True)))
    return replace(made, rest=Function(params, body, attrs=made.rest.attrs, span=made.rest.span))


def _unknown(t: Type | None) -> Type | None:
    if not isinstance(t, TensorType):
        return t
    return TensorType([UnknownDim() if isinstance(d, OpenSize) else d for d in t.shape], t.dtype)


def _refuse_sizes(e: Expr) -> None:
    found: Sequence[Any] = ()
    if isinstance(e, Constant) and e.value.dtype.hasobject:
        found = e.value.ravel().tolist()
    elif isinstance(e, Call) and isinstance(e.op, Op):
        found = _flat(list(e.op.attributes().values()))
    if any(isinstance(value, (OpenSize, PrimExpr)) for value in found):
        raise OpenSizeError("a size of the stage is needed after it", getattr(e, "span", None))


def _same(made: Cut, known: Cut) -> bool:
    """Whether a cut has the parts of `known`, apart from its stage."""
    return _agree(_general(made), known)


def _agree(a: Cut, b: Cut) -> bool:
    """Whether two cuts without samples have the same parts, apart from their stages."""
    return (
        (a.stage is None) == (b.stage is None) and (a.takes, a.gives) == (b.takes, b.gives)
        and len(a.sizers) == len(b.sizers)
        and all(x[1] == y[1] and x[0].op == y[0].op for x, y in zip(a.sizers, b.sizers, strict=True))
        and (a.rest is None) == (b.rest is None)
        and (a.rest is None or structural_equal(a.rest, b.rest)))


def symbolic_edge(
    point: Point, values: Sequence[Array], compiled: Callable[[SymbolicStage, Edge], Specialization], *,
    foreseen: bool = False, model: Make | None = None, ranges: Mapping[str, Range] | None = None,
) -> tuple[Edge | None, tuple[int, ...]]:
    """Return the edge of a point for all sizes, if it has one, and the numbers of the values that decide it. `model`
    makes the function of the root, with named dimensions in these `ranges`.

    Counts are from 0, or from 1 if there is no such stage. With `foreseen`, `values` are no values of a call: apart
    from their types, only conditions are read.
    """
    function = point.function
    make = model if function is None else lambda _: function
    decided: tuple[int, ...] = ()
    tried: Mapping[str, Range] | None = None
    for least in (0, 1):
        stage = None if make is None else symbolic_stage(make, values, Bounds(ranges or {}, point.most, least))
        if stage is None:
            decided = tuple(k for k, v in enumerate(values) if is_condition(v))
            continue
        if stage.ranges == tried:
            continue
        decided, tried = tuple(sorted(stage.values)), stage.ranges
        if foreseen and not all(is_condition(v) for v in stage.values.values()):
            return None, decided
        edge = _edge_of(stage)
        point.name_edge(edge, stage.sizes, decided, [content(values[k]) for k in decided])
        try:
            edge.program = compiled(stage, edge) if stage.cut.stage is not None else None
        except (OpenSizeError, InputError):
            continue
        return edge, decided
    return None, decided


def _edge_of(stage: SymbolicStage) -> Edge:
    """Return the edge of a stage without its program; without a stage, it takes no sizes."""
    made = stage.cut
    after = None if made.rest is None else point_of(made.rest)
    if after is not None:
        after.most = stage.most_after
    return Edge(
        made.takes, made.gives, after, None, [(Sizer(call), places) for call, places in made.sizers],
        lists=tuple(stage.lists), sizes=stage.sizes if made.stage is not None else ())
