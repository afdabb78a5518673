"""Converts sparse weights of a TFLite file to dense arrays.

Source: `SparsityParameters` in schema.fbs, after https://arxiv.org/abs/1510.05217 (TACO). Dimensions are in storage
order, followed by those of blocks. Each is dense, or lists the indices present for each position of the previous level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from tilewright.base.errors import ModelError

Array = np.ndarray[Any, Any]

_SPARSE: Final = 1


def densified(name: str, sparsity: dict[str, Any], shape: Sequence[int], values: Callable[[int], Array]) -> Array:
    """The dense array of `shape`; `values(n)` gives the n stored elements. Raises `ModelError` for bad parameters."""

    def refuse(why: str) -> NoReturn:
        raise ModelError(f"the sparse tensor '{name}' {why}; the file is damaged: convert it again", code="TW0103")

    order, block_map, levels = sparsity["traversal_order"], sparsity["block_map"], sparsity["dim_metadata"]
    rank = len(shape)
    if sorted(order) != list(range(rank + len(block_map))) or len(levels) != len(order) or any(not 0 <= b < rank
        for b in block_map):
        refuse("lacks the storage order of its dimensions")
    blocks = [1] * rank
    for level, dim in zip(levels, order, strict=True):
        if dim >= rank:
            blocks[block_map[dim - rank]] = level["dense_size"]
    if any(b < 1 or d % b for d, b in zip(shape, blocks, strict=True)):
        refuse(f"of shape {tuple(shape)} has blocks of {blocks}, which do not divide it")
    sizes = [d // b for d, b in zip(shape, blocks, strict=True)] + [blocks[b] for b in block_map]
    most = math.prod(shape)
    places: list[Array] = []
    parents = np.zeros(1, np.int64)
    for level, dim in zip(levels, order, strict=True):
        if level["format"] == _SPARSE:
            which, indices = _sparse(level, len(parents), refuse)
        else:
            if len(parents) * sizes[dim] > most:
                refuse("has more elements than its shape")
            which = np.repeat(np.arange(len(parents)), sizes[dim])
            indices = np.tile(np.arange(sizes[dim]), len(parents))
        if len(indices) and not 0 <= indices.min() <= indices.max() < sizes[dim]:
            refuse(f"has an index outside of dimension {dim}")
        places = [p[which] for p in places] + [indices]
        parents = which
    where = dict(zip(order, places, strict=True))
    full = [where[d] * blocks[d] for d in range(rank)]
    for k, b in enumerate(block_map):
        full[b] = full[b] + where[rank + k]
    stored = values(len(parents))
    dense = np.zeros(tuple(shape), stored.dtype)
    dense[tuple(full)] = stored
    return dense


def _sparse(level: dict[str, Any], parents: int, refuse: Callable[[str], NoReturn]) -> tuple[Array, Array]:
    segments, indices = (_numbers(level[key]) for key in ("array_segments", "array_indices"))
    if (len(segments) != parents + 1 or segments[0] != 0 or np.any(np.diff(segments) < 0)
            or segments[-1] != len(indices)):
        refuse("has segments that do not fit its indices")
    return np.repeat(np.arange(parents), np.diff(segments)), indices


def _numbers(table: dict[str, Any] | None) -> Array:
    return np.asarray(table["values"] if table is not None else (), np.int64)
