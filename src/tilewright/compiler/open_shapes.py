"""Shapes with dynamic dimensions, as users write them.

    shapes={"x": ("1..64", 3, "h", "w=32..")}      1 to 64, under the model's name; `h`; `w`, at least 32
    shapes={"x": (1, 3, "h=32..1280:32", "w:32")}  multiples of 32, for networks that halve an image repeatedly
    shapes={"x": (1, "n"), "mask": (1, "p + n")}    a sum of other dimensions
    shapes={"x": (1, "batch size=1..8")}            a range under the model's own name, which may have any form

This module imports nothing of the compiler, because its result is the cache key of a program.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import InputError
from tilewright.base.types import DataType
from tilewright.runtime.guards import Guards
from tilewright.runtime.manifest import Symbol
from tilewright.runtime.program import TensorInfo
from tilewright.runtime.sizes import value

_DIMENSION: Final = re.compile(
    r"(?:(?P<name>[^\W\d]\w*(?:\.\w+)*)\s*=?\s*)?"
    r"(?:(?P<least>\d+)\s*\.\.\s*(?P<most>\d*))?(?:\s*:\s*(?P<step>[1-9]\d*))?",
    re.ASCII)
_NAME: Final = re.compile(r"[^\W\d]\w*", re.ASCII)
_SUM: Final = re.compile(r"\w+(?:\s*[-+*]\s*\w+)+", re.ASCII)
_NAMELESS: Final = frozenset({"", "?", "*", "-1", "None"})

Dims = tuple["int | str", ...]
Signature = Sequence[tuple[str, Sequence["int | str"], str]]
"""The name, dimensions and dtype of each input."""


@dataclass(slots=True)
class OpenShapes:
    """The dimensions of the inputs with given shapes, dynamic ones by name or as arithmetic over names, and the ranges
    of the names."""

    dims: dict[str, Dims] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    """Divisors of dimensions; the default is 1."""
    names: dict[str, int | str] = field(default_factory=dict)
    """Symbols of the model, mapped to another name or a number."""
    sums: set[str] = field(default_factory=set)
    """Dimensions that are arithmetic over other dimensions: `past + length`."""

    def plain(self) -> list[str]:
        """Return the names of dimensions, without arithmetic over names."""
        return list(dict.fromkeys(
            d for dims in self.dims.values() for d in dims if isinstance(d, str) and d not in self.sums))

    def key(self) -> Any:
        """Return a JSON value that identifies this object."""
        return ["open", self.dims, self.ranges, self.steps, sorted(self.sums)]

    def symbol(self, name: str) -> tuple[str, int]:
        """Return the symbol and the factor of a dimension in programs, `h` or `h_by_32 * 32`."""
        step = self.steps.get(name, 1)
        return (name, 1) if step == 1 else (f"{name}_by_{step}", step)

    def symbol_ranges(self) -> dict[str, tuple[int, int | None]]:
        """Return the ranges of the symbols; raises `InputError` for a range that contains no multiple."""
        found: dict[str, tuple[int, int | None]] = {}
        for name, (least, most) in self.ranges.items():
            symbol, step = self.symbol(name)
            if most is not None and -(-least // step) > most // step:
                raise InputError(
                    f"dimension '{name}' is given as multiples of {step} from {least} to {most}, but there are "
                    "none", code="TW0305")
            found[symbol] = -(-least // step), None if most is None else most // step
        return found

    def guards(self, signature: Signature) -> Guards:
        """Return the conditions on the inputs of a call: their given dimensions, and the ranges of these."""
        sizes: dict[int | str, int | str] = {}
        for dimension in self.plain():
            name, step = self.symbol(dimension)
            sizes[dimension] = _identifier(name) if step == 1 else f"({_identifier(name)} * {step})"
        sizes |= {d: _NAME.sub(lambda m: str(sizes.get(m[0], m[0])), d) for d in self.sums}
        ranges = self.symbol_ranges()
        return Guards(
            tuple(
                TensorInfo(name, tuple(sizes.get(d, d) for d in self.dims.get(name, dims)), DataType(dtype))
                for name, dims, dtype in signature),
            tuple(Symbol(_identifier(s), *ranges.get(s, (0, None))) for s, _ in map(self.symbol, self.plain())))


def _identifier(name: str) -> str:
    """Return the name of a dimension as a name of symbolic sizes."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def with_numbers(
    signature: Signature, shapes: Mapping[str, Sequence[Any]]
) -> dict[str, Sequence[Any]]:
    """Return the given shapes, and those of other inputs that share a name with a number in them:
    `a: (n, 4), b: (n,)` and `a: (2, 4)` give `b: (2,)`."""
    numbers = {
        own: given for name, dims, _ in signature if name in shapes
        for own, given in zip(dims, shapes[name], strict=False)
        if isinstance(own, str) and own not in _NAMELESS and isinstance(given, int)}
    found = dict(shapes)
    for name, dims, _ in signature:
        made = tuple(_number(d, numbers) for d in dims)
        if name not in shapes and made != tuple(dims):
            found[name] = made
    return found


def _number(dimension: int | str, numbers: Mapping[Any, int]) -> int | str:
    """Return the number for a dimension, a name or arithmetic over names, or the dimension if that is not known."""
    if dimension in numbers or not isinstance(dimension, str) or not _is_sum(dimension):
        return numbers.get(dimension, dimension)
    found = value(dimension, numbers)
    return dimension if found is None else found


def default_shapes(
    signature: Signature, shapes: Mapping[str, Sequence[Any]]
) -> dict[str, Dims]:
    """Return the shapes of all inputs: given ones, else the model's own, with a name for each dimension without one."""
    own = {d for _, dims, _ in signature for d in dims}
    return {
        name: tuple(_unlike(_own(name, axis, d), own) if d in _NAMELESS else d
                    for axis, d in enumerate(shapes.get(name, dims)))
        for name, dims, _ in signature}


def _unlike(name: int | str, known: Container[int | str]) -> int | str:
    """Return the name of a dimension that has none, other than the names of the model."""
    while name in known:
        name = f"{name}_"
    return name


def has_open(shapes: Mapping[str, Any]) -> bool:
    """Whether the given shapes have a dynamic dimension."""
    return any(isinstance(d, str) for shape in shapes.values() if isinstance(shape, Sequence) for d in shape)


def open_shapes(signature: Signature, shapes: Mapping[str, Sequence[Any]]) -> OpenShapes:
    """Combine the given `shapes` with the model's own; raises `InputError` for conflicts."""
    found = OpenShapes()
    labels = {d for _, own, _ in signature for d in own}
    for name, own, _ in signature:
        if name not in shapes:
            if any(_is_sum(d) for d in own):
                found.dims[name] = tuple(_own(name, k, d) for k, d in enumerate(own))
            continue
        given = tuple(shapes[name])
        if len(given) != len(own):
            raise InputError(
                f"input '{name}' has {len(own)} dimensions ({', '.join(map(str, own))}), but {len(given)} are given: "
                f"{given}", code="TW0305")
        found.dims[name] = tuple(
            _dimension(found, name, k, d, o, labels) for k, (d, o) in enumerate(zip(given, own, strict=True)))
    known = {d for dims in found.dims.values() for d in dims if isinstance(d, str) and not _is_sum(d)}
    for name, dims in found.dims.items():
        found.dims[name] = tuple(_resolved(found, name, d, known, d in labels) for d in dims)
    return found


def _own(name: str, axis: int, own: int | str) -> int | str:
    """Return a dimension of the model, with a name if it has none."""
    return f"{name}_{axis}" if own in _NAMELESS else own


def _is_sum(d: Any) -> bool:
    return isinstance(d, str) and _SUM.fullmatch(d) is not None and _NAME.search(d) is not None


def _resolved(found: OpenShapes, name: str, d: int | str, known: Container[str], is_own: bool) -> int | str:
    """Return a dimension of the input `name` in the names that are given for those of the model. Arithmetic over other
    names counts as a name if it is the model's own."""
    if not isinstance(d, str):
        return d
    if not _is_sum(d):
        return d if d in known and d not in found.names else found.names.get(d, d)
    text = _NAME.sub(lambda m: str(found.names.get(m[0], m[0])), d)
    missing = [n for n in _NAME.findall(text) if n not in known]
    if missing:
        if is_own:
            return d
        raise InputError(
            f"a dimension of input '{name}' is {d!r}, but no dimension is named '{missing[0]}'; name a dimension of an "
            "input so, or write a number", code="TW0305")
    found.sums.add(text)
    return text


def _dimension(
    found: OpenShapes, name: str, axis: int, given: Any, own: int | str, labels: Iterable[int | str]
) -> int | str:
    where = f"dimension {axis} of input '{name}'"
    made = int(given) if not isinstance(given, str) else _named(found, where, given, _own(name, axis, own), labels)
    if isinstance(own, int):
        if own != made:
            raise InputError(f"{where} is {own} in the model, but {given!r} is given; give {own}", code="TW0305")
    elif own not in _NAMELESS and found.names.setdefault(own, made) != made:
        raise InputError(
            f"dimension '{own}' of the model is given as {found.names[own]!r} and as {made!r}; the shapes of the "
            "inputs contradict each other", code="TW0305")
    return made


def _named(found: OpenShapes, where: str, text: str, own: int | str, labels: Iterable[int | str]) -> int | str:
    if text == own or (_is_sum(text) and not isinstance(own, int)):
        return text
    label, rest = _label(text, labels)
    match = _DIMENSION.fullmatch(rest.strip())
    if match is None or not text.strip():
        raise InputError(
            f"{where} is {text!r}; write a number, a name (\"n\"), a range (\"1..64\") or both (\"n=1..64\"), followed "
            "by \":32\" for multiples of 32, or arithmetic over names (\"n + m\")", code="TW0305")
    if isinstance(own, int):
        raise InputError(f"{where} is {own} in the model, but {text!r} is given; give {own}", code="TW0305")
    name = label or match["name"] or own
    if match["least"] is not None:
        limits = int(match["least"]), int(match["most"]) if match["most"] else None
        if limits[1] is not None and limits[1] < limits[0]:
            raise InputError(
                f"{where} is {text!r}, an empty range; write the smaller number first", code="TW0305")
        if found.ranges.setdefault(name, limits) != limits:
            raise InputError(f"dimension '{name}' has two ranges; {where} has {text!r}", code="TW0305")
    if match["step"] is not None and found.steps.setdefault(name, int(match["step"])) != int(match["step"]):
        raise InputError(
            f"dimension '{name}' is given in multiples of two numbers; {where} has {text!r}", code="TW0305")
    return name


def _label(text: str, labels: Iterable[int | str]) -> tuple[str, str]:
    """Return the longest name of the model that a range or a divisor follows, and the rest; else an empty name and the
    text."""
    begun = [d for d in labels if isinstance(d, str) and d not in _NAMELESS and text.startswith((f"{d}=", f"{d}:"))]
    name = max(begun, key=len, default="")
    return name, text[len(name):].removeprefix("=") if name else text
