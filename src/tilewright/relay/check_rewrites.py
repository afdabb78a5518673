"""Check a pass by running the interpreter before and after it on random inputs.

Switch: `PassContext(config={"relay.check_rewrites": True})`. A function with another result is an error that names the
pass and the first wrong value. With "skip" it is a warning, and compilation continues with the module before the pass.
Integers are compared exactly, floats with the tolerance of the narrowest float type of the function. A warning names
functions that cannot be run (too much work, function parameters, random numbers). Passes that approximate declare it
(`Pass.exact`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InternalError, RewriteWarning, TVMError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.ir import dialects
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function, GlobalVar
from tilewright.relay.first_difference import first_difference
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.registry import Fusion
from tilewright.relay.visitor import post_order

RANGES: Final = ((-1.0, 1.0), (0.125, 1.0))
"""Range of the random floats of each trial; the second keeps roots and logarithms of variances finite."""
TOLERANCE: Final = {"float64": 1e-8, "float32": 3e-4, "float16": 3e-2, "bfloat16": 1.5e-1}
"""Relative to the larger of the value and the largest element of its array."""
_UNKNOWN_SIZE: Final = 3
_FAILURES: Final = (TVMError, NotImplementedError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError,
                    MemoryError)


class RewriteError(InternalError):
    """A pass changed the result of a module."""

    code = "TW0415"


class _NotChecked(Exception):
    """The reason why a function is not run."""


@dialects.checked_rewrite.provide
def checked_rewrite(before: IRModule, after: IRModule, pass_name: str, skip: bool, most: int) -> IRModule:
    """Return `after` if it computes the same as `before`; functions of more work than `most` are not run.

    Otherwise raise `RewriteError`, or with `skip` warn and return `before`.
    """
    for name, new in after.items():
        old = dict(before.items()).get(name)
        if old is new or not isinstance(old, Function) or not isinstance(new, Function):
            continue
        try:
            fault = _fault(old, new, dict(before.items()), dict(after.items()), most)
        except _NotChecked as reason:
            warnings.warn(f"the pass {pass_name} is not checked on @{name}: {reason}", RewriteWarning, stacklevel=2)
            continue
        if fault is None:
            continue
        message = f"the pass {pass_name} changed what @{name} computes:\n{fault}"
        if not skip:
            raise RewriteError(message)
        warnings.warn(f"{message}\nthe pass is skipped", RewriteWarning, stacklevel=2)
        return before
    return after


def _fault(old: Function, new: Function, functions: Mapping[str, Any], new_functions: Mapping[str, Any],
           most: int) -> str | None:
    """Return the difference of two functions' results as text."""
    _check_runnable(old, new, functions, most)
    tolerance = max(tolerance_of(old), tolerance_of(new))
    for trial, (low, high) in enumerate(RANGES):
        rng = np.random.default_rng(trial)
        sizes: dict[Any, int] = {}
        args = [random_value(p.checked_type, rng, low, high, sizes) for p in old.params]
        try:
            wanted = evaluate(old, *args, functions=functions)
        except _FAILURES as error:
            raise _NotChecked(f"the interpreter cannot run the function before the pass: {error}") from error
        try:
            given = evaluate(new, *args, functions=new_functions)
        except _FAILURES as error:
            return f"  the function runs before the pass, but fails after it: {type(error).__name__}: {error}"
        found = difference(wanted, given, tolerance)
        if found is not None:
            seed = f"  inputs: numpy.random.default_rng({trial}), floats from {low} to {high}"
            place = first_difference((old, functions), (new, new_functions), args,
                                     lambda a, b: difference(a, b, tolerance))
            return f"{'  ' + found if place is None else place}\n{seed}"
    return None


def _check_runnable(old: Function, new: Function, functions: Mapping[str, Any], most: int) -> None:
    types = [[p.known_type() for p in f.params] for f in (old, new)]
    if old.type_params or not all(_can_be_random(t) for t in types[0]):
        shown = ", ".join(f"{p.name_hint}: {p.known_type()!r}" for p in old.params
                          if not _can_be_random(p.known_type()))
        raise _NotChecked(f"no random inputs for {shown or 'a function that is generic in types'}")
    if types[0] != types[1]:
        raise _NotChecked("the pass changed its parameters")
    for e in post_order(old):
        if isinstance(e, Call) and not isinstance(e.op, Expr) and not e.op.pure:
            raise _NotChecked(f"{e.op.name} draws random numbers")
    amount = work(old, functions)
    if amount > most:
        raise _NotChecked(f"too large: about {amount:.1e} multiplications; relay.check_rewrites.max_work is {most:.1e}")


def _can_be_random(t: Type | None) -> bool:
    return all(map(_can_be_random, t.fields)) if isinstance(t, TupleType) else isinstance(t, TensorType)


def random_value(t: Type, rng: np.random.Generator, low: float, high: float, sizes: dict[Any, int]) -> Any:
    """Return a random value of a tensor or tuple type. Integers of 16 bits or more are small enough to be indices.
    `sizes` maps symbolic dimensions to the chosen sizes."""
    if isinstance(t, TupleType):
        return tuple(random_value(f, rng, low, high, sizes) for f in t.fields)
    if not isinstance(t, TensorType):
        raise _NotChecked(f"no random inputs for {t!r}")
    shape = tuple(d if isinstance(d, int) else sizes.setdefault(d, _UNKNOWN_SIZE) for d in t.shape)
    if t.dtype.is_float:
        return np.asarray(rng.uniform(low, high, shape)).astype(t.dtype.numpy())
    if t.dtype.code == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype("bool")
    signed, bits = t.dtype.code == "int", min(t.dtype.bits, 8)
    bounds = (0, 4) if t.dtype.bits > 8 else (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    return np.asarray(rng.integers(*bounds, shape)).astype(t.dtype.numpy())


def work(function: Function, functions: Mapping[str, Any]) -> int:
    """Estimate the multiplications and elements of a run; a function that is called repeatedly counts once."""
    total, seen, stack = 0, set(), [function]
    while stack:
        for e in post_order(stack.pop()):
            if isinstance(e, GlobalVar) and e.name_hint not in seen:
                seen.add(e.name_hint)
                called = functions.get(e.name_hint)
                stack += [called] if isinstance(called, Function) else []
            elif isinstance(e, Call):
                total += _call_work(e)
    return total


def _call_work(call: Call) -> int:
    made = _size(call.known_type())
    if isinstance(call.op, Expr) or call.op.kind is not Fusion.OUT_FUSABLE or len(call.args) < 2:
        return made
    shape = getattr(call.args[1].known_type(), "shape", ())
    channels = max((d for d in shape if isinstance(d, int)), default=1)
    return made * max(1, _size(call.args[1].known_type()) // max(1, channels))


def _size(t: Type | None) -> int:
    if isinstance(t, TupleType):
        return sum(map(_size, t.fields))
    return math.prod(d if isinstance(d, int) else _UNKNOWN_SIZE for d in t.shape) if isinstance(t, TensorType) else 1


def tolerance_of(function: Function) -> float:
    """Return the tolerance of the narrowest float type in a function."""
    found = {t.dtype for e in post_order(function) if isinstance(t := e.known_type(), TensorType)}
    return max((TOLERANCE.get(d, 0.0) for d in found), default=0.0)


def difference(wanted: Any, given: Any, tolerance: float, names: tuple[str, str] = ("before", "after")) -> str | None:
    """Return how two values differ in kind, shape or elements, or None. `names` denote the two in the message."""
    stack = [(wanted, given)]
    while stack:
        a, b = stack.pop()
        parts = [v if isinstance(v, tuple) else getattr(v, "fields", None) for v in (a, b)]
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            found = _array_difference(a, b, tolerance, names)
            if found is not None:
                return found
        elif parts[0] is not None and parts[1] is not None:
            if len(parts[0]) != len(parts[1]) or getattr(a, "tag", None) != getattr(b, "tag", None):
                return f"{_kind(a)} {names[0]}, {_kind(b)} {names[1]}"
            stack.extend(reversed(list(zip(parts[0], parts[1], strict=True))))
        elif type(a) is not type(b):
            return f"{_kind(a)} {names[0]}, {_kind(b)} {names[1]}"
    return None


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"


def _array_difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerance: float,
                      names: tuple[str, str]) -> str | None:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{_kind(a)} {names[0]}, {_kind(b)} {names[1]}"
    if a.size == 0:
        return None
    wide = np.float64 if a.dtype.kind not in "iub" else None
    if wide is None:
        wrong = np.asarray(a != b)
        apart = (np.where(wrong, 1.0, 0.0) if a.dtype.kind == "b"
                 else np.abs(a.astype(np.float64) - b.astype(np.float64)) + wrong)
    else:
        x, y = a.astype(wide), b.astype(wide)
        with np.errstate(all="ignore"):
            finite = np.isfinite(x)
            scale = float(np.max(np.abs(x[finite]))) if finite.any() else 0.0
            apart = np.abs(x - y)
            same = (x == y) | (np.isnan(x) & np.isnan(y)) | (apart <= tolerance * (np.abs(x) + scale))
            wrong, apart = ~same, np.where(np.isnan(apart), np.inf, apart)
    if not wrong.any():
        return None
    at = np.unravel_index(int(np.argmax(np.where(wrong, apart, -1.0))), a.shape)
    where = f" at [{', '.join(map(str, at))}]" if at else ""
    return f"{int(wrong.sum())} of {a.size} elements differ, most{where}: {a[at]} {names[0]}, {b[at]} {names[1]}"
