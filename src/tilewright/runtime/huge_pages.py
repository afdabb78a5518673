"""Constants in huge pages.

A mapped file has pages of 4 KiB, and a processor remembers the addresses of some 1,500 pages. Kernels that read more
weights wait for addresses: saved networks took 1.04 to 1.36 times as long as with pages of 2 MiB. Such memory belongs
to one process; with `TILEWRIGHT_HUGE_PAGES=0`, processes share the pages of the file instead. C programs do the same
(`backends/cpu/llvm/huge_pages.py`).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.nd import aligned_empty

SETTING: Final = "TILEWRIGHT_HUGE_PAGES"
"""The environment variable that keeps constants in the pages of their file if it is `SHARED`."""
SHARED: Final = "0"
SYSTEM: Final = "/sys/kernel/mm/transparent_hugepage/enabled"
"""The file in which Linux tells whether programs can have huge pages."""
NEVER: Final = "[never]"
"""The part of its text if they cannot."""
LEAST: Final = 4 << 20
"""The least number of bytes that are copied. numpy requests huge pages for arrays of this size."""
_PIECE: Final = 32 << 20
"""Bytes that are copied at once, and are in memory twice meanwhile."""
_DONTNEED: Final = 4
"""Linux's number of `MADV_DONTNEED`."""
_PAGE: Final = 4096


def has_huge_pages(nbytes: int) -> bool:
    """Return whether constants of `nbytes` bytes belong into huge pages: at least `LEAST` bytes, where the system and
    the environment allow it."""
    if nbytes < LEAST or os.environ.get(SETTING) == SHARED:
        return False
    try:
        return NEVER not in Path(SYSTEM).read_text()
    except OSError:  # another system
        return False


def in_huge_pages(mapped: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bytes of a mapped file as a read-only copy in huge pages, and release the pages of the file; or
    `mapped` itself if it does not belong there (`has_huge_pages`)."""
    if not has_huge_pages(mapped.nbytes):
        return mapped
    copy, start = aligned_empty(mapped.shape, mapped.dtype), mapped.__array_interface__["data"][0]
    system = ctypes.CDLL(None)
    for first in range(0, mapped.nbytes, _PIECE):
        piece = slice(first, min(first + _PIECE, mapped.nbytes))
        copy[piece] = mapped[piece]
        begin, end = -(-(start + piece.start) // _PAGE) * _PAGE, (start + piece.stop) // _PAGE * _PAGE
        system.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DONTNEED)
    copy.flags.writeable = False
    return copy
