"""Dot products of x86: an instruction of 16 int32 lanes, each the sum of 4 products of unsigned and signed bytes.

On processors without VNNI the same sums are computed by several instructions; none saturates.
"""

from __future__ import annotations

from typing import Final

from tilewright.tir.tensor_intrin.dot_product_common import register, rows_of

VNNI_DOT_16x4_INTRIN: Final = "dot_16x4_vnni"
AVX512_DOT_16x4_INTRIN: Final = "dot_16x4_avx512"
_SUM: Final = f"""C[T.ramp(0, 1, 16)] = T.dot4(
            T.broadcast(T.reinterpret(A[T.ramp(0, 1, 4)], dtype="uint32"), 16),
            T.reinterpret({rows_of(4, 64)}, dtype="int32x16"), C[T.ramp(0, 1, 16)], dtype="int32x16")"""

dot_product_16x4_u8i8i32_desc: Final = register(VNNI_DOT_16x4_INTRIN, 16, 4, ("uint8", "int8"), _SUM)
register(AVX512_DOT_16x4_INTRIN, 16, 4, ("uint8", "int8"), _SUM)
