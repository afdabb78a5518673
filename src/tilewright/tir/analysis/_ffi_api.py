"""Functions of `tir.analysis` that TVM registers without a Python wrapper."""

from tilewright.tir.analysis.memory_copies import identify_memory_copies as _identify_memcpy

__all__ = ["_identify_memcpy"]
