"""TVM's `tvm.topi.arm_cpu.conv2d_int8`: whether a target has instructions for products of 8-bit integers."""

from __future__ import annotations

from tilewright.backends.targets.target import Target
from tilewright.compat.target import codegen

__all__ = ["is_int8_hw_support"]

_LEAST_LLVM = 8
"""The first version of LLVM with these instructions."""


def is_int8_hw_support(data_dtype: str, kernel_dtype: str) -> bool:
    """Whether the current target, an Arm processor whose code LLVM generates, multiplies tensors of these dtypes by
    vector instructions for 8-bit integers: both int8 or both uint8, with NEON or its dot products.

    Raises `TargetError` without a current target.
    """
    target = Target.current(allow_none=False)
    assert target is not None
    return (
        data_dtype == kernel_dtype and data_dtype in ("int8", "uint8") and target.kind.name == "llvm"
        and (codegen.llvm_version_major() or 0) >= _LEAST_LLVM
        and (target.features.has_asimd or target.features.has_dotprod))
