"""Dot products of ARM's processors: an instruction of 4 int32 lanes, each the sum of 4 products of signed bytes."""

from __future__ import annotations

from typing import Final

from tilewright.tir.tensor_intrin.dot_product_common import DP4A_INTRIN, register, rows_of

__all__ = ["DP4A_INTRIN", "ARM_DOT_4x4_i8_NEON_INTRIN", "ARM_DOT_4x4_i8_SDOT_INTRIN", "dot_product_4x4_i8i8i32_desc"]

ARM_DOT_4x4_i8_NEON_INTRIN: Final = "dot_4x4_i8i8s32_neon"
"""For processors without `sdot`."""
ARM_DOT_4x4_i8_SDOT_INTRIN: Final = "dot_4x4_i8i8s32_sdot"
"""For processors with `+dotprod`."""

dot_product_4x4_i8i8i32_desc: Final = register(
    ARM_DOT_4x4_i8_NEON_INTRIN, 4, 4, ("int8", "int8"),
    *(
        f'C[T.ramp(0, 1, 4)] = C[T.ramp(0, 1, 4)] + T.broadcast(T.cast(A[{k}], "int32"), 4) '
        f'* T.cast(B[T.ramp(0, 1, 4), {k}], "int32x4")' for k in range(4)
    ))
register(
    ARM_DOT_4x4_i8_SDOT_INTRIN, 4, 4, ("int8", "int8"),
    'C[T.ramp(0, 1, 4)] = T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.sdot.v4i32.v16i8", T.uint32(3), '
    'C[T.ramp(0, 1, 4)], T.reinterpret(T.broadcast(T.reinterpret(A[T.ramp(0, 1, 4)], dtype="int32"), 4), '
    f'dtype="int8x16"), {rows_of(4, 16)})')
