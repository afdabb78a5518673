"""Cost models: gradient boosted trees that learn from measurements which candidates are fast, and the models that ship.

    model = CostModel("rank"); model.fit(features, throughputs); scores = model.predict(others)
    shipped("kernels").predict(rows)         # decisions of kernels (autotvm/pretrained.py)
    shipped("programs").predict(rows)        # scheduled programs (search/features.py)

Written in numpy, since the sets are small: some hundred rows are learnt in tens of milliseconds, and 100,000 candidates
are scored in a second; xgboost is used if it is requested and installed. Trees are grown level by level over binned
features (as in Ke et al., "LightGBM", 2017), with the gain of Chen and Guestrin, "XGBoost", 2016.

The shipped models are in `cost_models.npz`, a numpy archive without pickles, which `benchmarks/cost_model.py train`
writes; the same measurements give the same bytes. The arrays of a model NAME are `NAME/edges`, …
(`BoostedTrees.to_arrays`).
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InternalError, OptionError
from tilewright.base.settings import nearest

Array = np.ndarray[Any, Any]
FILE: Final = Path(__file__).with_name("cost_models.npz")
"""The models that ship."""
LOSSES: Final = ("reg", "rank", "rank-binary")
KINDS: Final = ("auto", "numpy", "xgboost")
_TREES: Final = 80
_DEPTH: Final = 5
_BINS: Final = 32
_RATE: Final = 0.15
_LAMBDA: Final = 1.0
_EPSILON: Final = 1e-6
_PAIRS: Final = 40
"""Number of random rows with which each row is compared in ranking losses."""
_TOP: Final = 0.1
"""The fraction of the rows that the loss "rank-binary" calls good."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """A full binary tree: inner nodes have a feature and a bin (lower bins go left), leaves have values."""

    feature: Array
    cut: Array
    value: Array


class BoostedTrees:
    """Regression by trees on any loss that has first and second derivatives."""

    def __init__(self, loss: str = "reg", trees: int = _TREES, depth: int = _DEPTH, seed: int = 0) -> None:
        self.loss, self.trees, self.depth = loss, trees, depth
        self._rng = np.random.default_rng(seed)
        self._edges: list[Array] = []
        self._made: list[_Tree] = []
        self._base = 0.0

    def fit(self, x: Array, y: Array) -> None:
        """Learn from rows `x` [n, features] and the values to predict, `y` [n]: the higher the better."""
        x, y = np.asarray(x, np.float32), np.asarray(y, np.float64)
        self._edges = [_edges(x[:, k]) for k in range(x.shape[1])]
        binned = self._binned(x)
        self._base = float(y.mean()) if self.loss == "reg" else 0.0
        relevant = _good(y) if self.loss == "rank-binary" else y
        scores = np.full(len(y), self._base)
        self._made = []
        for _ in range(self.trees):
            gradient, curvature = (
                scores - y, np.ones(len(y))
            ) if self.loss == "reg" else self._pairwise(scores, relevant)
            tree, leaves = self._grown(binned, gradient, curvature)
            self._made.append(tree)
            scores += tree.value[leaves]

    def predict(self, x: Array) -> Array:
        """Return a score for each row: the higher the better. Scores of ranking losses have no unit."""
        binned = self._binned(np.asarray(x, np.float32))
        scores = np.full(len(binned), self._base)
        rows = np.arange(len(binned))
        for tree in self._made:
            node = np.zeros(len(binned), np.int64)
            for _ in range(self.depth):
                node = 2 * node + 1 + (binned[rows, tree.feature[node]] > tree.cut[node])
            scores += tree.value[node - (2**self.depth - 1)]
        return scores

    def to_arrays(self) -> dict[str, Array]:
        """Return the learnt model as arrays.

        `lengths` [features], uint8, and `edges`, float32, are the boundaries between the bins of all features.
        `feature` and `cut` [trees, 2^depth - 1], uint8, are the inner nodes of each tree, breadth first; `value`
        [trees, 2^depth], float32, its leaves; `base` is the value that the trees add to.
        """
        return {
            "lengths": np.asarray([len(e) for e in self._edges], np.uint8),
            "edges": np.concatenate([np.zeros(0), *self._edges]).astype(np.float32),
            "feature": np.stack([t.feature for t in self._made]).astype(np.uint8),
            "cut": np.stack([t.cut for t in self._made]).astype(np.uint8),
            "value": np.stack([t.value for t in self._made]).astype(np.float32),
            "base": np.asarray(self._base, np.float32),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> BoostedTrees:
        """Return the model of such arrays; it predicts, and can learn anew."""
        trees, leaves = arrays["value"].shape
        made = cls("reg", trees, int(leaves).bit_length() - 1)
        made._edges = np.split(arrays["edges"], np.cumsum(arrays["lengths"].astype(np.int64))[:-1])
        parts = zip(arrays["feature"], arrays["cut"], arrays["value"], strict=True)
        made._made = [_Tree(f.astype(np.int64), c.astype(np.int64), v.astype(np.float64)) for f, c, v in parts]
        made._base = float(arrays["base"])
        return made

    def _binned(self, x: Array) -> Array:
        if not self._edges:
            return np.zeros((len(x), 0), np.int64)
        return np.stack([np.searchsorted(edges, x[:, k]) for k, edges in enumerate(self._edges)], axis=1)

    def _pairwise(self, scores: Array, relevant: Array) -> tuple[Array, Array]:
        """Return derivatives of the logistic loss over pairs of different rows, weighted by their difference."""
        n = len(scores)
        a = np.repeat(np.arange(n), min(_PAIRS, n))
        b = self._rng.integers(n, size=len(a))
        differ = relevant[a] > relevant[b]
        swapped = relevant[a] < relevant[b]
        better, worse = np.where(swapped, b, a)[differ | swapped], np.where(swapped, a, b)[differ | swapped]
        weight = relevant[better] - relevant[worse]
        p = 1 / (1 + np.exp(np.clip(scores[better] - scores[worse], -30, 30)))
        gradient = np.bincount(worse, weight * p, n) - np.bincount(better, weight * p, n)
        bend = weight * p * (1 - p)
        return gradient, np.bincount(worse, bend, n) + np.bincount(better, bend, n) + _EPSILON

    def _grown(self, binned: Array, gradient: Array, curvature: Array) -> tuple[_Tree, Array]:
        """Return a tree that lowers the loss, and the leaf of each row."""
        n, width = binned.shape
        inner = 2**self.depth - 1
        feature, cut = np.zeros(inner, np.int64), np.full(inner, _BINS, np.int64)
        node = np.zeros(n, np.int64)
        columns = np.arange(width) * _BINS
        for level in range(self.depth if width else 0):
            first, count = 2**level - 1, 2**level
            place = (((node - first) * width * _BINS)[:, None] + columns + binned).ravel()
            shape = (count, width, _BINS)
            sums = (np.bincount(place, np.repeat(w, width), count * width * _BINS) for w in (gradient, curvature))
            g, h = (s.reshape(shape).cumsum(axis=2) for s in sums)
            all_g, all_h = g[:, :1, -1:], h[:, :1, -1:]
            gain = g**2 / (h + _LAMBDA) + (all_g - g) ** 2 / (all_h - h + _LAMBDA) - all_g**2 / (all_h + _LAMBDA)
            best = gain.reshape(count, -1).argmax(axis=1)
            found = gain.reshape(count, -1)[np.arange(count), best] > _EPSILON
            feature[first : first + count] = np.where(found, best // _BINS, 0)
            cut[first : first + count] = np.where(found, best % _BINS, _BINS)
            node = 2 * node + 1 + (binned[np.arange(n), feature[node]] > cut[node])
        leaves = node - inner if width else np.zeros(n, np.int64)
        g, h = (np.bincount(leaves, w, 2**self.depth) for w in (gradient, curvature))
        return _Tree(feature, cut, -_RATE * g / (h + _LAMBDA)), leaves


def _edges(column: Array) -> Array:
    """Return the boundaries between the bins of a feature."""
    values = np.unique(column)
    if len(values) > _BINS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, _BINS)))
    between: Array = (values[1:] + values[:-1]) / 2
    return between


def _good(y: Array) -> Array:
    return np.asarray(y >= np.quantile(y, 1 - _TOP), np.float64)


class _XGBoost:
    """The same model by the package xgboost."""

    def __init__(self, loss: str, seed: int) -> None:
        self._params = {
            "max_depth": _DEPTH, "eta": _RATE, "gamma": _EPSILON, "min_child_weight": 0, "seed": seed, "verbosity": 0,
            "nthread": 1,
            "objective": "reg:squarederror" if loss == "reg" else "rank:pairwise",
        }
        self._loss = loss
        self._booster: Any = None

    def fit(self, x: Array, y: Array) -> None:
        import xgboost

        if self._loss == "rank-binary":
            y = _good(y)
        elif self._loss == "rank":
            y = np.floor(31 * y / max(float(y.max()), _EPSILON))  # its ranks are integers up to 31
        rows = xgboost.DMatrix(x, y)
        if self._loss != "reg":
            rows.set_group([len(y)])
        self._booster = xgboost.train(self._params, rows, _TREES)

    def predict(self, x: Array) -> Array:
        import xgboost

        assert self._booster is not None
        return np.asarray(self._booster.predict(xgboost.DMatrix(np.asarray(x, np.float32))), np.float64)


class CostModel:
    """Learns from throughputs and scores candidates. Until it has learnt, all scores are equal."""

    def __init__(self, loss: str = "reg", kind: str = "numpy", seed: int = 0) -> None:
        """`kind` is "numpy", "xgboost", or "auto": xgboost if it is installed. Raises `OptionError` for an unknown
        loss or kind."""
        for what, given, known in (("loss", loss, LOSSES), ("cost model", kind, KINDS)):
            if given not in known:
                hint = nearest(
                    given, known
                ) or f"; the {'losses' if what == 'loss' else 'kinds'} are {', '.join(known)}"
                raise OptionError(f"there is no {what} '{given}'{hint}", code="TW1103")
        installed = importlib.util.find_spec("xgboost") is not None
        if kind == "xgboost" and not installed:
            raise OptionError(
                "xgboost is not installed; `pip install tilewright[tune]`, or take the cost model 'numpy'",
                code="TW1103")
        self.kind = "xgboost" if kind != "numpy" and installed else "numpy"
        self._model: Any = _XGBoost(loss, seed) if self.kind == "xgboost" else BoostedTrees(loss, seed=seed)
        self.rows = 0

    def fit(self, features: Array, throughputs: Sequence[float] | Array) -> None:
        """Learn anew from all rows: the best of `throughputs` counts as 1, a failed candidate is 0."""
        y = np.asarray(throughputs, np.float64)
        best = float(y.max(initial=0.0))
        self.rows = len(y) if best > 0 else 0
        if self.rows:
            self._model.fit(np.asarray(features, np.float32), y / best)

    def predict(self, features: Array) -> Array:
        """Return a score for each row, the higher the better."""
        scores: Array = self._model.predict(features) if self.rows else np.zeros(len(features))
        return scores


@functools.cache
def shipped(name: str) -> BoostedTrees:
    """Return the shipped model of a name, read once. Raises `InternalError` if the installed package lacks it."""
    if not FILE.is_file():
        raise InternalError(
            f"the package lacks {FILE.name}; install it again, or train it with benchmarks/cost_model.py")
    return read(FILE, name)


def read(path: Path, name: str) -> BoostedTrees:
    """Read the model of a name from a file. Raises `InternalError` if the file lacks it."""
    with np.load(path, allow_pickle=False) as found:
        arrays = {key.removeprefix(f"{name}/"): found[key] for key in found.files if key.startswith(f"{name}/")}
    if not arrays:
        raise InternalError(f"{path.name} has no model '{name}'; train it with benchmarks/cost_model.py")
    return BoostedTrees.from_arrays(arrays)


def write(path: Path, models: Mapping[str, BoostedTrees]) -> None:
    """Write a file of these models, whose bytes depend on them alone."""
    arrays: dict[str, Any] = {
        f"{name}/{key}": array for name, model in models.items() for key, array in model.to_arrays().items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)
