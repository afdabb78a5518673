"""The table that the code of a program for dynamic shapes reads: the symbols, sizes computed from them, and offsets of
pieces of the workspace.

    int64 table[] = { n, m,   n * m * 4,   offset of piece 0, offset of piece 1, … }
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.runtime.manifest import Manifest
from tilewright.runtime.program import Copy, KernelCall
from tilewright.runtime.sizes import Size


def derived_sizes(manifest: Manifest) -> tuple[str, ...]:
    """Return the derived sizes that the entry function needs: of copies and places, conditions of kept values, the
    number of parts, and the increments between parts."""
    found: dict[str, None] = {}

    def need(*sizes: Size) -> None:
        found.update((s, None) for s in sizes if isinstance(s, str))

    for step in manifest.steps:
        if isinstance(step, Copy):
            need(step.nbytes, step.source.skip, step.destination.skip)
        elif isinstance(step, KernelCall):
            need(*(place.skip for place in step.args), *(check.place.skip for check in step.checks))
    need(*(kept.needed for kept in manifest.kept))
    if manifest.parts != 1:
        need(manifest.parts, *part_bytes(manifest))
    return tuple(found)


def part_bytes(manifest: Manifest) -> list[Size]:
    """Return the bytes of one part of each input and output."""
    return [_bytes(t.shape, t.dtype.itemsize, manifest.parts) for t in (*manifest.inputs, *manifest.outputs)]


def _bytes(shape: Sequence[Size], itemsize: int, parts: Size) -> Size:
    """Return the bytes of one part; the first dimension is a multiple of `parts`."""
    if parts != 1:
        first, *rest = shape
        whole = (
            first // parts if isinstance(first, int) and isinstance(parts, int) else 1 if first == parts
            else f"({first} // {parts})"
        )
        shape = (whole, *rest)
    known = itemsize
    for d in shape:
        known *= d if isinstance(d, int) else 1
    open_ = [d for d in shape if isinstance(d, str)]
    return f"({' * '.join([*open_, str(known)])})" if open_ else known


def positions(manifest: Manifest) -> dict[str, int]:
    """Return the index of each symbol and derived size in the table."""
    return {text: k for k, text in enumerate((*(s.name for s in manifest.symbols), *manifest.sizes))}


def first_piece(manifest: Manifest) -> int:
    """Return the index of the first piece offset in the table."""
    return len(manifest.symbols) + len(manifest.sizes)
