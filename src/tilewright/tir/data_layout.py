"""Layouts by name, `NCHW`, `NCHW8c`, `OIHW4i16o`: the order of dimensions in memory, and conversions between layouts.

A capital letter is a dimension. A small letter with a number is a block of that dimension: in `NCHW8c`, channel `c` is
in chunk `c // 8` at `C` and in lane `c % 8` at `8c`. A dimension can have several blocks, the slowest first. If the
blocks do not divide a dimension, the last chunk is padded with zeros.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.base.errors import ShapeError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout. `axes` are the letters in memory order, each with the size of its block, or 0 for a dimension itself.
    """

    name: str
    axes: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return self.name

    def __len__(self) -> int:
        return len(self.axes)

    def __getitem__(self, index: int) -> str:
        return self.axes[index][0]

    def __contains__(self, axis: str) -> bool:
        return any(letter == axis for letter, _ in self.axes)

    def index_of(self, axis: str) -> int:
        """Return the first position of a letter, or -1."""
        return next((k for k, (letter, _) in enumerate(self.axes) if letter == axis), -1)

    def factor_of(self, axis: str) -> int:
        """Return the product of the blocks of a dimension, given by its capital or small letter; -1 if it has no
        blocks."""
        blocks = [size for letter, size in self.axes if letter == axis.lower()]
        return math.prod(blocks) if blocks else -1

    @property
    def blocked(self) -> bool:
        """Whether any dimension has blocks."""
        return any(size for _, size in self.axes)

    @property
    def plain(self) -> str:
        """The capital letters in order: `NCHW` for `NCHW8c`."""
        return "".join(letter for letter, size in self.axes if not size)

    def pieces(self, letter: str) -> list[int]:
        """Return the positions of the parts of a dimension, the slowest first: itself, then its blocks."""
        own = [k for k, (c, size) in enumerate(self.axes) if c == letter and not size]
        return own + [k for k, (c, size) in enumerate(self.axes) if size and c.upper() == letter]

    def require_shape(self, shape: Sequence[Any], what: str = "a tensor") -> None:
        """Raise `ShapeError` for a shape of another rank, or with other blocks."""
        fits = (
            len(shape) == len(self.axes)
            and all(
                not size or not isinstance(n, int) or n == size for n, (_, size) in zip(shape, self.axes, strict=True))
        )
        if not fits:
            raise ShapeError(
                f"{what} of shape {_shown(shape)} does not have the layout {self.name}, which has {len(self.axes)} "
                f"dimensions{self._blocks_text()}")

    def _blocks_text(self) -> str:
        blocks = [f"dimension {k} is {size}" for k, (_, size) in enumerate(self.axes) if size]
        return f", where {' and '.join(blocks)}" if blocks else ""


def _shown(shape: Sequence[Any]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


@lru_cache(maxsize=512)
def layout(name: str) -> Layout:
    """Return the layout of that name; "__undef__", and an empty name, is one without axes. Raises `ShapeError` for an
    invalid name."""
    if isinstance(name, Layout):
        return name
    if name in ("", "__undef__"):
        return Layout("__undef__", ())
    found = re.findall(r"(\d*)([A-Za-z])", name)
    axes = tuple((letter, int(number or 0)) for number, letter in found)
    if not axes or "".join(number + letter for number, letter in found) != name:
        raise ShapeError(
            f"'{name}' is not a layout; it has capital letters, "
            "and numbers only before small letters, for example NCHW8c")
    letters = [letter for letter, _ in axes]
    for (number, letter), (_, size) in zip(found, axes, strict=True):
        if letter.isupper() and number:
            raise ShapeError(
                f"the layout '{name}' has a size before the dimension {letter}; only blocks have sizes: "
                f"{number}{letter.lower()}")
        if letter.isupper() and letters.count(letter) > 1:
            raise ShapeError(f"the layout '{name}' contains the dimension {letter} twice")
        if letter.islower() and size < 1:
            raise ShapeError(
                f"the layout '{name}' has the block {letter} without a size; write the size before the letter, such "
                f"as 8{letter}")
        if letter.islower() and letter.upper() not in letters:
            raise ShapeError(
                f"the layout '{name}' has blocks {number}{letter}, but no dimension {letter.upper()}"
            )
    return Layout(name, axes)


@dataclass(frozen=True, slots=True)
class BijectiveLayout:
    """The conversion of shapes, indices and arrays from the layout `src` to `dst`, which have the same dimensions."""

    src: Layout
    dst: Layout

    def forward_shape(self, shape: Sequence[Any]) -> list[Any]:
        """Return the shape in `dst` of a tensor of `shape` in `src`. Raises `ShapeError` if `shape` does not fit `src`.
        """
        return _shape(shape, self.src, self.dst)

    def backward_shape(self, shape: Sequence[Any]) -> list[Any]:
        """Return the shape in `src` of a tensor of `shape` in `dst`."""
        return _shape(shape, self.dst, self.src)

    def forward_index(self, indices: Sequence[Any]) -> list[Any]:
        """Map the indices of an element in `src` to its indices in `dst`; numbers, or integer expressions."""
        return _index(indices, self.src, self.dst)

    def backward_index(self, indices: Sequence[Any]) -> list[Any]:
        """Map the indices of an element in `dst` to its indices in `src`."""
        return _index(indices, self.dst, self.src)

    def forward(self, x: Array) -> Array:
        """Convert an array from the layout `src` to `dst`, padded with zeros."""
        self.src.require_shape(x.shape)
        plain = self.src.plain
        whole = [math.prod([x.shape[k] for k in self.src.pieces(c)]) for c in plain]
        x = x.transpose([k for c in plain for k in self.src.pieces(c)]).reshape(whole)
        shape = _filled(dict(zip(plain, whole, strict=True)), self.dst)
        full = [math.prod([shape[k] for k in self.dst.pieces(c)]) for c in plain]
        x = np.pad(x, [(0, f - n) for f, n in zip(full, whole, strict=True)]) if full != whole else x
        order = [k for c in plain for k in self.dst.pieces(c)]
        back = sorted(range(len(order)), key=order.__getitem__)
        return np.ascontiguousarray(x.reshape([shape[k] for k in order]).transpose(back))


@lru_cache(maxsize=512)
def bijective_layout(src_layout: str, dst_layout: str) -> BijectiveLayout:
    """Return the conversion between two layouts. Raises `ShapeError` for an invalid name, or if their dimensions
    differ."""
    src, dst = layout(src_layout), layout(dst_layout)
    if sorted(src.plain) != sorted(dst.plain):
        raise ShapeError(
            f"layouts {src_layout} and {dst_layout} do not have the same dimensions: {', '.join(src.plain)} and "
            f"{', '.join(dst.plain)}")
    return BijectiveLayout(src, dst)


def _shape(shape: Sequence[Any], src: Layout, dst: Layout) -> list[Any]:
    src.require_shape(shape)
    sizes = {}
    for letter in src.plain:
        sizes[letter] = 1
        for k in src.pieces(letter):
            sizes[letter] = shape[k] * sizes[letter] if sizes[letter] != 1 else shape[k]
    return _filled(sizes, dst)


def _filled(sizes: dict[str, Any], dst: Layout) -> list[Any]:
    """Return the shape of dimensions of `sizes` in a layout, with the last chunks filled."""
    made: list[Any] = []
    for letter, size in dst.axes:
        block = dst.factor_of(letter)
        made.append(size or (sizes[letter] if block < 2 else (sizes[letter] + block - 1) // block))
    return made


def _index(indices: Sequence[Any], src: Layout, dst: Layout) -> list[Any]:
    if len(indices) != len(src.axes):
        raise ShapeError(f"{len(indices)} indices do not fit the layout {src.name} of {len(src.axes)} dimensions")
    made: list[Any] = [None] * len(dst.axes)
    for letter in src.plain:
        have, want = src.pieces(letter), dst.pieces(letter)
        if [src.axes[k][1] for k in have] == [dst.axes[k][1] for k in want]:
            for a, b in zip(have, want, strict=True):
                made[b] = indices[a]
            continue
        value = indices[have[0]]
        for k in have[1:]:
            value = value * src.axes[k][1] + indices[k]
        left = 1
        for k in reversed(want[1:]):
            made[k] = (value // left if left > 1 else value) % dst.axes[k][1]
            left *= dst.axes[k][1]
        made[want[0]] = value // left if left > 1 else value
    return made
