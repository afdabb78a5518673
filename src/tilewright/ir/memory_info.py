"""Descriptions of special memory, which a program registers as `tvm.info.mem.<scope>`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MemoryInfo:
    """A special memory: the bits of its smallest unit, of all of it, and of the widest access, and the address at which
    the CPU sees it, a scalar expression; None for memory that only the device accesses."""

    unit_bits: int
    max_num_bits: int
    max_simd_bits: int
    head_address: Any = None
