"""Divisors of positive integers, for tiles that divide a dimension evenly."""

from __future__ import annotations

import math

from tilewright.base.types import OpenSize


def divisors(n: int, at_most: int | None = None) -> list[int]:
    """Return the divisors of `n` in increasing order, up to `at_most`; of a dynamic size, 1 alone."""
    if isinstance(n, OpenSize):
        return [1]
    low = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    found = [*low, *(n // k for k in reversed(low) if k * k != n)]
    return found if at_most is None else [d for d in found if d <= at_most]
