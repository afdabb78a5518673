"""Combine parallel branches into fewer, larger products with three passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.transform.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from tilewright.relay.transform.combine_parallel_conv2d import CombineParallelConv2D
from tilewright.relay.transform.combine_parallel_dense import CombineParallelDense


@dataclass(frozen=True)
class BatchingOps(Pass):
    """Run `CombineParallelConv2D`, `CombineParallelDense` and `CombineParallelBatchMatmul`, in this order."""

    opt_level: ClassVar[int] = 4

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        for p in (CombineParallelConv2D(), CombineParallelDense(), CombineParallelBatchMatmul()):
            mod = p(mod)
        return mod
