"""Dot products of Hexagon's vectors, 32 lanes, for programs that name them; they run on the CPU."""

from __future__ import annotations

from typing import Final

from tilewright.tir.tensor_intrin.dot_product_common import dot_product_desc, register_loops

dot_product_32x4_u8u8i32_desc: Final = dot_product_desc(32, 4, "uint8", "uint8")
dot_product_32x4_u8i8i32_desc: Final = dot_product_desc(32, 4, "uint8", "int8")
dot_product_32x2_i16i16i32_desc: Final = dot_product_desc(32, 2, "int16", "int16")

VRMPY_u8u8i32_INTRIN: Final = register_loops("dot_32x4_u8u8i32_vrmpy", dot_product_32x4_u8u8i32_desc)
VRMPY_u8i8i32_INTRIN: Final = register_loops("dot_32x4_u8i8i32_vrmpy", dot_product_32x4_u8i8i32_desc)
VDMPY_i16i16i32_INTRIN: Final = register_loops("dot_product_32x2_i16i16i32_vdmpy", dot_product_32x2_i16i16i32_desc)

__all__ = [
    "VDMPY_i16i16i32_INTRIN", "VRMPY_u8i8i32_INTRIN", "VRMPY_u8u8i32_INTRIN", "dot_product_32x2_i16i16i32_desc",
    "dot_product_32x4_u8i8i32_desc", "dot_product_32x4_u8u8i32_desc",
]
