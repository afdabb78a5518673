"""TVM's `topi.sparse.utils`: random sparse matrices for tests."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tilewright.base.errors import ShapeError

__all__ = ["random_bsr_matrix"]


def random_bsr_matrix(m: int, n: int, bs_r: int, bs_c: int, density: float, dtype: str = "float32") -> Any:
    """Return a random matrix (m, n) as scipy's `bsr_matrix`: blocks of (bs_r, bs_c), at least one, whose share of all
    blocks is about `density`. Raises `ShapeError` if blocks do not fill the matrix. Needs scipy."""
    sparse: Any = importlib.import_module("scipy.sparse")
    if m % bs_r or n % bs_c:
        raise ShapeError(f"blocks of ({bs_r}, {bs_c}) do not fill a matrix of ({m}, {n})")
    rows, columns = m // bs_r, n // bs_c
    count = max(1, round(rows * columns * density))
    places = np.sort(np.random.choice(rows * columns, size=count, replace=False))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(places // columns, minlength=rows))])
    data = np.random.randn(count, bs_r, bs_c).astype(dtype)
    return sparse.bsr_matrix((data, places % columns, indptr), shape=(m, n))
