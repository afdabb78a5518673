"""The inputs that `tilewright run` feeds to a model, and the display of its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import InputError, OptionError
from tilewright.base.limits import machine_bytes, shown_bytes
from tilewright.runtime.program import TensorInfo
from tilewright.runtime.sizes import solved, value


class Fill(StrEnum):
    """The contents of an input that is not given."""

    ZEROS = "zeros"
    ONES = "ones"
    RANDOM = "random"


def feed(
    infos: Sequence[Any], given: Mapping[str, NDArray[Any]], fill: Fill,
    shapes: Mapping[str, tuple[Any, ...]] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return an array for each input (objects with `name`, `shape`, `dtype`): from `given`, else filled, of the shape
    in `shapes` or its own. Names of dimensions have the same size in all inputs.

    Raises `InputError` for an unknown input, `OptionError` for an input of dynamic shape that is not given.
    """
    known, wanted = [info.name for info in infos], shapes or {}
    if extra := [name for name in (*given, *wanted) if name not in known]:
        raise InputError(f"the model has no input '{extra[0]}'; it has {', '.join(known)}", code="TW0702")
    random = np.random.default_rng(0)
    wanted = {**wanted, **{name: array.shape for name, array in given.items()}}
    sizes = solved((i.shape, wanted.get(i.name, ())) for i in infos)
    shaped = [wanted[i.name] if i.name in wanted else tuple(_sized(d, sizes) for d in i.shape) for i in infos]
    sized = [i if tuple(i.shape) == shape else TensorInfo(i.name, shape, i.dtype)
             for i, shape in zip(infos, shaped, strict=True)]
    return {info.name: given[info.name] if info.name in given else filled(info, fill, random) for info in sized}


def _sized(size: Any, sizes: Mapping[str, int]) -> Any:
    """Return the number for a dimension, or the dimension if that is not known."""
    try:
        number = value(size, sizes)
    except ValueError:  # a name that is no expression
        return size
    return size if number is None else number


def filled(info: Any, fill: Fill, random: np.random.Generator) -> NDArray[Any]:
    """Return an array for one input; random means uniform in [0, 1) for floats, 0 or 1 for other dtypes."""
    if not all(isinstance(size, int) for size in info.shape):
        shape, names = ",".join(map(str, info.shape)), dict.fromkeys(d for d in info.shape if isinstance(d, str))
        raise OptionError(
            f"input '{info.name}' has the dynamic shape [{shape}]; give numbers for {', '.join(names)} in "
            f"--input-shapes \"{info.name}:[{shape}]\", or its values with --inputs",
            code="TW0113")
    if (needed := info.nbytes) > (there := machine_bytes()):
        raise InputError(
            f"input '{info.name}' needs {shown_bytes(needed)}, but only {shown_bytes(there)} of memory are available; "
            f"give its sizes with --input-shapes \"{info.name}:[…]\"",
            code="TW0710")
    dtype = np.dtype(getattr(info.dtype, "numpy", lambda: info.dtype)())
    if dtype.kind == "O":
        return np.full(info.shape, {Fill.ZEROS: "", Fill.ONES: "1", Fill.RANDOM: "text"}[fill], object)
    if fill is not Fill.RANDOM:
        return np.full(info.shape, fill is Fill.ONES, dtype)
    values = random.random(info.shape)
    made: NDArray[Any] = (values + 0.5 if dtype.kind in "iub" else values).astype(dtype)
    return made


def largest(answers: Mapping[str, NDArray[Any]], count: int) -> Iterator[str]:
    """Yield lines with the `count` largest elements of each output and their indices, without dimensions of size 1."""
    for name, answer in answers.items():
        squeezed = np.squeeze(answer)
        flat = squeezed.ravel()
        if flat.dtype == object:
            yield (
                f"{name} string[{', '.join(map(str, answer.shape))}], the first {min(count, flat.size)}: "
                f"{', '.join(map(repr, flat[:count]))}"
            )
            continue
        yield f"{name} {answer.dtype}[{', '.join(map(str, answer.shape))}], its {min(count, flat.size)} largest:"
        for place in np.argsort(-flat.astype(np.float64), kind="stable")[:count]:
            index = ", ".join(map(str, np.unravel_index(place, squeezed.shape)))
            yield f"  [{index}]  {flat[place]:.6g}"
