"""Evaluates a float network on calibration data, part by part, to limit the number of values in memory.

A `Runner` executes the parts as compiled programs (`compiler/calibration.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.types import TensorType
from tilewright.relay.expr import Expr, Function, Var
from tilewright.relay.quantize.ranges import Array, Distribution

Sample = Mapping[str, Array]
Runner = Callable[[Function, Sequence[Expr]], Callable[[Sample], list[Array]]]
"""Compiles nodes of a function to a function that computes their values for a sample."""


def samples_of(data: Any, function: Function) -> list[Sample]:
    """The inputs of each run, as mappings of names to arrays.

    `data` is such a mapping, or an iterable of mappings, or of arrays for a network with one input. An array may hold
    several batches along its first axis: each is a sample. Raises `InputError` for other names and shapes, and for no
    data.
    """
    names = [p.name_hint for p in function.params]
    items: Iterable[Any] = [data] if isinstance(data, (Mapping, np.ndarray)) or hasattr(data, "numpy") else data
    found: list[Sample] = []
    for item in items:
        given = item if isinstance(item, Mapping) else {names[0]: item} if len(names) == 1 else None
        if given is None:
            raise InputError(f"the network takes {len(names)} inputs: {', '.join(names)}; give each sample as a "
                             "dictionary of arrays by these names", code="TW1002")
        for wrong in set(given) ^ set(names):
            raise InputError(f"calibration data: '{wrong}' is "
                             f"{'no input of the network' if wrong in given else 'not given'}; the inputs are: "
                             f"{', '.join(names)}", code="TW1002")
        found += _batches({n: _array(given[n]) for n in names}, function.params)
    if not found:
        raise InputError("the calibration data are empty; give at least one input", code="TW1002")
    return found


def _array(value: Any) -> Array:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _batches(sample: dict[str, Array], params: Sequence[Var]) -> list[Sample]:
    counts = set()
    for p in params:
        kind, x = p.checked_type, sample[p.name_hint]
        assert isinstance(kind, TensorType)
        fits = x.shape[1:] == tuple(kind.shape[1:]) and x.ndim == kind.ndim and (not x.ndim
            or (x.shape[0] and x.shape[0] % kind.shape[0] == 0))
        if x.dtype.kind == "f" and kind.dtype.is_float:
            x = sample[p.name_hint] = x.astype(kind.dtype.numpy())
        if not fits or x.dtype != kind.dtype.numpy():
            raise InputError(f"calibration data for '{p.name_hint}' are {x.dtype}{list(x.shape)}, but the network "
                             f"takes {kind!r}, or several of these along the first axis", code="TW1002")
        counts.add(x.shape[0] // kind.shape[0] if x.ndim else 1)
    if len(counts) > 1:
        raise InputError(f"calibration data have different numbers of samples: {', '.join(map(str, sorted(counts)))}; "
                         "give the same number for each input", code="TW1002")
    count = counts.pop() if counts else 1
    return [{n: x if not x.ndim else np.ascontiguousarray(np.split(x, count)[k]) for n, x in sample.items()}
            for k in range(count)]


def distributions(
    function: Function, values: Sequence[Expr], samples: Sequence[Sample], runner: Runner, at_a_time: int = -1,
    counted: bool = True,
) -> dict[Expr, Distribution]:
    """The distribution of each node's values, in runs that keep `at_a_time` nodes; only extremes unless `counted`."""
    found = {e: Distribution() for e in values}
    step = len(values) if at_a_time < 0 else at_a_time
    for begin in range(0, len(values), max(step, 1)):
        part = values[begin : begin + step]
        run = runner(function, part)
        for sample in samples:
            for e, x in zip(part, run(sample), strict=True):
                found[e].add(x, counted)
    return found
