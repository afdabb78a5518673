"""Integer values after a stage that consist of sizes: the rest of the program reads them from the shapes it takes.

    stage (%x)          { (%0 = exp(%x), concatenate(shape_of(%x), [4])) }      %x: (n, 3)
    rest  (%v0, %v1)    { … %v1 … }
    ->  stage (%x)      { exp(%x) }
        rest  (%v0)     { … take(concatenate(shape_of(%v0), [4]), [0, 1, 2]) … }

So these integers and the dimensions are the same symbols in the next stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.base.types import OpenSize, TensorType
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from tilewright.relay.frontend.core.known import ShapeValues
from tilewright.relay.op.create import ShapeOf
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.transform import Concatenate
from tilewright.relay.transform.stages import Cut, stage_of
from tilewright.relay.visitor import rewrite

Array = np.ndarray[Any, Any]


def with_sizes_from_shapes(made: Cut, function: Function) -> Cut:
    """Return a cut of `function`, whose dimensions have samples, without results of the stage that consist of numbers
    and of dimensions of other values after it."""
    if made.stage is None or made.rest is None:
        return made
    outputs = _outputs(made.stage)
    count = len(function.params)
    produced = [outputs[n - count] if count <= n < count + len(outputs) else None for n in made.gives]
    sizes = {k: found for k, e in enumerate(produced) if e is not None and (found := _sizes_in(e)) is not None}
    kept = [k for k in range(len(made.gives)) if k not in sizes]
    values = {k: _read(found, made.rest.params[k].tensor_type, [made.rest.params[j] for j in kept])
              for k, found in sizes.items()}
    new = {made.rest.params[k]: e for k, e in values.items() if e is not None}
    return _without(made, function, outputs, new) if new else made


def _outputs(stage: Function) -> Sequence[Expr]:
    return stage.body.fields if isinstance(stage.body, Tuple) else (stage.body,)


def _sizes_in(e: Expr) -> Array | None:
    """Return the elements of an integer value that contains dynamic sizes; None for other values."""
    t = e.known_type()
    if not isinstance(t, TensorType) or not t.dtype.is_integer or not t.is_static or t.is_open:
        return None
    found = ShapeValues()(e)
    return found if found is not None and any(isinstance(d, OpenSize) for d in found.flat) else None


def _read(sizes: Array, t: TensorType, params: Sequence[Var]) -> Expr | None:
    """Return the value with these elements, read from the shapes of `params`; None if one is no dimension of them."""
    dtype = str(t.dtype)
    parts: dict[Expr, int] = {}
    length = 0
    places: list[int] = []
    for d in sizes.flat:
        found = (Constant(np.array([d], dtype)), 0) if not isinstance(d, OpenSize) else _dimension(d, params)
        if found is None:
            return None
        source, axis = found
        if source not in parts:
            parts[source] = length
            length += 1 if isinstance(source, Constant) else len(source.known_type().shape)  # type: ignore[union-attr]
        places.append(parts[source] + axis)
    read = [x if isinstance(x, Constant) else Call(ShapeOf(dtype), [x]) for x in parts]
    return Call(Take(axis=0), [
        Call(Concatenate(axis=0), [Tuple(tuple(read))]), Constant(np.array(places, np.int64).reshape(sizes.shape))])


def _dimension(size: int, params: Sequence[Var]) -> tuple[Var, int] | None:
    """Return a parameter and an axis whose dimension is `size`."""
    shapes = ((p, p.tensor_type.shape) for p in params if isinstance(p.known_type(), TensorType))
    return next(
        ((p, axis) for p, shape in shapes for axis, d in enumerate(shape) if isinstance(d, OpenSize) and d == size),
        None)


def _without(made: Cut, function: Function, outputs: Sequence[Expr], new: dict[Var, Expr]) -> Cut:
    """Return the cut with parameters of the rest replaced; `made` if nothing else would be computed."""
    assert made.rest is not None
    count = len(function.params)
    params = [p for p in made.rest.params if p not in new]
    gives = [n for n, p in zip(made.gives, made.rest.params, strict=True) if p not in new]
    used = {*gives, *(n for _, places in made.sizers for n in places)}
    left = [k for k in range(len(outputs)) if count + k in used]
    if not left and not made.sizers:
        return made
    numbers = {n: n for n in range(count)} | {count + k: count + at for at, k in enumerate(left)}
    after = range(count + len(outputs), max((*made.gives, 0)) + 1)
    numbers |= {n: n - len(outputs) + len(left) for n in after}
    stage, takes = stage_of(function, [outputs[k] for k in left])
    memo: dict[Expr, Expr] = {**dict(new.items()), **{p: p for p in params}}
    body = rewrite(made.rest.body, lambda _: None, inside=True, memo=memo)
    return replace(
        made, stage=stage, takes=takes, gives=tuple(numbers[n] for n in gives),
        sizers=tuple((call, tuple(numbers[n] for n in places)) for call, places in made.sizers),
        rest=Function(params, body, attrs=made.rest.attrs, span=made.rest.span))
