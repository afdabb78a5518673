"""How much a program may ask for. What is above a limit is refused by name, before memory is asked for.

The limits of one value and of one import hold on every machine, so that a program means the same everywhere; only
whether a compiled program fits is asked of the machine that it would run on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

MOST_BYTES: Final = 1 << 39
"""Of one value."""
MOST_WRITTEN_OUT: Final = 10_000
"""Nodes that an import may make of a small file, where functions, branches and loops are written out in place of their
calls."""
MOST_FOR_A_NODE: Final = 20
"""The nodes that it may make beside those for each node of the file."""
MOST_TURNS: Final = 64
"""Turns of a loop that are written out, where the types of its values change from turn to turn."""
DEEPEST: Final = 64
"""Graphs and functions in one another."""
MOST_TAPS: Final = 1 << 24
"""Elements of one window of a convolution or a pooling."""
MOST_TABLE: Final = 1 << 25
"""Elements of a table that an import makes: of places, weights, angles."""
MOST_KNOWN_FLOATS: Final = 4096
"""Elements of what is computed while importing; larger values are the compiler's to fold."""
MOST_KNOWN_INTEGERS: Final = 1 << 24
"""The same for the integers of shapes, axes and indices."""

_CONTROL_GROUPS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def usable_cores() -> int:
    """Return the number of logical processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def refused_size(shape: Sequence[Any], itemsize: int) -> str:
    """Why there can be no tensor of this shape; empty where there can. A size of 0 makes no other one sensible."""
    total = itemsize
    for d in shape:
        if isinstance(d, int):
            if d < 0:
                return f"a value of the shape {tuple(shape)} is asked for, which has a negative size"
            total *= d or 1
    return (
        f"a value of the shape {tuple(shape)} is asked for, which is larger than any memory" if total > MOST_BYTES
        else ""
    )


def machine_bytes() -> int:
    """The memory that this process may use: the machine's, or less where the system limits it."""
    found = [MOST_BYTES]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    found += [int(text) for file in _CONTROL_GROUPS if file.exists() and (text := file.read_text().strip()).isdecimal()]
    if sys.platform != "win32":
        import resource

        limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
        found += [limit for limit in limits if limit != resource.RLIM_INFINITY]
    return min(found)


def shown_bytes(count: int) -> str:
    """A number of bytes for people."""
    for power, unit in ((30, "GB"), (20, "MB"), (10, "kB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.3g} {unit}"
    return f"{count} bytes"
