"""TVM's `tvmc.result_utils`: the largest elements of an output."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.driver.tvmc.result import TVMCResult


def get_top_results(result: TVMCResult, max_results: int) -> np.ndarray[Any, Any]:
    """Return the indices and the values of the largest elements of the first output, as the two rows of an array of
    shape (2, n), n at most `max_results`. Raises `OptionError` for a result without outputs."""
    if not result.outputs:
        raise OptionError("the result has no output to take the largest elements of", code="TW0204")
    values = next(iter(result.outputs.values())).reshape(-1)
    chosen = np.argsort(-values.astype("float64"), kind="stable")[:max_results]
    return np.array([chosen, values[chosen]])
