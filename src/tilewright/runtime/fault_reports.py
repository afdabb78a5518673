"""Reports of checked code: after a call, its record becomes a `MemoryFault` and is cleared."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import MemoryFault
from tilewright.base.forks import new_lock
from tilewright.base.memory_faults import ARITIES, HEADER, RECORD
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.program import Code, KernelCall, Step

_WORDS: Final = HEADER + ARITIES[-1]
_LOCK: Final = new_lock()
_LAST: Final[weakref.WeakKeyDictionary[Code, list[int]]] = weakref.WeakKeyDictionary()


def reported(code: Code, manifest: Manifest) -> MemoryFault | None:
    """Return the first report of checked code since the last call; None if all accesses were valid."""
    with _LOCK:
        record = (ctypes.c_int64 * _WORDS).from_address(code.address(RECORD))
        if not record[0]:
            return None
        words = _LAST[code] = list(record)
        record[0] = 0
    return _fault(manifest, words)


def last_reported(code: Code, manifest: Manifest) -> MemoryFault:
    """Return the report that the code announced; if another thread has taken it meanwhile, the last one taken."""
    return reported(code, manifest) or _fault(manifest, _LAST[code])


def _fault(manifest: Manifest, words: Sequence[int]) -> MemoryFault:
    _, number, step, *values = words
    site = manifest.sites[number]
    return site.fault(values, _node(manifest.steps, step, site.kernel))


def _node(steps: Sequence[Step], number: int, kernel: str) -> str:
    """Return the model's node of a step if several steps share its kernel, so that the site does not identify the node.
    """
    shared = sum(isinstance(s, KernelCall) and s.symbol == kernel for s in steps) > 1
    step = steps[number] if shared and 0 <= number < len(steps) else None
    return step.origin if isinstance(step, KernelCall) else ""
