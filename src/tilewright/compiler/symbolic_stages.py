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
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tilewright.backends.target import Target
from tilewright.base.errors import CompileError, InputError
from tilewright.base.nd import content
from tilewright.base.types import OpenSize, TensorType, Type, tensors_of
from tilewright.compiler.cache import Cache
from tilewright.compiler.open_program import OpenSizeError, Range, build_open, equations, required_sizes
from tilewright.compiler.report import BuildReport
from tilewright.compiler.specialization import Specialization
from tilewright.compiler.stage_growth import Sizer, point_of
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

    function: Function
    symbols: Mapping[SizeOf, Symbol]
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
        """Compile the stage for all sizes. Raises `OpenSizeError` if it has no such program."""

        def make(replaced: Mapping[Symbol, PrimExpr]) -> Function:
            return _converted(self.function, self.symbols, self.values, replaced).function

        def stage(sampled: Function) -> Function:
            made, empty = _cut(sampled, len(self.symbols))
            if not _same(made, self.cut):
                raise OpenSizeError("what comes after the stage depends on the sizes")
            assert made.stage is not None
            return Function(
                (*made.stage.params, *empty), made.stage.body, attrs=made.stage.attrs, span=made.stage.span)

        return build_open(make, self.ranges, target, name, report, cache, stage, counts=True)


def symbolic_stage(
    function: Function, values: Sequence[Array], most: Mapping[SizeOf, int], least: int = 0
) -> SymbolicStage | None:
    """Return the stage at a point for symbolic sizes from `least`, with known upper bounds `most`; None if it has none.

    At first, all integers that decide are sizes. Those for which no operator takes a symbol decide by their values.
    """
    sizes = [
        SizeOf(k, axis, True) for k, p in enumerate(function.params) for axis, d in enumerate(_shape(p))
        if not isinstance(d, int)]
    integers = [
        SizeOf(k, at, False) for k, (p, v) in enumerate(zip(function.params, values, strict=True))
        if _is_integers(p.known_type()) and not np.any(v < 0) for at in range(v.size)]
    counts = {
        c.args[2] for c in calls(function.body) if isinstance(c.op, DynStridedSlice) and isinstance(c.args[2], Var)}
    known = dict(enumerate(values))
    ranges = {size: (least, most.get(size)) for size in (*sizes, *integers)}
    found = _explored(function, [*sizes, *integers], known, ranges)
    if found is None:
        return _explored(
            function, [*sizes, *(s for s in integers if function.params[s.value] in counts)], known, ranges)
    again = _explored(function, found.sizes, known, ranges) if len(found.sizes) < len(ranges) else found
    return found if again is None or _left(again) > _left(found) else again


def _shape(p: Var) -> Sequence[Any]:
    t = p.known_type()
    return t.shape if isinstance(t, TensorType) else ()


def _is_integers(t: Type | None) -> bool:
    return isinstance(t, TensorType) and t.is_static and t.dtype.is_integer and t.size <= _MOST_ELEMENTS


def _left(stage: SymbolicStage) -> int:
    """Return the number of operators after a stage."""
    return 0 if stage.cut.rest is None else len(calls(stage.cut.rest.body))


def _explored(
    function: Function, candidates: Sequence[SizeOf], values: Mapping[int, Array], ranges: Mapping[SizeOf, Range]
) -> SymbolicStage | None:
    """Return the stage whose sizes are those of the `candidates` that it contains."""
    if not candidates or not all(isinstance(p.known_type(), TensorType) for p in function.params):
        return None
    symbols = {size: Symbol(f"{'n' if size.is_dimension else 'c'}{size.value}_{size.place}") for size in candidates}
    named = {v.name: ranges[size] for size, v in symbols.items()}
    least = {name: low for name, (low, _) in named.items()}
    most = {name: high for name, (_, high) in named.items() if high is not None}
    spare = range(_FIRST_SAMPLE, _FIRST_SAMPLE + 14 * (len(candidates) + _MOST_EQUAL), 14)
    with samples({}, spare, least, most=most, clamps=True) as found_sizes:
        try:
            made, sampled = _with_equations(function, symbols, values, found_sizes)
            found, empty = _cut(sampled, len(candidates))
            general, most_after = _general(found), _bounds_after(found)
        except (CompileError, TypeError):  # Python raises the latter for a symbolic size in the place of a number
            return None
    if general.stage is None:
        return None
    used = _symbols_in(general.stage)
    sizes = [
        size for size, e in zip(candidates, empty, strict=True)
        if size.is_dimension or not used.isdisjoint(free_vars(as_expr(e.tensor_type.shape[0])))]
    elements = {size.value for size in sizes if not size.is_dimension}
    decided = {k: values[k] for k in made.asked if k not in elements}
    lists = made.lists if general.rest is None else ()
    if not sizes:
        return None
    return SymbolicStage(function, {s: symbols[s] for s in sizes}, decided, general, lists, named, most_after)


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


def _with_equations(
    function: Function, symbols: Mapping[SizeOf, Symbol], values: Mapping[int, Array], known: Samples
) -> tuple[_Converted, Function]:
    """Convert a function, with sizes in it that must be equal as one; return it, and it with samples of its sizes."""
    replaced: dict[Symbol, PrimExpr] = {}
    equal: list[tuple[PrimExpr, PrimExpr]] = []
    while True:
        try:
            made = _converted(function, symbols, values, replaced)
            return made, with_samples(made.function, {v: v for v in symbols.values()})
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
    function: Function, symbols: Mapping[SizeOf, Symbol], values: Mapping[int, Array],
    replaced: Mapping[Symbol, PrimExpr],
) -> _Converted:
    """Convert what waits for values, with symbols for the sizes."""
    known: dict[SizeOf, Any] = {size: simplify(substitute(v, {**replaced}), Ranges()) for size, v in symbols.items()}
    known = {size: e.value if isinstance(e, IntImm) else e for size, e in known.items()}
    params: list[Var] = []
    elements: dict[Expr, Array] = {}
    for k, p in enumerate(function.params):
        t = p.tensor_type
        dims = [known.get(SizeOf(k, axis, True), d) for axis, d in enumerate(t.shape)]
        params.append(Var(p.name_hint, TensorType(dims, t.dtype), p.span))
        found = [known[s] for s in symbols if s.value == k and not s.is_dimension]
        if found:
            elements[params[k]] = np.array([*found, None], object)[:-1].reshape(t.shape)
    ask = _Asked(elements, {params[k]: v for k, v in values.items() if params[k] not in elements})
    resolved = with_known_outputs(resolve(function, params, ask, is_known))
    places: dict[Expr, int] = {p: k for k, p in enumerate(params)}
    empty = [Var(symbol.name, TensorType((known[size], 0), "bool")) for size, symbol in symbols.items()]
    return _Converted(
        Function((*params, *empty), resolved.body, attrs=resolved.attrs, span=function.span),
        frozenset(places[p] for p in ask.found), resolved.attrs.get("output_lists", ()))


def _cut(sampled: Function, count: int) -> tuple[Cut, tuple[Var, ...]]:
    """Cut a function with samples of its sizes where values decide again; return its `count` empty parameters, too.

    A node that does not take symbols stays unconverted: a conversion that reads a sample as a number, and clamps it,
    could be the same for both samples of a size.
    """
    params = sampled.params[:len(sampled.params) - count]
    return cut(merge_equal(Function(params, sampled.body, attrs=sampled.attrs))), tuple(sampled.params[len(params):])


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
    general = _general(made)
    return (
        general.stage is not None and (general.takes, general.gives) == (known.takes, known.gives)
        and len(general.sizers) == len(known.sizers)
        and all(a[1] == b[1] and a[0].op == b[0].op for a, b in zip(general.sizers, known.sizers, strict=True))
        and (general.rest is None) == (known.rest is None)
        and (general.rest is None or structural_equal(general.rest, known.rest)))


def symbolic_edge(
    point: Point, values: Sequence[Array], compiled: Callable[[SymbolicStage, Edge], Specialization], *,
    foreseen: bool = False,
) -> tuple[Edge | None, tuple[int, ...]]:
    """Return the edge of a point for all sizes, if it has one, and the numbers of the values that decide it.

    Sizes are from 0, or from 1 if there is no such stage. With `foreseen`, `values` are no values of a call: apart from
    their types, only conditions are read.
    """
    for least in (0, 1) if point.function is not None else ():
        assert point.function is not None
        stage = symbolic_stage(point.function, values, point.most, least)
        if stage is None:
            continue
        decided = tuple(sorted(stage.values))
        if foreseen and not all(is_condition(v) for v in stage.values.values()):
            return None, decided
        edge = _edge_of(stage)
        point.name_edge(edge, edge.sizes, decided, [content(values[k]) for k in decided])
        try:
            edge.program = compiled(stage, edge)
        except (OpenSizeError, InputError):
            continue
        return edge, decided
    return None, ()


def _edge_of(stage: SymbolicStage) -> Edge:
    made = stage.cut
    after = None if made.rest is None else point_of(made.rest)
    if after is not None:
        after.most = stage.most_after
    return Edge(
        made.takes, made.gives, after, None,
        [(Sizer(call), places) for call, places in made.sizers], lists=tuple(stage.lists), sizes=stage.sizes)
