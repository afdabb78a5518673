"""What is thought of the configurations of a kernel before anything of it was measured: the shipped model, on what is decided.

    prior = KernelPrior(task)
    scores = prior(indices)          # [n], the higher the better; 10,000 and more a second

A row tells of the kernel (operators, sizes), of each decision (its value, and how far that is from the analytical choice), and of what tiles of that
size mean here: registers, waste at the edges, how many there are. No program is made for it. `benchmarks/cost_model.py` measures, trains and judges.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.types import TensorType
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.autotvm.task.space import Axis
from tilewright.search.forests import shipped

Array = np.ndarray[Any, Any]

DECISIONS: Final = (
    "algorithm", "winograd_rows", "winograd_tile_y", "winograd_tile_x", "tile_y", "tile_x", "tile_ow", "tile_oc", "tile_k", "unroll_kw", "blocks",
    "chunks", "prefetch", "channels_inside", "unroll_taps", "band", "vectors_of_sums", "vectors",
)
"""The decisions that the model knows by name; others do not move its scores."""
_WORDS: Final = {"direct": 0.0, "winograd_2x2": 1.0, "winograd_4x4": 2.0}
_ABSENT: Final = -4.0
_TILES: Final = (("tile_y", "tile_x"), ("tile_ow", "tile_oc"), ("winograd_tile_y", "winograd_tile_x"))
_OPERATORS: Final = ("conv2d", "dense", "matmul", "pool", "softmax", "norm")
_DIMENSIONS: Final = 4
WIDTH: Final = len(_OPERATORS) + 3 * _DIMENSIONS + 5 + 2 * len(DECISIONS) + 1 + 6
"""The length of a row."""


class KernelPrior:
    """Rows and scores of the configurations of one task."""

    def __init__(self, task: KernelTask) -> None:
        self._space = task.config_space
        self._about, self._rows_of_tile, self._columns = _about(task)
        self._lanes, self._registers = task.target.machine.lanes("float32"), task.target.machine.vector_registers
        default = np.full(len(DECISIONS), _ABSENT)
        for name, value in task.default_config.decisions.items():
            if name in DECISIONS:
                default[DECISIONS.index(name)] = _number(value)
        self._default = default
        self._sizes = np.cumsum([0, *(math.prod(len(a.answers) for a in b) for b in self._space.branches)])
        self._tables = [[_table(axis) for axis in branch] for branch in self._space.branches]

    def __call__(self, indices: Sequence[int] | Array) -> Array:
        """Scores [n] of the configurations of these indices: about what part of the best speed each has."""
        return shipped("kernels").predict(self.rows(indices))

    def rows(self, indices: Sequence[int] | Array) -> Array:
        """What the model sees of them, float32 [n, WIDTH]."""
        values = self._values(np.asarray(indices, np.int64))
        there = values > _ABSENT
        apart = np.where(there & (self._default > _ABSENT), values - self._default, np.where(there, _ABSENT, 0.0))
        differing = (there & (apart != 0)).sum(axis=1, keepdims=True)
        about = np.broadcast_to(self._about, (len(values), len(self._about)))
        return np.concatenate([about, values, apart, differing, self._tiles(values)], axis=1).astype(np.float32)

    def _values(self, given: Array) -> Array:
        found = np.full((len(given), len(DECISIONS)), _ABSENT)
        which = np.searchsorted(self._sizes, given, side="right") - 1
        for b, tables in enumerate(self._tables):
            rows = np.nonzero(which == b)[0]
            left = given[rows] - self._sizes[b]
            for table, columns, picked in tables:
                left, k = left // len(table), left % len(table)
                found[rows[:, None], columns] = table[k][:, picked]
        return found

    def _tiles(self, values: Array) -> Array:
        """Registers of a tile, what is wasted where tiles do not fit, and how many there are; of the pair of tiles that is decided."""
        height, width = np.ones(len(values)), np.full(len(values), float(self._lanes))
        for y, x in _TILES:
            there = values[:, DECISIONS.index(y)] > _ABSENT
            height = np.where(there, 2.0 ** values[:, DECISIONS.index(y)], height)
            there = values[:, DECISIONS.index(x)] > _ABSENT
            width = np.where(there, 2.0 ** values[:, DECISIONS.index(x)], width)
        vectors = np.ceil(width / self._lanes)
        used = height * vectors + vectors + 1
        down, across = np.ceil(self._rows_of_tile / height), np.ceil(self._columns / width)
        return np.stack([
            np.log2(used), used / self._registers, height * vectors / (height + vectors), down * height / self._rows_of_tile, across * width / self._columns,
            np.log2(down * across),
        ], axis=1)


def _table(axis: Axis) -> tuple[Array, Array, Array]:
    """The values of an axis's answers [answers, names], the columns that known names have, and which of the names these are."""
    picked = [k for k, n in enumerate(axis.names) if n in DECISIONS]
    values = np.asarray([[_number(_value(e)) for e in answer] for answer in axis.answers], np.float64).reshape(len(axis.answers), len(axis.names))
    return values, np.asarray([DECISIONS.index(axis.names[k]) for k in picked], np.int64), np.asarray(picked, np.int64)


def _value(entity: Any) -> Any:
    value = entity.value
    return value[-1] if isinstance(value, list) else value


def _number(value: Any) -> float:
    """A decision as a number: sizes by their logarithm, so that neighbours are alike."""
    if isinstance(value, str):
        return _WORDS.get(value, -1.0)
    return math.log2(value) if value > 0 else float(value) - 1.0


@functools.lru_cache(maxsize=256)
def _about_text(name: str, text: str, flags: str, target: str) -> tuple[tuple[float, ...], float, float]:
    from tilewright.backends.target import Target

    task = KernelTask(name, (text, flags), Target(target))
    params = [p.checked_type for p in task.function.params]
    result = task.function.body.checked_type
    shapes = [_shape(t) for t in (*params[:2], *([None] * (2 - len(params[:2]))), result)]
    out = shapes[2]
    machine = task.target.machine
    first = params[0] if params and isinstance(params[0], TensorType) else None
    lanes = machine.lanes("float32")
    about = (
        *(float(word in name) for word in _OPERATORS), *(math.log2(max(1, d)) for s in shapes for d in ([1] * _DIMENSIONS + s)[-_DIMENSIONS:]),
        math.log2(max(1.0, task.flop)), float(first.dtype.bits if first is not None else 32), math.log2(lanes), math.log2(machine.l2_bytes), float(flags.count("1")),
    )
    return about, float(max(1, _row(out))), float(max(1, out[-1] if out else 1))


def _about(task: KernelTask) -> tuple[Array, float, float]:
    """What a row says of the kernel; the extents that its tiles divide: rows (or the width of an image), and columns."""
    about, rows, columns = _about_text(task.name, task.args[0], task.args[1], str(task.target))
    return np.asarray(about), rows, columns


def _row(shape: list[int]) -> int:
    """What tiles divide in height: the width of an image, or all rows of a matrix."""
    return shape[-2] if len(shape) > 2 else math.prod(shape[:-1])


def _shape(t: Any) -> list[int]:
    return [int(d) for d in t.shape] if isinstance(t, TensorType) and all(isinstance(d, int) for d in t.shape) else []
