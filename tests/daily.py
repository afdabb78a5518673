"""Samples of test sets that are too large to run each time: drawn by a seed that changes each day and is printed with
the results.

`TILEWRIGHT_TEST_SEED` repeats the samples of a day; `TILEWRIGHT_TEST_ALL=1` runs the whole sets.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

SEED = int(os.environ.setdefault("TILEWRIGHT_TEST_SEED", str(datetime.now(UTC).toordinal())))
"""Set in the environment too, so that all worker processes of a run draw the same."""
ALL = os.environ.get("TILEWRIGHT_TEST_ALL", "") not in ("", "0")

T = TypeVar("T")


def shuffled(items: Sequence[T], salt: str = "") -> list[T]:
    """Return the items in today's order."""
    return random.Random(f"{SEED} {salt}").sample(items, len(items))


def sample(items: Sequence[T], count: int, salt: str = "") -> list[T]:
    """Return today's `count` of `items`, in their order, or all of them where all are asked for. `salt` tells samples
    of one day apart."""
    if ALL or count >= len(items):
        return list(items)
    chosen = random.Random(f"{SEED} {salt}").sample(range(len(items)), count)
    return [items[i] for i in sorted(chosen)]


def of_each(items: Sequence[T], kind: Callable[[Any], object], count: int, salt: str = "") -> list[T]:
    """Return today's `count` items of each kind, in the order of the kinds, or all items where all are asked for."""
    kinds: dict[object, list[T]] = {}
    for item in items:
        kinds.setdefault(kind(item), []).append(item)
    return [item for name, several in kinds.items() for item in sample(several, count, f"{salt} {name}")]
