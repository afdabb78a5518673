"""How far a model of times can be trusted: by how it orders what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def rank_correlation(first: Sequence[float] | np.ndarray[Any, Any], second: Sequence[float] | np.ndarray[Any, Any]) -> float:
    """Spearman's: 1 where both order alike, -1 the other way round, 0 where they say nothing of each other; NaN for fewer than two figures, or where all are equal.

    Equal figures share their rank. Infinite ones come last.
    """
    a, b = _ranks(np.asarray(first, np.float64)), _ranks(np.asarray(second, np.float64))
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    ranks: np.ndarray[Any, Any] = (ends - (count - 1) / 2)[place]
    return ranks
