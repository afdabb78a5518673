"""Compares answers: first with a tolerance, then by float64 results, then by the condition of the computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import DataType

Array = np.ndarray[Any, Any]
EPS: Final = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The unit in the last place at 1; small floats are compared with the one of bfloat16."""
ULPS: Final = 64
"""Units of the largest element by which floats may differ: room for another order of sums."""
WORSE: Final = 8
"""Times the error of the worst reference that ours may have against float64."""

SHAKEN: Final = 4
"""Evaluations with other roundings that say how sure floats are."""


def eps_of(dtype: np.dtype[Any]) -> float:
    return EPS.get(dtype.name, 2.0**-2)


def is_float(array: Array) -> bool:
    """Whether the elements are floating point, with the small floats of ml_dtypes."""
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and DataType(array.dtype).is_float)


def flat(values: Any) -> list[Any]:
    """The tensors of nested lists; an absent optional stays None."""
    if isinstance(values, (list, tuple)):
        return [v for x in values for v in flat(x)]
    return [values if values is None or isinstance(values, np.ndarray) else np.asarray(values)]


def difference(got: Sequence[Any], want: Sequence[Any]) -> str:
    """A text that says where two lists of results differ; empty where they agree within the tolerance of their
    types."""
    mine, theirs = flat(got), flat(want)
    if len(mine) != len(theirs):
        return f"{len(mine)} results, {len(theirs)} are expected"
    for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        said = _one(a, b)
        if said:
            return f"result {k}: {said}"
    return ""


def _one(a: Any, b: Any) -> str:
    if a is None or b is None:
        return "" if a is b else "only one is absent"
    if a.shape != b.shape:
        return f"shape {list(a.shape)}, expected {list(b.shape)}"
    if a.dtype != b.dtype and {a.dtype.kind, b.dtype.kind} & set("OSU") != {a.dtype.kind, b.dtype.kind}:
        return f"type {a.dtype}, expected {b.dtype}"
    wrong = differing(a, b)
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(wrong)), a.shape) if a.shape else ()
    where = f"at {[int(i) for i in at]}" if a.shape else "the scalar"
    return f"{int(wrong.sum())} of {a.size} elements differ; {where}: {a[at]!r}, expected {b[at]!r}"


def differing(a: Array, b: Array, extra: Array | float = 0.0) -> Array:
    """Which elements of two arrays of one shape differ; floats by more than the tolerance of the type and `extra`."""
    if not is_float(a) or not is_float(b):
        return np.asarray(a != b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        special = ~np.isfinite(x) | ~np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        apart = (
            np.abs(x - y) > ULPS * eps_of(a.dtype) * np.abs(y) + ULPS / 4 * eps_of(a.dtype) * scale(y) + smallest(a)
            + extra
        )
    return np.asarray(np.where(special, ~same, apart))


def smallest(a: Array) -> float:
    """A few denormals of the type."""
    return {"float64": 1e-307, "float32": 1e-37, "float16": 2.0**-23, "bfloat16": 1e-37}.get(a.dtype.name, 0.0)


def scale(y: Array) -> float:
    """The largest finite magnitude."""
    finite = np.abs(y[np.isfinite(y)])
    return float(finite.max(initial=0.0))


def as_good(ours: Sequence[Any], references: Sequence[Sequence[Any]], exact: Sequence[Any]) -> bool:
    """Whether our error against the float64 results is within `WORSE` times that of the worst reference."""
    mine, right = flat(ours), flat(exact)
    others = [flat(r) for r in references]
    if any(len(r) != len(mine) for r in [right, *others]):
        return False
    for k, (a, e) in enumerate(zip(mine, right, strict=True)):
        theirs = [r[k] for r in others if r[k] is not None and a is not None and r[k].shape == a.shape]
        if a is None or e is None or not theirs or a.shape != e.shape or any(t.dtype != a.dtype for t in theirs):
            return False
        if not is_float(a):
            if not any((a == t).all() for t in theirs):
                return False
        elif _off(a, theirs, e).any():
            return False
    return True


def _off(a: Array, theirs: Sequence[Array], exact: Array) -> Array:
    """Elements of ours that are further from the exact value than the references allow."""
    x, e = a.astype(np.float64), exact.astype(np.float64)
    with np.errstate(all="ignore"):
        errors = [np.abs(t.astype(np.float64) - e) for t in theirs]
        worst = max(float(np.max(r[np.isfinite(r)], initial=0.0)) for r in errors)
        close = np.isfinite(e) & (
            np.abs(x - e) <= WORSE * worst + ULPS * eps_of(a.dtype) * np.abs(e) + 4 * eps_of(a.dtype) * scale(e)
        )
        same = [(a == t) | (np.isnan(x) & np.isnan(t.astype(np.float64))) for t in theirs]
        overflow = np.isinf(x) & (np.abs(e) > largest(a)) & (np.sign(x) == np.sign(e))
    return np.asarray(~(close | np.logical_or.reduce(same) | overflow))


def largest(a: Array) -> float:
    """The magnitude from which a result may overflow, a little below the largest of the type."""
    return {"float64": 1.7e308, "float32": 3.4e38, "float16": 65000.0, "bfloat16": 3.3e38}.get(a.dtype.name, 0.0)


def as_sure(
    ours: Sequence[Any], exact: Sequence[Any], shaken: Sequence[Sequence[Any]], references: Sequence[Sequence[Any]] = ()
) -> bool:
    """Whether ours lies within what results vary by when every rounding is another: `shaken` are such results.

    Whole numbers may also be those of one of the `references`, such as the place of a maximum among sums that only
    float64 tells apart.
    """
    mine, right = flat(ours), flat(exact)
    others = [flat(s) for s in shaken]
    if any(len(s) != len(mine) for s in [right, *others]):
        return False
    answers = [t for t in map(flat, references) if len(t) == len(mine)]
    for k, (a, e) in enumerate(zip(mine, right, strict=True)):
        varied = [s[k] for s in others]
        if a is None or e is None or any(v is None or v.shape != a.shape for v in varied) or e.shape != a.shape:
            return any(v is not None and e is not None and v.shape != e.shape for v in varied)
        theirs = [t[k] for t in answers if t[k] is not None and t[k].shape == a.shape]
        if not _within(a, e, varied, theirs):
            return False
    return True


def _within(a: Array, exact: Array, varied: Sequence[Array], theirs: Sequence[Array]) -> bool:
    if not is_float(a):
        free = np.logical_or.reduce([*(v != exact for v in varied), *(a == t for t in theirs)])
        return bool(((a == exact) | free).all())
    x, e, varied = a.astype(np.float64), exact.astype(np.float64), varied[:SHAKEN]
    with np.errstate(all="ignore"):
        moves = [np.abs(v.astype(np.float64) - e) for v in varied]
        jumps = np.logical_or.reduce(
            [~np.isfinite(m) & ~(np.isnan(e) & np.isnan(v)) for m, v in zip(moves, varied, strict=True)]
        )
        spread = np.max(np.where(np.isfinite(moves), moves, 0.0), axis=0) * WORSE
        off = differing(a, np.where(np.abs(e) > largest(a), np.copysign(np.inf, e), e), spread) & ~jumps
        near = np.isfinite(e) & (np.abs(x - e) <= spread + ULPS * eps_of(a.dtype) * np.abs(e))
    return bool((~off | near).all())
