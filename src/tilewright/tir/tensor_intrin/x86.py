"""Dot products of x86 processors: 16 lanes of four bytes, unsigned by signed.

Both names have one implementation: processors with VNNI have an instruction for it, others add products of bytes.
"""

from __future__ import annotations

from typing import Final

from tilewright.tir.tensor_intrin.dot_product_common import dot_product_desc, dot_product_of_words
from tilewright.tir.tensorize import TensorIntrin

dot_product_16x4_u8i8i32_desc: Final = dot_product_desc(16, 4, "uint8", "int8")
dot_product_16x4_u8i8i32_vnni: Final = dot_product_of_words(16)
dot_product_16x4_u8i8i32_avx512: Final = dot_product_of_words(16)

VNNI_DOT_16x4_INTRIN: Final = TensorIntrin.register(
    "dot_16x4_vnni", dot_product_16x4_u8i8i32_desc, dot_product_16x4_u8i8i32_vnni).name
AVX512_DOT_16x4_INTRIN: Final = TensorIntrin.register(
    "dot_16x4_avx512", dot_product_16x4_u8i8i32_desc, dot_product_16x4_u8i8i32_avx512).name

__all__ = [
    "AVX512_DOT_16x4_INTRIN", "VNNI_DOT_16x4_INTRIN", "dot_product_16x4_u8i8i32_avx512",
    "dot_product_16x4_u8i8i32_desc", "dot_product_16x4_u8i8i32_vnni",
]
