"""The pretrained model of kernels: scores configurations before anything of a kernel was measured.

    model = PretrainedKernelModel(task)
    scores = model(indices)          # [n], the higher the better; 10,000 and more a second

A row describes the kernel (operators, sizes), each decision (its value, and its distance to the analytical choice), and
the consequences of the tile: registers, waste at the edges, the number of tiles. No program is made for it.
`benchmarks/cost_model.py` measures, trains and evaluates.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base.types import TensorType
from tilewright.search.autotvm.feature import AnswerTable
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.cost_model import shipped

Array = np.ndarray[Any, Any]

DECISIONS: Final = (
    "algorithm", "winograd_rows", "winograd_tile_y", "winograd_tile_x", "tile_y", "tile_x", "tile_ow", "tile_oc",
    "tile_k",
    "unroll_kw", "blocks", "chunks", "prefetch", "channels_inside", "unroll_taps", "band", "vectors_of_sums", "vectors",
)
"""The decisions that the model knows by name; others do not change its scores."""
_WORDS: Final = {"direct": 0.0, "winograd_2x2": 1.0, "winograd_4x4": 2.0}
_ABSENT: Final = -4.0
_TILES: Final = (("tile_y", "tile_x"), ("tile_ow", "tile_oc"), ("winograd_tile_y", "winograd_tile_x"))
_OPERATORS: Final = ("conv2d", "dense", "matmul", "pool", "softmax", "norm")
_DIMENSIONS: Final = 4
WIDTH: Final = len(_OPERATORS) + 3 * _DIMENSIONS + 5 + 2 * len(DECISIONS) + 1 + 6
"""Length of a row."""


class PretrainedKernelModel:
    """Rows and scores of the configurations of one task."""

    def __init__(self, task: KernelTask) -> None:
        self._about, self._rows_of_tile, self._columns = _about(task.name, *task.args, str(task.target))
        self._lanes, self._registers = task.target.machine.lanes("float32"), task.target.machine.vector_registers
        self._default = np.full(len(DECISIONS), _ABSENT)
        for name, value in task.default_config.decisions.items():
            if name in DECISIONS:
                self._default[DECISIONS.index(name)] = _number(value)
        self._values = AnswerTable(
            task.config_space, lambda name, e: [(name, _number(e.value))] if name in DECISIONS else [], _ABSENT,
            DECISIONS)

    def __call__(self, indices: Sequence[int] | Array) -> Array:
        """Return scores [n] of the configurations of these indices: roughly the fraction of the best speed."""
        return shipped("kernels").predict(self.rows(indices))

    def rows(self, indices: Sequence[int] | Array) -> Array:
        """Return the features of these configurations, float32 [n, WIDTH]."""
        values = self._values(indices)
        there = values > _ABSENT
        apart = np.where(there & (self._default > _ABSENT), values - self._default, np.where(there, _ABSENT, 0.0))
        differing = (there & (apart != 0)).sum(axis=1, keepdims=True)
        about = np.broadcast_to(self._about, (len(values), len(self._about)))
        return np.concatenate([about, values, apart, differing, self._tiles(values)], axis=1).astype(np.float32)

    def _tiles(self, values: Array) -> Array:
        """Return registers, waste at the edges, and the number of tiles, of the pair of tiles that is decided."""
        height, width = np.ones(len(values)), np.full(len(values), float(self._lanes))
        for y, x in _TILES:
            rows, columns = (values[:, DECISIONS.index(name)] for name in (y, x))
            height = np.where(rows > _ABSENT, 2.0**rows, height)
            width = np.where(columns > _ABSENT, 2.0**columns, width)
        vectors = np.ceil(width / self._lanes)
        used = height * vectors + vectors + 1
        down, across = np.ceil(self._rows_of_tile / height), np.ceil(self._columns / width)
        return np.stack([
            np.log2(used), used / self._registers, height * vectors / (height + vectors),
            down * height / self._rows_of_tile, across * width / self._columns, np.log2(down * across),
        ], axis=1)


def _number(value: Any) -> float:
    """Return a decision as a number: the logarithm of a size, so that neighbours are alike."""
    if isinstance(value, str):
        return _WORDS.get(value, -1.0)
    size = value[-1] if isinstance(value, list) else value
    return math.log2(size) if size > 0 else float(size) - 1.0


@functools.lru_cache(maxsize=256)
def _about(name: str, text: str, flags: str, target: str) -> tuple[Array, float, float]:
    """Describe a kernel; return also the extents that its tiles divide: rows (or image width) and columns."""
    task = KernelTask(name, (text, flags), Target(target))
    params = [p.checked_type for p in task.function.params]
    given = (*params[:2], *[None] * (2 - len(params)), task.function.body.checked_type)
    shapes = [_shape(t) for t in given]
    out, machine = shapes[2], task.target.machine
    bits = params[0].dtype.bits if params and isinstance(params[0], TensorType) else 32
    dimensions = [d for s in shapes for d in ([1] * _DIMENSIONS + s)[-_DIMENSIONS:]]
    about = (
        *(float(word in name) for word in _OPERATORS), *(math.log2(max(1, d)) for d in dimensions),
        math.log2(max(1.0, task.flop)), float(bits), math.log2(machine.lanes("float32")), math.log2(machine.l2_bytes),
        float(flags.count("1")),
    )
    rows = out[-2] if len(out) > 2 else math.prod(out[:-1])  # the width of an image, or all rows of a matrix
    return np.asarray(about), float(max(1, rows)), float(max(1, out[-1] if out else 1))


def _shape(t: Any) -> list[int]:
    if not isinstance(t, TensorType) or not all(isinstance(d, int) for d in t.shape):
        return []
    return [int(d) for d in t.shape]
