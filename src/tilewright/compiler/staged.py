"""Programs whose shapes depend on the sizes or values of a call: a tree of compiled stages, grown by the calls.

    point: the rest of a program --sizes, deciding values--> edge: a compiled stage --> the next point

A `Point` is the work left to do. Some of its values have dynamic sizes, and some decide shapes (axes, counts); the
latter are found when an operator asks for them. The sizes and the deciding values of a call are the key of an `Edge`: a
known key costs one dictionary lookup. For a new key the rest is resolved, the stage of known sizes is cut off
(`compiler/stage_growth.py`) and compiled. Calls of known sizes stay in native code, and a program of one stage is one
edge.

Where possible, the edge of a point is a stage with symbolic sizes, which serves all counts
(`compiler/symbolic_stages.py`). The rest of this text is about stages of known sizes.

Sizes that differ at every call must not cause endless compilation. After its first key, a point interprets the rest in
numpy (`relay/dynamic_interpreter.py`), and compiles the stage of a key when that pays (`base/jit_policy.py`). If an
operator is too large to interpret, or the rest has control flow, the stage of a new key is compiled at once; after
`SETTLED` keys a small stage runs in numpy until compiling pays. A point keeps the `MOST_EDGES` most recently used
edges.

This module imports only what running needs, so that a model from the cache is loaded without the compiler.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.base import jit_policy
from tilewright.base.errors import InputError, OpenSizeWarning
from tilewright.base.forks import new_reentrant_lock
from tilewright.base.jit_policy import COMPILING, Use, Uses
from tilewright.base.nd import content
from tilewright.base.types import DataType
from tilewright.compiler.specialization import Specialization
from tilewright.runtime.benchmark import BenchmarkResult, measure
from tilewright.runtime.call_inputs import described, in_order
from tilewright.runtime.executable import check_texts, readable
from tilewright.runtime.guards import Guards
from tilewright.runtime.open_program import OpenExecutable
from tilewright.runtime.program import TensorInfo

if TYPE_CHECKING:
    from tilewright.compiler.stage_growth import Sizer
    from tilewright.relay.dynamic_interpreter import Conversions, DynamicProgram
    from tilewright.relay.expr import Function

Array = np.ndarray[Any, Any]
Key = tuple[Any, ...]
Dims = Sequence["int | str"]
Lists = tuple["int | str | None", ...]

SETTLED: Final = 4
"""Number of keys of a point that are compiled at their first call; after them, small stages wait until compiling pays.
"""
SMALL: Final = 1 << 20
"""Operations (`relay.transform.stages.work`) below which a stage, or an interpreted operator, is small: 0.1 ms."""
TRIED: Final = 3
"""Successive calls too large to interpret, after which a point stops trying."""
MOST_EDGES: Final = 64
"""Number of edges that a point keeps."""
MOST_FORESEEN: Final = 16
"""Number of points after a stage for which stages are compiled before a call reaches them."""
_MOST_CONDITIONS: Final = 2
"""Number of conditions at a point whose values are foreseen."""


@dataclass(frozen=True, slots=True)
class SizeOf:
    """A size that a symbol of a stage stands for: a dimension of a value of a point, or an element of an integer value.
    """

    value: int
    place: int
    is_dimension: bool

    def read(self, values: Sequence[Array]) -> int:
        value = values[self.value]
        return int(value.shape[self.place] if self.is_dimension else value.flat[self.place])


class Edge:
    """One way on from a point: a stage, the `sizers` that run after it in numpy, and the next point.

    The values of a run are numbered: those of the point, the results of the stage, the results of the `sizers` in
    order. `takes` are the numbers of the stage's arguments, `gives` those of the next point's values, or of the
    outputs. A stage for all values of its `sizes` takes an empty array for each of them, whose first dimension is the
    size.
    """

    __slots__ = (
        "_meaning", "_operators", "gives", "is_whole", "key", "lists", "name", "next", "program", "sizers", "sizes",
        "small", "stage", "takes", "use"
    )

    def __init__(
        self, takes: Sequence[int], gives: Sequence[int], after: Point | None = None, stage: Function | None = None,
        sizers: Sequence[tuple[Sizer, tuple[int, ...]]] = (), *, small: bool = False, lists: Lists = (),
        sizes: Sequence[SizeOf] = (),
    ) -> None:
        self.lists = lists
        """How the outputs are grouped (see `relay/sequence_values.py`), where there is no next point and they are not
        all tensors."""
        self.takes, self.gives, self.next, self.stage, self.sizers, self.small = (
            tuple(takes), tuple(gives), after, stage, tuple(sizers), small
        )
        self.sizes = tuple(sizes)
        self.is_whole = after is None and not self.sizers and (*self.takes, *self.gives) == tuple(
            range(len(self.takes) + len(self.gives)))
        """Whether the stage is all that there is to do: its results are the outputs."""
        self.program: Specialization | None = None
        self.use = Use()
        self.key: Key = ()
        self.name = ""
        self._meaning: Callable[..., Any] | None = None
        self._operators = 0

    @staticmethod
    def whole(inputs: int, program: Specialization) -> Edge:
        """Return the edge of a program of one stage."""
        manifest = program.artifact.manifest
        made = Edge(range(inputs), range(inputs, inputs + len(manifest.outputs)), lists=manifest.lists)
        made.program = program
        return made

    @property
    def ready(self) -> bool:
        """Whether the edge can run natively: its stage is compiled, or it has none."""
        return self.program is not None or self.stage is None

    @property
    def operators(self) -> int:
        """Number of operators of a stage that is not compiled."""
        if not self._operators and self.stage is not None:
            self._operators = _operators(self.stage)
        return self._operators

    def evaluated(self, stage: Function, given: Sequence[Array]) -> Sequence[Array]:
        """Return the results of the stage, computed in numpy and timed."""
        begin = jit_policy.clock()
        if self._meaning is None:
            from tilewright.relay.dynamic_interpreter import meaning_of

            self._meaning = meaning_of(stage)
        made = self._meaning(*given)
        found = [np.ascontiguousarray(v).reshape(v.shape) for v in (made if isinstance(made, tuple) else (made,))]
        self.use.ran(jit_policy.clock() - begin)
        return found

    def given(self, values: Sequence[Array]) -> list[Array]:
        """Return the arguments of the stage."""
        given = [values[k] for k in self.takes]
        if self.sizes:
            given += [np.empty((size.read(values), 0), np.bool_) for size in self.sizes]
        return given

    def call_for(self, values: Sequence[Array]) -> tuple[Any, list[Array]] | None:
        """Return the stage's program for these values (None without a stage) and its arguments; None if the sizes are
        outside the ranges of its symbols."""
        given = self.given(values)
        if self.program is None:
            return None, given
        executable = self.program.executable
        if not isinstance(executable, OpenExecutable):
            return executable, given
        try:
            return executable.at(tuple([x.shape for x in given])), given
        except (InputError, ValueError):
            return None

    def take_stage(self) -> Function:
        """Return the stage; the edge drops it."""
        stage, self.stage, self._meaning = self.stage, None, None
        assert stage is not None
        return stage


class Point:
    """The rest of a program: `function` over the values so far, of which those numbered in `open` have dynamic
    sizes."""

    def __init__(self, function: Function | None, open_: Sequence[int]) -> None:
        self.function, self.open = function, tuple(open_)
        self.asked: tuple[int, ...] = ()
        self.edges: OrderedDict[Key, Edge] = OrderedDict()
        self.met = 0
        self.name = ""
        self.steps: DynamicProgram | None = None
        """The interpreter of the rest; made when it is first needed."""
        self.seen: OrderedDict[Key, Use] = OrderedDict()
        """Keys that were interpreted and have no edge."""
        self.uses = Uses()
        self.too_large = 0
        self.decided: tuple[int, ...] = ()
        """Values that decide edges with symbolic sizes."""
        self.symbolic: OrderedDict[Key, Edge | None] = OrderedDict()
        """The edges with symbolic sizes; None for values whose stage could not be compiled for all sizes."""
        self.most: Mapping[SizeOf, int] = {}
        """Upper bounds of dimensions of the values."""
        self._operators = 0

    @property
    def operators(self) -> int:
        """Number of operators left to do."""
        if not self._operators and self.function is not None:
            self._operators = _operators(self.function)
        return self._operators

    def use(self, key: Key) -> Use:
        """Return the use of a key so far."""
        edge = self.edges.get(key)
        return edge.use if edge is not None else self.seen.get(key) or Use()

    def ran(self, key: Key, use: Use, seconds: float) -> None:
        """Note that a call with this key was interpreted in this time."""
        use.ran(seconds)
        self.uses.meet(use)
        if key not in self.edges:
            self.seen.pop(key, None)
            self.seen[key] = use
            if len(self.seen) > MOST_EDGES:
                self.seen.popitem(last=False)

    def guards(self, key: Key, inputs: Sequence[tuple[str, Dims, DataType]]) -> Guards:
        """Return the guards that a key stands for; `inputs` are names, dimensions and dtypes of the values at this
        point."""
        shapes = dict(zip(self.open, key, strict=False))
        infos = tuple(
            TensorInfo(name, tuple(shapes.get(k, dims)), dtype) for k, (name, dims, dtype) in enumerate(inputs))
        return Guards(infos, (), tuple(zip(self.asked, key[len(self.open):], strict=True)))

    def key(self, values: Sequence[Array]) -> Key:
        """Return the key of an edge: the shapes of the values of dynamic sizes, and the contents of those that
        decide."""
        return (*[values[k].shape for k in self.open], *[content(values[k]) for k in self.asked])

    def known(self, values: Sequence[Array]) -> Edge | None:
        """Return the edge for these values if its stage is compiled, and count its use."""
        key = tuple([values[k].shape for k in self.open]) if not self.asked else self.key(values)
        edge = self.edges.get(key)
        if edge is None or not edge.ready:
            return None
        self.uses.meet(edge.use)
        try:
            self.edges.move_to_end(key)
        except KeyError:  # another thread has just dropped it
            return edge
        return edge

    def symbolic_key(self, values: Sequence[Array]) -> Key:
        """Return the key of an edge with symbolic sizes."""
        return tuple([content(values[k]) for k in self.decided])

    @property
    def has_symbolic(self) -> bool:
        """Whether there is an edge with symbolic sizes."""
        return any(edge is not None for edge in self.symbolic.values())

    def known_symbolic(self, values: Sequence[Array]) -> tuple[Edge, Any, list[Array]] | None:
        """Return the edge with symbolic sizes that serves these values, its program and the arguments of this."""
        edge = self.symbolic.get(self.symbolic_key(values)) if self.symbolic else None
        found = None if edge is None else edge.call_for(values)
        return None if edge is None or found is None else (edge, *found)

    def keep_symbolic(self, values: Sequence[Array], edge: Edge | None, decided: tuple[int, ...]) -> None:
        """Add an edge with symbolic sizes, or note that there is none for these values."""
        if not set(decided) <= set(self.decided):
            self.decided = tuple(sorted({*self.decided, *decided}))
            self.symbolic.clear()  # their keys lack the values that now decide
        self.symbolic[self.symbolic_key(values)] = edge
        if len(self.symbolic) > MOST_EDGES:
            self.symbolic.popitem(last=False)

    def possible_values(self) -> Iterator[list[Array]]:
        """Yield arrays of the types of the values, with both values of each condition; nothing if a type is unknown."""
        params = self.function.params if self.function is not None else ()
        types = [p.known_type() for p in params]
        if not types or not all(hasattr(t, "shape") for t in types):
            return
        values = [
            np.zeros([d if isinstance(d, int) else 1 for d in t.shape], t.dtype.numpy())  # type: ignore[union-attr]
            for t in types]
        conditions = [k for k, v in enumerate(values) if is_condition(v)]
        if len(conditions) <= _MOST_CONDITIONS:
            for answers in product((False, True), repeat=len(conditions)):
                for k, answer in zip(conditions, answers, strict=True):
                    values[k] = np.full(values[k].shape, answer)
                yield list(values)

    def name_edge(self, edge: Edge, *what: Any) -> None:
        """Name an edge, and the point after it, by what decides it."""
        edge.name = hashlib.sha256("|".join((self.name, *map(repr, what))).encode()).hexdigest()
        if edge.next is not None:
            edge.next.name = edge.name

    def keep(self, key: Key, edge: Edge) -> None:
        """Add an edge; above `MOST_EDGES`, drop the least recently used one."""
        edge.key = key
        self.name_edge(edge, self.open, self.asked, key)
        self.edges[key] = edge
        if len(self.edges) > MOST_EDGES:
            self.edges.popitem(last=False)


Grow = Callable[[Point, "Sequence[Array] | None"], "tuple[Edge, set[int]]"]
"""Returns the edge for these values, and the numbers of those that decided it; with None, of those that would."""


GrowSymbolic = Callable[[Point, "Sequence[Array]", bool], "tuple[Edge | None, tuple[int, ...]]"]
"""Returns the edge of a point for all sizes, if it has one, and the numbers of the values that decide it.

With True, the values are no values of a call, except conditions.
"""


def is_condition(value: Array) -> bool:
    """Whether a value is a single bool."""
    return value.dtype == np.bool_ and value.size == 1


class Stages:
    """A program as the tree of its stages, callable like an `Executable`."""

    def __init__(
        self, inputs: Sequence[tuple[str, Dims, str]], root: Point, grow: Grow,
        compiler: Callable[[Callable[[], Function], Edge], Specialization],
        known: Callable[[Key], Edge | None] = lambda key: None, groups: Mapping[str, Any] | None = None,
        kept: Callable[[Edge], Specialization | None] = lambda edge: None,
        symbolic: GrowSymbolic = lambda point, values, foreseen: (None, ()),
    ) -> None:
        """`compiler` compiles the function that its first argument returns, for an edge. `known` returns an existing
        edge of the root, and `kept` the earlier compilation of an edge's stage, if any. `symbolic` makes edges with
        symbolic sizes.

        `groups` are the sequences and optionals whose tensors are inputs (see `compiler/sequences.py`).
        """
        self.groups = groups or {}
        self.signature = [(name, tuple(dims), DataType(dtype), DataType(dtype).numpy()) for name, dims, dtype in inputs]
        self._names = [name for name, *_ in self.signature]
        self._plain = [
            (element, len(dims), [(k, d) for k, d in enumerate(dims) if isinstance(d, int)]) for _, dims, _,
            element in self.signature]
        self.root, self._grow, self._compile, self._known, self._kept = root, grow, compiler, known, kept
        self._symbolic = symbolic
        self.refused = ""
        """Why stages of known sizes serve calls, if that is worth a warning."""
        self.opens_root = False
        """Whether the first stage may have symbolic sizes."""
        self.limits: Guards | None = None
        """The dimensions and ranges that the caller gave, so that sizes beyond them are refused."""
        self._lock = new_reentrant_lock()
        self._conversions: Conversions | None = None
        self.last: Specialization | None = None
        """The program of the last call, if that was a single one."""

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run; `out` is an array, or one for each output, to write into. Raises `InputError`, and what compiling a
        stage raises."""
        return self.run(self.arrays(args, kwargs), out)[0]

    def run(
        self, inputs: Sequence[Array], out: Any = None, *, at_once: bool = False, interpret: bool = False
    ) -> tuple[Any, Lists]:
        """Return the results for these inputs, and their grouping. With `at_once`, compile every stage that the call
        needs; with `interpret`, compile none."""
        root = self.root
        found = root.known_symbolic(inputs)
        edge = found[0] if found is not None else root.known(inputs) or self._way(root, inputs, at_once, interpret)
        if edge.next is None and edge.program is not None and edge.is_whole and not edge.sizes:
            self.last = edge.program
            return edge.program.executable(*inputs, out=out), edge.lists
        self.last = None
        for x, (name, _, dtype, _) in zip(inputs, self.signature, strict=True):
            if dtype == "string":
                check_texts(TensorInfo(name, x.shape, dtype), x.ravel().tolist())
        results, lists = self._outputs(edge, inputs, at_once, interpret)
        if out is not None:
            targets = [out] if len(results) == 1 and not isinstance(out, (tuple, list)) else list(out)
            for target, result in zip(targets, results, strict=True):
                if target is not None:
                    np.copyto(target, result, casting="no")
            results = [result if target is None else target for target, result in zip(targets, results, strict=True)]
        return results[0] if len(results) == 1 else tuple(results), lists

    def _outputs(
        self, edge: Edge, inputs: Sequence[Array], at_once: bool, interpret: bool
    ) -> tuple[list[Array], Lists]:
        values = list(inputs)
        call: tuple[Any, list[Array]] | None = None
        while True:
            if call is None:
                call = None if edge.program is None else edge.program.executable, edge.given(values)
            program, given = call
            if program is not None:
                made = program(*given)
                values += made if type(made) is tuple else (made,)
            elif (stage := edge.stage) is not None:
                values += edge.evaluated(stage, given)
            for size, places in edge.sizers:
                values += size(*[values[k] for k in places])
            values = [values[k] for k in edge.gives]
            point = edge.next
            if point is None:
                return _apart(values, inputs), edge.lists
            symbolic = point.known_symbolic(values)
            known, call = (symbolic[0], symbolic[1:]) if symbolic is not None else (point.known(values), None)
            if known is None and not at_once and (ended := self._on_values(point, values)) is not None:
                return ended
            edge = known or self._way(point, values, at_once, interpret)

    def _on_values(self, point: Point, values: Sequence[Array]) -> tuple[list[Array], Lists] | None:
        """Return the outputs, interpreted from the values so far; None if compiling serves better."""
        if point.function is None or not point.met or point.too_large >= TRIED:
            return None
        from tilewright.relay.dynamic_interpreter import Conversions, DynamicProgram, TooLargeError

        key = point.key(values)
        with self._lock:
            use = point.use(key)
            if point.uses.pays(use, COMPILING.of(point.operators)):
                return None
            if self._conversions is None:
                self._conversions = Conversions(SMALL)
            if point.steps is None:
                point.steps = DynamicProgram(point.function, self._conversions)
        begin = jit_policy.clock()
        try:
            found = point.steps(values)
        except TooLargeError:
            point.too_large += 1
            return None
        with self._lock:
            point.ran(key, use, jit_policy.clock() - begin)
        point.too_large = 0
        return found

    def prepare(self) -> Edge | None:
        """Compile the first stage before any call; None if sizes or values of a call decide it."""
        if self.root.open or self.root.asked:
            return None
        edge = self.root.edges.get(()) or self._known(())
        if edge is None:
            edge, asked = self._grow(self.root, None)
            self.root.asked = tuple(sorted(asked))
            if asked:
                return None
        with self._lock:
            self._add(self.root, (), edge)
            if not edge.ready:
                self._make(self.root, (), edge)
            self._foresee(edge)
        return edge

    def _way(self, point: Point, values: Sequence[Array], at_once: bool, interpret: bool) -> Edge:
        """Return the edge for these values, ready to run; with `interpret`, its stage need not be compiled."""
        with self._lock:
            key = point.key(values)
            edge = point.edges.get(key)
            if edge is None and point is self.root and not point.asked and (edge := self._known(key)) is not None:
                self._add(point, key, edge)
            if edge is None and (found := self._symbolic_way(point, values, interpret)) is not None:
                return found
            if edge is None:
                edge, asked = self._grow(point, values)
                if not asked <= set(point.asked):
                    point.asked = tuple(sorted({*point.asked, *asked}))
                    point.edges.clear()  # their keys lack the values that now decide
                    key = point.key(values)
                self._add(point, key, edge)
                edge.use = point.seen.pop(key, edge.use)
            point.uses.meet(edge.use)
            point.edges.move_to_end(key)
            changing = not at_once and edge.small and point.met > SETTLED and (
                point is not self.root or bool(point.asked)
            )
            if not edge.ready and not interpret and not (
                changing and not point.uses.pays(edge.use, COMPILING.of(edge.operators))
            ):
                self._make(point, key, edge)
                if point is self.root:
                    self._foresee(edge)
            return edge

    def _symbolic_way(self, point: Point, values: Sequence[Array], interpret: bool) -> Edge | None:
        """Return an edge with symbolic sizes for these values, made if the point has not been asked for one; with
        `interpret`, none is made."""
        if point is self.root and not self.opens_root:
            return None
        settled = interpret or (point is self.root and len(point.symbolic) > SETTLED)
        if not settled and point.symbolic_key(values) not in point.symbolic:
            edge, decided = self._symbolic(point, values, False)
            point.keep_symbolic(values, edge, decided)
            point.met += edge is not None
            self._foresee(edge)
        if self.refused and point.symbolic.get(point.symbolic_key(values), point) is None:
            warnings.warn(OpenSizeWarning(self.refused), stacklevel=6)
            self.refused = ""
        found = point.known_symbolic(values)
        return None if found is None else found[0]

    def _foresee(self, edge: Edge | None) -> None:
        """Make the edges with symbolic sizes that calls can take after an edge, for both values of each condition."""
        points = [edge.next] if edge is not None and edge.next is not None else []
        for _ in range(MOST_FORESEEN):
            if not points:
                return
            point = points.pop()
            for values in point.possible_values():
                if point.symbolic_key(values) in point.symbolic:
                    continue
                made, decided = self._symbolic(point, values, True)
                if made is not None or all(is_condition(values[k]) for k in decided):
                    point.keep_symbolic(values, made, decided)
                point.met += made is not None
                if made is not None and made.next is not None:
                    points.append(made.next)

    def _add(self, point: Point, key: Key, edge: Edge) -> None:
        point.met += 1
        point.keep(key, edge)
        if edge.next is not None and (point is not self.root or point.asked):
            edge.next.met = max(edge.next.met, point.met - 1)  # sizes that follow from changing sizes change, too
        if not edge.ready and (program := self._kept(edge)) is not None:
            edge.take_stage()
            edge.program = program

    def _make(self, point: Point, key: Key, edge: Edge) -> None:
        """Compile the stage of an edge, whose graph is released. An edge whose stage cannot be compiled is dropped."""
        stage = [edge.take_stage()]
        try:
            edge.program = self._compile(stage.pop, edge)
        finally:
            if edge.program is None:
                del point.edges[key]

    # Inputs, and their checks.

    @property
    def open(self) -> bool:
        """Whether inputs have dynamic sizes."""
        return bool(self.root.open)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs. Raises `InputError` if they have dynamic sizes."""
        if self.open:
            raise InputError(
                f"the model has symbolic dimensions ({self.described()}); call it once, or compile it with shapes=",
                code="TW0708")
        return tuple(TensorInfo(n, dims, t) for n, dims, t, _ in self.signature)

    def why_not_one(self) -> str:
        """Explain why the model is not a single program."""
        if self.open and not self.root.edges and not self.root.has_symbolic:
            return f"the model has symbolic dimensions ({self.described()}); call it once, or compile it with shapes="
        return (
            "some sizes of the model are only known at run time, so it is compiled in stages as calls need them; make "
            "the values that determine its shapes constants of the model to have one program"
        )

    def programs(self) -> Iterator[Specialization]:
        """Yield the compiled stages."""
        points = [self.root]
        while points:
            for edge in list(points.pop().edges.values()):
                if edge.program is not None:
                    yield edge.program
                if edge.next is not None:
                    points.append(edge.next)

    def described(self) -> str:
        """Return the inputs and their dimensions as text."""
        return described(self.signature)

    def arrays(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Array]:
        """Return the inputs of a call as arrays in order. Raises `InputError` for unsuitable ones."""
        args = self.in_order(args, kwargs)
        given = zip(args, self._plain, self.signature)  # noqa: B905
        found = [x if _is_plain(x, *takes) else self._array(x, *s[:3]) for x, takes, s in given]
        if self.limits is not None:
            self.limits.sizes([x.shape for x in found])
        return found

    def in_order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the inputs of a call in order, unchanged."""
        return in_order(self._names, args, kwargs, self.described)

    def _array(self, value: Any, name: str, dims: Dims, dtype: DataType) -> Array:
        shape = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
        if len(shape) != len(dims) or any(isinstance(w, int) and w != d for w, d in zip(dims, shape, strict=True)):
            raise InputError(
                f"input '{name}' has the shape {shape}, but the model takes ({', '.join(map(str, dims))})",
                code="TW0704")
        return readable(TensorInfo(name, shape, dtype), dtype.numpy(), value)

    def edges(self) -> Iterator[Edge]:
        """Yield every edge of the tree."""
        points = [self.root]
        while points:
            point = points.pop()
            for edge in (*point.edges.values(), *filter(None, point.symbolic.values())):
                yield edge
                if edge.next is not None:
                    points.append(edge.next)

    @property
    def in_python(self) -> set[str]:
        """Names of operators that run in Python: on strings, without a kernel, or with data-dependent result sizes."""
        return {
            *chain.from_iterable(s.in_python for s in self.specializations()),
            *(size.name for e in self.edges() for size, _ in e.sizers)
        }

    def specializations(self) -> list[Specialization]:
        """Return the compiled stages, each with guards on the values at its point."""
        found = []
        points: list[tuple[Point, list[tuple[str, Dims, DataType]]]] = [(self.root, [s[:3] for s in self.signature])]
        while points:
            point, inputs = points.pop()
            for key, edge in list(point.edges.items()):
                if edge.program is not None:
                    edge.program.guards = point.guards(key, inputs)
                    found.append(edge.program)
                if edge.next is not None and edge.next.function is not None:
                    points.append((edge.next, _inputs_of(edge.next.function)))
            for edge in filter(None, list(point.symbolic.values())):
                if edge.program is not None:
                    found.append(edge.program)
                if edge.next is not None and edge.next.function is not None:
                    points.append((edge.next, _inputs_of(edge.next.function)))
        return found

    def use_threads(self, count: int) -> None:
        """Share the work of a call among `count` threads, in every stage."""
        for s in self.specializations():
            s.use_threads(count)

    def example_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Return arrays that the program accepts: floats uniform in [0, 1), integers and booleans 0 or 1. Raises
        `InputError` where sizes are dynamic."""
        if self.open:
            raise InputError(f"the model has symbolic dimensions ({self.described()}); give the inputs", code="TW0708")
        random = np.random.default_rng(seed)
        values = ((n, t, random.random(dims)) for n, dims, t, _ in self.signature)  # type: ignore[arg-type]
        return {n: (v if t.is_float else v + 0.5).astype(t.numpy()) for n, t, v in values}

    def benchmark(
        self, *args: Any, repeat: int = 5, number: int = 5, min_repeat_ms: float = 0, end_to_end: bool = False,
        **kwargs: Any
    ) -> BenchmarkResult:
        """Time calls with these inputs (random ones where none are given): `repeat` measurements of `number` calls
        each."""
        given = args if args or kwargs else (self.example_inputs(),)
        self(*given, **kwargs)
        return measure(lambda: self(*given, **kwargs), repeat, number, min_repeat_ms)


def _inputs_of(function: Function) -> list[tuple[str, Dims, DataType]]:
    return [(p.name_hint, p.tensor_type.shape, p.tensor_type.dtype) for p in function.params]


def _operators(function: Function) -> int:
    from tilewright.relay.visitor import calls

    return len(calls(function.body))


def _is_plain(x: Any, element: np.dtype[Any], rank: int, known: Sequence[tuple[int, int]]) -> bool:
    """Whether `x` is a contiguous array of that dtype and rank, with the `known` axes of those sizes. Alignment, and
    whether its objects are strings, are checked where it is read."""
    if type(x) is not np.ndarray or x.dtype != element or not x.flags.c_contiguous:
        return False
    shape = x.shape
    if len(shape) != rank:
        return False
    return not known or all(shape[axis] == size for axis, size in known)


def _apart(outputs: list[Array], inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs, each an array of its own: no input, no other output, no part of a larger array."""
    seen = {id(x) for x in inputs}
    for k, x in enumerate(outputs):
        if id(x) in seen:
            outputs[k] = x.copy()
        seen.add(id(x))
    return outputs
