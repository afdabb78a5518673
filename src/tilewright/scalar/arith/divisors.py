"""Divisors of positive integers, for tiles that fill a dimension without a rest."""

from __future__ import annotations

import math


def divisors(n: int, at_most: int | None = None) -> list[int]:
    """Return the divisors of `n` in increasing order, none of them larger than `at_most`."""
    low = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    found = [*low, *(n // k for k in reversed(low) if k * k != n)]
    return found if at_most is None else [d for d in found if d <= at_most]


def near_divisor(n: int, at_most: int) -> int:
    """Return the largest divisor of `n` in `(at_most / 2, at_most]`; the smaller of `n` and `at_most` where there is none."""
    return next((r for r in range(at_most, at_most // 2, -1) if n % r == 0), min(at_most, n))
