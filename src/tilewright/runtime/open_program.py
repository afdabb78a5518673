"""Programs of dynamic sizes: one code, and a memory plan for each combination of sizes of its calls.

    symbols n, m; piece 0 of n * m * 4 bytes, alive from step 0 to 3       x has the shape (3, 5)
    ->  n = 3, m = 5: [3, 5, …, offset of piece 0, …]                    the cached table that the code reads

The shapes of the inputs determine the sizes. The plan is that of a static program: the largest pieces first, each into
the tightest gap between pieces that live at the same time. Planning takes a tenth of a millisecond per combination of
sizes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.forks import new_lock
from tilewright.base.memory_placement import place_pieces
from tilewright.base.nd import as_numpy
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.executable import Executable
from tilewright.runtime.guards import Guards, number, shape_of
from tilewright.runtime.manifest import Manifest, Piece
from tilewright.runtime.program import Code
from tilewright.runtime.threads import checked_threads

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]

_MOST_COUNTED: Final = 4096
MOST_PLANS: Final = 64
"""Number of combinations of sizes whose plans and memory are kept; the least recently used ones are dropped."""


class OpenExecutable(Executable):
    """An `Executable` for all sizes that its guards admit; each combination of sizes gets a plan over the same code."""

    def __init__(
        self, manifest: Manifest, code: Code, constants: Array, threads: int | None = None, table: Array | None = None
    ) -> None:
        self.manifest, self.code, self.guards = manifest, code, Guards.of(manifest)
        self._given_threads = threads
        self._constants = constants
        self._names = tuple(t.name for t in manifest.inputs)
        self._inputs = tuple((t, t.dtype.numpy(), t.shape) for t in manifest.inputs)
        self._position = {n: k for k, n in enumerate(self._names)}
        self._plans: OrderedDict[Shapes, Executable] = OrderedDict()
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
            for plan in self._plans.values():
                plan.threads = count

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run the program; `out` is an array, or one for each output, to write into instead of new ones."""
        given = self._in_order(args, kwargs)
        return self._for(given)(*given, out=out)

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
                self._plans.move_to_end(shapes)
                return found
        made = self._planned(shapes)
        with self._lock:
            found = self._plans.setdefault(shapes, made)
            if len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        return found

    def _for(self, given: Sequence[Any]) -> Executable:
        shapes = tuple(tuple(x.shape) if hasattr(x, "shape") else as_numpy(x).shape for x in given)
        found = self._plans.get(shapes) or self.at(shapes)
        self.last = found
        if self._compile is not None:
            self._count(shapes)
        return found

    def _count(self, shapes: Shapes) -> None:
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

    def _planned(self, shapes: Shapes) -> Executable:
        manifest = self.manifest
        sizes = self.guards.sizes(shapes)
        derived = [number(text, sizes) for text in manifest.sizes]
        offsets, workspace = place_pieces([Piece(number(p.nbytes, sizes), p.birth, p.death) for p in manifest.pieces])
        table = np.array([*sizes.values(), *derived, *(o + manifest.workspace_bytes for o in offsets), 0], np.int64)
        concrete = replace(
            manifest, symbols=(), sizes=(), pieces=(), workspace_bytes=manifest.workspace_bytes + workspace,
            parts=number(manifest.parts, sizes),
            inputs=tuple(replace(t, shape=shape_of(t, sizes)) for t in manifest.inputs),
            outputs=tuple(replace(t, shape=shape_of(t, sizes)) for t in manifest.outputs))
        return Executable(concrete, self.code, self._constants, self._given_threads, table)
