"""Resource limits of programs. A request above a limit is refused before memory is allocated.

The limits of one tensor and of one import are the same on every machine, so that a program has the same meaning
everywhere. Only the memory of a compiled program is compared with the machine that runs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.base.types import OpenSize

MOST_BYTES: Final = 1 << 39
"""Largest size of one tensor, in bytes (512 GiB)."""
MOST_WRITTEN_OUT: Final = 10_000
"""Number of nodes that an import of a small file may create by inlining functions and branches and unrolling loops."""
MOST_FOR_A_NODE: Final = 20
"""Additional number of nodes for each node of the file."""
MOST_TURNS: Final = 64
"""Largest number of unrolled iterations of a loop whose values change type between iterations."""
DEEPEST: Final = 64
"""Largest nesting depth of graphs and functions."""
MOST_TAPS: Final = 1 << 24
"""Largest number of elements in a window of a convolution or a pooling."""
MOST_TABLE: Final = 1 << 25
"""Largest number of elements in a table that an import creates, such as indices, weights or angles."""
MOST_KNOWN_FLOATS: Final = 4096
"""Largest number of float elements that an import folds; the compiler folds larger values."""
MOST_KNOWN_INTEGERS: Final = 1 << 24
"""Largest number of integer elements (shapes, axes, indices) that an import folds."""

_CONTROL_GROUPS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def usable_cores() -> int:
    """Return the number of logical processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def refused_size(shape: Sequence[Any], itemsize: int) -> str:
    """Return the reason why a tensor of this shape is impossible, or an empty text."""
    total = itemsize
    for d in shape:
        if isinstance(d, int):
            if d < 0:
                return f"a tensor of shape {tuple(shape)} has a negative size"
            total *= 1 if isinstance(d, OpenSize) else d or 1
    return (
        f"a tensor of shape {tuple(shape)} needs more memory than the limit of "
        f"{shown_bytes(MOST_BYTES)}" if total > MOST_BYTES
        else ""
    )


def machine_bytes() -> int:
    """Return the bytes of memory available to this process: the machine's, or less under a limit of the system."""
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
    """Return a number of bytes as text, with a unit."""
    for power, unit in ((30, "GB"), (20, "MB"), (10, "kB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.3g} {unit}"
    return f"{count} bytes"
