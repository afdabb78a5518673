"""Dot products of Arm processors: four lanes of four int8."""

from __future__ import annotations

from typing import Final

from tilewright.tir.tensor_intrin.dot_product_common import DP4A_INTRIN, dot_product_desc, register_loops

neon_4x4_i8i8i32_desc: Final = dot_product_desc(4, 4, "int8", "int8")

ARM_DOT_4x4_i8_NEON_INTRIN: Final = register_loops("dot_4x4_i8i8s32_neon", neon_4x4_i8i8i32_desc)
ARM_DOT_4x4_i8_SDOT_INTRIN: Final = register_loops("dot_4x4_i8i8s32_sdot", neon_4x4_i8i8i32_desc)

__all__ = ["DP4A_INTRIN", "ARM_DOT_4x4_i8_NEON_INTRIN", "ARM_DOT_4x4_i8_SDOT_INTRIN", "neon_4x4_i8i8i32_desc"]
