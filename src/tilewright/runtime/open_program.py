"""Programs of dynamic sizes: one code, and a plan for each combination of sizes of its calls.

    symbols n, m; piece 0 of n * m * 4 bytes, alive from step 0 to 3       x has the shape (3, 5)
    ->  n = 3, m = 5: [3, 5, …, offset of piece 0, …]                    the cached table that the code reads

The shapes of the inputs determine the sizes. A plan takes about ten microseconds: it evaluates all sizes by one
compiled function. All plans share the workspaces, and the layouts of pieces in them (`runtime/workspaces.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from tilewright.base.errors import InputError, InternalError
from tilewright.base.forks import lazy_attribute, new_lock
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.executable import SURELY_THERE, Executable, Frame, address_of, aligned, shapes_of
from tilewright.runtime.guards import Guards, shape_of
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.program import Code, HostValue
from tilewright.runtime.size_rules import size_rules
from tilewright.runtime.sizes import compiled
from tilewright.runtime.threads import checked_threads
from tilewright.runtime.workspaces import Layout, Workspaces, table_of

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]
Sizes: TypeAlias = tuple[Shapes, Shapes, int, tuple[int, ...], tuple[int, ...]]
"""The shapes of the inputs and outputs, the number of parts, the derived sizes, and the bytes of the pieces."""

_MOST_COUNTED: Final = 4096
FEWEST_PLANS: Final = 256
"""Number of combinations of sizes whose plans are kept in any case; the oldest ones are dropped."""
_BYTES_OF_PLANS: Final = 16 << 20
"""Memory that more plans may take, in bytes."""
_BYTES_OF_PLAN: Final = 5000
_BYTES_OF_SIZE: Final = 48
"""Estimated memory of a plan, and of each number in its table, in bytes."""

_LARGEST_ITEM: Final = 16
_NO_TABLE: Final = np.zeros(0, np.int64)
_ARRAY: Final = np.ndarray
_DESCRIPTIONS: Final = ("manifest", "_inputs", "_outputs", "_sizes")
"""Attributes of an executable that depend on its sizes, and are made when they are needed."""


class OpenExecutable(Executable):
    """An `Executable` for all sizes that its guards admit; each combination of sizes gets a plan over the same code."""

    def __init__(
        self, manifest: Manifest, code: Code, constants: Array, threads: int | None = None, table: Array | None = None
    ) -> None:
        self.manifest, self.code, self.guards = manifest, code, Guards.of(manifest)
        self._given_threads = threads
        self._constants = aligned(constants)
        self._names = tuple(t.name for t in manifest.inputs)
        self._count = len(self._names)
        self._dtypes = tuple(t.dtype.numpy() for t in manifest.inputs)
        self._plans: dict[Shapes, Executable] = {}
        self._template: Executable | None = None
        """A program for the first combination of sizes, from which the plans are copied."""
        self._lock, self._compiling = new_lock(), new_lock()
        self.last: Executable | None = None
        """The plan of the last call."""
        self._compile: Callable[[Shapes], Executable] | None = None
        self._calls: dict[Shapes, int] = {}
        self._after = 0

    def specialise(self, compile_: Callable[[Shapes], Executable], after: int) -> None:
        """Compile a combination of sizes separately, in the background, after it was called `after` times, and use that
        program."""
        self._compile, self._after = compile_, after

    @property
    def threads(self) -> int:
        """Number of threads that share the work of a call."""
        from tilewright.runtime.threads import default_threads

        return self._given_threads or self.manifest.threads or default_threads()

    @threads.setter
    def threads(self, count: int) -> None:
        self._given_threads = checked_threads(count)
        with self._lock:
            if self._template is not None:
                self._template.threads = count
            for plan in self._plans.values():
                plan.threads = count

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run the program; `out` is an array, or one for each output, to write into instead of new ones."""
        is_plain = not kwargs and len(args) == self._count and type(args[0]) is _ARRAY
        given = args if is_plain else self._in_order(args, kwargs)
        shapes, places = shapes_of(given, self._dtypes)
        plan = self._plans.get(shapes) or self.at(shapes)
        self.last = plan
        if self._compile is not None:
            self._note_call(shapes)
        return plan._answer(given, places, out)

    def benchmark(
        self, *args: Any, repeat: int = 5, number: int = 5, min_repeat_ms: float = 0, end_to_end: bool = False,
        **kwargs: Any
    ) -> BenchmarkResult:
        """Time calls with these inputs, by default random ones of the sizes of the last call; see
        `Executable.benchmark`."""
        options: dict[str, Any] = {
            "repeat": repeat, "number": number, "min_repeat_ms": min_repeat_ms, "end_to_end": end_to_end
        }
        if args or kwargs:
            given = self._in_order(args, kwargs)
            return self._for(given).benchmark(*given, **options)
        if self.last is None:
            raise InputError(
                f"the program has dynamic shapes ({self._signature()}); call it once, or give the inputs to time it "
                "with",
                code="TW0708")
        return self.last.benchmark(**options)

    def shapes_of(self, *args: Any, **kwargs: Any) -> Shapes:
        """Return the shapes of these inputs, or of the last call without any. Raises `InputError` for shapes that the
        program refuses."""
        program = self._for(self._in_order(args, kwargs)) if args or kwargs else self.last
        if program is None:
            raise InputError(
                f"the program has dynamic shapes ({self._signature()}); call it once, or give the inputs",
                code="TW0708")
        return tuple(tuple(int(d) for d in t.shape) for t in program.inputs)

    def example_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Return arrays that the model accepts, with the smallest value of every dynamic size."""
        sizes: dict[str, int] = {s.name: s.least for s in self.manifest.symbols}
        return self.at(tuple(shape_of(t, sizes) for t in self.manifest.inputs)).example_inputs(seed)

    def at(self, shapes: Shapes) -> Executable:
        """Return the program for inputs of these shapes. Raises `InputError` for invalid shapes."""
        with self._lock:
            found = self._plans.get(shapes)
            if found is not None:
                return found
            made = self._plans[shapes] = self._planned(shapes)
            if len(self._plans) > self._most_plans:
                del self._plans[next(iter(self._plans))]
            return made

    def _for(self, given: Sequence[Any]) -> Executable:
        shapes, _ = shapes_of(given, self._dtypes)
        self.last = self.at(shapes)
        return self.last

    def _note_call(self, shapes: Shapes) -> None:
        with self._lock:
            if len(self._calls) > _MOST_COUNTED:
                self._calls.clear()
            calls = self._calls[shapes] = self._calls.get(shapes, 0) + 1
        if calls == self._after:
            threading.Thread(target=self._specialise, args=(shapes,), name="tilewright-specialise", daemon=True).start()

    def _specialise(self, shapes: Shapes) -> None:
        """Replace the plan of these sizes by a program compiled for them alone; running calls keep the plan."""
        assert self._compile is not None
        with self._compiling:
            made = self._compile(shapes)
        with self._lock:
            self._plans[shapes] = made

    def _planned(self, shapes: Shapes) -> SizedExecutable:
        """Return a new plan, after `_lock` was taken."""
        values, sizes = self._solved(shapes)
        if self._template is None:
            self._template = self._first(values, sizes)
        names = [s.name for s in self.manifest.symbols]
        return SizedExecutable(self._template, self._workspaces, dict(zip(names, values, strict=True)), sizes)

    @lazy_attribute
    def _most_plans(self) -> int:
        """Number of plans that are kept."""
        m = self.manifest
        nbytes = _BYTES_OF_PLAN + _BYTES_OF_SIZE * (len(m.symbols) + len(m.sizes) + len(m.pieces))
        return max(FEWEST_PLANS, _BYTES_OF_PLANS // nbytes)

    @lazy_attribute
    def _workspaces(self) -> Workspaces:
        return Workspaces(self.manifest, address_of(self._constants))

    @lazy_attribute
    def _solver(self) -> tuple[tuple[int, int, int], ...]:
        """For each symbol, the input, the axis and the factor of the dimension that determines it."""
        rules = size_rules(self.manifest.inputs, self.manifest.symbols)
        places = {r.symbol.name: (r.tensor, r.axis, r.factor) for r in rules if r.symbol is not None}
        return tuple(places[s.name] for s in self.manifest.symbols)

    @lazy_attribute
    def _sizes_of(self) -> Callable[..., Sizes]:
        """A function of the symbols that computes all sizes."""
        m = self.manifest
        wanted = (
            tuple(t.shape for t in m.inputs), tuple(t.shape for t in m.outputs), m.parts, m.sizes,
            tuple(p.nbytes for p in m.pieces))
        return compiled(wanted, [s.name for s in m.symbols])

    def _solved(self, shapes: Shapes) -> tuple[list[int], Sizes]:
        """Return the values of the symbols, and all sizes. Raises `InputError` for invalid shapes."""
        try:
            values = [shapes[k][axis] // factor for k, axis, factor in self._solver]
        except IndexError:
            values = []
        if len(values) == len(self.manifest.symbols) and all(
            s.least <= n and (s.most is None or n <= s.most)
            for s, n in zip(self.manifest.symbols, values, strict=True)
        ):
            sizes: Sizes = self._sizes_of(*values)
            if sizes[0] == shapes and self._satisfies(values):
                return values, sizes
        self.guards.sizes(shapes)  # says which shape is wrong
        raise InternalError(f"the guards of '{self.manifest.name}' admit {shapes}, for which it has no plan")

    def _satisfies(self, values: Sequence[int]) -> bool:
        if not self.manifest.requirements:
            return True
        known = {s.name: n for s, n in zip(self.manifest.symbols, values, strict=True)}
        return all(r.holds(known) for r in self.manifest.requirements)

    def _first(self, values: Sequence[int], sizes: Sizes) -> Executable:
        """Return the program for the first combination of sizes, from which those for others are copied."""
        offsets = [0] * len(self.manifest.pieces)
        return Executable(
            concrete(self.manifest, sizes, 0), self.code, self._constants, self._given_threads,
            np.array([*values, *sizes[3], *offsets, 0], np.int64))


class SizedExecutable(Executable):
    """A program of dynamic sizes at one combination of sizes.

    It shares code, constants and workspaces with the others. Its manifest, for messages and measurements, is made when
    it is needed.
    """

    has_dynamic_shapes = True

    def __init__(self, template: Executable, workspaces: Workspaces, known: Mapping[str, int], sizes: Sizes) -> None:
        """`known` has the sizes of the symbols."""
        shared = dict(vars(template))
        for name in _DESCRIPTIONS:
            shared.pop(name, None)
        vars(self).update(shared)
        inputs, outputs, _, derived, self._piece_bytes = sizes
        self._template, self._workspaces, self._all_sizes = template, workspaces, sizes
        self._known, self._head = known, (*known.values(), *derived)
        self._takes = tuple((dtype, shape) for (dtype, _), shape in zip(template._takes, inputs, strict=True))
        self._gives = tuple((dtype, shape) for (dtype, _), shape in zip(template._gives, outputs, strict=True))
        self._new = self._makers()
        self._frames = workspaces.free
        self._layout: Layout | None = None
        """A layout of the pieces; `_table` is for it."""
        self._table: Array = _NO_TABLE
        self._values: dict[HostValue, HostValue] = {}
        """Arguments and results of steps that run in Python, at the sizes of the calls."""
        if sum(map(prod, outputs)) * _LARGEST_ITEM + sum(self._piece_bytes) > SURELY_THERE:
            self._check_memory()

    @lazy_attribute
    def manifest(self) -> Manifest:
        """The manifest of a program for these sizes alone."""
        return concrete(
            self._template.manifest, self._all_sizes, self._workspaces.exact_bytes(self._piece_bytes))

    def _view(self, value: HostValue, frame: Frame, inputs: Sequence[Array], outputs: Sequence[Array]) -> Array:
        if value.is_open and value not in self._values:
            assert self._layout is not None
            self._values[value] = value.at(self._known, self._layout.offsets)
        return super()._view(self._values.get(value, value), frame, inputs, outputs)

    def _take_frame(self) -> Frame:
        frame = None
        try:
            frame = self._frames.pop()
            if frame.table is self._table and not frame.is_roomy:
                return frame  # of a call with the same sizes
        except IndexError:
            pass
        if self._layout is None:
            self._layout = self._workspaces.layout(self._piece_bytes)
            self._table = table_of(self._head, self._layout)
        try:
            return self._workspaces.fitted(frame, self._layout, self._table)
        except MemoryError:
            raise self._no_memory() from None


def concrete(manifest: Manifest, sizes: Sizes, workspace_bytes: int) -> Manifest:
    """Return the manifest of a program of dynamic sizes at one combination of them."""
    inputs, outputs, parts, _, _ = sizes
    return replace(
        manifest, symbols=(), requirements=(), sizes=(), pieces=(), workspace_bytes=workspace_bytes, parts=parts,
        inputs=tuple(replace(t, shape=shape) for t, shape in zip(manifest.inputs, inputs, strict=True)),
        outputs=tuple(replace(t, shape=shape) for t, shape in zip(manifest.outputs, outputs, strict=True)))
