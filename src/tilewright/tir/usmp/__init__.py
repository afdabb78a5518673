"""Static planning of memory in pools: the sizes and conflicts of buffers, and their places."""

from tilewright.tir.usmp import algorithms, analysis, transform, utils
from tilewright.tir.usmp.utils import BufferInfo, PoolAllocation

__all__ = ["BufferInfo", "PoolAllocation", "algorithms", "analysis", "transform", "utils"]
