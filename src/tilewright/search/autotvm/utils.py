"""TVM's `tvm.autotvm.utils`: prefixes of units, constants, samples without repetition, and ranks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.search.auto_scheduler.utils import get_const_int, get_const_tuple, get_func_name

__all__ = [
    "SI_PREFIXES", "format_si_prefix", "get_const_int", "get_const_tuple", "get_func_name", "get_rank", "pool_map",
    "sample_ints",
]

SI_PREFIXES: Final = "yzafpn\xb5m kMGTPEZY"
"""Prefixes of units from 10^-24 to 10^24, three powers of ten apart."""
_FIRST: Final = -24


def format_si_prefix(x: float, si_prefix: str) -> float:
    """Return a number in units with a prefix: `format_si_prefix(1024, "k")` is 1.024. Raises `OptionError`."""
    if len(si_prefix) != 1 or si_prefix not in SI_PREFIXES:
        raise OptionError(
            f"there is no prefix '{si_prefix}' of units; the prefixes are {', '.join(SI_PREFIXES)}", code="TW1103")
    power = _FIRST + 3 * SI_PREFIXES.index(si_prefix)
    return float(x / 10**power if power > 0 else x * 10**-power)


def sample_ints(low: int, high: int, m: int) -> list[int]:
    """Draw `m` different integers from `low` on and below `high`."""
    return random.sample(range(low, high), m)


def get_rank(values: Sequence[float]) -> np.ndarray[Any, Any]:
    """Return the rank of each value, 1 for the largest."""
    order = np.argsort(-np.asarray(values), kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def pool_map(
    func: Callable[[Any], Any], args: Sequence[Any], batch_size: int, verbose: bool = False, pool: Any = None
) -> np.ndarray[Any, Any] | None:
    """Return the results of a function for each argument, one row for each; None without arguments.

    With a `pool` of processes, `batch_size` of them are computed at once.
    """
    apply = map if pool is None else pool.map
    rows = [r for k in range(0, len(args), batch_size) for r in apply(func, args[k : k + batch_size])]
    return np.stack(rows) if rows else None
