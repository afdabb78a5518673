"""Dot products of AMD's GPUs: `v_dot4`, four signed bytes of A times four of B, added to one element of C."""

from __future__ import annotations

from typing import Final

from tilewright.tir.tensor_intrin.dot_product_common import register

AMDGPU_SDOT4_INTRIN: Final = "sdot4"

register(
    AMDGPU_SDOT4_INTRIN, 1, 4, ("int8", "int8"),
    'C[0] = T.call_llvm_pure_intrin("int32", "llvm.amdgcn.sdot4", T.uint32(4), '
    'T.reinterpret(A[T.ramp(0, 1, 4)], dtype="int32"), T.reinterpret(B[T.ramp(0, 1, 4)], dtype="int32"), C[0], '
    "T.bool(True))",
    scopes=("shared", "local"))
