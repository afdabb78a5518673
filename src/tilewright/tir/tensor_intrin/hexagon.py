"""Dot products of Hexagon's vector unit: 32 int32 lanes, each the sum of 4 products of bytes, or of 2 of int16."""

from __future__ import annotations

from typing import Final

from tilewright.tir.tensor_intrin.dot_product_common import register, rows_of

VRMPY_u8u8i32_INTRIN: Final = "dot_32x4_u8u8i32_vrmpy"
VRMPY_u8i8i32_INTRIN: Final = "dot_32x4_u8i8i32_vrmpy"
VDMPY_i16i16i32_INTRIN: Final = "dot_product_32x2_i16i16i32_vdmpy"


def _sum(instruction: str, depth: int) -> str:
    """Return the statement that calls an instruction, which takes 32 words of B and one of A in all lanes."""
    return (
        f'C[T.ramp(0, 1, 32)] = T.call_llvm_pure_intrin("int32x32", "llvm.hexagon.V6.{instruction}.acc.128B", '
        f'T.uint32(3), C[T.ramp(0, 1, 32)], T.reinterpret({rows_of(depth, 32 * depth)}, dtype="int32x32"), '
        f'T.broadcast(T.reinterpret(A[T.ramp(0, 1, {depth})], dtype="int32"), 32))')


register(VRMPY_u8u8i32_INTRIN, 32, 4, ("uint8", "uint8"), _sum("vrmpyubv", 4))
register(VRMPY_u8i8i32_INTRIN, 32, 4, ("uint8", "int8"), _sum("vrmpybusv", 4))
register(VDMPY_i16i16i32_INTRIN, 32, 2, ("int16", "int16"), _sum("vdmpyhvsat", 2))
