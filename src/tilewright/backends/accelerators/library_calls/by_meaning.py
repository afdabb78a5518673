"""A functional stand-in for a library: computes its calls in numpy. Its speed is not that of the library.

    with stand_in("ethos-n"):
        lib.executable(x)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.backends.accelerators.library_calls.module import LibraryModule, Step
from tilewright.base.global_functions import FUNCTIONS, register_func, remove_global_func
from tilewright.relay.interpreter import evaluate
from tilewright.relay.parser import parse


@contextmanager
def stand_in(library: str) -> Iterator[list[str]]:
    """Compute the calls of `library` in numpy inside the block; yield the list of called functions."""
    name = f"runtime.library.{library}"
    before = FUNCTIONS.get(name)
    called: list[str] = []

    def run(module: LibraryModule, *arrays: Any) -> None:
        called.extend(s.function for s in module.steps)
        run_by_meaning(module, *arrays)

    register_func(name, run, override=True)
    try:
        yield called
    finally:
        remove_global_func(name)
        if before is not None:
            FUNCTIONS[name] = before


def run_by_meaning(module: LibraryModule, *arrays: Any) -> None:
    """Compute a part: `arrays` are its inputs (NDArrays), then its outputs."""
    inputs = [t for t in module.tensors if t.kind == "input"]
    values: dict[int, np.ndarray[Any, Any]] = {}
    for i, t in enumerate(module.tensors):
        if t.kind in ("input", "constant"):
            values[i] = arrays[t.place].numpy() if t.kind == "input" else module.constants[t.place]
    for step in module.steps:
        values.update(zip(step.writes, results_of(step, [values[r] for r in step.reads]), strict=True))
    for i, t in enumerate(module.tensors):
        if t.kind == "output":
            arrays[len(inputs) + t.place].copyfrom(values[i])


def results_of(step: Step, reads: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Compute the results of one call from its arguments, by the numpy meaning of its operators."""
    mod = parse(step.meaning)
    given = iter(reads[: len(reads) - step.constants])
    found = evaluate(mod, *(_filled(p.checked_type, given) for p in mod["main"].params))
    return [np.asarray(v) for v in (found if isinstance(found, tuple) else (found,))]


def _filled(kind: Any, arrays: Iterator[np.ndarray[Any, Any]]) -> Any:
    """Return the next array, or a tuple of arrays for a tuple type."""
    return tuple(_filled(f, arrays) for f in kind.fields) if hasattr(kind, "fields") else next(arrays)
